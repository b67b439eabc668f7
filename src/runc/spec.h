/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes a container elastic: edits the config.json of its bundle, and the process.json of a program
 * that starts in it later (OCI runtime specification). Pure; called by tide-runc, its unit test and
 * the fuzzer.
 */
#pragma once

#include "base/jsontext.h"
#include "base/startup.h"

/*
 * Adds the mounts of @agent_dir and @control_dir (directories of the host), the environment, and
 * the variables that size the container's runtimes on a machine of @cores: *ret tells how. Leaves a
 * container alone that has either mount from `docker tide run` or an earlier edit. Returns 1
 * (changed), 0 (nothing to do), or -errno with *err and the text unchanged: -EBADMSG no JSON;
 * -EINVAL, -ENOENT members are not as specified; -EEXIST one of them occurs twice; -ENOMEM.
 */
int spec_edit_config(struct jsontext *config, const char *agent_dir, const char *control_dir,
                     unsigned cores, struct startup *ret, struct error *err);

/* Adds only the environment, sized as the container was. Same returns. */
int spec_edit_process(struct jsontext *process, const struct startup *size, struct error *err);

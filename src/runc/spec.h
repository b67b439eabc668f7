/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes a container elastic: edits the config.json of its bundle, and the process.json of a program
 * that starts in it later (OCI runtime specification). Pure; called by tide-runc, its unit test and
 * the fuzzer.
 */
#pragma once

#include "base/jsontext.h"

/*
 * Adds the mounts of @agent_dir and @control_dir (directories of the host) and the environment.
 * Leaves a container alone that has either mount from `docker tide run` or an earlier edit.
 * Returns 1 (changed), 0 (nothing to do), or -errno with *err and the text unchanged:
 * -EBADMSG no JSON; -EINVAL, -ENOENT members are not as specified; -EEXIST one of them occurs
 * twice; -ENOMEM.
 */
int spec_edit_config(struct jsontext *config, const char *agent_dir, const char *control_dir,
                     struct error *err);

/* Adds only the environment. Same returns. */
int spec_edit_process(struct jsontext *process, struct error *err);

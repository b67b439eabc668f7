/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runtime "tide" in dockerd's daemon.json. The rest of the file keeps its bytes. Pure; called
 * by `tide setup` and its unit test.
 */
#pragma once

#include "base/jsontext.h"

/*
 * Registers @program as the runtime. Returns 1 (there was none), 2 (it replaced another program), 0
 * (nothing to do), or -errno with *err, the text then being unchanged: -EBADMSG not JSON, -EINVAL
 * (no object, or "runtimes" is none), -EEXIST ("runtimes" is there twice), -ENOMEM.
 */
int docker_config_add(struct jsontext *config, const char *program, struct error *err);

/*
 * Removes the runtime. "runtimes" stays even if it is then empty: dockerd's reload looks at it only
 * where it is written. Returns 1 (the runtime was there), 0, or -errno as above; -EBUSY: it is the
 * default runtime, and dockerd would not start without it.
 */
int docker_config_remove(struct jsontext *config, struct error *err);

/* Takes an empty "runtimes" out, too. *ret_empty: whether the file says nothing at all then. */
int docker_config_tidy(struct jsontext *config, bool *ret_empty, struct error *err);

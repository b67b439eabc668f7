/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes a container's control directory, <run>/containers/KEY, before the container starts (see
 * base/container.h). tided listens in it later. Any thread; called by tide-runc and tide-pods.
 */
#pragma once

#include "base/container.h"
#include "base/rundir.h"
#include "base/startup.h"

#include <stdbool.h>

bool control_dir_is_key(const char *key);

/*
 * Opens <run>/containers, and makes it first when @make. Returns a descriptor, or -errno; @ret_run
 * is <run>.
 */
int control_dir_open(bool make, char ret_run[RUNDIR_PATH_MAX]);

/* Makes the directory of the container @key in @containers. Returns 0 or -errno. */
int control_dir_make(int containers, const char *key);

/*
 * How the container was started, for programs that start later in it and for tided. Without it,
 * those are not sized.
 */
void control_dir_write(int containers, const char *key, const struct startup *size);
struct startup control_dir_read(int containers, const char *key);

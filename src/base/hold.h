/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One program at a time for a directory on disk. A file there is held, and its text is the holder's
 * pid; whoever dies lets it go. Used by tide-power, and by the hub and its broker.
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>

/*
 * Returns a descriptor to be kept, also over exec with @over_exec; or -EBUSY, with *err that says
 * which process holds DIR/NAME. -1 where the file cannot be made (a full disk): nobody is kept from
 * running by that.
 */
int hold_file(const char *dir, const char *name, bool over_exec, struct error *err);

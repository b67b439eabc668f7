/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small file of the daemon's, in its directory: written whole under another name first, read only
 * if it is the daemon's own. Daemon's event loop only; used by this room.
 */
#pragma once

#include <stddef.h>

/* Replaces file @name. Returns 0, or -errno: the old one is in its place. */
int state_file_write(int dir_fd, const char *name, const char *text);

/* Reads less than @size bytes, terminated. Returns 0, -EPERM (not ours), -EFBIG or -errno. */
int state_file_read(int dir_fd, const char *name, char *buf, size_t size);

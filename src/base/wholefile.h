/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Other programs' configuration files, read whole and replaced whole: whoever reads one meanwhile
 * sees the old text or the new one, and so does whoever reads it after a power cut; a full disk
 * leaves the old one. Any thread, no state; used by runc and cli.
 */
#pragma once

#include <stddef.h>
#include <sys/stat.h>

/*
 * Reads the regular file @path; a symbolic link is not followed.
 * Returns 0 with its text (terminated; the caller frees), length and status, -EFBIG above @max
 * bytes, -ELOOP (a symbolic link), -EINVAL (no regular file), or another -errno.
 */
int wholefile_read(const char *path, size_t max, char **ret_text, size_t *ret_len,
                   struct stat *ret_status);

/*
 * Replaces or makes the file @path by a rename in its directory. It gets mode and owner of
 * @status; NULL: mode 0644 and our own. File and directory are on the disk when it returns 0.
 * Returns 0 or -errno; the old file is in its place then, unless only the directory could not be
 * synced.
 */
int wholefile_replace(const char *path, const char *text, size_t len, const struct stat *status);

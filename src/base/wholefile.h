/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads and replaces other programs' configuration files as a whole. Another reader, even after a
 * power cut, sees the old text or the new one. A full disk leaves the old one. Any thread, no
 * state.
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
 * Replaces or makes the file @path by a rename in its directory. The file gets mode and owner of
 * @status, or for NULL mode 0644 and the caller as owner. Returns 0 when file and directory are on
 * the disk, or -errno: then the old file is in its place, unless only the directory could not be
 * synced.
 */
int wholefile_replace(const char *path, const char *text, size_t len, const struct stat *status);

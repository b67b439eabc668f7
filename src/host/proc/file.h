/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small pseudo-files under a root: one line of sysfs, a knob of a cgroup, /proc/PID/stat.
 *
 * @root is a directory descriptor, open("/") in the programs and a recorded tree in the tests;
 * @path is relative to it ("proc/17/stat"; leading slashes are skipped).
 * Any thread, no state; the rest of src/host is built on it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FILE_TEXT_MAX (1u << 20) /* bytes; file_read_all refuses a larger file with -EFBIG */
#define FILE_PATH_MAX 4096

/* Opens the root of this machine, "/". Returns a descriptor (CLOEXEC) or -errno. */
int file_open_root(void);

/* openat(2) below @root with O_CLOEXEC; returns a descriptor or -errno. */
int file_open(int root, const char *path, int flags);

/* Reads at most @size-1 bytes in one call and terminates them. Returns the length or -errno. */
int file_read(int root, const char *path, char *buf, size_t size);

/*
 * Reads the whole file into *ret_text (the caller frees; terminated) and its length.
 * Returns 0, -EFBIG above FILE_TEXT_MAX, or -errno.
 */
int file_read_all(int root, const char *path, char **ret_text, size_t *ret_len);

/* Reads one decimal number and nothing else (a final newline aside). Returns 0, -EINVAL, -ERANGE or
 * another -errno; "-1" and "max" are -EINVAL. */
int file_read_u64(int root, const char *path, uint64_t *ret);

/* Writes @text with one write(2), as the kernel's pseudo-files require. Returns 0 or -errno. */
int file_write(int root, const char *path, const char *text);

/* Formats into @buf; returns 0 or -ENAMETOOLONG when cut. */
__attribute__((format(printf, 3, 4))) int file_path(char *buf, size_t size, const char *fmt, ...);

/* Scans digits at *p into *ret and advances. Returns 0, -EINVAL (no digit), -ERANGE (overflow). */
int text_scan_u64(const char **p, uint64_t *ret);

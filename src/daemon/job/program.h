/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which program a process runs, as a number: runs that are called alike have the same one.
 * Arguments themselves are never kept.
 *
 * Two calls are alike when executable (path and inode) and the shape of the arguments are the same:
 * - the first word that is no option names a script or a model: its whole path counts;
 * - of any other word, and of its parts between '=', what stands behind the last '/' counts, with
 *   each number replaced by 0.
 * So `train.py --lr=0.1 --data /a/set1` is like `/home/me/train.py --lr=1e-4 --data /b/set2` if
 * /home/me is the working directory of the first.
 *
 * No state; the daemon's event loop, for record/curves.c, and tests.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Pure. @words: arguments, each ended by a NUL, the program's name first; @cwd: the directory that
 * relative paths begin in.
 */
uint64_t program_hash(const char *exe, uint64_t inode, const char *cwd, const char *words,
                      size_t len);

/*
 * Reads /proc/PID, where no file system can make us wait. Returns 0, -EACCES or another -errno.
 */
int program_read(int root, pid_t pid, uint64_t *ret);

/* A number for the model of the processors; the same for all whose model is not known. */
uint64_t program_processor(int root);

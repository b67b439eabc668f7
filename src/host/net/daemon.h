/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts a per-user tided on demand, as tmux and gpg-agent start their servers. Only for
 * single-threaded callers (it forks); called by `tide`.
 */
#pragma once

#include "base/error.h"

#include <stddef.h>

#define DAEMON_START_LOCK "start.lock" /* in the run directory: one starter at a time */

/*
 * Finds the tided of this program: $TIDE_DAEMON when set, else "tided" beside /proc/self/exe.
 * Returns 0, or -errno with the reason in *err (may be NULL).
 */
int daemon_find_program(char *ret_path, size_t size, struct error *err);

/*
 * Makes sure that a daemon answers on @rundir/api.sock; starts `@tided_path --auto-exit --dir
 * @rundir` if none does, with `--cpus @cpus` unless that is NULL. The daemon is a child of init in
 * a session of its own, with cwd "/", stdin and stdout on /dev/null, stderr in @rundir/tided.log,
 * all other descriptors closed, default signal dispositions, an empty signal mask, every CPU its
 * cpuset has, and without LD_PRELOAD, LD_AUDIT and our per-job variables in its environment.
 * Callers that race start one daemon: all but one wait for its lock.
 * Returns 0 (started by this call), 1 (one was running), -ETIMEDOUT (no answer within @timeout_ms;
 * the daemon may still come up), -ECHILD (it ended at once; *err holds the log's last line),
 * or -errno (run directory, lock, exec).
 */
int daemon_start(const char *rundir, const char *tided_path, const char *cpus, unsigned timeout_ms,
                 struct error *err);

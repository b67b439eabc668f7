/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits of one user in the daemon: jobs and processes (user-jobs and user-processes in tide.conf).
 * Root and the daemon's own user have none, and some places are reserved for them, so that an
 * administrator is never locked out. Daemon's event loop only; called by job.c.
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct job;
struct daemon;

#define LIMITS_KEPT_JOBS 16 /* of PROTO_JOBS_MAX, reserved for users without limits */

/* Root, or the daemon's own user. */
bool limits_exempt(const struct daemon *d, uid_t uid);

/* The weight of user @uid among the users. */
uint32_t limits_user_weight(const struct daemon *d, uid_t uid);

/* Whether @uid may have one more job. Returns 0, or -ENOSPC with *err. */
int limits_check_job(const struct daemon *d, uid_t uid, struct error *err);

/* Whether one more process of @j's user may be followed. Returns 0 or -ENOSPC. */
int limits_check_process(const struct job *j);

/*
 * Whether user @uid may have a job pinned to @threads threads without an administrator: not if
 * others have jobs and that exceeds the user's share. Returns 0, or -EPERM with *err.
 */
int limits_check_pin(const struct daemon *d, uid_t uid, uint32_t threads, struct error *err);

/* Whether a job of @uid may have this priority, by user-priority. Returns 0, or -EPERM with *err.
 */
int limits_check_priority(const struct daemon *d, uid_t uid, int32_t priority, struct error *err);

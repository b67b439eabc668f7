/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much of the daemon one user may take up: jobs and processes (user-jobs and user-processes in
 * tide.conf). Root and the daemon's own user have no such limits, and some of the daemon's places
 * are kept for them, so that an administrator can come in whatever others do.
 * Daemon's event loop only; called by job.c.
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct job;
struct daemon;

#define LIMITS_KEPT_JOBS 16 /* of the daemon's PROTO_JOBS_MAX, for those without limits */

/* Root, or whom the daemon belongs to. */
bool limits_exempt(const struct daemon *d, uid_t uid);

/* The weight of user @uid among the users. */
uint32_t limits_user_weight(const struct daemon *d, uid_t uid);

/* Whether @uid may have another job. Returns 0, or -ENOSPC with *err. */
int limits_check_job(const struct daemon *d, uid_t uid, struct error *err);

/* Whether another process of the user of @j may be followed. Returns 0 or -ENOSPC. */
int limits_check_process(const struct job *j);

/*
 * Whether user @uid may have a job pinned to @threads threads, without the help of an
 * administrator: not where others have jobs and that is more than the user's share. Returns 0, or
 * -EPERM with *err.
 */
int limits_check_pin(const struct daemon *d, uid_t uid, uint32_t threads, struct error *err);

/* Whether a job of @uid may have this priority, by user-priority. Returns 0, or -EPERM with *err.
 */
int limits_check_priority(const struct daemon *d, uid_t uid, int32_t priority, struct error *err);

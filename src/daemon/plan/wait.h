/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers that wait until a job's processes have acknowledged their targets, or a deadline passes.
 * Owns their list and its timer. Daemon's event loop only; used by api (PATCH) and control (WAIT).
 */
#pragma once

#include <stdint.h>

struct job;
struct daemon;
struct waits;

extern const struct job_observer wait_observer;

int waits_new(struct daemon *d, struct waits **ret); /* 0 or -errno */
struct waits *waits_free(struct waits *w);           /* takes NULL, returns NULL */

enum wait_outcome {
    WAIT_DONE,    /* every process has acknowledged */
    WAIT_PENDING, /* no process has a pool yet: applies to the first pool */
    WAIT_PARTIAL, /* the deadline passed */
    WAIT_GONE,    /* the job ended */
};

/* @job is NULL for WAIT_GONE; @latency_ns is from @sent_ns of wait_start to now. */
typedef void (*wait_fn)(void *arg, struct job *job, enum wait_outcome outcome, uint64_t latency_ns);

/*
 * Calls @fn once: at once if there is nothing to wait for, else later from the loop. Returns 0 with
 * the number for wait_cancel (0: @fn has been called), or -ENOMEM.
 */
int wait_start(struct job *j, uint64_t sent_ns, uint64_t deadline_ns, wait_fn fn, void *arg,
               uint64_t *ret_id);
void wait_cancel(struct daemon *d, uint64_t id); /* @fn is not called any more */

void wait_give_up_all(struct daemon *d); /* WAIT_PARTIAL: the daemon ends */

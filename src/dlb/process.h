/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process as DLB sees it: between DLB_Init and DLB_Finalize, enabled or not, with one
 * connection to the daemon, which is made when first needed. Any thread; used by lewi.c, poll.c.
 */
#pragma once

#include <tide/tide.h>

#include <sched.h>

/*
 * DLB's calls do not wait: a program that polls acknowledges with its next poll, so none of its
 * threads may wait here for that. Long enough for the daemon's decision.
 */
#define PROCESS_WAIT_MS 1

/*
 * Locks the process for a call on its connection. Returns 0, or a result of DLB (not locked).
 * process_end() takes what libtide has returned for the call: where a daemon has not answered, the
 * next calls fail at once for a while, since a program may make one in each of its steps.
 */
int process_begin(tide_ctl **ret);
void process_end(int result);

/* 0, DLB_ERR_NOINIT or DLB_ERR_DISBLD. */
int process_check(void);

/* The CPUs that DLB_Init was given, else those that the process may use. */
void process_cpus(cpu_set_t *ret);

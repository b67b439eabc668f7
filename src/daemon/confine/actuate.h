/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Confines processes of `tide run` (job/confine.h): by the affinity of their threads, or a control
 * group of their own with cpuset, weight and quota where the daemon may make one and the processes
 * may be moved; the freezer pauses them. The guardian knows every original before it is changed.
 * Daemon's event loop only.
 */
#pragma once

struct confine;
struct job;
struct job_observer;
struct daemon;

extern const struct confine process_confine;

extern const struct job_observer actuate_observer; /* forgets what is gone */

/* Gives back what is in place for a job that goes on: it becomes a container, or stops being one.
 */
void actuate_release(struct job *j);

/* The daemon's end: everything back. */
void actuate_restore_all(struct daemon *d);

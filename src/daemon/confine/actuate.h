/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Confines processes of `tide run` (job/confine.h) by the affinity of their threads. Where the
 * daemon may make control groups and move the processes, it uses cpuset, weight and quota of one
 * for the job; the freezer pauses it. The guardian notes every original first. Daemon's event loop
 * only.
 */
#pragma once

struct confine;
struct job;
struct job_observer;
struct daemon;

extern const struct confine process_confine;

extern const struct job_observer actuate_observer; /* forgets ended jobs and processes */

/* Restores the limits of a job that goes on, when it becomes a container or stops being one. */
void actuate_release(struct job *j);

/* The daemon ends: restores all. */
void actuate_restore_all(struct daemon *d);

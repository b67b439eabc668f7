/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose rights the processes of a job have, asked again before each signal, pause, move to a
 * control group and change of affinity. A process that has executed a setuid program since it
 * joined its job is not the user's alone any more, and the daemon, which is root, keeps its hands
 * off it. Root's jobs may hold any process; a container's processes are its engine's business.
 * Daemon's event loop only; called by job.c, actuate.c and freezer.c.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

struct job;
struct process;

/*
 * Checks that the process of @pidfd, whose number is @pid, runs with the rights of the user of @j
 * and no others. Returns 0, -EPERM, or -ESRCH: it has ended.
 */
int owner_check(const struct job *j, int pidfd, pid_t pid);

bool owner_agrees(const struct process *p); /* the same, of a process of a job */

/* The same of process @pid, which no descriptor holds. */
int owner_check_pid(const struct job *j, pid_t pid);

/*
 * Signals those processes of process group @group that run with the rights of the job's user alone.
 * Returns how many these were. The leader of the group must be alive.
 */
unsigned owner_signal_group(const struct job *j, pid_t group, int signal);

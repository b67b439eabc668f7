/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks the rights of a job's processes before each signal, pause, move to a control group and
 * change of affinity. A process that executed a setuid program after it joined its job has another
 * user's rights, and the daemon, which is root, leaves it alone. Root's jobs may hold any process;
 * a container's processes are governed by its engine. Daemon's event loop only; called by job.c,
 * actuate.c and freezer.c.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

struct job;
struct process;

/*
 * Checks that process @pid, which @pidfd refers to, has the rights of @j's user and no others.
 * Returns 0, -EPERM, or -ESRCH: it has ended.
 */
int owner_check(const struct job *j, int pidfd, pid_t pid);

bool owner_agrees(const struct process *p); /* the same for a job's process */

/* The same for process @pid, without a descriptor. */
int owner_check_pid(const struct job *j, pid_t pid);

/*
 * Signals the processes of process group @group that have the rights of the job's user alone.
 * Returns their number. The leader of the group must exist.
 */
unsigned owner_signal_group(const struct job *j, pid_t group, int signal);

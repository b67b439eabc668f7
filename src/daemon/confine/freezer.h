/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pauses jobs that are processes: the kernel freezes the control group that holds all of them, from
 * the runner on. A submitted job is there from its start; one of `tide run` goes there when a
 * person first pauses it. SIGSTOP would not do: parents and shells see it, and anybody may end it
 * with SIGCONT. A job cannot be paused, and says so, where no such group may be made or a process
 * sits in another program's. The guardian thaws when the daemon is gone. Daemon's event loop only;
 * called by actuate.c.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct job;
struct process;

/*
 * Moves process @p of a job that is submitted or was paused, with all that it has forked, to where
 * they can be frozen.
 */
void freezer_join(const struct process *p);

/* ---- as job/confine.h has them ---- */

bool freezer_can(const struct job *j, const char **ret_why);
int freezer_want(struct job *j, bool paused);
bool freezer_paused(const struct job *j);

/* When to check again whether all processes are frozen; UINT64_MAX: they are. */
uint64_t freezer_next_look(const struct job *j, uint64_t now);

/* Returns true if another program froze or thawed the job. */
bool freezer_look(struct job *j);

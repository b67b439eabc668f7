/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pauses submitted jobs that are processes: the kernel freezes the control group in which all of
 * them lie, from the runner on. No signal: SIGSTOP is seen by parents and shells, and may be taken
 * back by anybody. Where no such group may be made, or a process lies in somebody else's, the job
 * cannot be paused, and says so. The guardian thaws when the daemon is gone.
 * Daemon's event loop only; called by actuate.c.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct job;
struct process;

/* A process of a submitted job: it and what it has forked belong where they can be frozen. */
void freezer_join(const struct process *p);

/* ---- as job/confine.h has them ---- */

bool freezer_can(const struct job *j, const char **ret_why);
int freezer_want(struct job *j, bool paused);
bool freezer_paused(const struct job *j);

/* When to look again whether all of it has come to rest; UINT64_MAX: it has. */
uint64_t freezer_next_look(const struct job *j, uint64_t now);

/* Somebody else froze or thawed it: true if something changed. */
bool freezer_look(struct job *j);

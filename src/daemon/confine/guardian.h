/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small process that outlives the daemon. Before the daemon narrows a process's affinity, it
 * writes the original down in a memory table that both share; when the daemon is gone, however it
 * died, the guardian's pipe reports it, and the guardian thaws what is paused, puts every
 * original back, moves processes out of the daemon's control groups and removes those.
 * The table is a file in the run directory: when daemon and guardian are killed together, the next
 * daemon puts back what it finds there. Only what was changed before a reboot is void by itself.
 * The table's functions run in the daemon's event loop; guardian_restore in either process.
 */
#pragma once

#include "base/cpuset.h"
#include "base/error.h"
#include "host/cgroup/cgroup.h"

#include <sys/types.h>
#include <systemd/sd-event.h>

#define GUARDIAN_ENTRIES_MAX 4096            /* processes with changed affinity */
#define GUARDIAN_LOCK        "guardian.lock" /* held by the guardian until it has restored */
#define GUARDIAN_TABLE       "guardian.table"

struct guardian;
struct journal;

/*
 * Waits (up to 5 s) for an earlier daemon's guardian to finish, thaws and removes the control group
 * @earlier of that daemon ("": unknown) in @cg (may be NULL), restores what is left in the table
 * and forks. @dir_fd is the run directory, @state_dir journal.h's (may be NULL), @group the control
 * group of this daemon. One that dies is started again. Returns 0 or -errno.
 */
int guardian_new(sd_event *event, int dir_fd, const char *state_dir, const char *group,
                 const struct cgroup *cg, const char *earlier, struct guardian **ret,
                 struct error *err);

/* Takes NULL, returns NULL. The guardian finds what is left in the table and ends. */
struct guardian *guardian_free(struct guardian *g);

pid_t guardian_pid(const struct guardian *g); /* 0: it has ended, and is to be started again */

/*
 * Notes the affinity to which process @pid, started at @start, returns. Returns 0, also when it is
 * known already (the first note counts), or -ENOSPC.
 */
int guardian_note(struct guardian *g, pid_t pid, uint64_t start, const struct cpuset *original);
void guardian_forget(struct guardian *g, pid_t pid, uint64_t start);

/* The same of containers, put back by the child alone: their engines take their time. */
struct journal *guardian_keep(struct guardian *g); /* borrowed */

/* Puts every process back; returns the number of processes. @root is "/". */
unsigned guardian_restore(struct guardian *g, int root, const struct cgroup *cg);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small process that outlives the daemon. Before the daemon changes a process's affinity, it
 * writes the original into a table in memory that both share. When the daemon is gone, however it
 * died, the guardian notices at its pipe: it thaws paused jobs, restores every original, moves
 * processes out of the daemon's control groups and removes those. The table is a file in the run
 * directory: if daemon and guardian are killed together, the next daemon restores from it. A reboot
 * ends every change by itself. The table's functions run in the daemon's event loop;
 * guardian_restore in either process.
 */
#pragma once

#include "base/cpuset.h"
#include "base/error.h"
#include "host/cgroup/cgroup.h"

#include <sys/types.h>
#include <systemd/sd-event.h>

#define GUARDIAN_ENTRIES_MAX   4096 /* processes with a changed affinity */
#define GUARDIAN_KNOBS_MAX     16
#define GUARDIAN_KNOB_PATH_MAX 512
#define GUARDIAN_KNOB_TEXT_MAX 24
/* Behind the entries in the table's file. */
#define GUARDIAN_KNOBS_BYTES                                                                       \
    (GUARDIAN_KNOBS_MAX * (4 + GUARDIAN_KNOB_PATH_MAX + GUARDIAN_KNOB_TEXT_MAX))
#define GUARDIAN_LOCK  "guardian.lock" /* held by the guardian until it has restored */
#define GUARDIAN_TABLE "guardian.table"

struct guardian;
struct journal;

/*
 * Waits (up to 5 s) for an earlier daemon's guardian to end, thaws and removes that daemon's group
 * @earlier ("": unknown) in @cg (may be NULL), restores what is left in the table and forks.
 * @dir_fd is the run directory, @state_dir journal.h's (may be NULL), @group this daemon's control
 * group. A guardian that dies is started again. Returns 0 or -errno.
 */
int guardian_new(sd_event *event, int dir_fd, const char *state_dir, const char *group,
                 const struct cgroup *cg, const char *earlier, struct guardian **ret,
                 struct error *err);

/* Takes NULL, returns NULL. The guardian restores what is left in the table and ends. */
struct guardian *guardian_free(struct guardian *g);

pid_t guardian_pid(const struct guardian *g); /* 0: it died, and is about to be started again */

/*
 * Notes the affinity to restore to process @pid, started at @start. Returns 0, also when noted
 * before (the first note counts), or -ENOSPC.
 */
int guardian_note(struct guardian *g, pid_t pid, uint64_t start, const struct cpuset *original);
void guardian_forget(struct guardian *g, pid_t pid, uint64_t start);

/*
 * Notes the text to write back into file @path (a power limit). Returns 0, also when noted before
 * (the first note counts), -ENAMETOOLONG or -ENOSPC.
 */
int guardian_note_knob(struct guardian *g, const char *path, const char *original);
void guardian_forget_knob(struct guardian *g, const char *path);

/* The restore journal of containers, carried out by the guardian process alone. */
struct journal *guardian_journal(struct guardian *g); /* borrowed */

/* Restores every process; returns their number. @root is "/". */
unsigned guardian_restore(struct guardian *g, int root, const struct cgroup *cg);

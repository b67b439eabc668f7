/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small process that outlives the daemon. Before the daemon narrows a process's affinity, it
 * writes the original down in a memory table that both share; when the daemon is gone, however it
 * died, the guardian's pipe reports it, and the guardian puts every original back, moves processes
 * out of the daemon's control groups and removes those.
 * The table's functions run in the daemon's event loop; guardian_restore in either process.
 */
#pragma once

#include "base/cpuset.h"
#include "base/error.h"
#include "host/cgroup.h"

#include <sys/types.h>
#include <systemd/sd-event.h>

#define GUARDIAN_ENTRIES_MAX 4096            /* processes with changed affinity */
#define GUARDIAN_LOCK        "guardian.lock" /* held by the guardian until it has restored */

struct engine_update;
struct guardian;

/*
 * Waits (up to 5 s) for an earlier daemon's guardian to finish, makes the table and forks. @dir_fd
 * is the run directory, @group the control group of this daemon. One that dies is started again.
 * Returns 0 or -errno.
 */
int guardian_new(sd_event *event, int dir_fd, const char *group, struct guardian **ret,
                 struct error *err);

/* Takes NULL, returns NULL. The guardian finds what is left in the table and ends. */
struct guardian *guardian_free(struct guardian *g);

/*
 * Notes the affinity to which process @pid, started at @start, returns. Returns 0, also when it is
 * known already (the first note counts), or -ENOSPC.
 */
int guardian_note(struct guardian *g, pid_t pid, uint64_t start, const struct cpuset *original);
void guardian_forget(struct guardian *g, pid_t pid, uint64_t start);

/*
 * The same for a container of the engine on @socket_path: the limits to which it returns, all of
 * them named. Put back by the child alone, once the daemon is gone: the engine takes its time.
 * Returns 0 or -ENOSPC.
 */
int guardian_note_container(struct guardian *g, const char *socket_path, const char *id,
                            const struct engine_update *own);
void guardian_forget_container(struct guardian *g, const char *id);
void guardian_pause_container(struct guardian *g, const char *id, bool paused); /* noted before */

/* Puts every process back; returns the number of processes. @root is "/". */
unsigned guardian_restore(struct guardian *g, int root, const struct cgroup *cg);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The limits to which containers return when the daemon is gone. An engine writes down for ever
 * what it is told, so a table in memory, shared with the guardian, is not enough: behind it lies a
 * file that outlives a loss of power, on disk before a container is changed for the first time.
 * What neither daemon nor guardian could put back is `left`, until the next daemon does it.
 *
 * The file is written, never mapped: no fault of its disk can stop the daemon. One that cannot be
 * used is said once, then there is the memory alone.
 *
 * journal_restore in the guardian, the rest in the daemon's event loop. Called by guardian.c,
 * container.c and container_limits.c.
 */
#pragma once

#include "host/engine/engine.h"

#define JOURNAL_FILE           "limits" /* in the daemon's directory of state */
#define JOURNAL_CONTAINERS_MAX 1024     /* twice PROTO_JOBS_MAX: of ended jobs, too, for a moment */
#define JOURNAL_RESTORE_MS     3000     /* at most, in one go: a new daemon waits for it */

struct journal;

/* @dir: where the file is, or NULL for none. Reads what is left. 0 or -errno. */
int journal_new(const char *dir, struct journal **ret);
struct journal *
journal_free(struct journal *k); /* takes NULL, returns NULL; the child's copy stays */

/*
 * The first note of a container counts, also one that is left. Returns 0, 1 (nothing may be changed
 * before journal_sync: it is not on disk yet) or -ENOSPC.
 */
int journal_note(struct journal *k, const char *socket_path, const char *id,
                 const struct engine_update *own);
/* It is to go back to something else; whether it is paused by us stays. Nothing if not noted. */
void journal_correct(struct journal *k, const char *id, const struct engine_update *own);
void journal_forget(struct journal *k, const char *id);

/* Waits for the disk, once for all that was noted since the last time. */
void journal_sync(struct journal *k);

/* A noted container is, or may be, paused by us: it shall go on. */
void journal_pause(struct journal *k, const char *id, bool paused);

/* Something is asked of its engine, or answered: who has died cannot take that back. */
void journal_call(struct journal *k, const char *id, bool under_way);

/* ---- what was left by an earlier daemon ---- */

/*
 * True as long as it is left: its limits are not its own yet. Asks @engine for those, unless that
 * is under way; @then tells the answer to journal_settle first. Returns 0 (it is not left), 1, or
 * -errno: it could not be asked for.
 */
int journal_put_back(struct journal *k, struct engine *engine, const char *id,
                     struct engine_then then);

/* The answer to that: true when it is left no more. */
bool journal_settle(struct journal *k, const struct engine_result *result);

/* Forgets what is left of the engine on @socket_path but is not in its list of containers. */
void journal_sweep(struct journal *k, const char *socket_path, const struct engine_result *list);

/* Puts back what is noted, as far as the engines answer in time. Returns how many it could not. */
unsigned journal_restore(struct journal *k);

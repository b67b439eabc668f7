/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The restore journal of containers: the limits to restore when the daemon is gone. Engines store
 * limits for ever, so that a table in memory, shared with the guardian, is not enough: a file that
 * survives a power failure lies behind it, on disk before the first change of a container. An entry
 * that neither daemon nor guardian could restore is `left` until the next daemon restores it.
 *
 * The file is written, never mapped, so that no disk fault can stop the daemon. An unusable file is
 * logged once; the memory alone remains.
 *
 * journal_restore runs in the guardian, the rest in the daemon's event loop. Called by guardian.c,
 * container.c and container_limits.c.
 */
#pragma once

#include "host/engine/engine.h"

#define JOURNAL_FILE           "limits" /* in the daemon's directory of state */
#define JOURNAL_CONTAINERS_MAX 1024     /* twice PROTO_JOBS_MAX: ended jobs stay for a moment */
#define JOURNAL_RESTORE_MS     3000     /* longest run: a new daemon waits for it */

struct journal;

/* @dir: the file's directory, or NULL for none. Reads what is left. Returns 0 or -errno. */
int journal_new(const char *dir, struct journal **ret);
struct journal *
journal_free(struct journal *k); /* takes NULL, returns NULL; the child's copy stays */

/*
 * Notes a container's own limits; the first note counts, also one that is left. Returns 0, 1
 * (change nothing before journal_sync: the note is not on disk yet) or -ENOSPC.
 */
int journal_note(struct journal *k, const char *socket_path, const char *id,
                 const struct engine_update *own);
/* Changes the limits to restore; a noted pause stays. Ignores containers without a note. */
void journal_correct(struct journal *k, const char *id, const struct engine_update *own);
void journal_forget(struct journal *k, const char *id);

/* Waits for the disk, once for all notes since the last time. */
void journal_sync(struct journal *k);

/* We pause the container, or may have: it is to be unpaused at the end. */
void journal_pause(struct journal *k, const char *id, bool paused);

/* A call to its engine begins or ends: the engine may carry it out even if the daemon dies. */
void journal_call(struct journal *k, const char *id, bool under_way);

/* ---- what was left by an earlier daemon ---- */

/*
 * Returns 1 as long as the container's present limits are an earlier daemon's: asks @engine to
 * restore its own, unless that is under way; @then passes the answer to journal_settle first.
 * Returns 0 if nothing is left, or -errno if the engine could not be asked.
 */
int journal_put_back(struct journal *k, struct engine *engine, const char *id,
                     struct engine_then then);

/* Whether the container's present limits are still an earlier daemon's. */
bool journal_left(struct journal *k, const char *id);

/* Takes the answer; returns true when nothing is left of the container. */
bool journal_settle(struct journal *k, const struct engine_result *result);

/* Forgets left containers of the engine on @socket_path that are not in its list. */
void journal_sweep(struct journal *k, const char *socket_path, const struct engine_result *list);

/* Restores the noted limits as far as engines answer in time. Returns the number of failures. */
unsigned journal_restore(struct journal *k);

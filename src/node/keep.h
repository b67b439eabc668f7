/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The limits to which containers return when the daemon is gone: a table that it shares with the
 * guardian, and the guardian's way to put them back through the engines.
 * keep_note and keep_forget in the daemon's event loop, keep_restore in the guardian. Called by
 * guardian.c alone.
 */
#pragma once

#include "host/engine.h"

#define KEEP_CONTAINERS_MAX                                                                        \
    (ENGINE_CALLS_MAX / 2)   /* all are put back at once, by two calls each                        \
                              */
#define KEEP_RESTORE_MS 4000 /* at most; a new daemon waits for it */

struct keep;

int keep_new(struct keep **ret);        /* 0 or -errno */
struct keep *keep_free(struct keep *k); /* takes NULL, returns NULL; the child's copy stays */

/* The first note of a container counts. Returns 0 or -ENOSPC. */
int keep_note(struct keep *k, const char *socket_path, const char *id,
              const struct engine_update *own);
void keep_forget(struct keep *k, const char *id);

/* A noted container is, or may be, paused by us: it shall go on. */
void keep_pause(struct keep *k, const char *id, bool paused);

/* Puts back what is noted, as far as the engines answer in time. */
void keep_restore(struct keep *k);

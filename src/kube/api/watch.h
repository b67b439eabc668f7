/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All objects of one kind and their changes, for as long as the object lives: a list in pages, then
 * a watch with bookmarks that goes on where it was cut, and a new list when the server has
 * forgotten that point. The consumer hears of every change, and only once (watch_delta.h). The
 * watch never gives up: it repeats what fails, ever more slowly, with jitter. Memory is bounded by
 * a page (TRANSFER_BODY_MAX; pages shrink where objects are large), a line (WATCH_DELTA_LINE_MAX),
 * and some 300 bytes for each object. Event loop's thread; called by controller.c.
 */
#pragma once

#include "kube/api/client.h"
#include "kube/api/watch_delta.h"

#define WATCH_PAGE       500
#define WATCH_IDLE_S     150  /* bookmarks come every minute: silence for longer is the end of it */
#define WATCH_BACKOFF_MS 200  /* doubled at each failure … */
#define WATCH_PAUSE_MS   8000 /* … up to this */

struct watch;

/*
 * @path is that of the list, "/api/v1/pods"; @query adds parameters, "fieldSelector=…", or is NULL.
 * Calls @fn from the loop only. Returns 0 or -errno.
 */
int watch_new(struct client *client, sd_event *event, const char *path, const char *query,
              watch_fn *fn, void *arg, struct watch **ret);

struct watch *watch_free(struct watch *w); /* takes NULL, returns NULL */

/*
 * Lists everything anew. The watch is not synced until that is complete, so that no decision rests
 * on objects from before the call.
 */
void watch_renew(struct watch *w);

bool watch_synced(const struct watch *w);          /* a list was complete since the last renewal */
const char *watch_trouble(const struct watch *w);  /* since WATCH_LOST, for a person; "": none */
uint64_t watch_lists(const struct watch *w);       /* that were begun, for metrics */
uint64_t watch_resumes(const struct watch *w);     /* streams that were begun */
void watch_learn(struct watch *w, json_t *object); /* watch_delta_learn() */

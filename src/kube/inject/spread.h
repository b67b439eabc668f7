/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts the agent's ConfigMap into namespaces, as pods of them are made. One write for all that wait
 * for it. What was written a while ago is written again, since somebody may have deleted it; nobody
 * waits for that, nor is it missed if it fails. A namespace that refused it is left in peace for a
 * moment. Event loop's thread; called by webhook.c.
 */
#pragma once

#include "kube/api/client.h"

#define SPREAD_WAIT_MS  1200 /* of a pod's creation for the object; the webhook has 2 s */
#define SPREAD_FRESH_S  20   /* until it is written again: a namespace may be made anew */
#define SPREAD_REFUSE_S 5    /* until a namespace that refused is asked again … */
#define SPREAD_AGAIN_S  1    /* … or one that was not answered for in time: it may have it */
#define SPREAD_MAX      4096 /* namespaces that are remembered */

struct spread;
struct spread_wait;

/* Called once for each wait, unless it was cancelled; @problem NULL: the object is there. */
typedef void spread_done(void *arg, const char *problem);

/* Hears why the object could not be written. */
typedef void spread_log(void *arg, const char *text);

/* Takes @object over, the ConfigMap named @name. NULL: out of memory. */
struct spread *spread_new(struct client *client, const char *name, json_t *object, spread_log *log);
struct spread *spread_free(struct spread *s); /* takes NULL, returns NULL; calls nobody */

/*
 * Returns 0 (it is there), 1 (@done will be called), or -errno: it cannot be put there now, with
 * the reason in *err. *ret is for spread_cancel() until @done is called.
 */
int spread_to(struct spread *s, const char *name_space, spread_done *done, void *arg,
              struct spread_wait **ret, struct error *err);
void spread_cancel(struct spread_wait *w);

unsigned spread_spaces(const struct spread *s); /* that have it, as far as is known */
uint64_t spread_failures(const struct spread *s);

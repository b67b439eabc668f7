/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the API server serves a group that may come and go, as a CustomResourceDefinition's, and
 * in which version: it is asked now and then. Event loop's thread; called by controller.c.
 */
#pragma once

#include "kube/api/client.h"

#define DISCOVERY_EVERY_S 30 /* between two questions; … */
#define DISCOVERY_AGAIN_S 5  /* … after one without an answer */

struct discovery;

typedef void discovery_fn(void *arg); /* discovery_version() has changed */

/* Borrows @group. Calls @fn from the loop only. Returns 0 or -errno. */
int discovery_new(struct client *client, sd_event *event, const char *group, discovery_fn *fn,
                  void *arg, struct discovery **ret);
struct discovery *discovery_free(struct discovery *d); /* takes NULL, returns NULL */

/* The version that the server prefers; "": it serves no such group; NULL: no answer yet. */
const char *discovery_version(const struct discovery *d);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * News of the tree for the streams of events. A unit's state and an area's power are told at
 * intervals, only the newest, of at most EVENTS_STATES and EVENTS_POWERS areas a second, so that a
 * flood of them fills no stream; one event tells the power of up to EVENTS_POWERS_AT_ONCE. All
 * other news go at once. Event loop's thread; private to this room, used
 * by web.c and by handlers that change something.
 */
#pragma once

#include "hub/serve/stream.h"
#include "hub/serve/web.h"

#define EVENTS_STATES         200
#define EVENTS_POWERS         3000 /* of 10,000 units that tell each ten seconds: thrice as many */
#define EVENTS_POWERS_AT_ONCE 100

struct events;

/* Both borrowed. Returns 0 or -errno. */
int events_new(const struct web_options *hub, struct streams *streams, struct events **ret);
struct events *events_free(struct events *e); /* takes NULL, returns NULL */

void events_changed(struct events *e, const struct unit *u, enum tree_what what,
                    const struct payload_event *event);
void events_ordered(struct events *e, const struct tree_order *order);
void events_ruled(struct events *e, const struct in_force *policy);

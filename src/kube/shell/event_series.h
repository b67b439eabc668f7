/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts repeated events: the first one is written, later ones are counted, and the count goes into
 * the series of the first now and then. Pure but for allocation: the caller brings the clock. Event
 * loop's thread; called by act.c.
 */
#pragma once

#include <jansson.h>
#include <stdint.h>

#define EVENT_SERIES_MAX      256 /* series kept; a new one replaces the one silent the longest */
#define EVENT_SERIES_WRITE_S  60  /* least time between two writes of a series */
#define EVENT_SERIES_FORGET_S 600 /* silence that ends a series */

enum event_series_move {
    EVENT_SERIES_NEW,   /* write an Event of this name */
    EVENT_SERIES_AGAIN, /* write the count into the first Event, whose name is set now */
    EVENT_SERIES_HEARD, /* write nothing */
};

struct event_series {
    const char *uid, *reason, *text; /* if all are equal, the event is a repetition */
    unsigned count;                  /* set by EVENT_SERIES_AGAIN */
    char name[256];                  /* of the Event */
};

struct event_series_set;

struct event_series_set *event_series_new(void); /* NULL: out of memory */
struct event_series_set *event_series_free(struct event_series_set *n);

enum event_series_move event_series_next(struct event_series_set *n, struct event_series *note,
                                         uint64_t now);

/* The merge patch of EVENT_SERIES_AGAIN. NULL: out of memory. */
json_t *event_series_patch(const struct event_series *note, int64_t wall_ns);

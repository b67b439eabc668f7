/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events that say the same again: the first is written, later ones are counted, and the count is
 * written into its series now and then. Pure but for allocation: the caller brings the clock. Event
 * loop's thread; called by act.c.
 */
#pragma once

#include <jansson.h>
#include <stdint.h>

#define EVENT_SERIES_MAX      256 /* remembered; the one that was heard longest ago makes room */
#define EVENT_SERIES_WRITE_S  60  /* a series is written at most so often … */
#define EVENT_SERIES_FORGET_S 600 /* … and is over when it was silent for so long */

enum event_series_move {
    EVENT_SERIES_NEW,   /* write an Event of this name */
    EVENT_SERIES_AGAIN, /* write the count into the Event of the name that was put in its place */
    EVENT_SERIES_HEARD, /* nothing */
};

struct event_series {
    const char *uid, *reason, *text; /* the same: said again */
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

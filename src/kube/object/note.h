/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events that say the same again: the first is written, later ones are counted, and the count is
 * written into its series now and then. Pure but for allocation: the caller brings the clock. Event
 * loop's thread; called by act.c.
 */
#pragma once

#include <jansson.h>
#include <stdint.h>

#define NOTES_MAX     256 /* remembered; the one that was heard longest ago makes room */
#define NOTE_SERIES_S 60  /* a series is written at most so often … */
#define NOTE_FORGET_S 600 /* … and is over when it was silent for so long */

enum note_move {
    NOTE_NEW,   /* write an Event of this name */
    NOTE_AGAIN, /* write the count into the Event of the name that was put in its place */
    NOTE_HEARD, /* nothing */
};

struct note {
    const char *uid, *reason, *text; /* the same: said again */
    unsigned count;                  /* set by NOTE_AGAIN */
    char name[256];                  /* of the Event */
};

struct notes;

struct notes *notes_new(void); /* NULL: out of memory */
struct notes *notes_free(struct notes *n);

enum note_move note_next(struct notes *n, struct note *note, uint64_t now);

/* The merge patch of NOTE_AGAIN. NULL: out of memory. */
json_t *note_series(const struct note *note, int64_t wall_ns);

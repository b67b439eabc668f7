/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is asked of an engine about one container, as a state machine. At most one operation is
 * outstanding; container_step() alone moves the machine, and says what to do next.
 *
 *         found                          wanted: run
 *   NEW ────────▶ KNOWN ───────────────────────────────────────▶ UNPAUSING ─┐
 *                 ▲ ▲ │ wanted: other limits, a pause                       │
 *                 │ │ └────────────▶ NOTING ──┬── on disk ─────▶ UPDATING  ─┤
 *           found │ │                         └── on disk ─────▶ PAUSING   ─┤
 *                 │ └─────────────────────────────── done ──────────────────┤
 *                 │    news                                                 │ answer lost,
 *        INSPECTING ◀──────────── KNOWN                                     │ pause refused
 *             │ ▲ tick, news                                                │
 *      failed ▼ │                                                           │
 *            DOUBTED ◀──────────────────────────────────────────────────────┘
 *
 *   DOUBTED   nobody can tell what the engine has made of the last operation: the tick inspects
 *   NOTING    the container's own limits go to the restore journal; nothing is changed before they
 *             are on disk
 *   news      somebody else has changed something. While an operation is outstanding, news makes
 *             its answer `overtaken`: the container is inspected behind it
 *
 * Whose pause is in place is a machine of its own, moved by the same events. A pause that is found
 * while none of ours can be in place or on its way is a person's: only that person ends it, or an
 * order to cancel the job.
 *
 *               our pause done            our unpause done, found running, somebody unpaused
 *      NONE ─────────────────────▶ OURS ────────────────────────────────────────────▶ NONE
 *       │ │ our pause's answer lost  ▲ found paused                INHERITED ─ found paused ─▶ OURS
 *       │ └───────▶ LATE ────────────┘                                 └───── found running ─▶ LATE
 *       │            └── a later update was done ──▶ NONE
 *       └─ found paused, our pause refused ──▶ PERSON ── found running, somebody unpaused ──▶ NONE
 *
 * Pure: no clock, no engine, no memory. Limits are compared by the caller. Called by
 * container_limits.c and by unit tests.
 */
#pragma once

#include <stdbool.h>

enum container_phase {
    CONTAINER_NEW, /* its own limits are not known yet */
    CONTAINER_KNOWN,
    CONTAINER_DOUBTED,
    CONTAINER_INSPECTING,
    CONTAINER_NOTING,
    CONTAINER_UPDATING,
    CONTAINER_PAUSING,
    CONTAINER_UNPAUSING,
    CONTAINER_PHASE_MAX,
};

/* Whose pause is in place. */
enum container_pause {
    PAUSE_NONE,
    PAUSE_LATE,      /* none; but the engine may still carry out one of ours */
    PAUSE_INHERITED, /* an earlier daemon had paused it, or was about to */
    PAUSE_OURS,
    PAUSE_PERSON,
    PAUSE_MAX,
};

enum container_event {
    CONTAINER_WANT,        /* the wanted limits may have changed, or the engine is back */
    CONTAINER_WANT_PAUSED, /* the policy wants it paused */
    CONTAINER_WANT_RUNNING,
    CONTAINER_CANCELLED, /* it is to end: whoever paused it */
    CONTAINER_NEWS,      /* somebody else changed it */
    CONTAINER_WENT_ON,   /* somebody else ended its pause */
    CONTAINER_TICK,
    CONTAINER_NOTED,         /* its own limits are on disk */
    CONTAINER_FOUND_RUNNING, /* an inspection says: not paused */
    CONTAINER_FOUND_PAUSED,
    CONTAINER_UNREAD,  /* an inspection came back and was not used */
    CONTAINER_DONE,    /* the engine has carried out the update, pause or unpause */
    CONTAINER_REFUSED, /* … or will not. The caller wants the limits in place, if an update's */
    CONTAINER_LOST,    /* nobody can tell. Also: an inspection failed */
    CONTAINER_UNSENT,  /* the operation has not reached engine or disk */
    CONTAINER_ENDED,   /* the container does not run any more */
    CONTAINER_EVENT_MAX,
};

enum container_action {
    CONTAINER_DO_NOTHING,
    CONTAINER_DO_INSPECT,
    CONTAINER_DO_NOTE, /* CONTAINER_NOTED or CONTAINER_UNSENT follows */
    CONTAINER_DO_UPDATE,
    CONTAINER_DO_PAUSE,
    CONTAINER_DO_UNPAUSE,
    CONTAINER_ACTION_MAX,
};

struct container_state {
    enum container_phase phase;
    enum container_pause pause;
    bool want_paused; /* by the policy */
    bool overtaken;   /* by news, since the outstanding operation began */
};

/* What the machine has to know of the world around it, as it is after the event. */
struct container_view {
    bool engine;  /* it can be asked */
    bool differs; /* the wanted limits are not in place */
    bool job;     /* the container is a job; else it has ended, or was let go */
};

/*
 * Moves the machine by @e and returns what is to be done now: whatever was returned before is
 * answered by then. After an inspection that container_counts() the caller takes over the limits
 * that were found, and puts @v together, before this is called.
 */
enum container_action container_step(struct container_state *s, enum container_event e,
                                     struct container_view v);

/* Whether an inspection that comes back now tells how things are. */
bool container_counts(const struct container_state *s);

/* An update, pause or unpause is outstanding, or waits for the disk. */
bool container_changing(const struct container_state *s);

/* Nothing is outstanding, and what is in place is known. */
bool container_sure(const struct container_state *s);

/* A pause is in place, whoever's. */
bool container_stands(const struct container_state *s);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations on one container as a state machine. At most one operation of its engine is
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
 *   DOUBTED   the outcome of the last operation is unknown: the tick inspects
 *   NOTING    the container's own limits go to the restore journal; nothing is changed before they
 *             are on disk
 *   news      another program has changed the container. While an operation is outstanding, news
 *             makes its answer `overtaken`: the container is inspected behind it
 *
 * The origin of a pause is a second machine, moved by the same events. A pause that is found
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

/* The origin of the pause that is in place. */
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
    CONTAINER_CANCELLED, /* it has to end, even if a person paused it */
    CONTAINER_NEWS,      /* another program changed it */
    CONTAINER_WENT_ON,   /* another program ended its pause */
    CONTAINER_TICK,
    CONTAINER_NOTED,         /* its own limits are on disk */
    CONTAINER_FOUND_RUNNING, /* an inspection says: not paused */
    CONTAINER_FOUND_PAUSED,
    CONTAINER_UNREAD,  /* an inspection came back and was not used */
    CONTAINER_DONE,    /* the engine has carried out the update, pause or unpause */
    CONTAINER_REFUSED, /* … or will not; the caller then wants the limits in place */
    CONTAINER_LOST,    /* its outcome is unknown, or an inspection failed */
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

/* The state of the world after the event, as far as the machine needs it. */
struct container_view {
    bool engine;  /* it can be asked */
    bool differs; /* the wanted limits are not in place */
    bool job;     /* else the container has ended, or was released */
};

/*
 * Moves the machine by @e and returns the next action; the previous action is answered by then.
 * After an inspection that container_counts(), the caller takes over the limits found and fills in
 * @v before the call.
 */
enum container_action container_step(struct container_state *s, enum container_event e,
                                     struct container_view v);

/* Whether an inspection that returns now describes the present state. */
bool container_counts(const struct container_state *s);

/* An update, pause or unpause is outstanding, or waits for the disk. */
bool container_changing(const struct container_state *s);

/* Nothing is outstanding, and the limits in place are known. */
bool container_sure(const struct container_state *s);

/* A pause is in place, ours or a person's. */
bool container_stands(const struct container_state *s);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A number of workers, or of parameter servers, that is being tried: trial_move() alone changes its
 * state.
 *
 *                 BEGUN                      WORSE, to more than before
 *     RESTING ───────────────▶ TRYING ───────────────────────────────────▶ RETURNED ──┐ WORSE,
 * further ▲   ▲                   │    ▲                                       │ │  ▲     │ back │
 * │   PAID, BROKEN,   │    └───────────── TOP_STALE ───────────────┘ │  └─────┘ │   │   WORSE or
 * RESIZED│                                              │ │   └── to what it was ─┘ PAID, TOP_PAID,
 * BROKEN,      │ └───────────────────────────── WORSE or RESIZED to what it was ────────┘
 *
 * A ceiling is there in any state: CAPPED sets it, CEILING_OVER lifts it.
 *
 * Pure; event loop's thread.
 */
#pragma once

#include <stdint.h>

enum trial_state {
    TRIAL_RESTING,
    TRIAL_TRYING,   /* @to instead of @from */
    TRIAL_RETURNED, /* to @to, since @top seemed to be too many: whether that was so is seen now */
    TRIAL_STATE_MAX
};

enum trial_event {
    TRIAL_BEGUN,        /* there are @to instead of @from; while one is under way: RESIZED */
    TRIAL_RESIZED,      /* there are @to now, for another reason */
    TRIAL_PAID,         /* what there is stays */
    TRIAL_TOP_PAID,     /* what there was at the top was worth more: it may come back */
    TRIAL_WORSE,        /* @from were too many, with @rate: back to @to */
    TRIAL_CAPPED,       /* more than @to are no use for a while */
    TRIAL_TOP_STALE,    /* the rate at the top compares with nothing any more */
    TRIAL_BROKEN,       /* it cannot be judged: something failed, was refused, or never came */
    TRIAL_CEILING_OVER, /* a while has passed, or something else has changed */
    TRIAL_EVENT_MAX
};

struct trial_news {
    int32_t from, to;
    uint64_t rate;  /* 0: nobody knows */
    int64_t now_ns; /* of WORSE and CAPPED */
};

struct trial {
    enum trial_state state;
    int32_t from, to;
    int32_t top;
    int32_t ceiling;   /* more did not pay; 0: none */
    int32_t above;     /* the ceiling that top had */
    uint64_t rate;     /* before it; 0: nobody knows */
    uint64_t top_rate; /* with top */
    int64_t until_ns;  /* the ceiling holds */
    int64_t hold_ns;   /* how long the last one did */
};

#define TRIAL_HOLD_NS     (INT64_C(600) * 1000000000)  /* a ceiling, … */
#define TRIAL_HOLD_MAX_NS (INT64_C(3600) * 1000000000) /* … doubled each time, up to here */

/* @news: NULL where the event has none. */
void trial_move(struct trial *t, enum trial_event event, const struct trial_news *news);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trial of a larger number of workers or parameter servers. Only trial_move() changes its state:
 *
 * - RESTING: BEGUN -> TRYING
 * - TRYING: WORSE -> RETURNED; PAID, BROKEN -> RESTING
 * - RETURNED: WORSE -> RETURNED (lower); TOP_STALE -> TRYING; PAID, TOP_PAID, BROKEN -> RESTING
 *
 * WORSE, CAPPED, BEGUN or RESIZED to @from or below end a trial: -> RESTING.
 *
 * A trial in any state may have a ceiling: CAPPED and WORSE set it, CEILING_OVER lifts it.
 *
 * Pure; event loop's thread.
 */
#pragma once

#include <stdint.h>

enum trial_state {
    TRIAL_RESTING,
    TRIAL_TRYING,   /* tries @to instead of @from */
    TRIAL_RETURNED, /* returned to @to, since @top seemed too many; now checks that it was */
    TRIAL_STATE_MAX
};

enum trial_event {
    TRIAL_BEGUN,        /* the number grew from @from to @to; during a trial: RESIZED */
    TRIAL_RESIZED,      /* the number became @to for another reason */
    TRIAL_PAID,         /* the present number paid and stays */
    TRIAL_TOP_PAID,     /* the top was better after all: the number may return to it */
    TRIAL_WORSE,        /* @from were too many, with @rate: back to @to */
    TRIAL_CAPPED,       /* more than @to are useless for a while */
    TRIAL_TOP_STALE,    /* the rate at the top is no longer comparable */
    TRIAL_BROKEN,       /* no verdict: something failed, was refused, or never came */
    TRIAL_CEILING_OVER, /* the ceiling's time has passed, or something else has changed */
    TRIAL_EVENT_MAX
};

struct trial_news {
    int32_t from, to;
    uint64_t rate;  /* 0: nobody knows */
    int64_t now_ns; /* for WORSE and CAPPED */
};

struct trial {
    enum trial_state state;
    int32_t from, to;
    int32_t top;
    int32_t ceiling;   /* a larger number did not pay; 0: no ceiling */
    int32_t above;     /* the ceiling before the return from @top */
    uint64_t rate;     /* with @from; 0: nobody knows */
    uint64_t top_rate; /* with @top */
    int64_t until_ns;  /* when the ceiling ends */
    int64_t hold_ns;   /* how long the last ceiling held */
};

#define TRIAL_HOLD_NS     (INT64_C(600) * 1000000000)  /* the first ceiling's time, … */
#define TRIAL_HOLD_MAX_NS (INT64_C(3600) * 1000000000) /* … doubled each time, up to this */

/* @news: NULL where the event has none. */
void trial_move(struct trial *t, enum trial_event event, const struct trial_news *news);

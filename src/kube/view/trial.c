/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/view/trial.h"

#include <assert.h>
#include <stddef.h>

static void rest(struct trial *t)
{
    t->state = TRIAL_RESTING;
    t->to = t->top = 0;
}

static void begin(struct trial *t, const struct trial_news *news)
{
    if (news->to <= news->from)
        return;
    t->state = TRIAL_TRYING;
    t->from = news->from;
    t->to = news->to;
    t->top = 0;
    t->rate = news->rate;
}

static void resize(struct trial *t, const struct trial_news *news)
{
    if (news->to <= t->from)
        rest(t);
    else
        t->to = news->to;
}

/* Within one trial the time of the ceiling does not double again at a further return. */
static void cap(struct trial *t, const struct trial_news *news)
{
    if (t->state != TRIAL_RETURNED)
        t->hold_ns = t->hold_ns ? 2 * t->hold_ns : TRIAL_HOLD_NS;
    t->hold_ns = t->hold_ns < TRIAL_HOLD_MAX_NS ? t->hold_ns : TRIAL_HOLD_MAX_NS;
    t->ceiling = news->to;
    t->until_ns = news->now_ns + t->hold_ns;
    if (t->state == TRIAL_RESTING)
        return;
    if (t->ceiling <= t->from)
        rest(t);
    else if (t->to > t->ceiling)
        t->to = t->ceiling;
}

static void go_back(struct trial *t, const struct trial_news *news)
{
    int32_t above = t->ceiling;

    cap(t, news);
    if (t->state == TRIAL_RESTING)
        return;
    t->state = TRIAL_RETURNED;
    t->above = above;
    t->top = news->from;
    t->top_rate = news->rate;
}

static void top_paid(struct trial *t, const struct trial_news *news)
{
    t->ceiling = t->above;
    rest(t);
}

static void top_stale(struct trial *t, const struct trial_news *news)
{
    t->state = TRIAL_TRYING;
    t->top = 0;
}

static void end(struct trial *t, const struct trial_news *news)
{
    rest(t);
}

static void lift(struct trial *t, const struct trial_news *news)
{
    t->ceiling = 0;
}

static void nothing(struct trial *t, const struct trial_news *news)
{
}

void trial_move(struct trial *t, enum trial_event event, const struct trial_news *news)
{
    static void (*const moves[][TRIAL_STATE_MAX])(struct trial *, const struct trial_news *) = {
        /*                      RESTING  TRYING   RETURNED */
        [TRIAL_BEGUN] = {begin, resize, resize},
        [TRIAL_RESIZED] = {nothing, resize, resize},
        [TRIAL_PAID] = {nothing, end, end},
        [TRIAL_TOP_PAID] = {nothing, nothing, top_paid},
        [TRIAL_WORSE] = {nothing, go_back, go_back},
        [TRIAL_CAPPED] = {cap, cap, cap},
        [TRIAL_TOP_STALE] = {nothing, nothing, top_stale},
        [TRIAL_BROKEN] = {nothing, end, end},
        [TRIAL_CEILING_OVER] = {lift, lift, lift},
    };

    static_assert(sizeof(moves) / sizeof(moves[0]) == TRIAL_EVENT_MAX, "a row for each event");
    moves[event][t->state](t, news);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* src/kube/view/trial.c: every event in every state leads to the state in trial.h's picture. */
#include "kube/view/trial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include <cmocka.h>

#define S      INT64_C(1000000000)
#define NOW_NS (1000 * S)

/* From 2 workers to 8; or back to 5, since 8 were too many. */
static struct trial in(enum trial_state state)
{
    struct trial t = {.above = 7};

    if (state != TRIAL_RESTING)
        trial_move(&t, TRIAL_BEGUN, &(struct trial_news){.from = 2, .to = 8, .rate = 200});
    if (state == TRIAL_RETURNED)
        trial_move(&t, TRIAL_WORSE,
                   &(struct trial_news){.from = 8, .to = 5, .rate = 400, .now_ns = NOW_NS});
    assert_int_equal(t.state, state);
    return t;
}

/* Checks the properties of each state. */
static void check(const struct trial *t)
{
    switch (t->state) {
    case TRIAL_RESTING:
        assert_true(t->to == 0 && t->top == 0);
        break;
    case TRIAL_TRYING:
        assert_true(t->to > t->from && t->top == 0);
        break;
    case TRIAL_RETURNED:
        assert_true(t->to > t->from && t->top > t->from && t->ceiling > 0);
        break;
    default:
        fail_msg("no state: %d", t->state);
    }
    assert_true(t->hold_ns <= TRIAL_HOLD_MAX_NS);
}

static void every_event_leads_from_every_state_where_the_picture_says(void **state)
{
    enum { R = TRIAL_RESTING, T = TRIAL_TRYING, B = TRIAL_RETURNED };
    static const struct {
        enum trial_event event;
        int32_t from, to;
        int after[TRIAL_STATE_MAX]; /* resting, trying, returned */
    } rows[] = {
        {TRIAL_BEGUN, 3, 6, {T, T, B}},    {TRIAL_BEGUN, 6, 6, {R, T, B}},
        {TRIAL_BEGUN, 1, 2, {T, R, R}},    {TRIAL_RESIZED, 0, 6, {R, T, B}},
        {TRIAL_RESIZED, 0, 2, {R, R, R}},  {TRIAL_PAID, 0, 0, {R, R, R}},
        {TRIAL_TOP_PAID, 0, 0, {R, T, R}}, {TRIAL_WORSE, 8, 4, {R, B, B}},
        {TRIAL_WORSE, 8, 2, {R, R, R}},    {TRIAL_CAPPED, 0, 4, {R, T, B}},
        {TRIAL_CAPPED, 0, 2, {R, R, R}},   {TRIAL_TOP_STALE, 0, 0, {R, T, T}},
        {TRIAL_BROKEN, 0, 0, {R, R, R}},   {TRIAL_CEILING_OVER, 0, 0, {R, T, B}},
    };
    bool seen[TRIAL_EVENT_MAX] = {false};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        seen[rows[i].event] = true;
        for (int s = 0; s < TRIAL_STATE_MAX; s++) {
            struct trial t = in((enum trial_state)s);

            trial_move(&t, rows[i].event,
                       &(struct trial_news){
                           .from = rows[i].from, .to = rows[i].to, .rate = 300, .now_ns = NOW_NS});
            if ((int)t.state != rows[i].after[s])
                fail_msg("row %zu, state %d: %d", i, s, t.state);
            if (rows[i].event != TRIAL_CEILING_OVER)
                check(&t);
        }
    }
    for (int e = 0; e < TRIAL_EVENT_MAX; e++)
        if (!seen[e])
            fail_msg("event %d is not in the table", e);
}

static void a_top_that_was_worth_it_has_its_ceiling_back(void **state)
{
    struct trial t = {0};

    trial_move(&t, TRIAL_CAPPED, &(struct trial_news){.to = 9, .now_ns = NOW_NS});
    trial_move(&t, TRIAL_BEGUN, &(struct trial_news){.from = 2, .to = 8, .rate = 200});
    trial_move(&t, TRIAL_WORSE,
               &(struct trial_news){.from = 8, .to = 5, .rate = 400, .now_ns = NOW_NS});
    assert_int_equal(t.ceiling, 5);
    trial_move(&t, TRIAL_TOP_PAID, NULL);
    assert_int_equal(t.ceiling, 9);
}

static void a_ceiling_lasts_twice_as_long_with_each_trial_up_to_an_hour(void **state)
{
    struct trial t = {0};

    for (int64_t hold = TRIAL_HOLD_NS; hold < 8 * TRIAL_HOLD_MAX_NS; hold *= 2) {
        trial_move(&t, TRIAL_BEGUN, &(struct trial_news){.from = 2, .to = 8, .rate = 200});
        trial_move(&t, TRIAL_WORSE,
                   &(struct trial_news){.from = 8, .to = 5, .rate = 400, .now_ns = NOW_NS});
        assert_int_equal(t.until_ns - NOW_NS, hold < TRIAL_HOLD_MAX_NS ? hold : TRIAL_HOLD_MAX_NS);
        trial_move(&t, TRIAL_WORSE, /* further back: the same trial */
                   &(struct trial_news){.from = 5, .to = 3, .rate = 300, .now_ns = NOW_NS});
        assert_int_equal(t.until_ns - NOW_NS, hold < TRIAL_HOLD_MAX_NS ? hold : TRIAL_HOLD_MAX_NS);
        trial_move(&t, TRIAL_PAID, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_event_leads_from_every_state_where_the_picture_says),
        cmocka_unit_test(a_top_that_was_worth_it_has_its_ceiling_back),
        cmocka_unit_test(a_ceiling_lasts_twice_as_long_with_each_trial_up_to_an_hour),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

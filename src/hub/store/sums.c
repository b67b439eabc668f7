/* SPDX-License-Identifier: Apache-2.0 */
/* Old rows become fewer; days are counted again after a change of the zone. */
#include "hub/store/memory.h"
#include "hub/store/store_state.h"

#include "base/cleanup.h"

#include <errno.h>

#define USERS_EVERY_MS 3600000

static int change(struct store *s, enum statement which, int64_t a, int64_t b, int64_t c)
{
    const struct values v = {.numbers = which == SUM_UP         ? 3
                                        : which == DROP_SAMPLES ? 2
                                                                : 1,
                             .number = {a, b, c}};

    return s->db->dialect->write(s->db, which, &v);
}

/*
 * Moves about @rows rows of a step that end before @until_ms into rows of the next step; 0: drops
 * them. Returns 1 when there may be more.
 */
static int sum_up(struct store *s, int step, int next, int64_t until_ms, uint32_t rows)
{
    int64_t cut_ms = until_ms;
    int more = store_ask_number(
        s, NTH_SAMPLE, &(struct values){.numbers = 3, .number = {step, until_ms, rows - 1}},
        &cut_ms);
    int r = more == -ENOENT ? 0 : more;

    if (r == 0 && next)
        r = change(s, SUM_UP, step, next, cut_ms);
    r = r ? r : change(s, DROP_SAMPLES, step, cut_ms, 0);
    return r ? r : more == 0;
}

static bool users_due(const struct store *s, int64_t now_ms)
{
    return now_ms - s->users_ms >= USERS_EVERY_MS || now_ms < s->users_ms;
}

static int drop_users(struct store *s, const struct store_keep *keep, int64_t now_ms)
{
    int64_t until_ms = now_ms - (int64_t)keep->user_ms, gone = 0;
    int r = change(s, DROP_USER_SAMPLES, until_ms, 0, 0);

    r = r ? r : change(s, DROP_USER_DAYS, until_ms - 86400000, 0, 0);
    r = r ? r : change(s, DROP_USER_BOOTS, until_ms, 0, 0);
    r = r ? r : change(s, DROP_USERS, until_ms, 0, 0);
    r = r ? r : s->db->dialect->changed(s->db, &gone);
    if (gone) /* who comes back is a new point */
        memory_forget(s->memory);
    return r;
}

int store_rollup(struct store *s, const struct store_keep *keep, int64_t now_ms, uint32_t rows,
                 struct error *err)
{
    const struct {
        int step, next;
        uint64_t keep_ms;
    } steps[] = {{STEP_SECOND, STEP_MINUTE, keep->second_ms},
                 {STEP_MINUTE, STEP_QUARTER, keep->minute_ms},
                 {STEP_QUARTER, 0, keep->quarter_ms}};
    bool users = users_due(s, now_ms);
    int r = store_begin(s, err), more = 0;

    if (r < 0)
        return r;
    for (size_t i = 0; r >= 0 && i < ARRAY_LEN(steps); i++) {
        r = sum_up(s, steps[i].step, steps[i].next, now_ms - (int64_t)steps[i].keep_ms, rows);
        more |= r > 0;
    }
    r = r < 0 ? r : change(s, DROP_DAYS, now_ms - (int64_t)keep->quarter_ms - 86400000, 0, 0);
    r = r >= 0 && users ? drop_users(s, keep, now_ms) : r;
    s->failed = r;
    r = store_commit(s, err);
    if (r < 0)
        return r;
    if (users)
        s->users_ms = now_ms;
    r = store_fill_day(s, err);
    return r < 0 ? r : more | r;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Questions of people and programs to the store. */
#include "hub/store/store_state.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ERROR_WORD "question-too-long"

#define UJ_PER_J 1000000

static uint64_t column(struct store *s, int i)
{
    return (uint64_t)s->db->dialect->number(s->db, i);
}

static struct energy_range range_at(struct store *s, int i)
{
    return (struct energy_range){column(s, i), column(s, i + 1), column(s, i + 2),
                                 (uint32_t)column(s, i + 3)};
}

int store_series(struct store *s, const char *unit, const char *point, int64_t from_ms,
                 int64_t to_ms, int64_t step_ms, struct store_stretch *ret, size_t max,
                 size_t *ret_n, struct error *err)
{
    const struct db_dialect *d = s->db->dialect;
    size_t n = 0;
    int r;

    if (step_ms <= 0 || from_ms < 0)
        return error_word(err,
                          error_set(err, -EINVAL,
                                    "steps of %" PRId64 " ms from %" PRId64
                                    " ms on: a step has at least 1 ms, and no time is before 1970",
                                    step_ms, from_ms),
                          "bad-request");
    r = d->ask(
        s->db, SERIES,
        &(struct values){
            2, 4, {unit, point}, {from_ms / step_ms * step_ms, to_ms, step_ms, (int64_t)max + 1}});
    if (r < 0)
        return store_said(s, r, "read the energy", err);
    while ((r = d->next(s->db)) == 1 && n < max)
        ret[n++] =
            (struct store_stretch){(int64_t)column(s, 0) * step_ms, range_at(s, 1), column(s, 5)};
    d->end(s->db);
    if (r == 1)
        return error_set(err, -ENOSPC, "more than %zu steps: ask for longer ones", max);
    if (r == 0)
        *ret_n = n;
    return store_said(s, r, "read the energy", err);
}

int store_points(struct store *s, bool (*each)(void *arg, const struct store_point *p), void *arg,
                 struct error *err)
{
    const struct db_dialect *d = s->db->dialect;
    int r = d->ask(s->db, POINTS, &(struct values){0});
    bool more = true;

    if (r < 0)
        return store_said(s, r, "read the points", err);
    while (more && (r = d->next(s->db)) == 1) {
        struct store_point p = {.first_ms = (int64_t)column(s, 2),
                                .last_ms = (int64_t)column(s, 3),
                                .energy = range_at(s, 4),
                                .gap_ms = column(s, 8)};

        snprintf(p.unit, sizeof(p.unit), "%s", d->text(s->db, 0));
        snprintf(p.point, sizeof(p.point), "%s", d->text(s->db, 1));
        more = each(arg, &p);
    }
    d->end(s->db);
    return store_said(s, r < 0 ? r : 0, "read the points", err);
}

/* ---- sums of days ---- */

const char *store_amount_text(const struct store_amount *a, char ret[STORE_AMOUNT_MAX])
{
    if (a->j)
        snprintf(ret, STORE_AMOUNT_MAX, "%" PRIu64 "%06" PRIu32, a->j, a->uj);
    else
        snprintf(ret, STORE_AMOUNT_MAX, "%" PRIu32, a->uj);
    return ret;
}

static void add_amount(struct store_amount *sum, uint64_t j, uint64_t uj)
{
    uj += sum->uj;
    sum->j += j + uj / UJ_PER_J;
    sum->uj = (uint32_t)(uj % UJ_PER_J);
}

/* Whole millions and the rest. */
static double number_of(struct store *s, int i)
{
    return (double)column(s, i) * 1e6 + (double)column(s, i + 1);
}

/*
 * Columns of BY_UNIT and its like: unit, user, day, then pairs of J and µJ, basis, gap, and pairs
 * of the cost and what it is the cost of.
 */
static void add_row(struct store *s, struct store_total *sum)
{
    uint32_t basis = (uint32_t)column(s, 9);

    add_amount(&sum->mid, column(s, 3), column(s, 4));
    add_amount(&sum->low, column(s, 5), column(s, 6));
    add_amount(&sum->high, column(s, 7), column(s, 8));
    if (basis && (!sum->basis || basis < sum->basis))
        sum->basis = basis;
    sum->gap_ms += column(s, 10);
    sum->cost += number_of(s, 11) / 1e9;
    sum->priced_uj += number_of(s, 13);
}

static bool of_key(struct store *s, const struct store_question *q, const struct store_total *t)
{
    if (q->by == STORE_BY_DAY)
        return t->day_ms == (int64_t)column(s, 2);
    return strncmp(t->key, s->db->dialect->text(s->db, q->by == STORE_BY_USER), 63) == 0;
}

static struct store_total begin_total(struct store *s, const struct store_question *q)
{
    struct store_total t = {0};

    if (q->by == STORE_BY_DAY)
        t.day_ms = store_day(s, (int64_t)column(s, 2), &t.end_ms);
    else
        snprintf(t.key, sizeof(t.key), "%s", s->db->dialect->text(s->db, q->by == STORE_BY_USER));
    return t;
}

/* @user: of "user:NAME", while rows are read. */
static int ask_totals(struct store *s, const struct store_question *q,
                      const struct store_span *days, const char *user)
{
    static const enum statement statements[] = {
        [STORE_BY_UNIT] = BY_UNIT, [STORE_BY_USER] = BY_USER, [STORE_BY_DAY] = BY_DAY};

    return s->db->dialect->ask(
        s->db, statements[q->by],
        &(struct values){1, 3, {q->user ? user : NULL}, {days->from_ms, days->to_ms, s->costs_ms}});
}

int store_totals(struct store *s, const struct store_question *q, struct store_span *ret,
                 bool (*each)(void *arg, const struct store_total *t), void *arg, struct error *err)
{
    const struct db_dialect *d = s->db->dialect;
    struct store_span days;
    char user[sizeof(STORE_USER) + STORE_UNIT_MAX];
    struct store_total sum;
    bool some = false, more = true;
    int64_t unused;
    int r;

    if (q->by >= STORE_BY_MAX || q->from_ms < 0 || q->to_ms <= q->from_ms)
        return error_word(
            err, error_set(err, -EINVAL, "the time has to begin after 1970 and before it ends"),
            "bad-request");
    days.from_ms = store_day(s, q->from_ms, &unused);
    store_day(s, q->to_ms - 1, &days.to_ms);
    days.filling = s->filled_ms && s->filled_ms > days.from_ms; /* later days are counted */
    snprintf(user, sizeof(user), STORE_USER "%s", q->user ? q->user : "");
    r = ask_totals(s, q, &days, user);
    if (r < 0)
        return store_said(s, r, "sum up the energy", err);
    while (more && (r = d->next(s->db)) == 1) {
        if (some && !of_key(s, q, &sum)) {
            more = each(arg, &sum);
            some = false;
        }
        if (!some)
            sum = begin_total(s, q);
        some = true;
        add_row(s, &sum);
    }
    d->end(s->db);
    if (r < 0)
        return store_said(s, r, "sum up the energy", err);
    if (some && more)
        each(arg, &sum);
    *ret = days;
    return 0;
}

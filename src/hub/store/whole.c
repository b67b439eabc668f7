/* SPDX-License-Identifier: Apache-2.0 */
/* The organization as a whole: which units add up to it, and what the hub above is to be told. */
#include "hub/store/memory.h"
#include "hub/store/store_state.h"

#include "base/fnv.h"
#include "base/muldiv.h"
#include "base/wallclock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void text_of(const char *const *unit, size_t n, char ret[NOTE_MAX])
{
    uint64_t hash = FNV_START;

    for (size_t i = 0; i < n; i++)
        hash = fnv_bytes(fnv_text(hash, unit[i]), "/", 1);
    snprintf(ret, NOTE_MAX, "%016" PRIx64 " %zu", hash, n);
}

static int add_counted(struct store *s, const char *unit)
{
    return s->db->dialect->write(s->db, ADD_COUNTED, &(struct values){1, 0, {unit}, {0}});
}

int store_units(struct store *s, const char *const *unit, size_t n, struct error *err)
{
    char before[NOTE_MAX] = "", now[NOTE_MAX];
    int r = store_note(s, NOTE_UNITS, before);

    text_of(unit, n, now);
    if (r < 0 && r != -ENOENT)
        return store_said(s, r, "read which units count", err);
    if (strcmp(before, now) == 0)
        return 0;
    r = store_begin(s, err);
    if (r < 0)
        return r;
    r = s->db->dialect->write(s->db, CLEAR_COUNTED, &(struct values){0});
    r = r ? r : add_counted(s, ""); /* none at all is an answer, too */
    for (size_t i = 0; r == 0 && i < n; i++)
        r = add_counted(s, unit[i]);
    s->failed = r ? r : store_set_note(s, NOTE_UNITS, now);
    memory_forget(s->memory); /* which knows whose points count */
    return store_commit(s, err);
}

/* ---- for the hub above ---- */

#define MINUTE_MS  60000
#define QUARTER_MS 900000

static int64_t end_of(int64_t ms, int64_t step_ms)
{
    return (ms + step_ms - 1) / step_ms * step_ms;
}

/* Where it counts to; a time to come is that of a wrong clock. */
static int64_t place_of(const struct store *s, int64_t to_ms)
{
    int64_t now_ms = (int64_t)wallclock_ms();

    to_ms = to_ms < now_ms ? to_ms : now_ms;
    return end_of(to_ms, end_of(to_ms, QUARTER_MS) <= s->told_ms ? QUARTER_MS : MINUTE_MS);
}

int store_write_news(struct store *s)
{
    int r = 0;

    for (size_t i = 0; r == 0 && i < s->n_news; i++) {
        const struct news_sum *n = &s->news[i];

        r = s->db->dialect->write(
            s->db, ADD_NEWS,
            &(struct values){.numbers = 6,
                             .number = {n->to_ms, (int64_t)n->energy.uj, (int64_t)n->energy.low_uj,
                                        (int64_t)n->energy.high_uj, n->energy.basis, n->gap_ms}});
    }
    s->n_news = 0;
    return r;
}

int store_add_news(struct store *s, int64_t to_ms, const struct energy_range *e, int64_t gap_ms)
{
    struct news_sum *n;
    size_t i = s->n_news;
    int r = 0;

    to_ms = place_of(s, to_ms);
    while (i > 0 && s->news[i - 1].to_ms != to_ms)
        i--;
    if (i == 0 && s->n_news == NEWS_KEPT)
        r = store_write_news(s);
    if (i == 0) {
        i = ++s->n_news;
        s->news[i - 1] = (struct news_sum){.to_ms = to_ms};
    }
    n = &s->news[i - 1];
    n->energy.uj = add_sat(n->energy.uj, e->uj);
    n->energy.low_uj = add_sat(n->energy.low_uj, e->low_uj);
    n->energy.high_uj = add_sat(n->energy.high_uj, e->high_uj);
    if (e->basis && (!n->energy.basis || e->basis < n->energy.basis))
        n->energy.basis = e->basis;
    n->gap_ms += gap_ms;
    return r;
}

void store_told(struct store *s, int64_t upto_ms)
{
    s->told_ms = upto_ms;
}

/* Numbers the next batch, if the last one has been told. */
static int number_news(struct store *s, int64_t told, int64_t upto_ms, int64_t *ret_batch)
{
    const struct db_dialect *d = s->db->dialect;
    int r = d->write(s->db, DROP_NEWS, &(struct values){.numbers = 1, .number = {told}});

    r = r ? r : store_ask_number(s, NEWEST_BATCH, &(struct values){0}, ret_batch);
    if (r < 0 || *ret_batch)
        return r;
    *ret_batch = told + 1;
    return d->write(
        s->db, NUMBER_NEWS,
        &(struct values){.numbers = 3, .number = {*ret_batch, upto_ms, STORE_NEWS_MAX}});
}

static int read_news(struct store *s, int64_t batch, struct store_news ret[STORE_NEWS_MAX],
                     size_t *ret_n)
{
    const struct db_dialect *d = s->db->dialect;
    int r = d->ask(s->db, NEWS, &(struct values){.numbers = 1, .number = {batch}});
    size_t n = 0;

    if (r < 0)
        return r;
    for (; n < STORE_NEWS_MAX && (r = d->next(s->db)) == 1; n++)
        ret[n] = (struct store_news){d->number(s->db, 0),
                                     {(uint64_t)d->number(s->db, 1), (uint64_t)d->number(s->db, 2),
                                      (uint64_t)d->number(s->db, 3), (uint32_t)d->number(s->db, 4)},
                                     (uint64_t)d->number(s->db, 5)};
    d->end(s->db);
    if (r >= 0)
        *ret_n = n;
    return r < 0 ? r : 0;
}

int store_news(struct store *s, uint64_t told, int64_t upto_ms,
               struct store_news ret[STORE_NEWS_MAX], size_t *ret_n, uint64_t *ret_batch,
               struct error *err)
{
    int64_t batch = 0;
    int r = store_begin(s, err);

    if (r < 0)
        return r;
    s->failed = number_news(s, (int64_t)told, upto_ms, &batch);
    r = store_commit(s, err);
    if (r < 0)
        return r;
    r = read_news(s, batch, ret, ret_n);
    if (r == 0)
        *ret_batch = (uint64_t)batch;
    return store_said(s, r, "read what the hub above is to be told", err);
}

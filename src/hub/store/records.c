/* SPDX-License-Identifier: Apache-2.0 */
/* Stores the records that units send, and erases what an administrator names. */
#include "hub/store/memory.h"
#include "hub/store/store_state.h"

#include "base/cleanup.h"
#include "base/fnv.h"
#include "base/muldiv.h"
#include "base/wallclock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ERROR_WORD "nothing-stored"

#define TIME_MAX_MS  (INT64_C(1) << 45) /* the year 3084 */
#define ENERGY_MAX   (UINT64_C(1) << 62)
#define GAP_DAYS_MAX 400 /* a longer gap counts to its last days */

/* ---- points ---- */

static int64_t column(struct store *s, int i)
{
    return s->db->dialect->number(s->db, i);
}

static int find(struct store *s, const char *unit, const char *point, struct known *ret)
{
    int r = s->db->dialect->ask(s->db, FIND_POINT, &(struct values){2, 0, {unit, point}, {0}});

    if (r < 0)
        return r;
    r = s->db->dialect->next(s->db);
    if (r == 1)
        *ret = (struct known){.id = column(s, 0),
                              .boot = (uint64_t)column(s, 1),
                              .seq = (uint64_t)column(s, 2),
                              .total = {.uj = (uint64_t)column(s, 3),
                                        .low_uj = (uint64_t)column(s, 4),
                                        .high_uj = (uint64_t)column(s, 5)},
                              .last_ms = column(s, 6),
                              .whole = column(s, 7) != 0};
    s->db->dialect->end(s->db);
    return r == 1 ? 0 : r == 0 ? -ENOENT : r;
}

static int add_point(struct store *s, const char *unit, const char *point)
{
    int64_t count = 0, id;
    int r = store_ask_number(s, COUNT_POINTS, &(struct values){1, 0, {unit}, {0}}, &count);

    if (r == 0 && count >= STORE_POINTS_MAX)
        return -EUSERS;
    return r ? r : store_ask_number(s, ADD_POINT, &(struct values){2, 0, {unit, point}, {0}}, &id);
}

/*
 * An erased point keeps its counter under a name that does not tell whose it is, so that what was
 * erased does not come back with the next total.
 */
static const char *hidden(const char *point, char ret[32])
{
    snprintf(ret, 32, "erased:%016" PRIx64, fnv_text(FNV_START, point));
    return ret;
}

static int find_or_add(struct store *s, const char *unit, const char *point, struct known *ret)
{
    struct known *machine;
    char other[32];
    int r = find(s, unit, point, ret);

    if (r != -ENOENT)
        return r;
    r = find(s, unit, hidden(point, other), ret);
    if (r == 0)
        r = s->db->dialect->write(s->db, SHOW_POINT, &(struct values){1, 1, {point}, {ret->id}});
    else if (r == -ENOENT)
        r = add_point(s, unit, point);
    machine = strcmp(point, "area") == 0 ? memory_find(s->memory, unit, "machine") : NULL;
    if (machine) /* from now on it is a part of that area */
        machine->whole = false;
    return r ? r : find(s, unit, point, ret);
}

/* ---- earlier boots ---- */

/* The newest total of that boot; *ret keeps the point, and has no seq where none is known. */
static int find_boot(struct store *s, uint64_t boot, struct known *ret)
{
    const struct values which = {.numbers = 2, .number = {ret->id, (int64_t)boot}};
    int r = s->db->dialect->ask(s->db, FIND_BOOT, &which);

    if (r < 0)
        return r;
    ret->boot = boot;
    ret->seq = 0;
    r = s->db->dialect->next(s->db);
    if (r == 1) {
        ret->seq = (uint64_t)column(s, 0);
        ret->total = (struct energy_range){.uj = (uint64_t)column(s, 1),
                                           .low_uj = (uint64_t)column(s, 2),
                                           .high_uj = (uint64_t)column(s, 3)};
    }
    s->db->dialect->end(s->db);
    return r < 0 ? r : 0;
}

/* Another boot follows the point's present one, which may come back. */
static int keep_boot(struct store *s, const struct known *k)
{
    int r = s->db->dialect->write(
        s->db, KEEP_BOOT,
        &(struct values){.numbers = 6,
                         .number = {k->id, (int64_t)k->boot, (int64_t)k->seq, (int64_t)k->total.uj,
                                    (int64_t)k->total.low_uj, (int64_t)k->total.high_uj}});

    return r ? r
             : s->db->dialect->write(s->db, DROP_BOOTS,
                                     &(struct values){.numbers = 2, .number = {k->id, BOOTS_KEPT}});
}

/* ---- records ---- */

static bool possible(const struct outbox_record *r)
{
    return r->to_ms > 0 && r->to_ms < TIME_MAX_MS && r->from_ms <= r->to_ms && r->seq > 0 &&
           r->seq <= INT64_MAX && r->boot <= INT64_MAX && r->total.high_uj < ENERGY_MAX &&
           r->total.low_uj <= r->total.uj && r->total.uj <= r->total.high_uj &&
           r->total.basis < POWER_BASIS_MAX;
}

static int add_sample(struct store *s, const struct known *k, const struct outbox_record *r,
                      int64_t from_ms, const struct energy_range *e, int64_t gap_ms)
{
    int step = strncmp(r->point, STORE_USER, strlen(STORE_USER)) == 0 ? STEP_QUARTER : STEP_SECOND;
    int64_t to_ms = (int64_t)r->to_ms;

    if (step == STEP_QUARTER)
        to_ms = (to_ms + step * 1000 - 1) / (step * 1000) * (step * 1000);
    return s->db->dialect->write(
        s->db, ADD_SAMPLE,
        &(struct values){.numbers = 9,
                         .number = {step, k->id, to_ms, from_ms, (int64_t)e->uj, (int64_t)e->low_uj,
                                    (int64_t)e->high_uj, e->basis, gap_ms}});
}

static int add_day(struct store *s, const struct day_sum *more)
{
    int r = 0;

    for (size_t i = s->days; i-- > 0;)
        if (s->day[i].point == more->point && s->day[i].begin_ms == more->begin_ms) {
            energy_add(&s->day[i].energy, &more->energy);
            s->day[i].gap_ms += more->gap_ms;
            s->day[i].cost = add_sat(s->day[i].cost, more->cost);
            s->day[i].priced = add_sat(s->day[i].priced, more->priced);
            return 0;
        }
    if (s->days == DAYS_KEPT)
        r = store_write_days(s);
    s->day[s->days++] = *more;
    return r;
}

/* A gap counts to the days that it lies in, the energy to the day in which the record ends. */
static int add_to_days(struct store *s, int64_t point, int64_t from_ms, int64_t to_ms,
                       const struct energy_range *e, int64_t gap_ms, int64_t hole_ms)
{
    struct day_sum sum = {.point = point, .gap_ms = gap_ms, .energy = *e};
    int64_t at_ms = from_ms, end_ms;
    int r;

    if (store_cost(s, e->uj, from_ms, to_ms, &sum.cost))
        sum.priced = e->uj;
    sum.begin_ms = store_day(s, to_ms - 1, &end_ms);
    r = add_day(s, &sum);
    if (hole_ms > GAP_DAYS_MAX * INT64_C(86400000)) {
        at_ms += hole_ms - GAP_DAYS_MAX * INT64_C(86400000);
        hole_ms = GAP_DAYS_MAX * INT64_C(86400000);
    }
    while (r == 0 && hole_ms > 0) {
        sum = (struct day_sum){.point = point, .begin_ms = store_day(s, at_ms, &end_ms)};
        sum.gap_ms = end_ms - at_ms < hole_ms ? end_ms - at_ms : hole_ms;
        r = add_day(s, &sum);
        at_ms += sum.gap_ms;
        hole_ms -= sum.gap_ms;
    }
    return r;
}

/*
 * Up to when a point has told. What a hub tells late of a time before is no step back of its clock;
 * a time to come was that of a wrong clock.
 */
static int64_t newest(int64_t last_ms, int64_t to_ms)
{
    return last_ms > to_ms && last_ms <= (int64_t)wallclock_ms() ? last_ms : to_ms;
}

static int set_point(struct store *s, const struct known *old, const struct outbox_record *r)
{
    return s->db->dialect->write(
        s->db, SET_POINT,
        &(struct values){.numbers = 10,
                         .number = {old->id, (int64_t)r->boot, (int64_t)r->seq,
                                    (int64_t)r->total.uj, (int64_t)r->total.low_uj,
                                    (int64_t)r->total.high_uj,
                                    newest(old->last_ms, (int64_t)r->to_ms), (int64_t)r->from_ms,
                                    (int64_t)old->boot, (int64_t)old->seq}});
}

/* Time that no record covers, because nothing ran that measured, is a gap of the next one. */
static int store_since(struct store *s, const struct known *k, const struct outbox_record *r,
                       const struct energy_range *since)
{
    int64_t from_ms = (int64_t)r->from_ms, to_ms = (int64_t)r->to_ms;
    int64_t hole_ms = k->last_ms && from_ms > k->last_ms ? from_ms - k->last_ms : 0;
    int e = add_sample(s, k, r, from_ms - hole_ms, since, r->gap_ms + hole_ms);

    e = e ? e : add_to_days(s, k->id, from_ms - hole_ms, to_ms, since, r->gap_ms, hole_ms);
    if (e == 0 && k->whole && s->told_ms)
        e = store_add_news(s, to_ms, since, r->gap_ms + hole_ms);
    return e ? e : set_point(s, k, r);
}

/*
 * Whether the record says something new; *since: the energy since @k, the newest one of its boot.
 */
static bool is_new(const struct known *k, const struct outbox_record *r, struct energy_range *since,
                   struct store_put *ret)
{
    *since = r->total;
    if (!k->seq)
        return true;
    if (r->seq <= k->seq) {
        ret->known++;
        return false;
    }
    if (r->total.uj < k->total.uj || r->total.low_uj < k->total.low_uj ||
        r->total.high_uj < k->total.high_uj) {
        ret->refused++;
        return false;
    }
    since->uj -= k->total.uj;
    since->low_uj -= k->total.low_uj;
    since->high_uj -= k->total.high_uj;
    return true;
}

/* Stores it in any case that is_new(). @k: the point's newest record; it becomes this one. */
static int put_new(struct store *s, struct known *k, const struct outbox_record *r,
                   struct store_put *ret)
{
    bool other = k->seq && k->boot != r->boot;
    struct known same = *k;
    struct energy_range since;
    int e = other ? find_boot(s, r->boot, &same) : 0;

    if (e < 0 || !is_new(&same, r, &since, ret))
        return e;
    if (other)
        e = keep_boot(s, k);
    e = e ? e : store_since(s, k, r, &since);
    if (e < 0)
        return e;
    ret->stored++;
    ret->reboots += other && !same.seq;
    ret->returned += other && same.seq;
    k->last_ms = newest(k->last_ms, (int64_t)r->to_ms);
    k->boot = r->boot;
    k->seq = r->seq;
    k->total = r->total;
    return 0;
}

/* The energy of records that were never sent is in the difference of the totals. */
static int put_one(struct store *s, const char *unit, const struct outbox_record *r,
                   struct store_put *ret)
{
    struct known *seen = possible(r) ? memory_find(s->memory, unit, r->point) : NULL;
    struct known k = seen ? *seen : (struct known){0};
    int e = possible(r) ? 0 : -EINVAL;

    if (e == 0 && !seen)
        e = find_or_add(s, unit, r->point, &k);
    if (e < 0) {
        ret->refused += e == -EINVAL || e == -EUSERS;
        return e == -EINVAL || e == -EUSERS ? 0 : e;
    }
    e = put_new(s, &k, r, ret);
    if (e < 0)
        return e;
    memory_put(s->memory, unit, r->point, &k);
    return 0;
}

int store_put(struct store *s, const char *unit, const struct outbox_record *r, size_t n,
              struct store_put *ret, struct error *err)
{
    struct store_put done = {0};
    bool alone = !s->inside;
    int k = alone ? store_begin(s, err) : s->failed;

    if (alone && k < 0)
        return k;
    for (size_t i = 0; k == 0 && i < n; i++)
        k = put_one(s, unit, &r[i], &done);
    if (k < 0) {
        s->failed = k;
        store_said(s, k, "store records of energy", err);
        if (alone)
            store_roll_back(s);
        return k;
    }
    if (alone && (k = store_commit(s, err)) < 0)
        return k;
    *ret = done;
    return 0;
}

/* ---- erasure ---- */

int store_erase(struct store *s, const char *unit, const char *point, struct error *err)
{
    static const enum statement steps[] = {ERASE_SAMPLES, ERASE_DAYS, ERASE_BOOTS, ERASE_POINTS};
    char other[32];
    const struct values names = {2, 0, {unit, point}, {0}};
    const struct values renamed = {3, 0, {unit, point, point ? hidden(point, other) : NULL}, {0}};
    int64_t gone = 0;
    int r = unit || point
                ? store_begin(s, err)
                : error_word(err,
                             error_set(err, -EINVAL,
                                       "neither a unit nor a user is named: nothing is erased"),
                             "bad-request");

    if (r < 0)
        return r;
    for (size_t i = 0; r == 0 && i < ARRAY_LEN(steps); i++) {
        if (point && steps[i] == ERASE_BOOTS) /* they stay hidden with the point, as its total */
            continue;
        r = point && steps[i] == ERASE_POINTS ? s->db->dialect->write(s->db, HIDE_POINTS, &renamed)
                                              : s->db->dialect->write(s->db, steps[i], &names);
    }
    r = r ? r : s->db->dialect->changed(s->db, &gone);
    memory_forget(s->memory);
    if (r < 0) {
        store_said(s, r, "erase", err);
        store_roll_back(s);
        return r;
    }
    r = store_commit(s, err);
    if (r < 0 || gone)
        return r;
    return error_set(err, -ENOENT, "nothing is stored of %s%s%s", unit ? unit : "any unit",
                     point ? " " : "", point ? point : "");
}

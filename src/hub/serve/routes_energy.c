/* SPDX-License-Identifier: Apache-2.0 */
/* The paths of energy in sums of days: of areas, users and days; and its erasure. */
#include "hub/serve/call.h"

#include "base/name_map.h"
#include "base/wallclock.h"
#include "hub/serve/area_view.h"
#include "hub/serve/cost.h"

#include <errno.h>
#include <string.h>

#define MONTH_MS (30 * INT64_C(86400000))
#define ROWS_MAX 65536

struct totals {
    struct store_total *row;
    size_t count, room;
    bool failed;
};

static bool keep(void *arg, const struct store_total *t)
{
    struct totals *all = arg;
    size_t room = all->room ? 2 * all->room : 64;
    struct store_total *more;

    if (all->count == all->room) {
        more = all->count < ROWS_MAX ? realloc(all->row, room * sizeof(*more)) : NULL;
        all->failed = !more;
        if (!more)
            return false;
        all->row = more;
        all->room = room;
    }
    all->row[all->count++] = *t;
    return true;
}

static double in_uj(const struct store_amount *a)
{
    return (double)a->j * 1e6 + a->uj;
}

static void add_amount(struct store_amount *sum, const struct store_amount *more)
{
    sum->uj += more->uj;
    sum->j += more->j + sum->uj / 1000000;
    sum->uj %= 1000000;
}

struct asking {
    struct call *call;
    const struct in_force *policy;
    int64_t now_ms;
    struct store_span span;
    json_t *rows;
};

/* Energy from before the store counted costs, or before there was a tariff, costs the mean price.
 */
static double cost_of_total(const struct asking *a, const struct store_total *t, int64_t from_ms,
                            int64_t to_ms)
{
    double rest_uj = in_uj(&t->mid) - t->priced_uj;

    to_ms = to_ms < a->now_ms ? to_ms : a->now_ms;
    return t->cost + (rest_uj > 0 ? cost_of(a->policy, rest_uj, from_ms, to_ms) : 0);
}

static void add_row(struct asking *a, const char *key, const struct store_total *t, int64_t from_ms,
                    int64_t to_ms)
{
    char mid[STORE_AMOUNT_MAX], low[STORE_AMOUNT_MAX], high[STORE_AMOUNT_MAX];

    json_array_append_new(
        a->rows,
        json_pack("{s:s,s:s,s:s,s:s,s:s,s:o,s:I}", "key", key, "uj",
                  store_amount_text(&t->mid, mid), "low_uj", store_amount_text(&t->low, low),
                  "high_uj", store_amount_text(&t->high, high), "basis", power_basis_name(t->basis),
                  "cost", cost_json(a->policy, cost_of_total(a, t, from_ms, to_ms)), "gap_ms",
                  (json_int_t)t->gap_ms));
}

/* ---- by area ---- */

static void add_total(struct store_total *sum, const struct store_total *more)
{
    add_amount(&sum->mid, &more->mid);
    add_amount(&sum->low, &more->low);
    add_amount(&sum->high, &more->high);
    sum->gap_ms += more->gap_ms;
    sum->cost += more->cost;
    sum->priced_uj += more->priced_uj;
    if (sum->basis == POWER_UNKNOWN || (more->basis != POWER_UNKNOWN && more->basis < sum->basis))
        sum->basis = more->basis;
}

/* A unit's meters see what lies below it, too; an area without one is the sum of those below. */
static void sum_areas(struct asking *a, const struct shown_areas *areas, const struct totals *units,
                      struct store_total *sum)
{
    struct name_map map = {0};

    if (name_map_reserve(&map, units->count) < 0)
        return;
    for (uint32_t i = 0; i < units->count; i++)
        name_map_put(&map, units->row[i].key, i);
    for (uint32_t i = areas->count; i-- > 0;) {
        const struct shown_area *area = &areas->area[i];
        uint32_t of = area->unit_name ? name_map_get(&map, area->unit_name) : NAME_MAP_NONE;

        if (of != NAME_MAP_NONE)
            sum[i] = units->row[of];
        if (area->parent != UINT32_MAX && !areas->area[area->parent].unit_name)
            add_total(&sum[area->parent], &sum[i]);
    }
    free(map.slot);
    for (uint32_t i = 0; i < areas->count; i++)
        if (sum[i].basis != POWER_UNKNOWN || sum[i].gap_ms)
            add_row(a, areas->area[i].path, &sum[i], a->span.from_ms, a->span.to_ms);
}

static int add_areas(struct asking *a, const struct totals *units)
{
    struct shown_areas areas;
    struct store_total *sum;
    int r = area_view_make(a->call->hub, &areas);

    if (r < 0)
        return r;
    sum = calloc(areas.count ? areas.count : 1, sizeof(*sum));
    if (sum)
        sum_areas(a, &areas, units, sum);
    free(sum);
    area_view_done(&areas);
    return sum ? 0 : -ENOMEM;
}

/* ---- the question ---- */

/* Which day it was, on the clock of the policy. */
static void day_text(const struct in_force *policy, int64_t day_ms, char ret[ZONES_TIME_MAX])
{
    zones_text(policy ? policy_day_zone(&policy->rules) : NULL, day_ms / 1000, ret);
    ret[strcspn(ret, " ")] = '\0';
}

static bool take_question(struct call *c, struct store_question *q)
{
    static const char *const by[] = {"area", "user", "day"};
    const char *text = httpd_argument(c->http, "by");
    int64_t now = (int64_t)wallclock_ms();
    size_t i = 0;

    *q = (struct store_question){.from_ms = now - MONTH_MS, .to_ms = now};
    while (i < 3 && strcmp(text ? text : "area", by[i]) != 0)
        i++;
    if (i == 3) {
        call_fail(c, HTTP_BAD_REQUEST, "", "by is '%.40s': use area, user or day", text);
        return false;
    }
    q->by = i == 0 ? STORE_BY_UNIT : i == 1 ? STORE_BY_USER : STORE_BY_DAY;
    if (q->by == STORE_BY_USER && c->who.role < ROLE_ADMINISTRATOR)
        q->user = c->who.name;
    return call_query_whole(c, "from", 0, INT64_C(1) << 45, &q->from_ms) &&
           call_query_whole(c, "to", 0, INT64_C(1) << 45, &q->to_ms);
}

static int answer_rows(struct asking *a, const struct store_question *q, const struct totals *all)
{
    char day[ZONES_TIME_MAX];

    if (q->by == STORE_BY_UNIT)
        return add_areas(a, all);
    for (size_t i = 0; i < all->count; i++) {
        const struct store_total *t = &all->row[i];

        if (q->by == STORE_BY_DAY) {
            day_text(a->policy, t->day_ms, day);
            add_row(a, day, t, t->day_ms, t->end_ms);
        } else {
            add_row(a, t->key, t, a->span.from_ms, a->span.to_ms);
        }
    }
    return 0;
}

void route_energy(struct call *c)
{
    struct asking a = {
        .call = c, .policy = tree_policy(c->hub->tree), .now_ms = (int64_t)wallclock_ms()};
    struct totals all = {0};
    struct store_question q;
    struct error err = {0};
    int r;

    if (!take_question(c, &q))
        return;
    r = store_totals(c->hub->store, &q, &a.span, keep, &all, &err);
    a.rows = json_array();
    if (r == 0 && !all.failed)
        r = answer_rows(&a, &q, &all);
    if (r < 0 || all.failed) {
        json_decref(a.rows);
        if (r < 0 && err.code)
            call_fail_of(c, &err);
        else
            call_fail(c, HTTP_FAILED, "Ask for a shorter time.", "out of memory");
    } else {
        call_answer(c, HTTP_OK,
                    json_pack("{s:I,s:I,s:b,s:o,s:o}", "from_ms", (json_int_t)a.span.from_ms,
                              "to_ms", (json_int_t)a.span.to_ms, "filling", a.span.filling,
                              "currency", call_text_or_null(cost_currency(a.policy)), "rows",
                              a.rows));
    }
    free(all.row);
}

/* ---- erasure ---- */

void route_erase(struct call *c)
{
    const char *unit = httpd_argument(c->http, "unit"), *user = httpd_argument(c->http, "user");
    char point[OUTBOX_POINT_MAX];
    struct error err = {0};

    if (!unit == !user || (user && strlen(STORE_USER) + strlen(user) >= sizeof(point))) {
        call_fail(c, HTTP_BAD_REQUEST, "", "say whose: ?unit=NAME or ?user=NAME");
        return;
    }
    snprintf(point, sizeof(point), STORE_USER "%s", user ? user : "");
    store_erase(c->hub->store, unit, user ? point : NULL, &err);
    answers_forget(c->answers);
    call_audit(c, unit ? "energy.erase unit" : "energy.erase user", unit ? unit : user, &err);
    if (err.code)
        call_fail_of(c, &err);
    else
        call_answer(c, HTTP_OK, json_object());
}

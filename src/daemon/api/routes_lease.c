/* SPDX-License-Identifier: Apache-2.0 */
/* Paths for the unit of this machine's area: the power lease, and what watts are worth here. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "daemon/api/api.h"
#include "daemon/api/view_cap.h"
#include "daemon/daemon.h"
#include "daemon/energy/cap.h"
#include "daemon/energy/meter.h"
#include "daemon/plan/decision.h"
#include "power/division/demand.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_WORD "bad-request"

#define TTL_MAX_MS 600000

static bool may_lease(struct request *r)
{
    if (control_may_lease(r->daemon, &r->who))
        return true;
    request_fail_as(r, HTTP_FORBIDDEN, "admin-only",
                    r->daemon->uid == 0 ? "Ask to be added to the power group, tide.conf(5)." : "",
                    "only the daemon's user, root and the power group set the power lease");
    return false;
}

static bool read_kind(struct request *r, uint32_t *ret)
{
    const char *name = json_string_value(json_object_get(r->body, "kind"));

    for (uint32_t k = 0; name && k < CAP_KIND_MAX; k++)
        if (strcmp(cap_kind_name(k), name) == 0) {
            *ret = k;
            return true;
        }
    request_fail(r, HTTP_BAD_REQUEST, "", "kind must be breaker, budget or advice");
    return false;
}

void routes_put_lease(struct request *r, struct job *none)
{
    static const char *const fields[] = {"v",   "boot", "stamp", "number", "uw",
                                         "ttl", "kind", "floor", NULL};
    struct cap cap = {.held = true};
    struct error err = {0};
    uint64_t boot = 0, stamp = 0, number = 0, ttl_ms = 0, v = 1;

    if (!may_lease(r) || !request_only_fields(r, fields) ||
        !request_take_amount(r, "v", 1, 1, &v) ||
        !request_take_amount(r, "boot", 0, INT64_MAX, &boot) ||
        !request_take_amount(r, "stamp", 0, INT64_MAX, &stamp) ||
        !request_take_amount(r, "number", 0, INT64_MAX, &number) ||
        !request_take_amount(r, "uw", 1, POWER_UW_MAX, &cap.uw) ||
        !request_take_amount(r, "floor", 0, POWER_UW_MAX, &cap.floor_uw) ||
        !request_take_amount(r, "ttl", 1, TTL_MAX_MS, &ttl_ms) || !read_kind(r, &cap.kind))
        return;
    if (cap.uw == 0 || ttl_ms == 0) {
        request_fail(r, HTTP_BAD_REQUEST, "", "uw and ttl are needed");
        return;
    }
    if (cap.floor_uw > cap.uw)
        cap.floor_uw = cap.uw;
    cap.until_ns = clock_boot_ns() + ttl_ms * NS_PER_MS;
    request_answer_cap(r, cap_set_lease(r->daemon, boot, number, &cap, &err), &err);
}

/* ---- demand ---- */

/* Whether @b lies on or below the line from @a to @c. */
static bool is_below(const struct demand_point *a, const struct demand_point *b,
                     const struct demand_point *c)
{
    return (double)(b->value - a->value) * (double)(c->uw - a->uw) <=
           (double)(c->value - a->value) * (double)(b->uw - a->uw);
}

/* Keeps the points of the smallest concave curve above all; they come by rising uw and value. */
static size_t hull(struct demand_point *p, size_t n)
{
    size_t kept = 1;

    for (size_t i = 1; i < n; i++) {
        if (p[i].uw <= p[kept - 1].uw || p[i].value <= p[kept - 1].value)
            continue;
        while (kept >= 2 && is_below(&p[kept - 2], &p[kept - 1], &p[i]))
            kept--;
        p[kept++] = p[i];
    }
    return kept;
}

/* The watts that k cores need, and what they are worth. Returns how many points, 0: unknown. */
static size_t steps(struct daemon *d, uint32_t cores, struct demand_point *ret)
{
    _cleanup_free_ uint64_t *worth = calloc(cores + 1, sizeof(*worth));

    if (!worth || decision_worth(d, cores, worth) < 0)
        return 0;
    for (uint32_t k = 0; k <= cores; k++) {
        ret[k] = (struct demand_point){cap_needed_uw(d, k * 1000), worth[k]};
        if (ret[k].uw == 0)
            return 0;
    }
    return hull(ret, cores + 1);
}

static json_t *points_of(const struct demand *demand)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < demand->count; i++)
        json_array_append_new(list, json_pack("[I,I]", (json_int_t)demand->point[i].uw,
                                              (json_int_t)demand->point[i].value));
    return list;
}

static json_t *known(uint64_t uw, uint32_t basis)
{
    return basis == POWER_UNKNOWN ? json_null() : json_integer((json_int_t)uw);
}

void routes_get_demand(struct request *r, struct job *none)
{
    uint32_t cores = cpuset_count(&r->daemon->cpus);
    _cleanup_free_ struct demand_point *point = calloc(cores + 1, sizeof(*point));
    const struct power_range *draw;
    struct demand demand = {0};
    size_t n;

    if (!may_lease(r))
        return;
    meter_refresh(r->daemon->meter);
    n = point ? steps(r->daemon, cores, point) : 0;
    if (n)
        demand_reduce(point, n, &demand);
    draw = &meter_now(r->daemon->meter)->machine;
    request_answer(
        r, HTTP_OK,
        json_pack("{s:i,s:o,s:o,s:{s:o,s:o,s:o,s:s}}", "v", 1, "points", points_of(&demand),
                  "floor", n ? json_integer((json_int_t)demand.point[0].uw) : json_null(), "draw",
                  "uw", known(draw->uw, draw->basis), "low", known(draw->low_uw, draw->basis),
                  "high", known(draw->high_uw, draw->basis), "basis",
                  power_basis_name(draw->basis)));
}

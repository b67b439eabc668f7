/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/area/policy.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/muldiv.h"
#include "base/wholefile.h"
#include "edge/bundle.h"
#include "edge/sealed.h"
#include "power/calendar/budget.h"
#include "power/cap/caps.h"
#include "unit/area/spend.h"
#include "unit/log.h"

#define ERROR_WORD "policy-refused"

#define KEY_MAX  4096
#define STORE_NS (60 * NS_PER_S)
#define ZONES_NS (60 * NS_PER_S) /* files of zones that are not there are looked for so often */

struct policy {
    const struct unit_config *config;
    char *key; /* PEM; NULL: no hub is trusted */
    struct bundle *bundle;
    char *sealed; /* as it came, while the disk does not have it; else NULL */
    size_t sealed_len;
    uint64_t tried_ns;
    uint64_t zones_ns; /* when zones were looked for; 0: all are known */
    char amiss[POLICY_AMISS_MAX];
    bool day_known; /* the clock is right, and so is the zone by which days begin */
    char path[CONFIG_PATH_MAX + 24];
    struct spend spend;
};

/* ---- the disk -------------------------------------------------------------------------------- */

static int store(struct policy *p)
{
    int r = fault(FAULT_POLICY_STORE);

    if (r == 0)
        r = wholefile_replace(p->path, p->sealed, p->sealed_len, NULL);
    failpoint(FAILPOINT_UNIT_POLICY_STORED);
    return r;
}

static void store_or_say(struct policy *p, uint64_t now_ns)
{
    int r = store(p);

    p->tried_ns = now_ns;
    if (r < 0) {
        unit_log("%s cannot be written (%s): policy %" PRIu64
                 " is in force, and lost with a restart (tide why state-unusable)",
                 p->path, strerror(-r), p->bundle->number);
        return;
    }
    free(p->sealed);
    p->sealed = NULL;
}

/* ---- taking one ------------------------------------------------------------------------------ */

static int open_bundle(const struct policy *p, const void *bytes, size_t len, struct bundle **ret,
                       struct error *err)
{
    const char *text;
    size_t text_len;
    int r;

    if (!p->key)
        return error_set(
            err, -EBADMSG,
            "a policy came, and the key of the hub is missing: name it by [uplink] seal=");
    r = sealed_open(p->key, SEALED_POLICY, p->config->name, bytes, len, &text, &text_len);
    if (r == -EBADMSG)
        return error_set(err, r,
                         "a policy came that the hub did not seal for %s (or the key of [uplink] "
                         "seal= is another hub's)",
                         p->config->name);
    if (r < 0)
        return error_set(err, r, "a policy came that is not sealed: %s", strerror(-r));
    return bundle_read(text, text_len, NULL, ret, err);
}

static bool names(const char *list, const char *name)
{
    size_t len = strlen(name);

    for (const char *at = list; (at = strstr(at, name)) != NULL; at += len)
        if ((at == list || at[-1] == ' ') && (at[len] == ' ' || at[len] == '\0'))
            return true;
    return false;
}

static bool has_switch(const struct unit_config *c, const char *name)
{
    for (unsigned k = 0; k < c->switches; k++)
        if (strcmp(c->relay[k].name, name) == 0)
            return true;
    return false;
}

/*
 * Lists the names in `off:` that no switch of this unit has. Rules of areas above are for several
 * units, none of which has all of their switches: only a rule of this very area is wrong.
 */
static void list_no_switches(const struct policy *p, char *ret, size_t size)
{
    const struct bundle *b = p->bundle;
    size_t n = 0;

    ret[0] = '\0';
    for (uint32_t i = 0; i < b->set.count; i++) {
        const struct power_rule *r = &b->set.rule[i];
        char off[RULE_OFF_MAX], *rest = off, *name;

        if (r->verb != RULE_OFF || strcmp(r->area, b->area) != 0)
            continue;
        snprintf(off, sizeof(off), "%s", r->off);
        while ((name = strsep(&rest, " ")))
            if (*name && !has_switch(p->config, name) && !names(ret, name) && n < size)
                n += (size_t)snprintf(ret + n, size - n, "%s%s", n ? " " : "", name);
    }
}

static void find_amiss(struct policy *p, uint64_t now_ns)
{
    char none[RULE_OFF_MAX];
    struct error err;
    bool unknown = bundle_zones(p->bundle, &err) < 0;

    p->zones_ns = unknown ? now_ns : 0;
    list_no_switches(p, none, sizeof(none));
    snprintf(p->amiss, sizeof(p->amiss), "%s%s%s%.130s%s",
             none[0] ? "rules name switches that this unit does not have: " : "", none,
             none[0] && unknown ? "; " : "", unknown ? err.text : "",
             unknown ? ": its windows count as open for caps, budgets and scales, and as closed "
                       "for all else"
                     : "");
}

static void put(struct policy *p, struct bundle *b)
{
    bundle_free(p->bundle);
    p->bundle = b;
    find_amiss(p, clock_now_ns());
}

const char *policy_amiss(const struct policy *p)
{
    return p->amiss;
}

int policy_take(struct policy *p, const void *bytes, size_t len, struct error *err)
{
    struct bundle *b;
    char *copy;
    int r = open_bundle(p, bytes, len, &b, err);

    if (r < 0)
        return r;
    if (p->bundle && b->number <= p->bundle->number) {
        uint64_t number = b->number;

        bundle_free(b);
        if (number == p->bundle->number)
            return 0; /* the broker keeps it, and tells it after each connection */
        return error_set(err, -ESTALE,
                         "a policy with number %" PRIu64
                         " came, which is older than number %" PRIu64,
                         number, p->bundle->number);
    }
    copy = malloc(len);
    if (!copy) {
        bundle_free(b);
        return error_set(err, -ENOMEM, "out of memory: the policy is not taken");
    }
    memcpy(copy, bytes, len);
    free(p->sealed);
    p->sealed = copy;
    p->sealed_len = len;
    put(p, b);
    store_or_say(p, clock_now_ns());
    return 1;
}

int policy_open_command(const struct policy *p, const void *bytes, size_t len,
                        const char **ret_text, size_t *ret_len)
{
    return p->key ? sealed_open(p->key, SEALED_CMD, p->config->name, bytes, len, ret_text, ret_len)
                  : -EBADMSG;
}

/* ---- what is in force ------------------------------------------------------------------------ */

static void lower(struct policy_force *f, uint64_t cap_uw, uint32_t kind, const char *why,
                  unsigned line)
{
    if (f->cap_uw == POLICY_FREE || kind < f->kind)
        f->kind = kind;
    if (cap_uw >= f->cap_uw)
        return;
    f->cap_uw = cap_uw;
    snprintf(f->why, sizeof(f->why), "%s%.0u of policy %" PRIu64, why, line, f->number);
}

static struct budget today(const struct policy *p, const struct rule_view *v, uint64_t day_uj)
{
    return (struct budget){.day_uj = day_uj,
                           .used_uj = spend_used_uj(&p->spend),
                           .floor_uw = v->floor_uw,
                           .begin_utc_s = p->spend.day[0].begin_s,
                           .end_utc_s = p->spend.end_s};
}

/*
 * This unit's part of a shared budget while nobody lends: what its last lease of the day came to
 * (all units' leases together came to what was left), or the part in the policy.
 */
static uint64_t part_alone(const struct policy *p, const struct rule_view *v,
                           const struct power_rule *r)
{
    const struct spend_day *day = &p->spend.day[0];
    uint64_t day_s = (uint64_t)(p->spend.end_s - day->begin_s);

    return day->lent_uj ? day->lent_uj : add_sat(r->alone, mul_div(v->floor_uw, day_s, 1));
}

/*
 * The energy that the area may use today. The lender keeps the sum of a shared budget as long as it
 * lends; the energy that its lease comes to is noted for the time without it.
 */
static uint64_t budget_today(struct policy *p, const struct rule_view *v, const struct rule_now *at,
                             uint64_t lease_uw)
{
    const struct bundle *b = p->bundle;
    uint64_t least = v->budget_uj, lent = POLICY_FREE;

    for (uint32_t i = rules_next(&b->set, b->area, at, RULE_BUDGET, 0); i != RULE_NONE;
         i = rules_next(&b->set, b->area, at, RULE_BUDGET, i + 1)) {
        const struct power_rule *r = &b->set.rule[i];
        struct budget day = today(p, v, r->amount);
        uint64_t uj;

        if (!r->alone || (lease_uw != POLICY_FREE && !p->day_known))
            continue;
        if (lease_uw == POLICY_FREE) {
            uj = part_alone(p, v, r);
            least = uj < least ? uj : least;
            continue;
        }
        bundle_weigh(b, r->shape, &day);
        uj = add_sat(day.used_uj, budget_of_cap_uj(&day, at->utc_s, lease_uw));
        lent = uj < lent ? uj : lent;
    }
    if (lent != POLICY_FREE)
        p->spend.day[0].lent_uj = lent ? lent : 1; /* 0 says that nobody lent anything */
    return least;
}

static uint64_t budget_cap(const struct policy *p, const struct rule_view *v,
                           const struct rule_now *at, uint64_t day_uj)
{
    struct budget b = today(p, v, day_uj);

    if (!p->day_known) /* which hour of which day it is, nobody knows */
        return budget_flat_uw(day_uj, v->floor_uw);
    bundle_weigh(p->bundle, v->shape, &b);
    return budget_cap_uw(&b, at->utc_s);
}

static uint32_t switches_off(const struct policy *p, const struct rule_now *now)
{
    const struct rule_set *s = &p->bundle->set;
    uint32_t off = 0;

    for (uint32_t i = rules_next(s, p->bundle->area, now, RULE_OFF, 0); i != RULE_NONE;
         i = rules_next(s, p->bundle->area, now, RULE_OFF, i + 1))
        for (unsigned k = 0; k < p->config->switches; k++)
            if (names(s->rule[i].off, p->config->relay[k].name))
                off |= 1u << k;
    return off;
}

/* Absence that began before a restart is longer than anybody saw: only who comes ends it. */
static bool is_unsure(const struct rule_set *s, const struct power_rule *r,
                      const struct rule_now *now, bool present)
{
    switch (r->condition) {
    case IF_WINDOW:
        return !now->synchronised || !zone_known(s->zone[r->window.zone]);
    case IF_CARBON:
        return now->carbon == RULE_UNKNOWN;
    case IF_PRICE:
        return now->price == RULE_UNKNOWN;
    default:
        return r->condition == IF_ABSENT && !present;
    }
}

static uint32_t switches_unsure(const struct policy *p, const struct rule_now *now, bool present)
{
    const struct rule_set *s = &p->bundle->set;
    uint32_t unsure = 0;

    for (uint32_t i = 0; i < s->count; i++) {
        const struct power_rule *r = &s->rule[i];

        if (r->verb != RULE_OFF || !area_below(p->bundle->area, r->area) ||
            !is_unsure(s, r, now, present))
            continue;
        for (unsigned k = 0; k < p->config->switches; k++)
            if (names(r->off, p->config->relay[k].name))
                unsure |= 1u << k;
    }
    return unsure;
}

/* The watts that children fall to without leases: no cap below that can be kept. */
static uint64_t floors(const struct unit_config *c)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < c->children; i++)
        sum = add_sat(sum, c->child[i].floor_uw);
    return sum;
}

static void force_rules(struct policy *p, const struct policy_now *now, struct policy_force *f)
{
    const struct bundle *b = p->bundle;
    struct rule_now at = {(int64_t)(now->wall_ms / 1000), now->synced,
                          bundle_carbon(b, now->wall_ms), 0, now->absent_s};
    struct rule_view v;

    at.price = tariff_price(&b->tariff, b->set.zone, at.utc_s);
    if (!now->synced)
        at.carbon = at.price = RULE_UNKNOWN;
    rules_view(&b->set, b->area, &at, &v);
    f->floor_uw = v.floor_uw;
    if (!f->ended) { /* after its end nothing is switched, on or off */
        f->off = switches_off(p, &at);
        f->unsure = switches_unsure(p, &at, now->present);
    }
    if (f->ended) {
        uint64_t least = floors(p->config);

        if (rules_have_breaker(&b->set, b->area))
            lower(f, v.floor_uw > least ? v.floor_uw : least, CAP_BREAKER,
                  "the floor after the end", 0);
        return;
    }
    if (v.cap_by != RULE_NONE)
        lower(f, v.cap_uw, v.kind, "line ", b->set.rule[v.cap_by].line);
    if (v.budget_by != RULE_NONE) {
        f->budget_uj = budget_today(p, &v, &at, now->lease_uw);
        lower(f, budget_cap(p, &v, &at, f->budget_uj), CAP_BUDGET, "today's budget in line ",
              b->set.rule[v.budget_by].line);
    }
    if (v.scale_by != RULE_NONE && f->cap_uw != POLICY_FREE) {
        uint64_t scaled = mul_div(f->cap_uw, v.scale_permille, 1000);

        lower(f, scaled > v.floor_uw ? scaled : v.floor_uw, f->kind, "the scale in line ",
              b->set.rule[v.scale_by].line);
    }
}

void policy_tick(struct policy *p, const struct policy_now *now, struct policy_force *ret)
{
    const struct bundle *b = p->bundle;
    const struct zone *zone = b && b->set.zone_count ? b->set.zone[0] : NULL;

    p->day_known = b && now->synced && (!zone || zone_known(zone));
    *ret =
        (struct policy_force){.cap_uw = POLICY_FREE, .kind = CAP_ADVICE, .budget_uj = POLICY_FREE};
    spend_tick(&p->spend, zone, p->day_known ? (int64_t)(now->wall_ms / 1000) : 0, &now->meters,
               now->capped_uw, now->now_ns);
    ret->used_uj = spend_used_uj(&p->spend);
    if (!b)
        return;
    if (p->zones_ns && now->now_ns - p->zones_ns >= ZONES_NS)
        find_amiss(p, now->now_ns);
    ret->number = b->number;
    ret->ended = now->wall_ms >= b->valid_until_ms;
    force_rules(p, now, ret);
    if (p->sealed && now->now_ns - p->tried_ns >= STORE_NS)
        store_or_say(p, now->now_ns);
}

/* ---- begin and end --------------------------------------------------------------------------- */

static int read_key(struct policy *p, struct error *err)
{
    const char *path = p->config->seal;
    struct stat status;
    uint8_t none[SEAL_BYTES] = {0};
    size_t len;
    int r;

    if (!path[0])
        return 0;
    r = wholefile_read(path, KEY_MAX, &p->key, &len, &status);
    if (r < 0)
        return error_set(err, r, "cannot read the hub's key %s: %s", path, strerror(-r));
    r = seal_check(p->key, "", 0, none);
    if (r != -EBADMSG) /* a key that can say no is one */
        return error_set(err, -EINVAL, "%s is no public key of a hub (Ed25519, PEM)", path);
    return 0;
}

static void load(struct policy *p)
{
    _cleanup_free_ char *bytes = NULL;
    struct stat status;
    struct bundle *b;
    struct error err;
    size_t len;
    int r = wholefile_read(p->path, SEALED_BYTES_MAX, &bytes, &len, &status);

    if (r == -ENOENT || !p->key)
        return;
    if (r < 0) {
        unit_log("%s cannot be read: %s; the hub sends the policy again (tide why state-unusable)",
                 p->path, strerror(-r));
        return;
    }
    if (open_bundle(p, bytes, len, &b, &err) < 0) {
        unit_err_of(&err, "%s is not used: %s", p->path, err.text);
        return;
    }
    put(p, b);
    unit_log("policy %" PRIu64 ", read from the disk, is in force", b->number);
}

int policy_new(const struct unit_config *config, struct policy **ret, struct error *err)
{
    struct policy *p = calloc(1, sizeof(*p));
    int r;

    if (!p)
        return error_set(err, -ENOMEM, "out of memory: policies cannot be followed");
    p->config = config;
    snprintf(p->path, sizeof(p->path), "%s/policy.sealed", config->state_dir);
    r = read_key(p, err);
    if (r < 0) {
        policy_free(p);
        return r;
    }
    load(p);
    spend_open(&p->spend, config->state_dir);
    *ret = p;
    return 0;
}

struct policy *policy_free(struct policy *p)
{
    if (!p)
        return NULL;
    bundle_free(p->bundle);
    free(p->sealed);
    free(p->key);
    free(p);
    return NULL;
}

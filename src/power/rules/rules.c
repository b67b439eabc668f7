/* SPDX-License-Identifier: Apache-2.0 */
#include "power/rules/rules.h"

#include <string.h>

size_t area_length(const char *area)
{
    size_t n = 0;

    while (n < AREA_PATH_MAX && area[n])
        n++;
    return n;
}

static bool name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
}

bool area_valid(const char *area)
{
    size_t n = area_length(area);
    uint32_t names = 1;

    if (n == 0 || n == AREA_PATH_MAX || area[0] == '/' || area[n - 1] == '/')
        return false;
    for (size_t i = 0; i < n; i++) {
        if (area[i] == '/' && (area[i + 1] == '/' || ++names > AREA_DEPTH_MAX))
            return false;
        if (area[i] == '.' && (i == 0 || area[i - 1] == '/'))
            return false; /* a file's name one day: neither "." nor ".." nor hidden */
        if (area[i] != '/' && !name_char(area[i]))
            return false;
    }
    return true;
}

bool area_below(const char *area, const char *top)
{
    size_t a = area_length(area), t = area_length(top);

    return a >= t && memcmp(area, top, t) == 0 && (area[t] == '\0' || area[t] == '/');
}

/* Whether the rule says less than nothing of its kind: such rules hold when in doubt. */
static bool restricts(uint32_t verb)
{
    return verb == RULE_CAP || verb == RULE_BUDGET || verb == RULE_SCALE;
}

/* Whether anybody knows if a window of the rule's zone is open. */
static bool told(const struct rule_set *s, const struct power_rule *r, const struct rule_now *now)
{
    return now->synchronised && zone_known(s->zone[r->window.zone]);
}

bool rule_open(const struct rule_set *s, uint32_t rule, const struct rule_now *now)
{
    const struct power_rule *r = &s->rule[rule];

    switch (r->condition) {
    case IF_ALWAYS:
        return true;
    case IF_WINDOW:
        if (!told(s, r, now))
            return restricts(r->verb);
        return window_open(&r->window, s->zone[r->window.zone], now->utc_s);
    case IF_CARBON:
        return now->carbon != RULE_UNKNOWN && now->carbon > r->above;
    case IF_PRICE:
        return now->price != RULE_UNKNOWN && now->price > r->above;
    case IF_ABSENT:
        return now->absent_s >= r->absent_s;
    default:
        return false;
    }
}

static void take_cap(struct rule_view *v, const struct power_rule *r, uint32_t i)
{
    if (v->cap_by == RULE_NONE || r->kind < v->kind)
        v->kind = r->kind;
    if (r->amount < v->cap_uw) {
        v->cap_uw = r->amount;
        v->cap_by = i;
    }
}

static void take(struct rule_view *v, const struct rule_set *s, uint32_t i, const char *area)
{
    const struct power_rule *r = &s->rule[i];

    switch (r->verb) {
    case RULE_CAP:
        take_cap(v, r, i);
        break;
    case RULE_FLOOR:
        if (r->amount > v->floor_uw && area_length(area) == area_length(r->area)) {
            v->floor_uw = r->amount;
            v->floor_by = i;
        }
        break;
    case RULE_BUDGET:
        if (r->amount < v->budget_uj) {
            v->budget_uj = r->amount;
            v->budget_by = i;
            v->shape = r->shape;
        }
        break;
    case RULE_SCALE:
        if (r->amount < v->scale_permille) {
            v->scale_permille = (uint32_t)r->amount;
            v->scale_by = i;
        }
        break;
    default:
        break;
    }
}

void rules_view(const struct rule_set *s, const char *area, const struct rule_now *now,
                struct rule_view *ret)
{
    *ret = (struct rule_view){.cap_uw = RULE_UNLIMITED,
                              .budget_uj = RULE_UNLIMITED,
                              .kind = KIND_ADVICE,
                              .scale_permille = 1000,
                              .cap_by = RULE_NONE,
                              .floor_by = RULE_NONE,
                              .budget_by = RULE_NONE,
                              .scale_by = RULE_NONE,
                              .next_utc_s = INT64_MAX};
    for (uint32_t i = 0; i < s->count; i++) {
        const struct power_rule *r = &s->rule[i];

        if (!area_below(area, r->area))
            continue;
        if (r->condition == IF_WINDOW && told(s, r, now)) {
            int64_t edge = window_edge(&r->window, s->zone[r->window.zone], now->utc_s);

            if (edge > now->utc_s && edge < ret->next_utc_s)
                ret->next_utc_s = edge;
        }
        if (rule_open(s, i, now))
            take(ret, s, i, area);
    }
}

uint32_t rules_next(const struct rule_set *s, const char *area, const struct rule_now *now,
                    uint32_t verb, uint32_t from)
{
    for (uint32_t i = from; i < s->count; i++)
        if (s->rule[i].verb == verb && area_below(area, s->rule[i].area) && rule_open(s, i, now))
            return i;
    return RULE_NONE;
}

bool rules_have_breaker(const struct rule_set *s, const char *area)
{
    for (uint32_t i = 0; i < s->count; i++)
        if (s->rule[i].verb == RULE_CAP && s->rule[i].kind == KIND_BREAKER &&
            area_below(area, s->rule[i].area))
            return true;
    return false;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The areas as people see them: each with what its unit says, or with the sum of what lies below
 * it. Event loop's thread; private to this room.
 */
#pragma once

#include "hub/serve/web.h"

#include <jansson.h>

/* One area; parents stand before what lies below them. */
struct shown_area {
    char path[AREA_PATH_MAX];
    const char *name;         /* for people; NULL: none but the path */
    const char *unit_name;    /* NULL: no unit stands here */
    const struct unit *unit;  /* NULL: it was never heard */
    uint32_t parent, end;     /* indices; UINT32_MAX: no parent; all before @end lie below it */
    struct power_range power; /* its unit's, or the sum; basis POWER_UNKNOWN: nobody knows */
    uint32_t units, silent;   /* here and below: all, and those whose draw nobody knows */
};

struct shown_areas {
    struct shown_area *area;
    uint32_t count;
    const struct in_force *policy; /* NULL: none is in force */
    json_t *price;                 /* of area_view_with_price() */
};

/* The areas as they are now. Borrows the tree's units and policy. Returns 0 or -ENOMEM. */
int area_view_make(const struct web_options *hub, struct shown_areas *ret);
void area_view_done(struct shown_areas *a);

/* The area of that path; NULL: there is none. */
const struct shown_area *area_view_find(const struct shown_areas *a, const char *path);

/* Adds what a kWh costs to those that area_view_json() will show. */
void area_view_with_price(struct shown_areas *a);

/* AREA of docs/openapi-hub.yaml. NULL: no memory. */
json_t *area_view_json(const struct web_options *hub, const struct shown_areas *a,
                       const struct shown_area *area);
json_t *area_view_power(const struct shown_area *area);
const char *area_view_state(const struct shown_area *area);

/* The values that conditions of the area's rules are compared with at that time. */
struct rule_now area_view_now(const struct web_options *hub, const struct shown_area *area,
                              int64_t utc_s);

/* "policy.yaml:12: unlp/lab3: cap 800 W …"; null for RULE_NONE. */
json_t *area_view_by(const struct power_policy *rules, uint32_t rule);

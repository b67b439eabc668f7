/* SPDX-License-Identifier: Apache-2.0 */
/* The state that the parts of the tree share. Private to this room; event loop's thread. */
#pragma once

#include "edge/bundle.h"
#include "edge/lending.h"
#include "edge/mqtt.h"
#include "hub/tree/carbon.h"
#include "hub/tree/tree.h"

#define ORDERS_MAX 256 /* that wait for their outcome */

/* The store's sums of today, as budgets.c looked at them last. */
struct today {
    int64_t begin_s, end_s;
    bool known;      /* what units used is */
    bool ends_known; /* up to when units' records are stored is */
};

struct tree {
    struct tree_options options;
    sd_event_source *flush, *tick, *reload;
    struct ingest *ingest;
    struct units *units;
    struct members *members; /* members.c */
    struct mqtt *mqtt;
    char *seal_key; /* PEM */
    struct in_force policy;
    struct carbon carbon;
    struct bundle *bundle; /* to be sent: all but the area is filled in */
    size_t next_policy;    /* units before it have their policy */
    int carbon_said;       /* what was said of its file */
    bool unrenewed;        /* said that the policy cannot be renewed */
    struct tree_order order[ORDERS_MAX];
    size_t orders;
    struct lending *lending;
    bool lends;          /* some cap holds for several units together */
    int64_t caps_due_ms; /* when the caps have to be looked at again */
    struct today day;
    bool news;       /* of leases: divide again at the next flush */
    bool has_parent; /* a hub above this one lends us what we lend */
    uint64_t parent_cap_uw;
    uint32_t parent_kind; /* enum cap_kind */
    struct above *above;  /* NULL: no hub is above this one */
};

__attribute__((format(printf, 3, 4))) void tree_say(const struct tree *t, const char *who,
                                                    const char *fmt, ...);
void tree_changed(const struct tree *t, const struct unit *u, enum tree_what what,
                  const struct payload_event *event);

/* sender.c: the policy goes to units. */
int sender_begin(struct tree *t, struct error *err);
void sender_end(struct tree *t);
void sender_again(struct tree *t); /* all get theirs, from the first on */
void sender_send(struct tree *t);  /* as far as the broker takes it */
void sender_tick(struct tree *t);  /* what is old is made anew */

/* orders.c: commands. */
void orders_event(struct tree *t, const struct unit *u, const struct payload_event *event);
void orders_tick(struct tree *t);

/* members.c: certificates; begins before the connection to the broker. */
int members_begin(struct tree *t, struct error *err);
void members_end(struct tree *t);
void members_tick(struct tree *t);
bool members_revoked(const struct tree *t, const char *name);
/* Whether a unit that just sent something is revoked: it is cut off then. */
bool members_refuse(struct tree *t, struct unit *u);
void members_again(struct tree *t); /* this may be another broker, or one that forgot */
void members_request(struct tree *t, struct unit *u, const void *bytes, size_t len);

/* above.c: the hub above this one. Begins before the caps are looked at. */
int above_begin(struct tree *t, struct error *err);
void above_end(struct tree *t);
void above_tick(struct tree *t);
bool above_budget(const struct tree *t, const struct rule_now *now, struct rule_view *ret);
const struct bundle *above_policy(const struct tree *t);

/* caps.c: leases. */
int caps_begin(struct tree *t, struct error *err);
void caps_end(struct tree *t);
void caps_got(struct tree *t, struct unit *u, enum topic_leaf leaf, const void *bytes, size_t len);
void caps_look(struct tree *t); /* the policy changed, a window opened */
void caps_left(struct tree *t, struct unit *u, const char *area); /* a policy took it from there */
void caps_tick(struct tree *t);

/* budgets.c: budgets that several units share. Returns when the day ends. */
int64_t budgets_look(struct tree *t, int64_t now_s);
/*
 * The area's cap by what is left of its budget of today, v->budget_uj; at least v->floor_uw, and no
 * more while the store does not say what was used.
 * @prices: whose tariff and carbon intensity shape it.
 */
uint64_t budgets_cap_uw(const struct tree *t, const struct bundle *prices, uint32_t area,
                        const struct rule_view *v, const struct rule_now *now);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules of an organization's power policy, as the hub compiles them and as a signed bundle
 * carries them, and what is in force for an area at a time. Pure; any thread. Called by the hub
 * (compile, explain) and by units.
 *
 * A rule names an area, which is a path ("unlp/lab3"), and holds for all areas below it. Caps and
 * budgets bound everything below, so the smallest along the path is in force. A floor is promised
 * to the area that it names alone: the same watts are not promised to each of its rooms again.
 */
#pragma once

#include "power/calendar/window.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RULES_MAX         4096
#define RULES_WINDOWS_MAX 256 /* different ones in a set */
#define RULES_ZONES_MAX   16
#define AREA_PATH_MAX     128 /* "unlp/lab3", with the NUL */
#define AREA_DEPTH_MAX    16
#define RULE_OFF_MAX      64

#define RULE_NONE       UINT32_MAX          /* no rule */
#define RULE_UNLIMITED  UINT64_MAX          /* no cap, no budget */
#define RULE_UNKNOWN    UINT64_MAX          /* nobody knows the carbon intensity or the price */
#define RULE_AMOUNT_MAX (UINT64_C(1) << 56) /* uW or uJ: 72 GW, 20 MWh */

enum rule_verb { RULE_CAP, RULE_FLOOR, RULE_BUDGET, RULE_SCALE, RULE_OFF, RULE_VERB_MAX };
enum rule_if { IF_ALWAYS, IF_WINDOW, IF_CARBON, IF_PRICE, IF_ABSENT, IF_MAX };
enum rule_shape { SHAPE_FLAT, SHAPE_TARIFF, SHAPE_CARBON, SHAPE_MAX };

/* Kinds of a cap by what holds at the end of a lease; the numbers are those of enum cap_kind. */
enum rule_kind { KIND_BREAKER, KIND_BUDGET, KIND_ADVICE, KIND_MAX };

struct power_rule {
    uint32_t verb, condition; /* enum rule_verb, rule_if */
    uint32_t line, column;    /* of the source, for messages */
    char area[AREA_PATH_MAX]; /* counts for all below it; a room is an area, too */
    uint64_t amount;          /* uW, uJ a day, or permille */
    uint64_t alone; /* of a budget that several units share: uJ a day, above its floor, that each
                       of them may use while nobody lends to it; 0: one unit has it for itself */
    uint32_t kind, shape;   /* of caps: enum rule_kind; of budgets: enum rule_shape */
    struct window window;   /* of IF_WINDOW */
    uint64_t above;         /* of IF_CARBON g/kWh, of IF_PRICE thousandths per kWh */
    uint64_t absent_s;      /* of IF_ABSENT */
    char off[RULE_OFF_MAX]; /* names of switches with blanks between */
};

struct rule_set {
    const struct power_rule *rule;
    uint32_t count;
    const struct zone *const *zone;
    uint32_t zone_count;
};

/*
 * The values that conditions are compared with. A condition on something unknown does not hold.
 * While the clock is not synchronised, or its zone is unknown, no window is trusted: each counts as
 * open for caps, budgets and scales, and as closed for everything else.
 */
struct rule_now {
    int64_t utc_s;
    bool synchronised;
    uint64_t carbon, price; /* g/kWh, thousandths per kWh; RULE_UNKNOWN */
    uint64_t absent_s;      /* 0: somebody is there, or nobody knows */
};

/* The rules in force for an area. Every *_by is an index into the set, or RULE_NONE. */
struct rule_view {
    uint64_t cap_uw, floor_uw, budget_uj; /* RULE_UNLIMITED, 0, RULE_UNLIMITED without a rule */
    uint32_t kind;                        /* the strictest of all caps in force, of which cap_uw is
                                             the smallest: a breaker's promise needs no less */
    uint32_t shape;                       /* of the budget */
    uint32_t scale_permille;              /* the smallest; 1000 without a rule */
    uint32_t cap_by, floor_by, budget_by, scale_by;
    int64_t next_utc_s; /* when a window changes any of it; INT64_MAX: none does */
};

/* The length of a path, AREA_PATH_MAX where it has no end there. */
size_t area_length(const char *area);

/* Whether @area is @top or lies below it: "unlp/lab3" below "unlp", but not below "unlp/lab". */
bool area_below(const char *area, const char *top);

/*
 * Whether it is a path of names in [a-z0-9._-] with single slashes between, of at most
 * AREA_DEPTH_MAX names, terminated within AREA_PATH_MAX.
 */
bool area_valid(const char *area);

/* Whether the condition of the rule holds now, wherever it counts. */
bool rule_open(const struct rule_set *s, uint32_t rule, const struct rule_now *now);

/* The set has passed rules_check(). */
void rules_view(const struct rule_set *s, const char *area, const struct rule_now *now,
                struct rule_view *ret);

/* Whether any cap of the area is a breaker's, in force now or at another time. */
bool rules_have_breaker(const struct rule_set *s, const char *area);

/*
 * The first rule from @from on that has this verb and is in force for the area, or RULE_NONE. For
 * RULE_OFF, of which several hold at a time.
 */
uint32_t rules_next(const struct rule_set *s, const char *area, const struct rule_now *now,
                    uint32_t verb, uint32_t from);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The present state of each unit, from its own messages: whether it is connected, its draw, and its
 * demand. The broker has proved each name, so their number is bounded by the certificates. No I/O;
 * the event loop's thread. Used by tree.c and by src/hub/serve.
 */
#pragma once

#include "edge/payload.h"
#include "power/rules/rules.h"

#define UNITS_MAX     65536   /* as AUTHORITY_UNITS_MAX */
#define UNITS_DRAW_MS 60000   /* an older draw is nobody's */
#define UNITS_TWIN_MS 3600000 /* so long after its outboxes took turns, a unit counts as two */

struct unit {
    char name[EDGE_NAME_MAX];
    uint32_t number;          /* of units_at() */
    char area[AREA_PATH_MAX]; /* "": the policy's `areas` does not name it */
    bool topmost;             /* it has an area, which lies in no other unit's */
    bool heard;               /* it was connected at some time since the hub began … */
    bool machine;             /* … and said then that it is one: it reads no policy */
    int64_t since_ms;         /* since when it is connected or lost; 0: never heard */
    struct payload_state state;
    struct payload_demand demand;  /* draw.basis POWER_UNKNOWN: not told */
    int64_t demand_ms;             /* 0: never */
    struct payload_shrunk *shrunk; /* NULL: nobody is; else of shrunk_ms */
    int64_t shrunk_ms;
    uint64_t stored_boot, stored_seq; /* up to where all its records are stored; 0: not known */
    bool asked_again;                 /* for records that the hub has missed */
    int64_t stored_ms; /* the end of its newest stored record; 0: none, or not known */
    int64_t twin_ms; /* when an earlier outbox of it sent again; 0: none did since the hub began */
    /* budgets.c: of today, in the store and not told yet; and at which power the latter counts. */
    uint64_t today_uj, unseen_uj, rate_uw;
    int64_t unseen_from_ms, looked_ms; /* since when unseen_uj counts, and up to when; 0: not yet */
    /* caps.c: where a policy took it from, and the watts that count there until its lease ends. */
    char left_area[AREA_PATH_MAX];
    uint64_t left_uw, left_until_ns; /* by CLOCK_BOOTTIME */
    uint64_t lease_uw;               /* of the newest lease; RULE_UNLIMITED: none */
    bool lease_kept;                 /* the unit has acknowledged it */
    uint64_t policy_sent; /* the number of the policy that the broker has for it; 0: none … */
    uint64_t policy_said; /* … and of the one of which was said that it cannot be sent */
    uint64_t asked_ns;    /* monotonic time of its last request for a certificate */
    uint64_t machines_asked_ns; /* the same of the machines below it */
    bool revoked;               /* its certificates are; members.c knows of those never heard */
    uint64_t cut_due_ns; /* when its connection has to be cut, monotonic; 0: it need not … */
    uint64_t cut_ns;     /* … and when it was last; 0: never */
};

struct units;

int units_new(struct units **ret); /* 0 or -ENOMEM */
struct units *units_free(struct units *u);

/* The unit of that name; NULL: never heard, and no area names it. Pointers stay valid as long as
 * @u. */
const struct unit *units_find(const struct units *u, const char *name);

/* The same, to change; makes it where it is missing. NULL: UNITS_MAX are there, or no memory. */
struct unit *units_make(struct units *u, const char *name);

/* All units in the order in which they became known. */
size_t units_count(const struct units *u);
const struct unit *units_at(const struct units *u, size_t i);
struct unit *units_change(struct units *u, size_t i);

/* Users whose jobs have fewer cores because of a cap; NULL: none, or the unit is lost or has sent
 * nothing lately. */
const struct payload_shrunk *unit_shrunk(const struct unit *u, int64_t now_ms);

/* Whether two programs seem to have its name: their outboxes take turns. */
bool unit_has_twin(const struct unit *u, int64_t now_ms);

/* The unit's draw; basis POWER_UNKNOWN: it is lost, or has not sent one for UNITS_DRAW_MS. */
struct power_range unit_draw(const struct unit *u, int64_t now_ms);

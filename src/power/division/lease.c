/* SPDX-License-Identifier: Apache-2.0 */
#include "power/division/lease.h"

#include "power/cap/caps.h"
#include "power/division/demand_shape.h"

#define MS             UINT64_C(1000000)
#define TERM_NS        (LEASE_TTL_MS * MS / 100 * 102 + 125 * MS) /* a lease's, by the parent's clock */
#define RESEND_NS      (1000 * MS)
#define USELESS_NS     (1000 * MS)  /* a lease that ends so soon is not worth a message */
#define DEFIANT_NS     (10000 * MS) /* above its lease for so long: defiant */
#define OBEDIENT_NS    (60000 * MS) /* below for so long: no longer */
#define SEEN_NS        (60000 * MS) /* an older measurement says nothing */
#define SLACK_PERMILLE 20           /* meters of both sides differ by so much */

/* ---- what counts ----------------------------------------------------------------------------- */

/* What the child's leases allow it; its floor if none is in force. */
static uint64_t allowed(const struct lease *l, uint64_t now_ns)
{
    uint64_t uw = l->floor_uw;

    if (now_ns < l->given_until_ns)
        uw = uw_max(uw, l->given_uw);
    if (now_ns < l->until_ns)
        uw = uw_max(uw, l->offer_uw);
    return uw;
}

static bool ended(const struct lease *l, uint64_t now_ns)
{
    return now_ns >= l->until_ns && now_ns >= l->given_until_ns;
}

uint64_t lease_counts(const struct lease_book *b, uint32_t i, uint64_t now_ns)
{
    const struct lease *l = &b->lease[i];
    bool free = b->kind != CAP_BREAKER && ended(l, now_ns);

    if (l->defiant || (free && l->seen_ns && now_ns < l->seen_ns + SEEN_NS))
        return uw_max(allowed(l, now_ns), l->seen_uw);
    return allowed(l, now_ns);
}

uint64_t lease_sum(const struct lease_book *b, uint64_t now_ns)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < b->count; i++)
        sum = uw_min(sum + lease_counts(b, i, now_ns), DEMAND_MAX);
    return sum;
}

/* ---- offers ---------------------------------------------------------------------------------- */

/*
 * What the old offer may allow goes on to count as given, unless the new one allows as much and
 * lasts as long. Two steps of shrinking become one that lasts as long as the second.
 */
static void offer(struct lease_book *b, struct lease *l, uint64_t uw, uint64_t now_ns)
{
    if (now_ns >= l->given_until_ns)
        l->given_uw = l->given_until_ns = 0;
    if (now_ns < l->until_ns && l->offer_uw > uw) {
        l->given_uw = uw_max(l->given_uw, l->offer_uw);
        l->given_until_ns = uw_max(l->given_until_ns, l->until_ns);
    }
    l->offer_uw = uw;
    l->until_ns = l->asked_ns + TERM_NS;
    l->number = ++b->counter;
    l->sent_ns = 0;
}

/* A child that has not asked for long gets nothing: the lease would have ended when it arrives. */
static bool within_reach(const struct lease_book *b, const struct lease *l, uint64_t now_ns)
{
    return l->boot && now_ns >= b->silent_until_ns &&
           now_ns + USELESS_NS < l->asked_ns + LEASE_TTL_MS * MS;
}

void lease_ask(struct lease_book *b, uint32_t i, uint64_t boot, uint64_t stamp_ns, uint64_t now_ns)
{
    struct lease *l = &b->lease[i];
    uint64_t uw = ended(l, now_ns) ? l->floor_uw : l->offer_uw;

    if (boot == 0 || (boot == l->boot && stamp_ns <= l->stamp_ns))
        return;
    if (b->kind != CAP_BREAKER && ended(l, now_ns)) { /* it is free until it obeys again */
        l->given_uw = lease_counts(b, i, now_ns);
        l->given_until_ns = now_ns + TERM_NS;
    }
    l->boot = boot;
    l->stamp_ns = stamp_ns;
    l->asked_ns = now_ns;
    if (within_reach(b, l, now_ns))
        offer(b, l, uw, now_ns);
}

void lease_want(struct lease_book *b, const uint64_t *want_uw, uint64_t now_ns)
{
    uint64_t sum, free;

    if (now_ns >= b->silent_until_ns)
        b->silent_until_ns = 0;
    for (uint32_t i = 0; i < b->count; i++) {
        struct lease *l = &b->lease[i];

        if (want_uw[i] < l->offer_uw && now_ns < l->until_ns && within_reach(b, l, now_ns))
            offer(b, l, want_uw[i], now_ns);
    }
    sum = lease_sum(b, now_ns);
    free = b->cap_uw > sum ? b->cap_uw - sum : 0;
    for (uint32_t i = 0; i < b->count; i++) {
        struct lease *l = &b->lease[i];
        uint64_t counts = lease_counts(b, i, now_ns), uw = uw_min(want_uw[i], counts + free);

        /* One growth at a time: the child has to keep up before it gets more. */
        if (uw <= l->offer_uw || l->acked != l->number || !within_reach(b, l, now_ns))
            continue;
        offer(b, l, uw, now_ns);
        free -= lease_counts(b, i, now_ns) - counts;
    }
}

/* The newest offer has to go out: never sent, or a second ago and not acknowledged. */
static uint64_t due_ns(const struct lease_book *b, const struct lease *l, uint64_t now_ns)
{
    if (l->acked == l->number || now_ns >= l->until_ns || !within_reach(b, l, now_ns))
        return UINT64_MAX;
    return l->sent_ns ? l->sent_ns + RESEND_NS : 0;
}

bool lease_next(struct lease_book *b, uint64_t now_ns, uint32_t *ret_i, struct lease_message *ret)
{
    for (uint32_t i = 0; i < b->count; i++) {
        struct lease *l = &b->lease[i];

        if (due_ns(b, l, now_ns) > now_ns)
            continue;
        l->sent_ns = now_ns;
        *ret_i = i;
        *ret = (struct lease_message){
            .boot = l->boot,
            .stamp_ns = l->stamp_ns,
            .number = l->number,
            .uw = l->offer_uw,
            .floor_uw = l->floor_uw,
            .ttl_ms = LEASE_TTL_MS,
            .kind = b->kind,
        };
        return true;
    }
    return false;
}

void lease_ack(struct lease_book *b, uint32_t i, uint64_t boot, uint64_t number, uint64_t uw,
               uint64_t now_ns)
{
    struct lease *l = &b->lease[i];

    if (boot != l->boot || number != l->number || uw != l->offer_uw || now_ns >= l->until_ns)
        return;
    l->acked = number;
    l->given_uw = l->given_until_ns = 0;
}

/* ---- measurements ---------------------------------------------------------------------------- */

void lease_seen(struct lease_book *b, uint32_t i, uint64_t low_uw, uint64_t now_ns)
{
    struct lease *l = &b->lease[i];
    uint64_t may = allowed(l, now_ns);

    l->seen_uw = low_uw;
    l->seen_ns = now_ns;
    if (low_uw > may + may / 1000 * SLACK_PERMILLE) {
        l->below_ns = 0;
        l->above_ns = l->above_ns ? l->above_ns : now_ns;
        l->defiant |= now_ns - l->above_ns >= DEFIANT_NS;
    } else {
        l->above_ns = 0;
        l->below_ns = l->below_ns ? l->below_ns : now_ns;
        l->defiant &= now_ns - l->below_ns < OBEDIENT_NS;
    }
}

/* ---- time ------------------------------------------------------------------------------------ */

uint64_t lease_wake(const struct lease_book *b, uint64_t now_ns)
{
    uint64_t next = UINT64_MAX;

    if (now_ns < b->silent_until_ns)
        return b->silent_until_ns;
    for (uint32_t i = 0; i < b->count; i++) {
        const struct lease *l = &b->lease[i];

        next = uw_min(next, uw_max(due_ns(b, l, now_ns), now_ns));
        if (now_ns < l->until_ns)
            next = uw_min(next, l->until_ns);
        if (now_ns < l->given_until_ns)
            next = uw_min(next, l->given_until_ns);
    }
    return next;
}

void lease_recover(struct lease_book *b, bool stored, uint64_t now_ns)
{
    if (!stored || b->silent_until_ns)
        b->silent_until_ns = now_ns + TERM_NS;
    for (uint32_t i = 0; i < b->count; i++) {
        struct lease *l = &b->lease[i];

        l->given_uw = uw_max(l->given_uw, l->number ? l->offer_uw : 0);
        l->given_until_ns = l->given_uw ? now_ns + TERM_NS : 0;
        l->until_ns = 0;
        l->asked_ns = l->stamp_ns = l->boot = 0; /* only an ask of now can be answered */
        l->sent_ns = l->seen_ns = l->above_ns = l->below_ns = 0;
        l->defiant = false;
    }
}

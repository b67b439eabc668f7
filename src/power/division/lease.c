/* SPDX-License-Identifier: Apache-2.0 */
#include "power/division/lease.h"

#include "base/muldiv.h"

#include "power/cap/caps.h"
#include "power/division/demand_shape.h"

#define MS             UINT64_C(1000000)
#define TERM_NS        (LEASE_TTL_MS * MS / 100 * 102 + 125 * MS) /* a lease's, by the parent's clock */
#define ALIKE          256 /* a wish that is by so small a part of an offer another one is the same */
#define RESEND_NS      (1000 * MS)
#define USELESS_NS     (1000 * MS)  /* a lease that ends so soon is not worth a message */
#define DEFIANT_NS     (10000 * MS) /* above its lease for so long: defiant */
#define OBEDIENT_NS    (60000 * MS) /* below for so long: no longer */
#define SEEN_NS        (60000 * MS) /* an older measurement says nothing */
#define SLACK_PERMILLE 20           /* meters of both sides differ by so much */

/* ---- what counts ----------------------------------------------------------------------------- */

/* The watts that the child's leases allow it; its floor if none is in force. */
static uint64_t allowed(const struct lease *l, uint64_t now_ns)
{
    uint64_t uw = l->floor_uw;

    if (now_ns < l->given_until_ns)
        uw = larger_u64(uw, l->given_uw);
    if (now_ns < l->until_ns)
        uw = larger_u64(uw, l->offer_uw);
    return uw;
}

static bool ended(const struct lease *l, uint64_t now_ns)
{
    return now_ns >= l->until_ns && now_ns >= l->given_until_ns;
}

/* Whether the child may draw what it likes when its lease has ended. */
static bool ends_open(const struct lease *l)
{
    return l->loose || l->kind != CAP_BREAKER;
}

uint64_t lease_counts(const struct lease_book *b, uint32_t i, uint64_t now_ns)
{
    const struct lease *l = &b->lease[i];
    bool free = ends_open(l) && ended(l, now_ns);

    if (l->defiant || (free && l->seen_ns && now_ns < l->seen_ns + SEEN_NS))
        return larger_u64(allowed(l, now_ns), l->seen_uw);
    return allowed(l, now_ns);
}

uint64_t lease_sum(const struct lease_book *b, uint64_t now_ns)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < b->count; i++)
        sum = smaller_u64(sum + lease_counts(b, i, now_ns), DEMAND_MAX);
    return sum;
}

static bool lies_in(const struct lease_book *b, const struct lease *l, uint32_t group)
{
    for (uint32_t g = l->group; g != LEASE_NO_GROUP; g = b->group[g].parent)
        if (g == group)
            return true;
    return false;
}

uint64_t lease_group_sum(const struct lease_book *b, uint32_t group, uint64_t now_ns)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < b->count; i++)
        if (lies_in(b, &b->lease[i], group))
            sum = smaller_u64(sum + lease_counts(b, i, now_ns), DEMAND_MAX);
    return sum;
}

/* ---- offers ---------------------------------------------------------------------------------- */

/*
 * Makes a new offer. The watts of the old one go on to count as given, unless the new one allows as
 * much and lasts as long. Two steps of shrinking become one that lasts as long as the second.
 */
static void offer(struct lease_book *b, struct lease *l, uint64_t uw, uint64_t now_ns)
{
    if (now_ns >= l->given_until_ns)
        l->given_uw = l->given_until_ns = 0;
    if (now_ns < l->until_ns && l->offer_uw > uw) {
        l->given_uw = larger_u64(l->given_uw, l->offer_uw);
        l->given_until_ns = larger_u64(l->given_until_ns, l->until_ns);
    }
    l->offer_uw = uw;
    l->offer_kind = l->kind;
    l->loose |= l->kind != CAP_BREAKER;
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
    if (ends_open(l) && ended(l, now_ns)) { /* it is free until it obeys again */
        l->given_uw = lease_counts(b, i, now_ns);
        l->given_until_ns = now_ns + TERM_NS;
    }
    l->boot = boot;
    l->stamp_ns = stamp_ns;
    l->asked_ns = now_ns;
    if (within_reach(b, l, now_ns))
        offer(b, l, uw, now_ns);
}

/*
 * The watts of a lease that has ended go to others. The book that is stored with their growth must
 * not hold it any more: after a restart it would be renewed on top of theirs.
 */
static void forget_ended(struct lease *l, uint64_t now_ns)
{
    if (now_ns >= l->given_until_ns)
        l->given_uw = l->given_until_ns = 0;
    if (ended(l, now_ns))
        l->offer_uw = 0;
}

/* ---- room below the caps --------------------------------------------------------------------- */

static uint64_t room_of(uint64_t cap_uw, uint64_t sum_uw)
{
    if (cap_uw >= DEMAND_MAX)
        return DEMAND_MAX;
    return cap_uw > sum_uw ? cap_uw - sum_uw : 0;
}

/* Sums of all groups; returns that of all children. */
static uint64_t sum_up(struct lease_book *b, uint64_t now_ns)
{
    uint64_t sum = 0;

    for (uint32_t g = 0; g < b->groups; g++)
        b->group[g].sum_uw = 0;
    for (uint32_t i = 0; i < b->count; i++) {
        uint64_t uw = lease_counts(b, i, now_ns);
        uint32_t g = b->groups ? b->lease[i].group : LEASE_NO_GROUP;

        sum = smaller_u64(sum + uw, DEMAND_MAX);
        for (; g != LEASE_NO_GROUP; g = b->group[g].parent)
            b->group[g].sum_uw = smaller_u64(b->group[g].sum_uw + uw, DEMAND_MAX);
    }
    return sum;
}

static uint64_t room_for(const struct lease_book *b, const struct lease *l, uint64_t sum)
{
    uint64_t room = room_of(b->cap_uw, sum);
    uint32_t g = b->groups ? l->group : LEASE_NO_GROUP;

    for (; g != LEASE_NO_GROUP; g = b->group[g].parent)
        room = smaller_u64(room, room_of(b->group[g].cap_uw, b->group[g].sum_uw));
    return room;
}

static void take_room(struct lease_book *b, const struct lease *l, uint64_t uw, uint64_t *sum)
{
    uint32_t g = b->groups ? l->group : LEASE_NO_GROUP;

    *sum = smaller_u64(*sum + uw, DEMAND_MAX);
    for (; g != LEASE_NO_GROUP; g = b->group[g].parent)
        b->group[g].sum_uw = smaller_u64(b->group[g].sum_uw + uw, DEMAND_MAX);
}

/*
 * The child's answer may still come: no other offer until then. A machine whose own load lies above
 * its lease never acknowledges it, and all the same gets more when there is room.
 */
static bool is_in_flight(const struct lease *l, uint64_t now_ns)
{
    return l->acked != l->number && l->sent_ns && now_ns - l->sent_ns < RESEND_NS;
}

/* Wishes change with each measurement: what is hardly another is no message worth, nor a write. */
static bool is_hardly_another(uint64_t uw, uint64_t offer_uw)
{
    return uw < offer_uw ? offer_uw - uw < offer_uw / ALIKE : uw - offer_uw < offer_uw / ALIKE;
}

/* A wish that is worth an offer by itself. */
static bool is_worth_it(const struct lease_book *b, const struct lease *l, uint64_t uw,
                        uint64_t now_ns)
{
    return !is_hardly_another(uw, l->offer_uw) && within_reach(b, l, now_ns);
}

/* Plans what counts once all wishes that are worth an offer are fulfilled. Returns the sum. */
static uint64_t plan(struct lease_book *b, const uint64_t *want_uw, uint64_t now_ns)
{
    uint64_t sum = 0;

    for (uint32_t g = 0; g < b->groups; g++)
        b->group[g].sum_uw = 0;
    for (uint32_t i = 0; i < b->count; i++) {
        const struct lease *l = &b->lease[i];
        uint64_t uw = lease_counts(b, i, now_ns);

        if (is_worth_it(b, l, want_uw[i], now_ns))
            uw = larger_u64(larger_u64(want_uw[i], l->floor_uw), l->defiant ? uw : 0);
        take_room(b, l, uw, &sum);
    }
    return sum;
}

/* Returns how far the planned sums exceed the caps that bound the child. */
static uint64_t excess_of(const struct lease_book *b, const struct lease *l, uint64_t sum)
{
    uint64_t excess = sub_sat(sum, b->cap_uw);
    uint32_t g = b->groups ? l->group : LEASE_NO_GROUP;

    for (; g != LEASE_NO_GROUP; g = b->group[g].parent)
        excess = larger_u64(excess, sub_sat(b->group[g].sum_uw, b->group[g].cap_uw));
    return excess;
}

static void give_room(struct lease_book *b, const struct lease *l, uint64_t uw, uint64_t *sum)
{
    uint32_t g = b->groups ? l->group : LEASE_NO_GROUP;

    *sum = sub_sat(*sum, uw);
    for (; g != LEASE_NO_GROUP; g = b->group[g].parent)
        b->group[g].sum_uw = sub_sat(b->group[g].sum_uw, uw);
}

/*
 * Offers the shrinks. Those that are hardly any come too while a cap would be exceeded without
 * them: one was lowered, or many children are to give a little to one that grows.
 */
static void shrink(struct lease_book *b, const uint64_t *want_uw, uint64_t now_ns)
{
    uint64_t sum = plan(b, want_uw, now_ns);

    for (uint32_t i = 0; i < b->count; i++) {
        struct lease *l = &b->lease[i];
        uint64_t less = sub_sat(l->offer_uw, want_uw[i]);
        bool small = less && is_hardly_another(want_uw[i], l->offer_uw);
        bool smaller = less && (!small || excess_of(b, l, sum));

        if ((!smaller && l->kind == l->offer_kind) || now_ns >= l->until_ns ||
            !within_reach(b, l, now_ns))
            continue;
        if (small)
            give_room(b, l, less, &sum);
        offer(b, l, smaller_u64(want_uw[i], l->offer_uw), now_ns);
    }
}

void lease_want(struct lease_book *b, const uint64_t *want_uw, uint64_t now_ns)
{
    uint64_t sum;

    if (now_ns >= b->silent_until_ns)
        b->silent_until_ns = 0;
    for (uint32_t i = 0; i < b->count; i++)
        forget_ended(&b->lease[i], now_ns);
    shrink(b, want_uw, now_ns);
    sum = sum_up(b, now_ns);
    for (uint32_t i = 0; i < b->count; i++) {
        struct lease *l = &b->lease[i];
        uint64_t counts = lease_counts(b, i, now_ns);
        uint64_t uw =
            smaller_u64(want_uw[i], smaller_u64(counts + room_for(b, l, sum), DEMAND_MAX));

        /*
         * A child that has shrunk counts with what it had until its acknowledgement is here. As
         * long as a cap is exceeded by such, a larger offer would undo what has been reached.
         */
        if (uw <= l->offer_uw || excess_of(b, l, sum) || is_hardly_another(uw, l->offer_uw) ||
            is_in_flight(l, now_ns) || !within_reach(b, l, now_ns))
            continue;
        offer(b, l, uw, now_ns);
        take_room(b, l, lease_counts(b, i, now_ns) - counts, &sum);
    }
}

/* ---- messages -------------------------------------------------------------------------------- */

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
            .kind = l->offer_kind,
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
    l->loose = l->offer_kind != CAP_BREAKER;
    l->given_uw = l->given_until_ns = 0;
}

/* ---- measurements ---------------------------------------------------------------------------- */

void lease_seen(struct lease_book *b, uint32_t i, uint64_t low_uw, uint64_t now_ns)
{
    struct lease *l = &b->lease[i];
    uint64_t may = allowed(l, now_ns);

    if (!l->defiant || low_uw >= l->seen_uw || now_ns - l->most_ns >= OBEDIENT_NS) {
        l->seen_uw = low_uw;
        l->most_ns = now_ns;
    }
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

void lease_recover(struct lease_book *b, bool stored, uint64_t now_ns)
{
    if (!stored || b->silent_until_ns)
        b->silent_until_ns = now_ns + TERM_NS;
    for (uint32_t i = 0; i < b->count; i++) {
        struct lease *l = &b->lease[i];

        l->given_uw = larger_u64(l->given_uw, l->number ? l->offer_uw : 0);
        l->given_until_ns = l->given_uw ? now_ns + TERM_NS : 0;
        l->until_ns = 0;
        l->asked_ns = l->stamp_ns = l->boot = 0; /* only an ask of now can be answered */
        l->sent_ns = l->seen_ns = l->above_ns = l->below_ns = 0;
        l->defiant = false;
    }
}

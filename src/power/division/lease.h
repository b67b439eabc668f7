/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Power leases: a parent lends each child a part of its cap for 30 seconds. This is the parent's
 * book; tenure.h is the child's side. Messages may be lost, late, doubled or reordered, and either
 * side may restart at any time.
 *
 *   child   ask{boot, stamp}         each 10 s; the stamp is the child's own monotonic time
 *   parent  lease{boot, stamp, number, uw, …}   echoes both; again each second until acknowledged
 *   child   ack{boot, number, uw}    when it draws no more than that
 *
 * A lease ends at stamp + ttl by the child's clock. The parent counts it until the ask's arrival +
 * ttl, 2 % and an eighth of a second more, which is later on any two clocks whose rates differ by
 * less than 2 %. A lease shrinks at once, and its old amount counts until the child acknowledges
 * the new one or the old one has ended. Only then do its watts go to another child. So, after every
 * call, and however the network behaves, the children's leases together are at most lease_sum(),
 * and lease_sum() <= cap_uw; when cap_uw falls below lease_sum(), the sum only falls until it fits
 * again. The same holds for each group and its cap. All this holds for breakers; under a budget or
 * advice a child is free when its lease has ended.
 *
 * A boot is a random number of 63 bits, not 0, new with each start of the child's process.
 * Times are CLOCK_BOOTTIME, which does not stand still in a suspended machine. Pure; one thread,
 * the event loop's of src/unit or src/hub.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define LEASE_TTL_MS 30000
#define LEASE_ASK_MS 10000 /* a child asks so often */

#define LEASE_NO_GROUP UINT32_MAX

/*
 * Children whose leases have a bound of their own, below the book's: the areas of an organization
 * are a tree of these.
 */
struct lease_group {
    uint32_t parent; /* index, smaller than its own; LEASE_NO_GROUP: none */
    uint64_t cap_uw; /* DEMAND_MAX: none */
    uint64_t sum_uw; /* of lease_want() alone */
};

/* The parent's record of one child. Begins as zeros, but floor_uw, kind and group. */
struct lease {
    uint64_t boot, stamp_ns,
        asked_ns;      /* the child's last ask, and our time of it; boot 0: never heard */
    uint64_t floor_uw; /* what the child draws without a lease */
    uint64_t given_uw,
        given_until_ns;          /* most that earlier offers may still allow, and until when */
    uint64_t offer_uw, until_ns; /* the newest offer, and its end by our clock */
    uint64_t number, acked;      /* of the newest offer; of the newest that is acknowledged */
    uint64_t sent_ns;            /* when the newest offer was last sent; 0: not yet */
    uint64_t seen_uw, seen_ns;   /* low end of what the child is measured to draw, and when */
    uint64_t most_ns;            /* when it drew seen_uw: a defiant one's most of a minute */
    uint64_t above_ns, below_ns; /* since when it draws more than its lease; since when not */
    bool defiant;                /* more for 10 s: what it draws counts, until 60 s of less */
    uint32_t kind;       /* enum cap_kind: what the child shall do when its lease has ended */
    uint32_t offer_kind; /* as the newest offer says */
    bool loose;          /* an offer of another kind than a breaker's may be the last that it has */
    uint32_t group;      /* index; of no meaning in a book without groups */
};

struct lease_book {
    struct lease *lease; /* borrowed */
    uint32_t count;
    struct lease_group *group; /* borrowed; parents before what is below them */
    uint32_t groups;           /* 0: cap_uw is the only bound */
    uint64_t cap_uw;           /* of all; DEMAND_MAX: none */
    uint64_t counter;          /* the last number; numbers are never used twice */
    uint64_t silent_until_ns;  /* no offers before; 0: none is awaited */
};

struct lease_message {
    uint64_t boot, stamp_ns, number, uw, floor_uw, ttl_ms;
    uint32_t kind;
};

/* The most that child @i may draw: its offers until acknowledged or ended, at least its floor. */
uint64_t lease_counts(const struct lease_book *b, uint32_t i, uint64_t now_ns);
uint64_t lease_sum(const struct lease_book *b, uint64_t now_ns);
uint64_t lease_group_sum(const struct lease_book *b, uint32_t group, uint64_t now_ns);

/* Child @i asked. A repeated or overtaken ask is ignored. The lease goes on at the same amount. */
void lease_ask(struct lease_book *b, uint32_t i, uint64_t boot, uint64_t stamp_ns, uint64_t now_ns);

/*
 * The children shall have want_uw[i] (of divide_cap()). Shrinks are offered at once, growth as far
 * as the cap allows now, and none while more counts than it allows, a second after the last message
 * at the earliest unless that was acknowledged: call again each second and after an
 * acknowledgement, when more may be free. A shrink by less than a 256th is offered only where
 * leases have to fit below a lowered cap, or to make room for one that grows; growth by so little
 * never.
 */
void lease_want(struct lease_book *b, const uint64_t *want_uw, uint64_t now_ns);

/*
 * One message to send: store the book first where its growth must survive a restart. Returns false
 * if nothing is due. Each call counts as a sending.
 */
bool lease_next(struct lease_book *b, uint64_t now_ns, uint32_t *ret_i, struct lease_message *ret);

/* Child @i draws no more than @uw by lease @number. All but the newest lease's is ignored. */
void lease_ack(struct lease_book *b, uint32_t i, uint64_t boot, uint64_t number, uint64_t uw,
               uint64_t now_ns);

/* Child @i was measured: it draws at least @low_uw. */
void lease_seen(struct lease_book *b, uint32_t i, uint64_t low_uw, uint64_t now_ns);

/*
 * After a restart. @stored: the book is as it was before the last message was sent; then all of its
 * offers count in full for another term, as the clock may be another boot's. Otherwise nothing is
 * known of leases that may be in force: nothing is offered until they have ended.
 */
void lease_recover(struct lease_book *b, bool stored, uint64_t now_ns);

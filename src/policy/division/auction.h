/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cores handed out one after the other, each to the job that bids most for it.
 *
 * A bid says what the next core is worth to a job; the policies differ in that alone. Where a job's
 * bids never rise, as with a concave speed-up curve, no division has a larger sum of bids: domains
 * lie within each other, and on such constraints the greedy way is optimal (Federgruen and
 * Groenevelt 1986). On another curve the bids follow its concave envelope. Nobody gets a core that
 * it gains nothing from. Of equal bids, those who run go before those who wait, then by age.
 *
 * Jobs that run and cannot be paused have their least before the auction begins. A job that waits
 * bids for all of its least at once, and goes on waiting if there is no room for that.
 *
 * A job without curve, or with one that nobody can be sure of, cannot bid. It is sure of the equal
 * share, rounded down: what is left in its place beside jobs of fixed size, in proportion to the
 * weights of all who want some; and what nobody gains from goes to such jobs, too.
 *
 * Pure; used by policies alone, within one decision. Storage is the plan's scratch.
 */
#pragma once

#include "policy/division/gate.h"
#include "policy/division/layout.h"

/* The first parameters of each policy with an auction; its own follow. */
enum auction_param {
    AUCTION_CONFIDENCE,
    AUCTION_GATE, /* GATE_PARAMS */
    AUCTION_PARAM_MAX = AUCTION_GATE + GATE_PARAM_COUNT
};

#define AUCTION_PARAMS                                                                             \
    [AUCTION_CONFIDENCE] = {.name = "confidence",                                                  \
                            .max = 1000,                                                           \
                            .def = 300,                                                            \
                            .unit = "permille",                                                    \
                            .text = "with less of it a speed-up curve counts as unknown"},         \
    GATE_PARAMS

#define AUCTION_WORTH_MAX (INT64_C(1) << 60)
#define AUCTION_PRICE_MAX (INT64_C(1) << 44)

/* Whether jobs that run and may be paused keep their least. */
enum auction_pausing {
    AUCTION_PAUSES_NOBODY,
    AUCTION_PAUSES_IN_NEED, /* those for whom there is no room, last of all */
    AUCTION_PAUSES_OUTBID   /* they bid for it like those who wait */
};

/* One job; sizes in mcpu. */
struct bidder {
    int64_t bid; /* for what it would get next */
    uint64_t arrival_ns;
    uint64_t id;
    int64_t mcpu; /* in the plan; 0: does not run */
    int64_t least;
    int64_t most;
    int64_t sure;          /* of a job without curve: before anyone bids */
    int64_t price;         /* 1 … AUCTION_PRICE_MAX: of a thousandth of its speed on one core */
    const uint32_t *speed; /* concave, in thousandths, of `count` cores; NULL: not known */
    uint32_t count;
    uint32_t weight;
    uint32_t lacking; /* domain that had no room for its last bid, or POLICY_NO_PARENT */
    bool runs;        /* before the plan */
    bool seated;      /* and will in any case: it cannot be paused */
    bool fixed;       /* has one possible size */
};

struct auction {
    const struct policy_snapshot *snapshot;
    struct policy_plan *plan;
    struct layout layout;
    struct bidder *bidder;
    uint32_t *heap;
    uint32_t heap_count;
    int64_t *weight_in; /* each domain: weights of those who want cores there */
    enum auction_pausing pausing;
    /*
     * Worth of the next core to a job that has @cores; it has a curve, or no cores. Counts up to
     * AUCTION_WORTH_MAX; with nothing or less it wants no more.
     */
    int64_t (*worth)(const struct auction *auction, uint32_t job, int64_t cores);
};

/* Bytes of scratch (aligned as int64_t), and the room of a policy that needs nothing besides. */
size_t auction_bytes(const struct policy_snapshot *snapshot);
void auction_room(const struct policy_snapshot *snapshot, struct policy_room *ret_room);

/*
 * Seats those who run, in the machine without @reserve_mcpu. Prices are the weights and worth is
 * the price of the speed gained, both the policy's to change. Takes the beginning of the scratch.
 */
void auction_init(struct auction *auction, const struct policy *policy,
                  const struct policy_snapshot *snapshot, struct policy_plan *plan,
                  enum auction_pausing pausing, int64_t reserve_mcpu);

/* Speed with whole cores by the concave curve; without one, as if it were linear. */
int64_t auction_speed(const struct bidder *bidder, int64_t cores);

/* Speed that one more core adds to @cores, in thousandths of one core's; of its least, per core. */
int64_t auction_gain(const struct bidder *bidder, int64_t cores);

/*
 * Raises the job to @mcpu before the auction, if there is room, and starts or resumes it for that.
 * With @crowd, cores need no room. Returns whether it has that much now.
 */
bool auction_seat(struct auction *auction, uint32_t job, int64_t mcpu, bool crowd);

/* The auction, and what was lent and borrowed. */
void auction_run(struct auction *auction);

/* Writes the plan; a policy may replace reasons afterwards. */
void auction_conclude(struct auction *auction);

/* Where the job's cores are, or will be. */
uint32_t auction_place(struct auction *auction, uint32_t job);

/* Whether there is something to decide: a person does not hold it, nor was it refused. */
bool auction_takes_part(const struct auction *auction, uint32_t job);

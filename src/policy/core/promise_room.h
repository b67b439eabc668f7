/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Promises of latency in a policy's snapshot: the cores that a server needs (promise.h) become its
 * minimum, as far as others' minima, pins and its user's share leave room, and its
 * maximum where others can use the rest. So every policy composes with promises and none knows
 * them. Pure, integers only; tided (plan/promises.c) and the simulator call it, on any thread.
 */
#pragma once

#include "policy/core/policy.h"
#include "policy/core/promise.h"

#include <stdbool.h>
#include <stdint.h>

/* One job of the snapshot. All zero at first; the caller keeps it from decision to decision. */
struct promise_room {
    /* The caller's, before each decision. */
    uint64_t id;          /* not 0 */
    uint64_t user;        /* jobs with the same number are one user's */
    int64_t user_mcpu;    /* its user's share by the last decision; 0: no bound */
    bool wanted;          /* has cores, or is to have some */
    bool promised;        /* a promise can decide on its cores: malleable, not pinned, wanted */
    bool binds;           /* its promise is about requests that came */
    bool may_share;       /* more threads than cores take nothing but from jobs that yield to it */
    bool may_yield;       /* its weight alone may say which part of its cores it gets */
    uint32_t need;        /* the last answer of promise_room_need() */
    enum promise_why why; /* of that */
    /* The answers. */
    uint32_t least, most; /* cores that its promise may ask for; most 0: it takes no part */
    uint32_t own;  /* of these: as many as others leave at their minima; on the rest they yield */
    uint32_t left; /* cores that it leaves to promises behind it, which need them */
    bool presses;  /* it is short without these: what is behind it comes second */
    uint32_t threads; /* that it shall have, more than its share where others yield; 0: its share */
    uint64_t yields_to; /* id of the job whose promise lowers this one's weight; 0: none */
    bool alone;         /* no other job could use what it does not */
};

/*
 * Bounds the cores of jobs with a promise, of @count jobs of a snapshot (@policy has the same
 * order), on @mcpu: no more than others leave at their minima, or held by hand, and than the user's
 * share. One in front leaves those behind what they need, unless it has tried without and is short:
 * a trial, which takes all that there is, breaks no other promise. Where that is not enough it gets
 * threads beyond its share: its user's other jobs keep their cores, and yield.
 */
void promise_room_divide(struct promise_room *const *room, struct policy_job *policy,
                         uint32_t count, int64_t mcpu);

/*
 * Looks at its requests: fills in the bounds of *look, and sets need and why. A job that is alone
 * needs what it has, and nothing is learnt of fewer cores.
 */
void promise_room_need(struct promise_room *room, struct promise_state *state,
                       struct promise_look *look);

/* Whether so many more are in flight than at the last look that the next one is due at once. */
static inline bool promise_jumped(uint32_t most_in_flight, uint32_t in_flight)
{
    return most_in_flight > 2 * (uint64_t)in_flight + 1;
}

/* Weight that a job of @weight loses while it yields; the job to which it does has it in addition.
 */
static inline uint32_t promise_yielded(uint32_t weight)
{
    uint32_t rest = weight / 16 ? weight / 16 : 1;

    return weight > rest ? weight - rest : 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/job/split.h"

#include <string.h>

#define FULL 1000 /* thousandths: one thread that always runs */

/* ---- what is used ---- */

bool split_look(struct split_use *use, uint32_t part, uint64_t now_ns, uint64_t cpu_ns)
{
    uint64_t milli;

    if (use->at_ns == 0 || use->part != part || cpu_ns < use->cpu_ns) {
        *use = (struct split_use){.at_ns = now_ns, .cpu_ns = cpu_ns, .part = part};
        return false;
    }
    if (now_ns - use->at_ns < SPLIT_LOOK_NS)
        return false;
    milli = (cpu_ns - use->cpu_ns) * FULL / (now_ns - use->at_ns);
    memmove(use->milli + 1, use->milli, (SPLIT_LOOKS - 1) * sizeof(use->milli[0]));
    use->milli[0] = milli < UINT32_MAX ? (uint32_t)milli : UINT32_MAX;
    use->n += use->n < SPLIT_LOOKS;
    use->at_ns = now_ns;
    use->cpu_ns = cpu_ns;
    return true;
}

/* Looks with another part say nothing of this one. */
static uint32_t looks(const struct split_part *p)
{
    return p->had > 0 && p->use->part == p->had ? p->use->n : 0;
}

/* The most of a second, so that a process working in bursts does not count as idle in between. */
static uint32_t used(const struct split_part *p)
{
    uint32_t most = 0;

    for (uint32_t i = 0; i < looks(p); i++)
        most = p->use->milli[i] > most ? p->use->milli[i] : most;
    return most;
}

/* Busy in the last heartbeat and in most of the one before, which a garbage collection is not. */
static uint32_t used_steadily(const struct split_part *p)
{
    uint64_t last, before;

    if (looks(p) < 2)
        return 0;
    last = p->use->milli[0];
    before = 2ull * p->use->milli[1];
    return (uint32_t)(before < last ? before : last);
}

/* ---- what each can use ---- */

/* The part of a core that a busy thread of this job gets. Counts threads of pools only. */
static uint32_t busiest(const struct split_part *parts, uint32_t n)
{
    uint32_t most = 1;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t each = parts[i].had ? used(&parts[i]) / parts[i].had : 0;

        most = each > most ? each : most;
    }
    return most < FULL ? most : FULL;
}

/* @thread_milli: what a thread gets that always runs. */
static void find_wants(struct split_part *p, uint32_t thread_milli, uint32_t target)
{
    uint32_t max = p->max && p->max < target ? p->max : target;
    uint64_t most = used(p), whole = (uint64_t)p->had * thread_milli;
    bool settled = looks(p) == SPLIT_LOOKS;

    p->idle = settled && most < SPLIT_IDLE;
    p->busy = used_steadily(p) >= SPLIT_IDLE && used_steadily(p) * 1000ull > whole * SPLIT_BUSY;
    if (p->idle)
        p->wants = 1;
    else if (p->had == 0 || p->busy)
        p->wants = max;
    else if (settled && thread_milli == FULL && most * 1000 < whole * SPLIT_IDLING)
        p->wants = (uint32_t)((most * SPLIT_ROOM / 1000 + FULL - 1) / FULL);
    else
        p->wants = p->had;
    if (p->wants > max)
        p->wants = max;
    if (p->wants == 0)
        p->wants = 1;
}

/* ---- dividing ---- */

enum round { TO_WANTS, TO_MAX_IF_NOT_IDLE, TO_MAX, BEYOND, ROUND_MAX };

static bool takes(const struct split_part *p, enum round round)
{
    bool room = p->max == 0 || p->part < p->max;

    return round == TO_WANTS             ? p->part < p->wants
           : round == TO_MAX_IF_NOT_IDLE ? room && !p->idle
           : round == TO_MAX             ? room
                                         : true;
}

/* The smallest part grows first; of equal ones the one that had more, to avoid needless moves. */
static struct split_part *next_taker(struct split_part *parts, uint32_t n, enum round round)
{
    struct split_part *found = NULL;

    for (struct split_part *p = parts; p < parts + n; p++)
        if (takes(p, round) &&
            (!found || p->part < found->part || (p->part == found->part && p->had > found->had)))
            found = p;
    return found;
}

static void divide(struct split_part *parts, uint32_t n, uint32_t target)
{
    uint32_t left = target > n ? target - n : 0;
    struct split_part *p;

    for (uint32_t i = 0; i < n; i++)
        parts[i].part = 1;
    for (enum round round = 0; round < ROUND_MAX; round++)
        for (; left > 0 && (p = next_taker(parts, n, round)); left--)
            p->part++;
}

/* Whether the parts fit target and processes, and no busy process would gain by others. */
static bool keeps(const struct split_part *parts, uint32_t n, uint32_t target)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < n; i++) {
        if (parts[i].had == 0 || (parts[i].busy && parts[i].part > parts[i].had))
            return false;
        sum += parts[i].had;
    }
    return sum == (target > n ? target : n);
}

void split_divide(struct split_part *parts, uint32_t n, uint32_t target, bool scarce)
{
    uint32_t thread_milli = scarce ? busiest(parts, n) : FULL;

    for (uint32_t i = 0; i < n; i++)
        find_wants(&parts[i], thread_milli, target);
    divide(parts, n, target);
    if (keeps(parts, n, target))
        for (uint32_t i = 0; i < n; i++)
            parts[i].part = parts[i].had;
}

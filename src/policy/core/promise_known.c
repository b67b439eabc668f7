/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/core/promise_known.h"

#define KEPT_PERMILLE 990

static enum promise_keepable say(enum promise_keepable answer, enum promise_ground ground,
                                 enum promise_ground *ret)
{
    *ret = ground;
    return answer;
}

/* A promise at least as long was kept, for long enough. */
static bool was_kept(const struct promise_known *k, uint64_t promise_ns)
{
    return k->kept_promise_ns && k->kept_promise_ns <= promise_ns &&
           k->kept_seconds >= PROMISE_KNOWN_SECONDS && k->kept_permille >= KEPT_PERMILLE;
}

enum promise_keepable promise_judge(const struct promise_known *k, const struct promise_asked *a,
                                    enum promise_ground *ret)
{
    uint32_t left = a->cores > a->others ? a->cores - a->others : 0;

    if (a->min > a->cores)
        return say(PROMISE_UNKEEPABLE, PROMISE_MINIMUM, ret);
    if (k->requests >= PROMISE_KNOWN_REQUESTS && k->fastest_ns > a->promise_ns)
        return say(PROMISE_UNKEEPABLE, PROMISE_FASTEST, ret);
    if (k->best_ns > a->promise_ns && k->tried >= a->cores)
        return say(PROMISE_UNKEEPABLE, PROMISE_BEST, ret);
    if (promise_is_given_up(a->why))
        return say(PROMISE_UNKEEPABLE, PROMISE_GIVEN_UP_NOW, ret);
    if (was_kept(k, a->promise_ns)) {
        /* no "no": it may have had more cores than it needs */
        if (a->others && k->kept_mcpu > left * UINT64_C(1000))
            return say(PROMISE_UNKNOWN, PROMISE_CROWDED, ret);
        return say(PROMISE_KEEPABLE, PROMISE_WAS_KEPT, ret);
    }
    if (a->others && left <= 1)
        return say(PROMISE_UNKNOWN, PROMISE_TAKEN, ret);
    if (k->kept_promise_ns > a->promise_ns && k->kept_permille >= KEPT_PERMILLE)
        return say(PROMISE_UNKNOWN, PROMISE_LESS, ret);
    return say(PROMISE_UNKNOWN, PROMISE_FIRST_RUN, ret);
}

void promise_known_window(struct promise_known *k, uint64_t p99_ns, uint32_t cores)
{
    if (p99_ns == 0 || cores == 0)
        return;
    if (k->best_ns == 0 || p99_ns < k->best_ns) {
        k->best_ns = p99_ns;
        k->best_cores = cores;
    }
    k->tried = cores > k->tried ? cores : k->tried;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/containers/memory_watch.h"

#include "base/clock.h"

#define MINUTE_NS (60 * NS_PER_S)
#define MIB       (UINT64_C(1) << 20)
#define PARTS     (MEMORY_WATCH_MINUTES + 1)

void memory_watch_add(struct memory_watch *w, uint64_t bytes, uint64_t now_ns)
{
    uint64_t minute = now_ns / MINUTE_NS, passed = w->since_ns ? minute - w->minute : PARTS;

    if (passed > 1) /* the first one, or what came between is not known */
        w->since_ns = now_ns;
    for (uint64_t i = 0; i < passed && i < PARTS; i++)
        w->high[(minute - i) % PARTS] = 0;
    w->minute = minute;
    if (bytes > w->high[minute % PARTS])
        w->high[minute % PARTS] = bytes;
}

uint64_t memory_watch_high(const struct memory_watch *w, uint64_t now_ns)
{
    uint64_t minute = now_ns / MINUTE_NS, high = 0;

    for (uint64_t i = 0; w->since_ns && i < PARTS && i <= w->minute; i++)
        if (minute - (w->minute - i) < PARTS && w->high[(w->minute - i) % PARTS] > high)
            high = w->high[(w->minute - i) % PARTS];
    return high;
}

bool memory_watch_is_whole(const struct memory_watch *w, uint64_t now_ns)
{
    return w->since_ns && now_ns - w->since_ns >= MEMORY_WATCH_MINUTES * MINUTE_NS;
}

uint64_t memory_watch_least(const struct memory_watch *w, uint64_t peak, uint64_t now_ns)
{
    uint64_t high = memory_watch_high(w, now_ns), reserve;

    if (!memory_watch_is_whole(w, now_ns)) {
        if (peak == 0)
            return 0;
        high = peak > high ? peak : high;
    }
    reserve = high / MEMORY_RESERVE_PART;
    high += reserve > MEMORY_RESERVE_MIN ? reserve : MEMORY_RESERVE_MIN;
    return (high + MIB - 1) / MIB * MIB;
}

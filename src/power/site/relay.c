/* SPDX-License-Identifier: Apache-2.0 */
#include "power/site/relay.h"

#define NS_PER_S    UINT64_C(1000000000)
#define ANSWER_NS   (10 * NS_PER_S) /* a relay that says nothing is ordered again after so long */
#define NS_PER_HOUR (3600 * NS_PER_S)

static void roll_hour(struct relay *r, uint64_t now_ns)
{
    if (now_ns - r->hour_ns < NS_PER_HOUR)
        return;
    r->hour_ns = now_ns;
    r->changes = 0;
}

enum relay_answer relay_ask(struct relay *r, bool on, uint64_t now_ns, uint64_t *ret_later_ns)
{
    uint32_t most = r->most_per_hour ? r->most_per_hour : RELAY_MOST_PER_HOUR;
    uint64_t stays_s = r->on ? r->min_on_s : r->min_off_s;

    *ret_later_ns = UINT64_MAX;
    roll_hour(r, now_ns);
    if (r->known && r->on == on)
        return RELAY_ALREADY;
    if (!on && r->always_on)
        return RELAY_NEVER;
    if (!r->known) /* somebody may have switched it a moment ago */
        return RELAY_LATER;
    if (r->changes >= most) {
        *ret_later_ns = r->hour_ns + NS_PER_HOUR;
        return RELAY_NEVER;
    }
    if (now_ns - r->changed_ns < stays_s * NS_PER_S) {
        *ret_later_ns = r->changed_ns + stays_s * NS_PER_S;
        return RELAY_LATER;
    }
    if (r->ordered_ns && now_ns - r->ordered_ns < ANSWER_NS) {
        *ret_later_ns = r->ordered_ns + ANSWER_NS;
        return RELAY_LATER;
    }
    r->ordered_ns = now_ns;
    return RELAY_SWITCH;
}

/* The first report counts as a change of now: nobody knows how long it has been so. */
bool relay_is(struct relay *r, bool on, uint64_t now_ns)
{
    bool changed = r->known && r->on != on;

    if (r->known && !changed)
        return false;
    roll_hour(r, now_ns);
    r->ordered_ns = 0;
    r->changes += changed;
    r->on = on;
    r->known = true;
    r->changed_ns = now_ns;
    return changed;
}

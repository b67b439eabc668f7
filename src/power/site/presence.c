/* SPDX-License-Identifier: Apache-2.0 */
#include "power/site/presence.h"

#define NS_PER_S UINT64_C(1000000000)

void presence_is(struct presence *p, bool present, uint64_t now_ns)
{
    bool dead = p->known && now_ns - p->heard_ns > PRESENCE_SILENT_S * NS_PER_S;

    if (!p->known || dead || p->present != present)
        p->since_ns = now_ns;
    p->known = true;
    p->present = present;
    p->heard_ns = now_ns;
}

uint64_t presence_absent_s(const struct presence *p, uint64_t now_ns)
{
    if (!p->known || p->present || now_ns - p->heard_ns > PRESENCE_SILENT_S * NS_PER_S)
        return 0;
    return (now_ns - p->since_ns) / NS_PER_S;
}

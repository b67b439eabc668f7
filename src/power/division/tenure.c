/* SPDX-License-Identifier: Apache-2.0 */
#include "power/division/tenure.h"

#include <errno.h>

#include "power/cap/caps.h"
#include "power/division/demand.h"

#define MS UINT64_C(1000000)

void tenure_begin(struct tenure *t, uint64_t boot, uint32_t kind, uint64_t floor_uw)
{
    *t = (struct tenure){.boot = boot, .kind = kind, .floor_uw = floor_uw, .taken = true};
}

int tenure_take(struct tenure *t, const struct lease_message *m, uint64_t now_ns)
{
    if (m->uw > DEMAND_MAX || m->floor_uw > DEMAND_MAX || m->ttl_ms > LEASE_TTL_MS ||
        m->kind >= CAP_KIND_MAX || m->number == 0)
        return -EINVAL;
    if (m->boot != t->boot)
        return -ESTALE;
    if (m->stamp_ns > now_ns) /* our own stamps are of the past */
        return -EINVAL;
    if (now_ns - m->stamp_ns >= m->ttl_ms * MS)
        return -ESTALE;
    /* After a lease's end any later one counts: the parent may have lost its numbers. */
    if (now_ns < t->until_ns && m->number <= t->number)
        return m->number == t->number && m->stamp_ns == t->stamp_ns && m->uw == t->uw ? 0 : -ESTALE;
    t->number = m->number;
    t->stamp_ns = m->stamp_ns;
    t->uw = m->uw;
    t->floor_uw = m->floor_uw;
    t->kind = m->kind;
    t->until_ns = m->stamp_ns + m->ttl_ms * MS;
    t->taken = true;
    return 0;
}

bool tenure_cap(const struct tenure *t, uint64_t now_ns, uint64_t *ret_uw)
{
    if (!t->taken)
        return false;
    if (now_ns < t->until_ns) {
        *ret_uw = t->uw;
        return true;
    }
    *ret_uw = t->floor_uw;
    return t->kind == CAP_BREAKER;
}

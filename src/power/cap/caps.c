/* SPDX-License-Identifier: Apache-2.0 */
#include "power/cap/caps.h"

#include <assert.h>

static const char *const source_names[] = {"configuration", "person", "lease"};
static const char *const kind_names[] = {"breaker", "budget", "advice"};
static_assert(sizeof(source_names) / sizeof(source_names[0]) == CAP_SOURCE_MAX, "a name each");
static_assert(sizeof(kind_names) / sizeof(kind_names[0]) == CAP_KIND_MAX, "a name each");

const char *cap_source_name(enum cap_source source)
{
    return (unsigned)source < CAP_SOURCE_MAX ? source_names[source] : "?";
}

const char *cap_kind_name(enum cap_kind kind)
{
    return (unsigned)kind < CAP_KIND_MAX ? kind_names[kind] : "?";
}

/* Its watts now; 0: it is open. */
static uint64_t cap_now(const struct cap *cap, uint64_t now_ns)
{
    uint64_t uw = cap->uw;

    if (!cap->held)
        return 0;
    if (now_ns >= cap->until_ns) {
        if (cap->kind != CAP_BREAKER)
            return 0;
        uw = cap->floor_uw < cap->uw ? cap->floor_uw : cap->uw;
    }
    if (uw >= CAP_OPEN)
        return 0;
    return uw ? uw : 1;
}

bool caps_in_force(const struct caps *c, uint64_t now_ns, uint64_t *ret_uw,
                   enum cap_source *ret_source, uint64_t *ret_next)
{
    uint64_t least = 0, next = CAP_NO_END;

    for (unsigned s = 0; s < CAP_SOURCE_MAX; s++) {
        const struct cap *cap = &c->of[s];
        uint64_t uw = cap_now(cap, now_ns);

        if (cap->held && cap->until_ns > now_ns && cap->until_ns < next)
            next = cap->until_ns;
        if (uw && (least == 0 || uw < least)) {
            least = uw;
            *ret_uw = uw;
            *ret_source = (enum cap_source)s;
        }
    }
    *ret_next = next;
    return least != 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/api/view_cap.h"

#include "base/clock.h"
#include "daemon/daemon.h"
#include "daemon/energy/cap.h"

#include <assert.h>

static const char *const state_names[] = {"none", "kept", "not-yet", "over"};
static_assert(sizeof(state_names) / sizeof(state_names[0]) == CAP_KEPT_MAX, "a name for each");

/* Seconds since 1970, or null. */
static json_t *end_of(uint64_t left_ms)
{
    return left_ms == UINT64_MAX ? json_null()
                                 : json_integer((json_int_t)((clock_real_ms() + left_ms) / 1000));
}

static json_t *standing(const struct caps *caps)
{
    json_t *list = json_array();
    uint64_t now = clock_boot_ns();

    for (unsigned s = 0; s < CAP_SOURCE_MAX; s++) {
        const struct cap *c = &caps->of[s];
        uint64_t left = c->until_ns == CAP_NO_END ? UINT64_MAX
                        : c->until_ns > now       ? (c->until_ns - now) / NS_PER_MS
                                                  : 0;

        if (c->held)
            json_array_append_new(
                list, json_pack("{s:s,s:s,s:I,s:I,s:o}", "source", cap_source_name(s), "kind",
                                cap_kind_name(c->kind), "uw", (json_int_t)c->uw, "floor_uw",
                                (json_int_t)c->floor_uw, "until", end_of(left)));
    }
    return list;
}

static json_t *curve(const struct watts *w)
{
    json_t *points = json_array();

    if (w->count == 0) {
        json_decref(points);
        return json_null();
    }
    for (uint32_t i = 0; i < w->count; i++)
        json_array_append_new(points, json_pack("[I,I]", (json_int_t)w->point[i].load_mcpu,
                                                (json_int_t)w->point[i].uw));
    return json_pack("{s:s,s:s,s:i,s:o}", "basis", power_basis_name(w->basis), "source", w->source,
                     "error_permille", (int)w->error_permille, "points", points);
}

/* A number of a cap, or null without one. */
static json_t *number(bool known, uint64_t n)
{
    return known ? json_integer((json_int_t)n) : json_null();
}

json_t *view_cap(const struct daemon *d)
{
    char why[ERROR_TEXT_MAX];
    struct cap_view v;
    enum cap_kept state = cap_state(d, why, sizeof(why));

    cap_view(d, &v);
    return json_pack("{s:s,s:o,s:o,s:o,s:s,s:o,s:o,s:o,s:o,s:o}", "state", state_names[state], "uw",
                     number(v.uw, v.uw), "source",
                     v.uw ? json_string(cap_source_name(v.source)) : json_null(), "until",
                     v.uw ? end_of(v.left_ms) : json_null(), "why", why, "cores",
                     number(v.plan->cap_uw, v.plan->cores), "most_mcpu",
                     number(v.plan->cap_uw, v.plan->most_mcpu), "whole_mcpu",
                     number(v.plan->cap_uw, v.plan->whole_mcpu), "caps", standing(v.caps), "model",
                     curve(v.model));
}

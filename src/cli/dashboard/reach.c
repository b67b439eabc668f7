/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/dashboard/reach.h"

#include "base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SWEEP_US UINT64_C(1000000)

struct kept {
    struct address address;
    struct dial dial; /* .fd -1: nothing is kept here */
    uint64_t since_ns;
};

struct reach {
    sd_event_source *sweep;
    struct kept kept[REACH_KEPT_MAX];
};

static int on_sweep(sd_event_source *source, uint64_t usec, void *arg)
{
    struct reach *c = arg;
    bool left = false;

    for (size_t i = 0; i < REACH_KEPT_MAX; i++) {
        if (c->kept[i].dial.fd >= 0 && dial_is_stale(&c->kept[i].dial, c->kept[i].since_ns))
            dial_close(&c->kept[i].dial);
        left |= c->kept[i].dial.fd >= 0;
    }
    if (!left)
        return 0;
    sd_event_source_set_time_relative(source, SWEEP_US);
    return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

int reach_new(sd_event *event, struct reach **ret)
{
    struct reach *c = calloc(1, sizeof(*c));
    int r;

    if (!c)
        return -ENOMEM;
    for (size_t i = 0; i < REACH_KEPT_MAX; i++)
        c->kept[i].dial = (struct dial)DIAL_NONE;
    r = sd_event_add_time_relative(event, &c->sweep, CLOCK_MONOTONIC, SWEEP_US, 0, on_sweep, c);
    if (r < 0) {
        free(c);
        return r;
    }
    *ret = c;
    return 0;
}

struct reach *reach_free(struct reach *c)
{
    if (!c)
        return NULL;
    for (size_t i = 0; i < REACH_KEPT_MAX; i++)
        dial_close(&c->kept[i].dial);
    sd_event_source_disable_unref(c->sweep);
    free(c);
    return NULL;
}

bool reach_take(struct reach *c, const struct address *a, struct dial *ret)
{
    for (size_t i = 0; i < REACH_KEPT_MAX; i++) {
        struct kept *k = &c->kept[i];

        if (k->dial.fd < 0 || !address_equal(&k->address, a))
            continue;
        if (dial_is_stale(&k->dial, k->since_ns)) {
            dial_close(&k->dial);
            continue;
        }
        *ret = k->dial;
        k->dial = (struct dial)DIAL_NONE;
        return true;
    }
    return false;
}

void reach_keep(struct reach *c, const struct address *a, const struct dial *d)
{
    struct kept *at = &c->kept[0];

    for (size_t i = 1; i < REACH_KEPT_MAX && at->dial.fd >= 0; i++)
        if (c->kept[i].dial.fd < 0 || c->kept[i].since_ns < at->since_ns)
            at = &c->kept[i];
    dial_close(&at->dial);
    *at = (struct kept){.address = *a, .dial = *d, .since_ns = clock_now_ns()};
    sd_event_source_set_time_relative(c->sweep, SWEEP_US);
    sd_event_source_set_enabled(c->sweep, SD_EVENT_ONESHOT);
}

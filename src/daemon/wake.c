/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/wake.h"

#include "daemon/daemon.h"

#include <errno.h>
#include <stdlib.h>

#define STORE_US 5000ull /* files and weights wait: acknowledgements come first */

struct wake {
    struct daemon *daemon;
    struct wake_handlers handlers;
    sd_event_source *decide, *store;
};

static int on_decide(sd_event_source *s, void *arg)
{
    const struct wake *w = arg;

    w->handlers.decide(w->daemon);
    return 0;
}

static int on_store(sd_event_source *s, uint64_t usec, void *arg)
{
    const struct wake *w = arg;

    w->handlers.store(w->daemon);
    return 0;
}

static int switch_off(int r, sd_event_source *s, int64_t priority)
{
    if (r >= 0)
        r = sd_event_source_set_enabled(s, SD_EVENT_OFF);
    return r < 0 ? r : sd_event_source_set_priority(s, priority);
}

int wake_new(struct daemon *d, sd_event *event, const struct wake_handlers *handlers,
             struct wake **ret)
{
    struct wake *w = calloc(1, sizeof(*w));
    int r;

    if (!w)
        return -ENOMEM;
    w->daemon = d;
    w->handlers = *handlers;
    r = sd_event_add_defer(event, &w->decide, on_decide, w);
    /* Reads all messages that arrived together before one decision for all of them. */
    r = switch_off(r, w->decide, SD_EVENT_PRIORITY_NORMAL + 10);
    if (r >= 0)
        r = sd_event_add_time(event, &w->store, CLOCK_MONOTONIC, 0, 1000, on_store, w);
    r = switch_off(r, w->store, SD_EVENT_PRIORITY_IDLE);
    if (r < 0) {
        wake_free(w);
        return r;
    }
    *ret = w;
    return 0;
}

struct wake *wake_free(struct wake *w)
{
    if (!w)
        return NULL;
    sd_event_source_disable_unref(w->decide);
    sd_event_source_disable_unref(w->store);
    free(w);
    return NULL;
}

void daemon_changed(struct daemon *d)
{
    if (d->wake)
        sd_event_source_set_enabled(d->wake->decide, SD_EVENT_ONESHOT);
}

void daemon_decide_due(struct daemon *d)
{
    int enabled;

    if (!d->wake || sd_event_source_get_enabled(d->wake->decide, &enabled) < 0 ||
        enabled == SD_EVENT_OFF)
        return;
    sd_event_source_set_enabled(d->wake->decide, SD_EVENT_OFF);
    d->wake->handlers.decide(d);
}

/* The first change sets the time, so that a stream of changes cannot delay it for ever. */
void daemon_store_later(struct daemon *d)
{
    int enabled;

    if (!d->wake || sd_event_source_get_enabled(d->wake->store, &enabled) < 0 ||
        enabled != SD_EVENT_OFF)
        return;
    sd_event_source_set_time_relative(d->wake->store, STORE_US);
    sd_event_source_set_enabled(d->wake->store, SD_EVENT_ONESHOT);
}

void daemon_store_now(struct daemon *d)
{
    if (d->wake)
        d->wake->handlers.save(d);
}

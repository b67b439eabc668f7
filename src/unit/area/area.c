/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/area/area.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "unit/area/children.h"
#include "unit/area/points.h"
#include "unit/area/uplink.h"
#include "unit/log.h"
#include "unit/machine/machine.h"

#define TICK_US 1000000

struct area {
    const struct unit_config *config;
    sd_event_source *tick;
    struct outbox *outbox;
    struct mqtt *local;
    struct uplink *uplink;
    struct children *children; /* NULL: no cap to divide */
    struct machine *machine;   /* NULL: no tided is linked */
    struct points *points;
    struct device *device;
    size_t devices;
    bool full; /* said that the outbox cannot be written */
};

/* ---- devices --------------------------------------------------------------------------------- */

static void trouble(void *arg, const struct device *d)
{
    if (d->problem[0])
        unit_log("meter %s: %s", d->config->name, d->problem);
    else
        unit_log("meter %s: heard again", d->config->name);
}

static void got_local(void *arg, const struct mqtt_message *m)
{
    uint64_t now = clock_now_ns();
    struct area *a = arg;

    for (size_t i = 0; i < a->devices; i++)
        if (a->device[i].config->ops->got)
            a->device[i].config->ops->got(&a->device[i], m, now);
    if (a->children)
        children_got(a->children, m);
}

static void up_local(void *arg, const char *problem)
{
    struct area *a = arg;

    if (!problem) {
        unit_log("local: connected");
        return;
    }
    unit_log("local: %s", problem);
    for (size_t i = 0; i < a->devices; i++)
        if (a->device[i].config->ops->broker)
            device_lost(&a->device[i], "the area's broker is away");
}

static const char *or_null(const char *text)
{
    return text[0] ? text : NULL;
}

static int open_local(struct area *a, sd_event *event, struct error *err)
{
    const struct broker_config *b = &a->config->local;
    char name[EDGE_NAME_MAX + 8];
    struct mqtt_options options = {
        .host = b->host,
        .port = b->port,
        .ca = or_null(b->ca),
        .cert = or_null(b->cert),
        .key = or_null(b->key),
        .name = name,
        .up = up_local,
        .got = got_local,
        .arg = a,
    };

    /* Both brokers may be one, which hangs up the first of two clients with one id. */
    snprintf(name, sizeof(name), "%s-local", a->config->name);
    return b->named ? mqtt_new(event, &options, &a->local, err) : 0;
}

static int open_devices(struct area *a, sd_event *event, struct error *err)
{
    for (size_t i = 0; i < a->devices; i++) {
        struct device *d = &a->device[i];
        int r = d->config->ops->open(d, event, a->local, &d->own);

        if (r < 0)
            return error_set(err, r, "meter %s: cannot begin to listen: %s", d->config->name,
                             strerror(-r));
    }
    return 0;
}

/* ---- time ------------------------------------------------------------------------------------ */

static void flush(struct area *a)
{
    struct error err;
    bool full = outbox_flush(a->outbox, &err) < 0;

    if (full && !a->full)
        unit_log("%s; records stay in memory", err.text);
    else if (!full && a->full)
        unit_log("the outbox can be written again");
    a->full = full;
}

static int on_tick(sd_event_source *source, uint64_t usec, void *arg)
{
    struct area *a = arg;
    uint64_t now = clock_now_ns();

    sd_event_source_set_time_relative(source, TICK_US);
    sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
    if (a->machine)
        machine_tick(a->machine);
    else
        points_tick(a->points, now, clock_real_ms());
    flush(a);
    if (a->children)
        children_tick(a->children);
    if (a->uplink) {
        struct power_range draw = points_power(a->points, now);

        uplink_tick(a->uplink, a->machine ? NULL : &draw, now);
    }
    return 0;
}

/* ---- the machine's link -----------------------------------------------------------------------
 */

static int send_up(void *arg, enum topic_leaf leaf, char *text)
{
    struct area *a = arg;

    return uplink_send(a->uplink, leaf, text);
}

static void got_lease(void *arg, const struct mqtt_message *m)
{
    struct area *a = arg;

    machine_got_lease(a->machine, m);
}

/* ---- begin and end --------------------------------------------------------------------------- */

static int open_outbox(struct area *a, struct error *err)
{
    char path[CONFIG_PATH_MAX + 16];
    uint64_t boot;
    int r;

    if (getrandom(&boot, sizeof(boot), 0) != sizeof(boot))
        return error_set(err, -EIO, "no random numbers");
    snprintf(path, sizeof(path), "%s/outbox.db", a->config->state_dir);
    r = outbox_open(path, a->config->outbox_bytes, boot >> 1 | 1, &a->outbox, err);
    if (r > 0)
        unit_log("%s", err->text);
    return r < 0 ? r : 0;
}

static int begin(struct area *a, sd_event *event, struct error *err)
{
    int r = open_outbox(a, err);

    if (r == 0 && points_new(a->device, a->devices, a->outbox, &a->points) < 0)
        r = error_set(err, -ENOMEM, "no memory for the meters");
    r = r ? r : open_local(a, event, err);
    r = r ? r : open_devices(a, event, err);
    if (r == 0 && a->config->children)
        r = children_new(a->config, a->local, &a->children, err);
    if (r == 0 && a->config->tided_socket[0] &&
        machine_new(event, a->config, a->outbox, send_up, a, &a->machine) < 0)
        r = error_set(err, -ENOMEM, "no memory for the link to tided");
    if (r == 0 && a->config->uplink.named)
        r = uplink_new(event, a->config, a->outbox, a->machine ? got_lease : NULL, a, &a->uplink,
                       err);
    if (r == 0 && sd_event_add_time_relative(event, &a->tick, CLOCK_MONOTONIC, TICK_US,
                                             TICK_US / 100, on_tick, a) < 0)
        r = error_set(err, -ENOMEM, "cannot make a timer");
    return r;
}

int area_new(sd_event *event, const struct unit_config *config, struct area **ret,
             struct error *err)
{
    struct area *a = calloc(1, sizeof(*a));
    int r;

    if (!a || !(a->device = calloc(config->meters + 1, sizeof(*a->device)))) {
        free(a);
        return error_set(err, -ENOMEM, "no memory for the meters");
    }
    a->config = config;
    a->devices = config->meters;
    for (size_t i = 0; i < a->devices; i++)
        a->device[i] = (struct device){.config = &config->meter[i],
                                       .counter.most_uw = config->meter[i].most_uw,
                                       .trouble = trouble,
                                       .arg = a};
    r = begin(a, event, err);
    if (r < 0) {
        area_free(a);
        return r;
    }
    *ret = a;
    return 0;
}

struct area *area_free(struct area *a)
{
    if (!a)
        return NULL;
    sd_event_source_disable_unref(a->tick);
    for (size_t i = 0; i < a->devices; i++)
        if (a->device[i].config->ops->close)
            a->device[i].config->ops->close(a->device[i].own);
    children_free(a->children);
    mqtt_free(a->local);
    machine_free(a->machine);
    uplink_free(a->uplink);
    points_free(a->points);
    outbox_close(a->outbox);
    free(a->device);
    free(a);
    return NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/area/area.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/muldiv.h"
#include "base/wallclock.h"
#include "edge/parent.h"
#include "edge/payload.h"
#include "edge/renew.h"
#include "edge/shrunk.h"
#include "edge/uplink.h"
#include "power/cap/caps.h"
#include "power/site/loads.h"
#include "unit/area/broker.h"
#include "unit/area/children.h"
#include "unit/area/handing.h"
#include "unit/area/metrics.h"
#include "unit/area/points.h"
#include "unit/area/policy.h"
#include "unit/area/site.h"
#include "unit/log.h"
#include "unit/machine/machine.h"

#define ERROR_WORD "meter-lost"

#define TICK_US 1000000

struct area {
    const struct unit_config *config;
    sd_event_source *tick;
    struct outbox *outbox;
    struct mqtt *local;
    struct uplink *uplink;
    struct children *children; /* NULL: nothing is divided */
    struct parent *parent;     /* NULL: no lease is asked for */
    struct renew *renew;       /* NULL: the uplink needs no certificate */
    struct policy *policy;
    struct metrics *metrics; /* NULL: not wanted */
    struct site *site;
    struct machine *machine; /* NULL: no tided is linked */
    struct points *points;
    struct device *device;
    size_t devices;
    bool own_broker;           /* its machines speak through 'tide-power broker' */
    bool full;                 /* said that the outbox cannot be written */
    struct policy_force force; /* of the last second */
    uint64_t cap_uw;           /* of the last second: the smallest of all; POLICY_FREE: none */
    uint32_t kind;
    bool synced;
    bool floors_above; /* said that the children's are above cap_uw */
    struct shrunk_told shrunk;
    struct loads loads;           /* what draws beside the children */
    char amiss[POLICY_AMISS_MAX]; /* said of the policy */
    const char *cap_by;           /* "policy", "configuration", "parent's lease" */
};

/* ---- telling people -------------------------------------------------------------------------- */

static void log_text(void *arg, const char *text)
{
    unit_log("%s", text);
}

static void say(void *arg, const char *type, const char *text, const char *data)
{
    struct area *a = arg;

    unit_log("%s", text);
    if (a->uplink)
        uplink_event(a->uplink, type, text, data);
}

static void say_certificate(void *arg, const char *text)
{
    say(arg, "certificate", text, NULL);
}

static void changed(void *arg)
{
    struct area *a = arg;

    if (a->uplink)
        uplink_state_changed(a->uplink);
}

/* ---- devices --------------------------------------------------------------------------------- */

static void trouble(void *arg, const struct device *d)
{
    if (d->problem[0])
        unit_err("meter %s: %s", d->config->name, d->problem);
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
    site_got(a->site, m);
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
    unit_log("local: %s (tide why broker-refused)", problem);
    for (size_t i = 0; i < a->devices; i++)
        if (a->device[i].config->ops->broker)
            device_lost(&a->device[i], "the area's broker is away");
    if (a->site)
        site_broker_lost(a->site);
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
        unit_err_of(&err, "%s; records stay in memory", err.text);
    else if (!full && a->full)
        unit_log("the outbox can be written again");
    a->full = full;
}

/* ---- what is in force ------------------------------------------------------------------------ */

static void lower(struct area *a, uint64_t cap_uw, uint32_t kind, const char *by)
{
    if (a->cap_uw == POLICY_FREE || kind < a->kind)
        a->kind = kind;
    if (cap_uw < a->cap_uw) {
        a->cap_uw = cap_uw;
        a->cap_by = by;
    }
}

/* Caps combine by minimum; children obey the strictest kind. */
static void combine_caps(struct area *a)
{
    uint64_t lease_uw;
    uint32_t kind;

    a->cap_uw = POLICY_FREE;
    a->kind = CAP_ADVICE;
    a->cap_by = "nothing";
    if (a->config->cap_uw)
        lower(a, a->config->cap_uw, a->config->kind, "the configuration");
    if (a->force.cap_uw != POLICY_FREE)
        lower(a, a->force.cap_uw, a->force.kind, a->force.why);
    if (a->parent && parent_cap(a->parent, &lease_uw, &kind))
        lower(a, lease_uw, kind, "the parent's lease");
}

/* Once; a policy has another number each day, and the same mistakes. */
static void tell_amiss(struct area *a)
{
    const char *amiss = policy_amiss(a->policy);
    char text[PAYLOAD_TEXT_MAX];

    if (strcmp(a->amiss, amiss) == 0)
        return;
    snprintf(a->amiss, sizeof(a->amiss), "%s", amiss);
    snprintf(text, sizeof(text), "%s (tide why rule-without-effect)", amiss);
    if (amiss[0])
        say(a, "policy", text, NULL);
}

static void tell_changes(struct area *a, const struct policy_force *before, uint64_t cap_before_uw)
{
    char text[PAYLOAD_TEXT_MAX];

    tell_amiss(a);
    if (a->force.ended && !before->ended) {
        snprintf(
            text, sizeof(text),
            "policy %llu is past its end and the hub sent no other: %s (tide why policy-ended)",
            (unsigned long long)a->force.number,
            a->force.cap_uw == POLICY_FREE ? "it caps nothing any more"
                                           : "the area falls to its floor");
        say(a, "policy", text, NULL);
    }
    if (a->cap_uw != cap_before_uw || a->force.ended != before->ended ||
        a->force.number != before->number || a->synced != wallclock_synced())
        changed(a);
    a->synced = wallclock_synced();
    if (a->cap_uw == cap_before_uw)
        return;
    if (a->force.budget_uj != POLICY_FREE && a->kind != CAP_BREAKER)
        return; /* a budget's cap moves each second */
    if (a->cap_uw == POLICY_FREE)
        snprintf(text, sizeof(text), "nothing caps the area any more");
    else
        snprintf(text, sizeof(text), "the area's cap is %llu W: %.100s",
                 (unsigned long long)(a->cap_uw / 1000000), a->cap_by);
    if (!a->parent || cap_before_uw == POLICY_FREE || strcmp(a->cap_by, "the parent's lease") != 0)
        say(a, "cap", text, NULL);
}

/* Children draw their floors without a lease: people have to know that a cap below is not kept. */
static void tell_floors(struct area *a)
{
    uint64_t floor_uw = children_floor(a->children);
    bool above = floor_uw > a->cap_uw;
    char text[PAYLOAD_TEXT_MAX];

    if (above && !a->floors_above) {
        snprintf(text, sizeof(text),
                 "the floors of the children, %llu W together, are above the area's cap of %llu W "
                 "(%.60s), and are lent all the same (tide why floors-above-cap)",
                 (unsigned long long)(floor_uw / 1000000),
                 (unsigned long long)(a->cap_uw / 1000000), a->cap_by);
        say(a, "cap", text, NULL);
    }
    if (above || a->cap_uw >= floor_uw + floor_uw / 16) /* a budget's cap moves each second */
        a->floors_above = above;
}

/* Lends the rest of the cap beside other loads; children keep their floors whatever lights draw. */
static void lend_rest(struct area *a, uint64_t now_ns)
{
    uint64_t other_uw = loads_hold(&a->loads, points_other_uw(a->points, now_ns), now_ns);
    uint64_t floor_uw = children_floor(a->children), rest_uw = sub_sat(a->cap_uw, other_uw);
    uint64_t lent_uw = children_sum(a->children);

    /* Nobody knows yet what a new meter's load draws: children keep what they have. */
    if (rest_uw > lent_uw && !points_other_known(a->points, now_ns))
        rest_uw = lent_uw;
    if (rest_uw < floor_uw)
        rest_uw = floor_uw < a->cap_uw ? floor_uw : a->cap_uw;
    children_cap(a->children, a->cap_uw == POLICY_FREE ? POLICY_FREE : rest_uw, a->kind);
    children_tick(a->children);
}

/* The parent's watts pay for the other loads first; only what is above them does any work. */
static void add_loads(const struct loads *loads, struct payload_demand *d)
{
    for (uint32_t i = 0; i < d->demand.count; i++)
        d->demand.point[i].uw += loads->held_uw;
    if (d->demand.count && demand_check(&d->demand) < 0)
        d->demand.count = 0; /* above all that a message holds */
    d->floor_uw = add_sat(d->floor_uw, loads->held_uw);
    d->floor_uw = d->floor_uw < DEMAND_MAX ? d->floor_uw : DEMAND_MAX;
}

/* Asks the policy once a second; switches and children follow it. */
static void govern(struct area *a, uint64_t now_ns)
{
    struct policy_force before = a->force;
    struct policy_now now = {.wall_ms = wallclock_ms(),
                             .now_ns = now_ns,
                             .synced = wallclock_synced(),
                             .absent_s = site_absent_s(a->site, now_ns),
                             .present = site_present(a->site, now_ns),
                             .capped_uw = a->cap_uw};
    uint64_t cap_before_uw = a->cap_uw;
    struct site_rules rules;
    uint32_t kind;

    if (!a->parent || !parent_cap(a->parent, &now.lease_uw, &kind))
        now.lease_uw = POLICY_FREE;
    points_take(a->points, now_ns, &now.meters);
    policy_tick(a->policy, &now, &a->force);
    combine_caps(a);
    tell_changes(a, &before, cap_before_uw);
    if (a->children) {
        tell_floors(a);
        lend_rest(a, now_ns);
    }
    if (a->parent)
        parent_tick(a->parent,
                    a->children ? add_sat(children_sum(a->children), a->loads.held_uw) : 0);
    rules = (struct site_rules){a->force.number && !a->force.ended, a->force.off, a->force.unsure};
    site_tick(a->site, &rules, now.wall_ms, now_ns);
}

static int send_up(void *arg, enum topic_leaf leaf, char *text)
{
    struct area *a = arg;

    if (a->uplink)
        return uplink_send(a->uplink, leaf, text);
    free(text);
    return -ENOTCONN;
}

static void tick_uplink(struct area *a, uint64_t now_ns)
{
    struct payload_demand demand = {.draw = points_power(a->points, now_ns)};
    struct error err;

    if (a->renew && renew_tick(a->renew, uplink_connected(a->uplink), now_ns)) {
        if (uplink_renew(a->uplink, &err) < 0)
            unit_err_of(&err, "%s; the present connection goes on", err.text);
        if (a->own_broker)
            broker_reload(a->config->state_dir);
    }
    if (a->children)
        children_demand(a->children, &demand.demand, &demand.floor_uw);
    if (a->children)
        add_loads(&a->loads, &demand);
    uplink_tick(a->uplink, a->machine ? NULL : &demand, now_ns);
    if (a->children)
        shrunk_tell(&a->shrunk, children_shrunk(a->children), now_ns, send_up, a);
}

/* A meter that tells what is happening comes last: of several, tided is told the last one. */
static void hand_down(struct area *a, bool slow)
{
    struct payload_reading reading;

    for (size_t i = 0; i < a->devices; i++) {
        struct device *d = &a->device[i];

        if (d->config->ops->slow != slow || !handing_take(d, &reading))
            continue;
        if (d->config->machine[0])
            handing_publish(a->local, d, &reading);
        else
            machine_reading(a->machine, &reading);
    }
}

static int on_tick(sd_event_source *source, uint64_t usec, void *arg)
{
    struct area *a = arg;
    uint64_t now = clock_now_ns();

    sd_event_source_set_time_relative(source, TICK_US);
    sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
    if (a->machine) {
        machine_tick(a->machine);
    } else {
        points_tick(a->points, now, wallclock_ms());
        govern(a, now);
    }
    hand_down(a, true);
    hand_down(a, false);
    flush(a);
    if (a->uplink)
        tick_uplink(a, now);
    return 0;
}

/* ---- the parent ------------------------------------------------------------------------------ */

static void fill_state(void *arg, struct payload_state *ret)
{
    struct area *a = arg;

    if (a->machine)
        return;
    site_state(a->site, clock_now_ns(), ret);
    ret->policy = a->force.number;
    ret->cap_uw = a->cap_uw;
    if (a->force.budget_uj == POLICY_FREE)
        return;
    ret->budget_uj = a->force.budget_uj;
    ret->budget_used_uj = a->force.used_uj;
}

static void fill_metrics(void *arg, struct metrics_now *ret)
{
    struct area *a = arg;

    ret->state.cap_uw = ret->state.budget_uj = ret->state.budget_used_uj = PAYLOAD_UNTOLD;
    fill_state(a, &ret->state);
    ret->draw = points_power(a->points, clock_now_ns());
    ret->total_uj = points_total_uj(a->points);
    ret->connected = a->uplink && uplink_connected(a->uplink);
}

static void got_policy(struct area *a, const struct mqtt_message *m)
{
    char text[PAYLOAD_TEXT_MAX];
    struct error err;
    int r = policy_take(a->policy, m->bytes, m->len, &err);

    if (r < 0) {
        say(a, "refused", error_said(&err), NULL);
        return;
    }
    if (r == 0)
        return;
    govern(a, clock_now_ns());
    snprintf(text, sizeof(text), "policy %llu is in force", (unsigned long long)a->force.number);
    say(a, "policy", text, NULL);
    changed(a);
}

static void got_command(struct area *a, const struct mqtt_message *m)
{
    struct payload_cmd cmd;
    const char *text;
    struct error err;
    size_t len;

    if (m->retained)
        say(a, "refused",
            "a retained message of the broker holds a command: it is ignored, since nobody knows "
            "how old it is (tide why command-refused)",
            NULL);
    else if (policy_open_command(a->policy, m->bytes, m->len, &text, &len) < 0)
        say(a, "refused",
            "a command came that the hub did not seal for this unit (tide why command-refused)",
            NULL);
    else if (payload_cmd_read(text, len, &cmd, &err) < 0)
        say(a, "refused", error_said(&err), NULL);
    else if (strcmp(cmd.unit, a->config->name) != 0)
        say(a, "refused", "a command for another unit came (tide why command-refused)", NULL);
    else
        site_command(a->site, &cmd, wallclock_ms(), clock_now_ns());
}

static void got_revoked(struct area *a, const struct mqtt_message *m)
{
    struct error err;
    int r = broker_take_list(a->config, m->bytes, m->len, &err);

    if (r < 0)
        say(a, "refused", error_said(&err), NULL);
    else if (r > 0)
        unit_log("the area's broker has another list of revoked machines");
}

static void got_from_parent(void *arg, enum topic_leaf leaf, const struct mqtt_message *m)
{
    struct area *a = arg;

    if (leaf == TOPIC_LEASE && a->machine)
        machine_got_lease(a->machine, m);
    else if (leaf == TOPIC_READING && a->machine)
        machine_got_reading(a->machine, m);
    else if (leaf == TOPIC_LEASE && a->parent)
        parent_got(a->parent, m);
    else if (leaf == TOPIC_CERTIFICATE && a->children && children_certificate(a->children, m))
        ;
    else if (leaf == TOPIC_CERTIFICATE && a->renew)
        renew_got(a->renew, m);
    else if (leaf == TOPIC_REVOKED && a->own_broker)
        got_revoked(a, m);
    else if (leaf == TOPIC_POLICY && !a->machine)
        got_policy(a, m);
    else if (leaf == TOPIC_CMD && !a->machine)
        got_command(a, m);
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
        unit_err_of(err, "%s", err->text);
    return r < 0 ? r : 0;
}

/* A unit that lends asks for a lease itself; one without children has nothing to keep one with. */
static int open_uplink(struct area *a, sd_event *event, struct error *err)
{
    const struct broker_config *b = &a->config->uplink;
    const struct uplink_place place = {.name = a->config->name,
                                       .role = a->config->tided_socket[0] ? "machine" : "unit",
                                       .host = b->host,
                                       .port = b->port,
                                       .ca = b->ca,
                                       .cert = b->cert,
                                       .key = b->key};
    struct uplink_hooks hooks = {
        .got = got_from_parent, .state = fill_state, .say = log_text, .arg = a};
    char path[CONFIG_PATH_MAX + 16];
    int r = 0;

    if (!a->config->uplink.named)
        return 0;
    snprintf(path, sizeof(path), "%s/tenure", a->config->state_dir);
    if (a->config->lease && a->children)
        r = parent_new(path, send_up, log_text, a, &a->parent, err);
    if (r == 0 && a->config->uplink.cert[0])
        r = renew_new(&(struct renew_place){place.name, place.ca, place.cert, place.key},
                      &(struct renew_hooks){send_up, say_certificate, a}, &a->renew, err);
    hooks.lease = a->machine || a->parent;
    hooks.readings = a->machine != NULL;
    hooks.machines = a->own_broker = !a->machine && broker_is_there(a->config->state_dir);
    hooks.sealed = !a->machine && a->config->seal[0];
    return r < 0 ? r : uplink_new(event, &place, a->outbox, &hooks, &a->uplink, err);
}

static int open_machine(struct area *a, sd_event *event, struct error *err)
{
    if (!a->config->tided_socket[0])
        return 0;
    return machine_new(event, a->config, a->outbox, a->config->uplink.named ? send_up : NULL, a,
                       &a->machine, err);
}

static int begin(struct area *a, sd_event *event, struct error *err)
{
    const struct site_hooks hooks = {.say = say, .changed = changed, .arg = a};
    int r = open_outbox(a, err);

    if (r == 0 && points_new(a->device, a->devices, a->outbox, &a->points) < 0)
        r = error_set(err, -ENOMEM, "out of memory: the meters cannot be read");
    r = r ? r : policy_new(a->config, &a->policy, err);
    r = r ? r : open_local(a, event, err);
    r = r ? r : open_devices(a, event, err);
    r = r ? r : site_new(event, a->config, a->local, &hooks, &a->site, err);
    if (r == 0 && a->config->children)
        r = children_new(a->config, a->local, send_up, a, &a->children, err);
    r = r ? r : open_machine(a, event, err);
    r = r ? r : open_uplink(a, event, err);
    if (r == 0 && a->config->metrics)
        r = metrics_new(event, a->config, fill_metrics, a, &a->metrics, err);
    /* The first tick comes at once: a lease that is asked for before it would know no caps. */
    if (r == 0 && sd_event_add_time_relative(event, &a->tick, CLOCK_MONOTONIC, 0, TICK_US / 100,
                                             on_tick, a) < 0)
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
        return error_set(err, -ENOMEM, "out of memory: the meters cannot be read");
    }
    a->config = config;
    a->cap_uw = POLICY_FREE;
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
    metrics_free(a->metrics);
    for (size_t i = 0; i < a->devices; i++)
        if (a->device[i].config->ops->close)
            a->device[i].config->ops->close(a->device[i].own);
    children_free(a->children);
    site_free(a->site);
    mqtt_free(a->local);
    machine_free(a->machine);
    uplink_free(a->uplink);
    parent_free(a->parent);
    renew_free(a->renew);
    policy_free(a->policy);
    points_free(a->points);
    outbox_close(a->outbox);
    free(a->device);
    free(a);
    return NULL;
}

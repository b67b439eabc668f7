/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/tree/tree_state.h"

#include "base/cleanup.h"
#include "base/wallclock.h"
#include "hub/trust/state.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ERROR_WORD "broker-refused"

#define FLUSH_US 200000 /* so long records wait for others of the same transaction */

#define TICK_US 1000000

/* ---- what units say ---- */

static void unreadable(struct tree *t, const struct unit *u, const char *what,
                       const struct error *e)
{
    tree_say(t, u->name, "sent %s that is not understood: %s (tide why %s)", what, e->text,
             error_why(e));
}

/* Whether a unit reads its policy decides which caps the hub has to lend. */
static void note_role(struct tree *t, struct unit *u, const struct payload_state *state)
{
    bool machine = strcmp(state->role, "machine") == 0;

    if (!u->heard || machine != u->machine)
        t->caps_due_ms = 0;
    u->heard = true;
    u->machine = machine;
}

static void take_state(struct tree *t, struct unit *u, const struct mqtt_message *m)
{
    struct payload_state state;
    struct error e = {0};
    char text[ERROR_TEXT_MAX];

    if (payload_state_read(m->bytes, m->len, &state, &e) < 0) {
        unreadable(t, u, "a state", &e);
        return;
    }
    if (!u->heard || state.online != u->state.online)
        u->since_ms = (int64_t)wallclock_ms();
    if (state.online)
        snprintf(text, sizeof(text), "connected (%s %s)%s", state.role, state.version,
                 state.synced ? "" : "; its clock is not synchronised");
    else
        snprintf(text, sizeof(text), "lost");
    if (!u->heard || state.online != u->state.online || state.boot != u->state.boot)
        tree_say(t, u->name, "%s", text);
    if (state.online)
        note_role(t, u, &state);
    u->state = state;
    tree_changed(t, u, TREE_STATE, NULL);
}

static void take_demand(struct tree *t, struct unit *u, const struct mqtt_message *m)
{
    struct payload_demand demand;
    struct error e = {0};

    if (payload_demand_read(m->bytes, m->len, &demand, &e) < 0) {
        unreadable(t, u, "a demand", &e);
        return;
    }
    u->demand = demand;
    u->demand_ms = (int64_t)wallclock_ms();
    tree_changed(t, u, TREE_POWER, NULL);
}

/* Kept only where somebody is shrunk: a message of many nodes is large. */
static void take_shrunk(struct tree *t, struct unit *u, const struct mqtt_message *m)
{
    struct payload_shrunk *told = malloc(sizeof(*told));
    struct error e = {0};

    if (!told || payload_shrunk_read(m->bytes, m->len, told, &e) < 0) {
        unreadable(t, u, "a report on shrunk jobs", &e);
        free(told);
        return;
    }
    free(u->shrunk);
    u->shrunk = told->nodes ? told : NULL;
    u->shrunk_ms = (int64_t)wallclock_ms();
    if (!u->shrunk)
        free(told);
    tree_changed(t, u, TREE_STATE, NULL);
}

static void take_event(struct tree *t, struct unit *u, const struct mqtt_message *m)
{
    struct payload_event event;
    struct error e = {0};

    if (payload_event_read(m->bytes, m->len, &event, &e) < 0) {
        unreadable(t, u, "an event", &e);
        return;
    }
    tree_changed(t, u, TREE_EVENT, &event);
    orders_event(t, u, &event);
    free(event.data);
}

static void take_energy(struct tree *t, struct unit *u, const struct mqtt_message *m)
{
    struct error err = {0};

    if (ingest_energy(t->ingest, u, m->bytes, m->len, &err) < 0)
        tree_say(t, NULL, "%s", error_said(&err));
    if (ingest_waits(t->ingest))
        sd_event_source_set_enabled(t->flush, SD_EVENT_ONESHOT);
}

static void on_message(void *arg, const struct mqtt_message *m)
{
    struct tree *t = arg;
    char name[EDGE_NAME_MAX];
    enum topic_leaf leaf;
    struct unit *u;

    if (m->len == 0 || topic_read(m->topic, name, &leaf) < 0)
        return;
    u = units_make(t->units, name);
    if (!u || members_refuse(t, u))
        return;
    if (leaf == TOPIC_STATE)
        take_state(t, u, m);
    else if (leaf == TOPIC_ENERGY)
        take_energy(t, u, m);
    else if (leaf == TOPIC_DEMAND)
        take_demand(t, u, m);
    else if (leaf == TOPIC_SHRUNK)
        take_shrunk(t, u, m);
    else if (leaf == TOPIC_EVENT)
        take_event(t, u, m);
    else if (leaf == TOPIC_REQUEST)
        members_request(t, u, m->bytes, m->len);
    if (leaf == TOPIC_ASK || leaf == TOPIC_ACK || leaf == TOPIC_DEMAND) {
        caps_got(t, u, leaf, m->bytes, m->len);
        if (t->news)
            sd_event_source_set_enabled(t->flush, SD_EVENT_ONESHOT);
    }
}

/* ---- what the parts say ---- */

static int publish_receipt(void *arg, const char *unit, const char *text)
{
    struct tree *t = arg;
    char topic[TOPIC_MAX];
    int id;

    return mqtt_publish(t->mqtt, topic_make(unit, TOPIC_RECEIPT, topic), text, strlen(text), 1,
                        false, 0, &id);
}

static void on_say(void *arg, const char *unit, const char *text)
{
    tree_say(arg, unit, "%s", text);
}

static void on_up(void *arg, const char *problem)
{
    struct tree *t = arg;
    char text[ERROR_TEXT_MAX + 128];

    if (problem)
        snprintf(text, sizeof(text), "no connection to the broker at %s:%u: %s" ERROR_WHY,
                 t->options.host, t->options.port, problem);
    else
        snprintf(text, sizeof(text), "connected to the broker at %s:%u", t->options.host,
                 t->options.port);
    tree_say(t, NULL, "%s", text);
    if (!problem) {
        ingest_receipts(t->ingest);
        sender_again(t); /* this may be another broker, or one that forgot */
        members_again(t);
    }
}

static void on_stored(void *arg, int id, bool heard)
{
    struct tree *t = arg;

    ingest_receipts(t->ingest);
    lending_send(t->lending);
    sender_send(t);
}

static int on_flush(sd_event_source *source, uint64_t usec, void *arg)
{
    struct tree *t = arg;
    struct error err = {0};

    if (tree_flush(t, &err) < 0)
        tree_say(t, NULL, "%s", error_said(&err));
    if (t->news)
        caps_tick(t);
    sd_event_source_set_time_relative(source, FLUSH_US);
    return 0;
}

static int on_tick(sd_event_source *source, uint64_t usec, void *arg)
{
    struct tree *t = arg;

    members_tick(t);
    sender_tick(t);
    above_tick(t);
    caps_tick(t);
    orders_tick(t);
    sd_event_source_set_time_relative(source, TICK_US);
    sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
    return 0;
}

static int on_reload(sd_event_source *source, const struct signalfd_siginfo *info, void *arg)
{
    struct error err = {0};
    struct tree *t = arg;

    if (tree_policy_reload(t, &err) < 0)
        tree_say(t, NULL, "%s; the policy in force stays (tide why %s)", err.text, error_why(&err));
    return 0;
}

/* ---- for the others ---- */

int tree_flush(struct tree *t, struct error *err)
{
    return ingest_flush(t->ingest, err);
}

const struct units *tree_units(const struct tree *t)
{
    return t->units;
}

struct ingest_counts tree_counts(const struct tree *t)
{
    return ingest_counts(t->ingest);
}

bool tree_connected(const struct tree *t)
{
    return mqtt_connected(t->mqtt);
}

/* ---- begin and end ---- */

static int connect_broker(struct tree *t, struct error *err)
{
    const struct tree_options *o = &t->options;
    const struct mqtt_options mqtt = {.host = o->host,
                                      .port = o->port,
                                      .ca = o->ca,
                                      .cert = o->cert,
                                      .key = o->key,
                                      .name = TREE_NAME,
                                      .up = on_up,
                                      .got = on_message,
                                      .stored = on_stored,
                                      .arg = t};
    int r = mqtt_new(o->event, &mqtt, &t->mqtt, err);

    if (r < 0)
        return r;
    r = mqtt_subscribe(t->mqtt, "tide/1/+/up/#", 1);
    return r < 0 ? error_set(err, r, "cannot subscribe: %s", strerror(-r)) : 0;
}

/* The key that seals what goes to units; and our pid, for `tide-hub policy apply`. */
static int read_state(struct tree *t, struct error *err)
{
    struct state state;
    char pid[32];
    int r = state_open(t->options.state, &state, err);

    if (r < 0)
        return r;
    snprintf(pid, sizeof(pid), "%d\n", (int)getpid());
    t->seal_key = strdup(authority_seal_key(state.authority));
    r = t->seal_key ? state_put(&state, TREE_PID, pid, err)
                    : error_set(err, -ENOMEM, "out of memory");
    state_close(&state);
    return r;
}

static int begin_events(struct tree *t)
{
    sigset_t hup;
    int r;

    sigemptyset(&hup);
    sigaddset(&hup, SIGHUP);
    sigprocmask(SIG_BLOCK, &hup, NULL);
    r = sd_event_add_signal(t->options.event, &t->reload, SIGHUP, on_reload, t);
    if (r >= 0)
        r = sd_event_add_time_relative(t->options.event, &t->tick, CLOCK_BOOTTIME, TICK_US, 10000,
                                       on_tick, t);
    return r;
}

static int begin(struct tree *t, struct error *err)
{
    const struct ingest_options ingest = {t->options.store, publish_receipt, on_say, t};
    int r = units_new(&t->units);

    if (r >= 0)
        r = ingest_new(&ingest, &t->ingest);
    if (r >= 0)
        r = sd_event_add_time_relative(t->options.event, &t->flush, CLOCK_BOOTTIME, FLUSH_US, 10000,
                                       on_flush, t);
    if (r >= 0)
        r = sd_event_source_set_enabled(t->flush, SD_EVENT_OFF);
    if (r >= 0)
        r = begin_events(t);
    if (r < 0)
        return error_set(err, r, "cannot begin to listen to units: %s", strerror(-r));
    r = read_state(t, err);
    if (r >= 0)
        r = members_begin(t, err);
    if (r >= 0)
        r = connect_broker(t, err);
    if (r >= 0)
        r = caps_begin(t, err);
    if (r >= 0)
        r = above_begin(t, err);
    return r < 0 ? r : sender_begin(t, err);
}

int tree_new(const struct tree_options *options, struct tree **ret, struct error *err)
{
    struct tree *t = calloc(1, sizeof(*t));
    int r;

    if (!t)
        return error_set(err, -ENOMEM, "out of memory");
    t->options = *options;
    r = begin(t, err);
    if (r < 0)
        tree_free(t);
    else
        *ret = t;
    return r < 0 ? r : 0;
}

struct tree *tree_free(struct tree *t)
{
    if (!t)
        return NULL;
    members_end(t);
    mqtt_free(t->mqtt);
    sd_event_source_disable_unref(t->flush);
    sd_event_source_disable_unref(t->tick);
    sd_event_source_disable_unref(t->reload);
    above_end(t);
    sender_end(t);
    caps_end(t);
    if (t->seal_key)
        explicit_bzero(t->seal_key, strlen(t->seal_key));
    free(t->seal_key);
    ingest_free(t->ingest);
    units_free(t->units);
    free(t);
    return NULL;
}

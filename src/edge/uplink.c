/* SPDX-License-Identifier: Apache-2.0 */
#include "edge/uplink.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/visible.h"
#include "base/wallclock.h"
#include "edge/mqtt.h"
#include "edge/payload.h"
#include "edge/topic.h"

#define ERROR_WORD "broker-refused"

#define BATCH      10              /* records in one message; more while the parent catches up */
#define WINDOW     8               /* messages without a receipt */
#define PATIENT_NS (10 * NS_PER_S) /* less than a batch waits so long */
#define AGAIN_NS   (30 * NS_PER_S) /* without a receipt for so long, records are sent again */
#define SOON_NS    NS_PER_S        /* after a message that nobody heard; then twice as long, … */
#define SOON_MAX   4               /* … so often */
#define DEMAND_NS  (10 * NS_PER_S) /* an unchanged draw is told so often */
#define STATE_NS   (60 * NS_PER_S) /* an unchanged state */

struct uplink {
    struct mqtt *mqtt;
    struct outbox *outbox;
    struct uplink_place place;
    sd_event *event;
    const char *name;
    struct uplink_hooks hooks;
    char *waiting_event[UPLINK_EVENTS]; /* oldest first */
    size_t events;
    uint64_t state_ns;       /* when the state was told */
    bool changed;            /* it has to be told now */
    uint64_t sent_seq;       /* records up to this one were sent */
    uint64_t window[WINDOW]; /* last seq of each message without a receipt, oldest first */
    size_t waiting;          /* of these */
    uint64_t batch_ns, again_ns, demand_ns;
    struct payload_demand told;
    bool behind;      /* the last message was a full one: more is there */
    bool alone;       /* since records were sent again, the parent is known not to hear them */
    unsigned unheard; /* how often that was so since its last receipt */
};

__attribute__((format(printf, 2, 3))) static void say(const struct uplink *u, const char *fmt, ...)
{
    char text[2 * ERROR_TEXT_MAX];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    u->hooks.say(u->hooks.arg, text);
}

/* ---- sending --------------------------------------------------------------------------------- */

static int publish(struct uplink *u, enum topic_leaf leaf, char *text, int qos, bool retain)
{
    char topic[TOPIC_MAX];
    int id, r = -ENOMEM;

    if (text)
        r = mqtt_publish(u->mqtt, topic_make(u->name, leaf, topic), text, strlen(text), qos, retain,
                         0, &id);
    free(text);
    return r;
}

static void send_state(struct uplink *u, uint64_t now_ns)
{
    struct payload_state s = {
        .online = true,
        .synced = wallclock_synced(),
        .version = TIDE_VERSION,
        .boot = outbox_boot(u->outbox),
        .absent_s = PAYLOAD_UNTOLD,
        .cap_uw = PAYLOAD_UNTOLD,
        .budget_uj = PAYLOAD_UNTOLD,
        .budget_used_uj = PAYLOAD_UNTOLD,
    };

    snprintf(s.role, sizeof(s.role), "%s", u->place.role);
    u->hooks.state(u->hooks.arg, &s);
    if (publish(u, TOPIC_STATE, payload_state_text(&s), 1, true) < 0)
        return;
    u->changed = false;
    u->state_ns = now_ns;
}

static void drop_event(struct uplink *u)
{
    free(u->waiting_event[0]);
    memmove(u->waiting_event, u->waiting_event + 1, --u->events * sizeof(u->waiting_event[0]));
}

static void send_events(struct uplink *u)
{
    while (u->events) {
        char *copy = strdup(u->waiting_event[0]);

        if (publish(u, TOPIC_EVENT, copy, 1, false) < 0)
            return;
        drop_event(u);
    }
}

void uplink_event(struct uplink *u, const char *type, const char *text, const char *data)
{
    struct payload_event e = {.time_ms = wallclock_ms(), .data = (char *)data};
    char *message;

    snprintf(e.type, sizeof(e.type), "%s", type);
    snprintf(e.text, sizeof(e.text), "%s", text);
    visible(e.text); /* names in it, and its end, may be cut inside of a character */
    message = payload_event_text(&e);
    if (!message)
        return;
    if (u->events == UPLINK_EVENTS)
        drop_event(u);
    u->waiting_event[u->events++] = message;
    if (mqtt_connected(u->mqtt))
        send_events(u);
}

void uplink_state_changed(struct uplink *u)
{
    u->changed = true;
}

/* Some part of a time: units that lost one parent do not all ask at once. */
static uint64_t part_of(uint64_t ns)
{
    uint32_t chance = 0;

    if (getrandom(&chance, sizeof(chance), GRND_NONBLOCK) < 0)
        chance = 0;
    return ns / 1000 * (chance % 1000);
}

/* All that has no receipt goes out again. */
static void send_again(struct uplink *u, uint64_t now_ns)
{
    u->sent_seq = 0;
    u->waiting = 0;
    u->behind = true;
    u->alone = false;
    u->batch_ns = 0;
    u->again_ns = now_ns + AGAIN_NS + part_of(AGAIN_NS / 4);
}

static bool send_batch(struct uplink *u, uint64_t now_ns)
{
    static struct payload_energy message;
    size_t most = u->behind ? PAYLOAD_RECORDS_MAX : BATCH;

    if (u->waiting >= (u->unheard ? 1 : WINDOW) ||
        outbox_next(u->outbox, u->sent_seq, most, message.record, &message.count) < 0 ||
        message.count == 0)
        return false;
    if (message.count < BATCH && now_ns - u->batch_ns < PATIENT_NS)
        return false;
    message.after = u->sent_seq;
    if (publish(u, TOPIC_ENERGY, payload_energy_text(&message), 1, false) < 0)
        return false;
    u->behind = message.count == most;
    u->sent_seq = message.record[message.count - 1].seq;
    u->window[u->waiting++] = u->sent_seq;
    u->batch_ns = now_ns;
    return true;
}

static void send_batches(struct uplink *u, uint64_t now_ns)
{
    while (send_batch(u, now_ns))
        ;
}

int uplink_send(struct uplink *u, enum topic_leaf leaf, char *text)
{
    return publish(u, leaf, text, leaf == TOPIC_DEMAND ? 0 : 1, false);
}

static bool same_demand(const struct payload_demand *a, const struct payload_demand *b)
{
    return a->draw.uw == b->draw.uw && a->draw.basis == b->draw.basis &&
           a->demand.count == b->demand.count &&
           memcmp(a->demand.point, b->demand.point, a->demand.count * sizeof(a->demand.point[0])) ==
               0;
}

static void send_demand(struct uplink *u, const struct payload_demand *d, uint64_t now_ns)
{
    if (same_demand(d, &u->told) && now_ns - u->demand_ns < DEMAND_NS)
        return;
    if (publish(u, TOPIC_DEMAND, payload_demand_text(d), 0, false) == 0) {
        u->told = *d;
        u->demand_ns = now_ns;
    }
}

bool uplink_connected(const struct uplink *u)
{
    return mqtt_connected(u->mqtt);
}

void uplink_tick(struct uplink *u, const struct payload_demand *demand, uint64_t now_ns)
{
    if (!mqtt_connected(u->mqtt))
        return;
    if (u->changed || now_ns - u->state_ns >= STATE_NS)
        send_state(u, now_ns);
    send_events(u);
    if (demand)
        send_demand(u, demand, now_ns);
    if (!u->waiting)
        u->again_ns = now_ns + AGAIN_NS;
    else if (now_ns >= u->again_ns)
        send_again(u, now_ns);
    send_batches(u, now_ns);
}

/* ---- receiving ------------------------------------------------------------------------------- */

static void take_receipt(struct uplink *u, const struct payload_receipt *receipt)
{
    uint64_t now = clock_now_ns();
    size_t done = 0;

    if (receipt->boot != outbox_boot(u->outbox))
        return;
    u->alone = false;
    u->unheard = 0;
    if (receipt->seq == 0) {
        send_again(u, now);
        send_batches(u, now);
        return;
    }
    if (outbox_receipt(u->outbox, receipt->boot, receipt->seq) < 0)
        say(u, "cannot remove records that the parent has stored; they are sent again (tide why "
               "outbox-failed)");
    while (done < u->waiting && u->window[done] <= receipt->seq)
        done++;
    u->waiting -= done;
    memmove(u->window, u->window + done, u->waiting * sizeof(u->window[0]));
    u->again_ns = now + AGAIN_NS;
    send_batches(u, now);
}

static void got(void *arg, const struct mqtt_message *m)
{
    struct payload_receipt receipt;
    char name[EDGE_NAME_MAX];
    struct uplink *u = arg;
    enum topic_leaf leaf;
    struct error err;

    if (topic_read(m->topic, name, &leaf) < 0 || strcmp(name, u->name) != 0)
        return;
    if (leaf != TOPIC_RECEIPT) {
        u->hooks.got(u->hooks.arg, leaf, m);
        return;
    }
    if (payload_receipt_read(m->bytes, m->len, &receipt, &err) < 0)
        say(u, "a message of the parent is ignored: %s", error_said(&err));
    else
        take_receipt(u, &receipt);
}

/*
 * The parent is not at its broker, which keeps nothing for it, but may begin just now. Until its
 * next receipt one message at a time is sent again, soon at first.
 */
static void stored(void *arg, int id, bool heard)
{
    struct uplink *u = arg;
    uint64_t again_ns, wait_ns = SOON_NS << u->unheard;

    if (heard || u->waiting == 0 || u->alone)
        return;
    again_ns = clock_now_ns() + wait_ns + part_of(wait_ns);
    if (again_ns < u->again_ns)
        u->again_ns = again_ns;
    u->alone = true;
    u->unheard += u->unheard < SOON_MAX;
}

static void up(void *arg, const char *problem)
{
    struct uplink *u = arg;

    if (problem) {
        say(u, "uplink: %s; records wait in the outbox" ERROR_WHY, problem);
        return;
    }
    say(u, "uplink: connected");
    u->unheard = 0;
    u->state_ns = 0; /* told by the next tick, when all that it tells of is there */
    u->changed = true;
    send_again(u, clock_now_ns());
}

/* ---- begin and end --------------------------------------------------------------------------- */

static const char *or_null(const char *text)
{
    return text[0] ? text : NULL;
}

static int begin(struct uplink *u, struct mqtt **ret, struct error *err)
{
    const struct uplink_place *b = &u->place;
    const enum topic_leaf leaves[] = {TOPIC_RECEIPT, TOPIC_CERTIFICATE, TOPIC_LEASE,  TOPIC_POLICY,
                                      TOPIC_CMD,     TOPIC_READING,     TOPIC_REVOKED};
    const bool wanted[] = {true,
                           b->cert[0] != '\0',
                           u->hooks.lease,
                           u->hooks.sealed,
                           u->hooks.sealed,
                           u->hooks.readings,
                           u->hooks.machines};
    char will_topic[TOPIC_MAX], topic[TOPIC_MAX];
    _cleanup_free_ char *will = payload_state_text(&(struct payload_state){.online = false});
    struct mqtt_options options = {
        .host = b->host,
        .port = b->port,
        .ca = or_null(b->ca),
        .cert = or_null(b->cert),
        .key = or_null(b->key),
        .name = u->name,
        .will_topic = topic_make(u->name, TOPIC_STATE, will_topic),
        .will = will,
        .up = up,
        .got = got,
        .stored = stored,
        .arg = u,
    };
    struct mqtt *m = NULL;
    int r = will ? mqtt_new(u->event, &options, &m, err)
                 : error_set(err, -ENOMEM, "out of memory: no uplink");

    for (size_t i = 0; r == 0 && i < ARRAY_LEN(leaves); i++)
        if (wanted[i] && mqtt_subscribe(m, topic_make(u->name, leaves[i], topic), 1) < 0)
            r = error_set(err, -ENOMEM, "out of memory: the uplink subscribes to nothing");
    if (r < 0)
        mqtt_free(m);
    else
        *ret = m;
    return r;
}

int uplink_new(sd_event *event, const struct uplink_place *place, struct outbox *outbox,
               const struct uplink_hooks *hooks, struct uplink **ret, struct error *err)
{
    struct uplink *u = calloc(1, sizeof(*u));
    int r;

    if (!u)
        return error_set(err, -ENOMEM, "out of memory: no uplink");
    u->place = *place;
    u->event = event;
    u->outbox = outbox;
    u->name = place->name;
    u->hooks = *hooks;
    r = begin(u, &u->mqtt, err);
    if (r < 0) {
        uplink_free(u);
        return r;
    }
    *ret = u;
    return 0;
}

int uplink_renew(struct uplink *u, struct error *err)
{
    struct mqtt *anew;
    int r = begin(u, &anew, err);

    if (r < 0)
        return r;
    mqtt_free(u->mqtt);
    u->mqtt = anew;
    return 0;
}

struct uplink *uplink_free(struct uplink *u)
{
    if (!u)
        return NULL;
    mqtt_free(u->mqtt);
    while (u->events)
        drop_event(u);
    free(u);
    return NULL;
}

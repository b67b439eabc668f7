/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/area/uplink.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/timex.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "edge/mqtt.h"
#include "edge/payload.h"
#include "edge/topic.h"
#include "unit/log.h"

#define BATCH      10              /* records in one message; more while the parent catches up */
#define WINDOW     8               /* messages without a receipt */
#define PATIENT_NS (10 * NS_PER_S) /* less than a batch waits so long */
#define AGAIN_NS   (30 * NS_PER_S) /* without a receipt for so long, records are sent again */
#define DEMAND_NS  (10 * NS_PER_S) /* an unchanged draw is told so often */

struct uplink {
    struct mqtt *mqtt;
    struct outbox *outbox;
    const char *name;
    uplink_lease lease; /* NULL: not for this program */
    void *arg;
    uint64_t sent_seq;       /* records up to this one were sent */
    uint64_t window[WINDOW]; /* last seq of each message without a receipt, oldest first */
    size_t waiting;          /* of these */
    uint64_t batch_ns, again_ns, demand_ns;
    struct power_range told; /* as the draw */
    bool behind;             /* the last message was a full one: more is there */
};

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

static bool clock_is_synchronised(void)
{
    struct timex t = {0};

    return adjtimex(&t) >= 0 && !(t.status & STA_UNSYNC);
}

static void send_state(struct uplink *u)
{
    struct payload_state s = {
        .online = true,
        .synced = clock_is_synchronised(),
        .version = TIDE_VERSION,
        .boot = outbox_boot(u->outbox),
    };

    snprintf(s.role, sizeof(s.role), "%s", u->lease ? "machine" : "unit");
    publish(u, TOPIC_STATE, payload_state_text(&s), 1, true);
}

/* All that has no receipt goes out again. Units that lost one parent do not all ask at once. */
static void send_again(struct uplink *u, uint64_t now_ns)
{
    uint32_t chance = 0;

    if (getrandom(&chance, sizeof(chance), GRND_NONBLOCK) < 0)
        chance = 0;
    u->sent_seq = 0;
    u->waiting = 0;
    u->behind = true;
    u->again_ns = now_ns + AGAIN_NS + chance % (AGAIN_NS / 4);
}

static bool send_batch(struct uplink *u, uint64_t now_ns)
{
    static struct payload_energy message;
    size_t most = u->behind ? PAYLOAD_RECORDS_MAX : BATCH;

    if (u->waiting == WINDOW ||
        outbox_next(u->outbox, u->sent_seq, most, message.record, &message.count) < 0 ||
        message.count == 0)
        return false;
    if (message.count < BATCH && now_ns - u->batch_ns < PATIENT_NS)
        return false;
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

static void send_draw(struct uplink *u, const struct power_range *draw, uint64_t now_ns)
{
    struct payload_demand d = {.draw = *draw};
    bool changed = draw->uw != u->told.uw || draw->basis != u->told.basis;

    if ((changed || now_ns - u->demand_ns >= DEMAND_NS) &&
        publish(u, TOPIC_DEMAND, payload_demand_text(&d), 0, false) == 0) {
        u->told = *draw;
        u->demand_ns = now_ns;
    }
}

void uplink_tick(struct uplink *u, const struct power_range *draw, uint64_t now_ns)
{
    if (!mqtt_connected(u->mqtt))
        return;
    if (draw)
        send_draw(u, draw, now_ns);
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
    if (outbox_receipt(u->outbox, receipt->boot, receipt->seq) < 0)
        unit_log("cannot remove records that the parent has stored; they are sent again");
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
    if (leaf == TOPIC_LEASE && u->lease)
        u->lease(u->arg, m);
    if (leaf != TOPIC_RECEIPT)
        return;
    if (payload_receipt_read(m->bytes, m->len, &receipt, &err) < 0)
        unit_log("a message of the parent is ignored: %s", err.text);
    else
        take_receipt(u, &receipt);
}

static void up(void *arg, const char *problem)
{
    struct uplink *u = arg;

    if (problem) {
        unit_log("uplink: %s; records wait in the outbox", problem);
        return;
    }
    unit_log("uplink: connected");
    send_state(u);
    send_again(u, clock_now_ns());
}

/* ---- begin and end --------------------------------------------------------------------------- */

static const char *or_null(const char *text)
{
    return text[0] ? text : NULL;
}

int uplink_new(sd_event *event, const struct unit_config *config, struct outbox *outbox,
               uplink_lease lease, void *arg, struct uplink **ret, struct error *err)
{
    const struct broker_config *b = &config->uplink;
    struct uplink *u = calloc(1, sizeof(*u));
    char will_topic[TOPIC_MAX], topic[TOPIC_MAX];
    _cleanup_free_ char *will = payload_state_text(&(struct payload_state){.online = false});
    struct mqtt_options options = {
        .host = b->host,
        .port = b->port,
        .ca = or_null(b->ca),
        .cert = or_null(b->cert),
        .key = or_null(b->key),
        .name = config->name,
        .will_topic = topic_make(config->name, TOPIC_STATE, will_topic),
        .will = will,
        .up = up,
        .got = got,
        .arg = u,
    };
    int r;

    if (!u || !will) {
        free(u);
        return error_set(err, -ENOMEM, "no memory for the uplink");
    }
    u->outbox = outbox;
    u->name = config->name;
    u->lease = lease;
    u->arg = arg;
    r = mqtt_new(event, &options, &u->mqtt, err);
    if (r == 0)
        r = mqtt_subscribe(u->mqtt, topic_make(config->name, TOPIC_RECEIPT, topic), 1);
    if (r == 0 && lease)
        r = mqtt_subscribe(u->mqtt, topic_make(config->name, TOPIC_LEASE, topic), 1);
    if (r < 0) {
        uplink_free(u);
        return r;
    }
    *ret = u;
    return 0;
}

struct uplink *uplink_free(struct uplink *u)
{
    if (u)
        mqtt_free(u->mqtt);
    free(u);
    return NULL;
}

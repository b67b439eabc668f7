/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many units at once, as a broker sees them: each has a connection of its own with TLS, and sends a
 * message of cumulative records every PERIOD seconds, at a phase of its own. One more connection
 * takes all messages, as a hub does, and tells how long each was on its way. One thread.
 *
 *   load_units PORT FOLDER UNITS PERIOD SECONDS [CONNECTS_PER_S [hub|draws|drain]]
 *
 * hub: a real tide-hub takes the messages; a message has arrived when its receipt has come, which
 * is sent when it is stored. draws: the same, and each tells another draw with each message; before
 * its first it tells that it is there, one PERIOD earlier. drain: at first each unit has a day of
 * records of 15 minutes, which go out like a real unit's, again after 30 s without a receipt; ends
 * when all have theirs, or after SECONDS.
 *
 * FOLDER holds ca.crt, unit.crt and unit.key. Prints "connected" with the seconds that it took when
 * all units are, goes on for SECONDS, waits for what is under way, and prints a line of JSON. Exit
 * status 1: not all were connected in ten minutes.
 */
#include "base/clock.h"
#include "edge/mqtt.h"
#include "edge/payload.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

#define UNITS_MAX   20000
#define RECORDS     10
#define CONNECT_MAX (600 * NS_PER_S)
#define TICK_NS     (5 * NS_PER_MS) /* at most between two looks at what is due */
#define ACCURACY_US 50
#define DRAIN_NS    (5 * NS_PER_S)
#define LATENCIES   4000000
#define PER_S       200 /* connections begun a second */
#define PENDING_MAX 200 /* begun and not there yet: a slow broker is not asked for more */
#define DAY_RECORDS 96  /* of 15 minutes */
#define AGAIN_NS    (30 * NS_PER_S)

struct unit {
    struct mqtt *mqtt;
    char topic[TOPIC_MAX];
    uint64_t due_ns, sent;
    bool there;              /* it has told that it is */
    uint64_t sent_ns, acked; /* the newest message; the newest receipt's seq */
};

static struct {
    sd_event *event;
    struct mqtt_options options;
    char ca[4096], cert[4096], key[4096];
    struct unit *unit;
    struct unit **order; /* by due_ns, round and round: all have the same period */
    uint32_t at;         /* in order: the next to send */
    uint32_t units, begun, up, per_s;
    uint64_t period_ns, start_ns, go_ns, end_ns, last_ns, connected_ns;
    bool receipts, draws, drain;
    uint64_t bytes;               /* of all messages */
    uint64_t drained, drained_ns; /* records; since the begin */
    uint64_t sent, refused, received, losses, *latency_ns, latencies;
    struct mqtt *hub;
} load;

static uint64_t next(void)
{
    static uint64_t state = 1;

    state = state * 6364136223846793005u + 1442695040888963407u;
    return state >> 33;
}

static void on_up(void *arg, const char *problem)
{
    if (problem)
        load.losses++;
    load.up += problem ? 0 : 1;
}

static void on_hub(void *arg, const char *problem)
{
    if (problem)
        fprintf(stderr, "load_units: the receiver: %s\n", problem);
}

static void nothing(void *arg, const struct mqtt_message *m)
{
}

/* The newest record's stamp is when it was sent. */
static void on_message(void *arg, const struct mqtt_message *m)
{
    struct payload_energy energy;
    struct error err;

    if (payload_energy_read(m->bytes, m->len, &energy, &err) < 0 || energy.count == 0)
        return;
    if (load.latencies < LATENCIES)
        load.latency_ns[load.latencies++] =
            clock_now_ns() - energy.record[energy.count - 1].mono_ns;
    load.received++;
}

static struct unit *unit_of(const char *topic)
{
    char name[EDGE_NAME_MAX];
    enum topic_leaf leaf;
    unsigned long i;

    if (topic_read(topic, name, &leaf) < 0 || leaf != TOPIC_RECEIPT)
        return NULL;
    i = strtoul(name + strlen("unit-"), NULL, 10);
    return i < load.units ? &load.unit[i] : NULL;
}

/* If a message's receipt comes with a later one's, the later message alone is measured. */
static void on_receipt(void *arg, const struct mqtt_message *m)
{
    struct unit *u = unit_of(m->topic);
    struct payload_receipt r;
    struct error err;

    if (!u || payload_receipt_read(m->bytes, m->len, &r, &err) < 0 || r.seq <= u->acked)
        return;
    load.drained += r.seq - u->acked;
    load.received += load.drain ? 0 : (r.seq - u->acked) / RECORDS;
    u->acked = r.seq;
    if (!load.drain && r.seq == u->sent * RECORDS && load.latencies < LATENCIES)
        load.latency_ns[load.latencies++] = clock_now_ns() - u->sent_ns;
    load.drained_ns = clock_now_ns() - load.go_ns;
}

/* The records after @from of a day without the hub, at most a message full. */
static char *backlog(uint64_t from)
{
    struct payload_energy e = {0};
    uint64_t now_ms = clock_real_ms();

    for (; e.count < PAYLOAD_RECORDS_MAX && from + e.count < DAY_RECORDS; e.count++) {
        struct outbox_record *r = &e.record[e.count];
        uint64_t seq = from + e.count + 1;

        *r = (struct outbox_record){.boot = 1,
                                    .seq = seq,
                                    .from_ms = now_ms - (DAY_RECORDS + 1 - seq) * 900000,
                                    .to_ms = now_ms - (DAY_RECORDS - seq) * 900000,
                                    .mono_ns = 1};
        r->total = (struct energy_range){.uj = seq * 108000000000,
                                         .low_uj = seq * 107000000000,
                                         .high_uj = seq * 109000000000,
                                         .basis = POWER_MEASURED};
        snprintf(r->point, sizeof(r->point), "area");
    }
    return payload_energy_text(&e);
}

static char *message(const struct unit *u, uint64_t now_ns)
{
    struct payload_energy e = {.count = RECORDS};

    for (uint32_t i = 0; i < RECORDS; i++) {
        struct outbox_record *r = &e.record[i];

        *r = (struct outbox_record){.boot = 1,
                                    .seq = u->sent * RECORDS + i + 1,
                                    .from_ms = clock_real_ms() - (RECORDS - i) * 1000,
                                    .to_ms = clock_real_ms() - (RECORDS - 1 - i) * 1000,
                                    .mono_ns = now_ns};
        r->total = (struct energy_range){.uj = r->seq * 120000000,
                                         .low_uj = r->seq * 119000000,
                                         .high_uj = r->seq * 121000000,
                                         .basis = POWER_MEASURED};
        snprintf(r->point, sizeof(r->point), "area");
    }
    return payload_energy_text(&e);
}

/* Sends a text that is freed here; a message that the hub gives no receipt for. */
static void send_aside(struct unit *u, enum topic_leaf leaf, char *text)
{
    char name[EDGE_NAME_MAX], topic[TOPIC_MAX];
    int id;

    if (!text)
        exit(1);
    snprintf(name, sizeof(name), "unit-%td", u - load.unit);
    topic_make(name, leaf, topic);
    if (mqtt_publish(u->mqtt, topic, text, strlen(text), 1, false, 0, &id) < 0)
        load.refused++;
    free(text);
}

static void send_state(struct unit *u)
{
    struct payload_state s = {.online = true,
                              .synced = true,
                              .role = "unit",
                              .version = "0",
                              .boot = 1,
                              .absent_s = PAYLOAD_UNTOLD,
                              .cap_uw = PAYLOAD_UNTOLD,
                              .budget_uj = PAYLOAD_UNTOLD,
                              .budget_used_uj = PAYLOAD_UNTOLD};

    u->there = true;
    send_aside(u, TOPIC_STATE, payload_state_text(&s));
}

static void send_draw(struct unit *u)
{
    uint64_t uw = 100000000 + u->sent * 1000000;
    struct payload_demand d = {
        .draw = {
            .low_uw = uw - 1000000, .uw = uw, .high_uw = uw + 1000000, .basis = POWER_MEASURED}};

    send_aside(u, TOPIC_DEMAND, payload_demand_text(&d));
}

static void send_one(struct unit *u, uint64_t now_ns)
{
    char *text = message(u, now_ns);
    int id, r;

    if (!text)
        exit(1);
    r = mqtt_publish(u->mqtt, u->topic, text, strlen(text), 1, false, 0, &id);
    if (r == 0) {
        u->sent++;
        u->sent_ns = now_ns;
        load.sent++;
        load.bytes += strlen(text);
    } else {
        load.refused++;
    }
    free(text);
}

static void send_backlog(struct unit *u)
{
    for (uint64_t from = u->acked; from < DAY_RECORDS; from += PAYLOAD_RECORDS_MAX) {
        char *text = backlog(from);
        int id;

        if (!text)
            exit(1);
        if (mqtt_publish(u->mqtt, u->topic, text, strlen(text), 1, false, 0, &id) == 0)
            load.sent++;
        else
            load.refused++;
        free(text);
    }
}

static void send_next(struct unit *u)
{
    u->due_ns += load.period_ns;
    if (load.draws && !u->there) {
        send_state(u);
        return;
    }
    send_one(u, clock_now_ns());
    if (load.draws)
        send_draw(u);
}

/* All that is due; returns when the next is. */
static uint64_t send_due(uint64_t now_ns)
{
    if (load.drain) {
        for (uint32_t i = 0; i < load.units; i++) {
            struct unit *u = &load.unit[i];

            if (now_ns < u->due_ns || u->acked >= DAY_RECORDS)
                continue;
            u->due_ns = now_ns + AGAIN_NS;
            send_backlog(u);
        }
        return UINT64_MAX;
    }
    while (load.order[load.at]->due_ns <= now_ns) {
        send_next(load.order[load.at]);
        load.at = (load.at + 1) % load.units;
    }
    return load.order[load.at]->due_ns;
}

static bool finished(uint64_t now_ns)
{
    if (load.drain)
        return load.drained >= (uint64_t)load.units * DAY_RECORDS ||
               now_ns > load.go_ns + load.end_ns;
    if (now_ns < load.go_ns + load.end_ns)
        return false;
    return load.received >= load.sent || now_ns > load.go_ns + load.end_ns + DRAIN_NS;
}

static void begin_one(void)
{
    struct unit *u = &load.unit[load.begun];
    char name[EDGE_NAME_MAX];
    struct error err;
    int r;

    snprintf(name, sizeof(name), "unit-%" PRIu32, load.begun);
    topic_make(name, TOPIC_ENERGY, u->topic);
    load.options.name = name;
    r = mqtt_new(load.event, &load.options, &u->mqtt, &err);
    if (r < 0) {
        fprintf(stderr, "load_units: %s\n", err.text);
        exit(1);
    }
    load.begun++;
}

static int by_due(const void *a, const void *b)
{
    const struct unit *x = *(struct unit *const *)a, *y = *(struct unit *const *)b;

    return (x->due_ns > y->due_ns) - (x->due_ns < y->due_ns);
}

static void connecting(uint64_t now_ns)
{
    uint64_t begun = (now_ns - load.start_ns) * load.per_s / NS_PER_S;

    while (load.begun < load.units && load.begun < begun && load.begun < load.up + PENDING_MAX)
        begin_one();
    if (now_ns - load.start_ns > CONNECT_MAX) {
        fprintf(stderr, "load_units: %" PRIu32 " of %" PRIu32 " are connected\n", load.up,
                load.units);
        exit(1);
    }
    if (load.up < load.units || !mqtt_connected(load.hub))
        return;
    load.connected_ns = now_ns - load.start_ns;
    load.go_ns = now_ns;
    for (uint32_t i = 0; i < load.units; i++) {
        load.unit[i].due_ns = now_ns + (next() << 24 ^ next()) % load.period_ns;
        load.order[i] = &load.unit[i];
    }
    qsort(load.order, load.units, sizeof(struct unit *), by_due);
    printf("connected %.1f\n", (double)load.connected_ns / NS_PER_S);
    fflush(stdout);
}

static int on_tick(sd_event_source *source, uint64_t usec, void *arg)
{
    uint64_t now = clock_now_ns(), due = UINT64_MAX;

    if (load.go_ns == 0)
        connecting(now);
    else if (finished(now))
        return sd_event_exit(load.event, 0);
    else if (load.drain || now < load.go_ns + load.end_ns)
        due = send_due(now);
    if (due > now + TICK_NS)
        due = now + TICK_NS;
    sd_event_source_set_time(source, due / 1000 + 1);
    return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static double latency_ms(double share)
{
    uint64_t n = load.latencies;

    return n ? (double)load.latency_ns[(uint64_t)(share * (double)(n - 1))] / 1e6 : 0;
}

static void report(void)
{
    qsort(load.latency_ns, load.latencies, sizeof(*load.latency_ns), compare);
    printf("{\"units\": %" PRIu32 ", \"connect_s\": %.1f, \"sent\": %" PRIu64
           ", \"refused\": %" PRIu64 ", \"received\": %" PRIu64 ", \"losses\": %" PRIu64
           ", \"p50_ms\": %.3f, \"p99_ms\": %.3f, \"max_ms\": %.3f, \"acknowledged\": %" PRIu64
           ", \"acknowledged_s\": %.1f, \"message_bytes\": %" PRIu64 "}\n",
           load.units, (double)load.connected_ns / NS_PER_S, load.sent, load.refused, load.received,
           load.losses, latency_ms(0.5), latency_ms(0.99), latency_ms(1), load.drained,
           (double)load.drained_ns / NS_PER_S, load.sent ? load.bytes / load.sent : 0);
}

static void parse(int argc, char **argv)
{
    if (argc < 6) {
        fprintf(stderr, "usage: load_units PORT FOLDER UNITS PERIOD SECONDS [CONNECTS_PER_S"
                        " [hub|draws|drain]]\n");
        exit(2);
    }
    snprintf(load.ca, sizeof(load.ca), "%s/ca.crt", argv[2]);
    snprintf(load.cert, sizeof(load.cert), "%s/unit.crt", argv[2]);
    snprintf(load.key, sizeof(load.key), "%s/unit.key", argv[2]);
    load.units = (uint32_t)strtoul(argv[3], NULL, 10);
    load.period_ns = strtoull(argv[4], NULL, 10) * NS_PER_S;
    load.end_ns = strtoull(argv[5], NULL, 10) * NS_PER_S;
    load.per_s = argc > 6 ? (uint32_t)strtoul(argv[6], NULL, 10) : PER_S;
    load.drain = argc > 7 && strcmp(argv[7], "drain") == 0;
    load.draws = argc > 7 && strcmp(argv[7], "draws") == 0;
    load.receipts = load.drain || load.draws || (argc > 7 && strcmp(argv[7], "hub") == 0);
    load.options = (struct mqtt_options){.host = "localhost",
                                         .port = (uint16_t)strtoul(argv[1], NULL, 10),
                                         .ca = load.ca,
                                         .cert = load.cert,
                                         .key = load.key,
                                         .keepalive_s = 60,
                                         .up = on_up,
                                         .got = nothing};
    if (load.units < 1 || load.units > UNITS_MAX || load.period_ns == 0 || load.per_s == 0) {
        fprintf(stderr, "load_units: 1 to %d units, a period and connections above 0\n", UNITS_MAX);
        exit(2);
    }
}

/*
 * libmosquitto opens a pair of sockets for each client, by which another thread wakes its loop.
 * There is no other thread, and it goes on without; 10,000 units with three descriptors each would
 * be more than some machines allow a process.
 */
int socketpair(int domain, int type, int protocol, int fds[2])
{
    errno = EMFILE;
    return -1;
}

int main(int argc, char **argv)
{
    struct rlimit files;
    struct mqtt_options hub;
    struct error err;

    parse(argc, argv);
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    load.unit = calloc(load.units, sizeof(*load.unit));
    load.order = calloc(load.units, sizeof(struct unit *));
    load.latency_ns = calloc(LATENCIES, sizeof(*load.latency_ns));
    if (!load.unit || !load.order || !load.latency_ns || sd_event_default(&load.event) < 0)
        return 1;
    hub = load.options;
    hub.name = "hub";
    hub.up = on_hub;
    hub.got = load.receipts ? on_receipt : on_message;
    if (mqtt_new(load.event, &hub, &load.hub, &err) < 0 ||
        mqtt_subscribe(load.hub, load.receipts ? "tide/1/+/down/receipt" : "tide/1/+/up/energy",
                       1) < 0) {
        fprintf(stderr, "load_units: %s\n", err.text);
        return 1;
    }
    load.start_ns = clock_now_ns();
    if (sd_event_add_time_relative(load.event, NULL, CLOCK_MONOTONIC, TICK_NS / 1000, ACCURACY_US,
                                   on_tick, NULL) < 0 ||
        sd_event_loop(load.event) < 0)
        return 1;
    report();
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/tree/serve.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "edge/mqtt.h"
#include "hub/tree/ingest.h"
#include "hub/trust/state.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define NAME         "tide-hub" /* the common name of its certificate */
#define FLUSH_US     200000     /* so long records wait for others of the same transaction */
#define ROLLUP_US    60000000
#define ROLLUP_AGAIN 100000
#define RENEW_US     (12 * 3600 * UINT64_C(1000000))
#define ROLLUP_ROWS  2000 /* of each step at a time: some milliseconds of the loop */
#define LOG_BURST    100  /* lines in LOG_WINDOW_S; whoever has a certificate can cause lines */
#define LOG_WINDOW_S 10

struct serve {
    const struct serve_options *options;
    sd_event *event;
    sd_event_source *flush, *rollup, *renew;
    struct store *store;
    struct ingest *ingest;
    struct mqtt *mqtt;
    uint64_t window_ns;
    unsigned lines;
};

static void say(struct serve *s, const char *who, const char *text)
{
    uint64_t now = clock_now_ns();

    if (now - s->window_ns > LOG_WINDOW_S * NS_PER_S) {
        if (s->lines > LOG_BURST)
            fprintf(stderr, "tide-hub: %u lines left out\n", s->lines - LOG_BURST);
        s->window_ns = now;
        s->lines = 0;
    }
    if (s->lines++ < LOG_BURST)
        fprintf(stderr, "tide-hub: %s%s%s\n", who ? who : "", who ? ": " : "", text);
}

/* ---- what the parts say ---- */

static int publish_receipt(void *arg, const char *unit, const char *text)
{
    struct serve *s = arg;
    char topic[TOPIC_MAX];
    int id;

    return mqtt_publish(s->mqtt, topic_make(unit, TOPIC_RECEIPT, topic), text, strlen(text), 1,
                        false, 0, &id);
}

static void on_say(void *arg, const char *unit, const char *text)
{
    say(arg, unit, text);
}

static void on_up(void *arg, const char *problem)
{
    struct serve *s = arg;
    char text[ERROR_TEXT_MAX + 128];

    snprintf(text, sizeof(text),
             problem ? "no connection to the broker at %s:%u: %s"
                     : "connected to the broker at %s:%u",
             s->options->host, s->options->port, problem);
    say(s, NULL, text);
    if (!problem)
        ingest_receipts(s->ingest);
}

static void on_message(void *arg, const struct mqtt_message *m)
{
    struct serve *s = arg;
    struct error err = {0};

    if (ingest_message(s->ingest, m->topic, m->bytes, m->len, &err) < 0)
        say(s, NULL, err.text);
    if (ingest_waits(s->ingest))
        sd_event_source_set_enabled(s->flush, SD_EVENT_ONESHOT);
}

static void on_stored(void *arg, int id)
{
    struct serve *s = arg;

    ingest_receipts(s->ingest);
}

static int on_flush(sd_event_source *source, uint64_t usec, void *arg)
{
    struct serve *s = arg;
    struct error err = {0};

    if (ingest_flush(s->ingest, &err) < 0)
        say(s, NULL, err.text);
    sd_event_source_set_time_relative(source, FLUSH_US);
    return 0;
}

static int on_rollup(sd_event_source *source, uint64_t usec, void *arg)
{
    struct serve *s = arg;
    struct error err = {0};
    int r =
        store_rollup(s->store, &s->options->keep, (int64_t)time(NULL) * 1000, ROLLUP_ROWS, &err);

    if (r < 0)
        say(s, NULL, err.text);
    sd_event_source_set_time_relative(source, r > 0 ? ROLLUP_AGAIN : ROLLUP_US);
    sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
    return 0;
}

/*
 * A list of revoked certificates that has ended would have the broker refuse everybody, so it is
 * made again long before, with our own certificate.
 */
static int on_renew(sd_event_source *source, uint64_t usec, void *arg)
{
    struct serve *s = arg;
    struct error err = {0};
    struct state state;
    int r = state_open(s->options->state, &state, &err);

    if (r == 0) {
        r = state_renew(&state, time(NULL), false, &err);
        if (r == 0)
            r = state_tell_broker(&state, &err);
        state_close(&state);
    }
    if (r < 0)
        say(s, NULL, err.text);
    sd_event_source_set_time_relative(source, RENEW_US);
    sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
    return 0;
}

/* ---- the program ---- */

static int start_loop(struct serve *s)
{
    sigset_t set;
    int r;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    r = sd_event_new(&s->event);
    if (r >= 0)
        r = sd_event_add_signal(s->event, NULL, SIGTERM, NULL, NULL);
    if (r >= 0)
        r = sd_event_add_signal(s->event, NULL, SIGINT, NULL, NULL);
    if (r >= 0)
        r = sd_event_add_time_relative(s->event, &s->rollup, CLOCK_BOOTTIME, ROLLUP_AGAIN, 0,
                                       on_rollup, s);
    if (r >= 0)
        r = sd_event_add_time_relative(s->event, &s->renew, CLOCK_BOOTTIME, 0, 0, on_renew, s);
    if (r >= 0)
        r = sd_event_add_time_relative(s->event, &s->flush, CLOCK_BOOTTIME, FLUSH_US, 10000,
                                       on_flush, s);
    return r < 0 ? r : sd_event_source_set_enabled(s->flush, SD_EVENT_OFF);
}

static int start(struct serve *s, struct error *err)
{
    const struct serve_options *o = s->options;
    struct ingest_options ingest = {NULL, publish_receipt, on_say, s};
    const struct mqtt_options mqtt = {.host = o->host,
                                      .port = o->port,
                                      .ca = o->ca,
                                      .cert = o->cert,
                                      .key = o->key,
                                      .name = NAME,
                                      .up = on_up,
                                      .got = on_message,
                                      .stored = on_stored,
                                      .arg = s};
    int r = store_open(o->store, &s->store, err);

    if (r < 0)
        return r;
    ingest.store = s->store;
    r = ingest_new(&ingest, &s->ingest);
    if (r >= 0)
        r = start_loop(s);
    if (r < 0)
        return error_set(err, r, "no event loop: %s", strerror(-r));
    r = mqtt_new(s->event, &mqtt, &s->mqtt, err);
    if (r < 0)
        return r;
    r = mqtt_subscribe(s->mqtt, "tide/1/+/up/#", 1);
    return r < 0 ? error_set(err, r, "cannot subscribe: %s", strerror(-r)) : 0;
}

int serve_run(const struct serve_options *options, struct error *err)
{
    struct serve s = {.options = options};
    int r = start(&s, err);

    if (r == 0) {
        r = sd_event_loop(s.event);
        if (r < 0)
            error_set(err, r, "the event loop ended: %s", strerror(-r));
        else
            r = ingest_flush(s.ingest, err);
    }
    mqtt_free(s.mqtt);
    ingest_free(s.ingest);
    store_close(s.store);
    sd_event_source_unref(s.flush);
    sd_event_source_unref(s.rollup);
    sd_event_source_unref(s.renew);
    sd_event_unref(s.event);
    return r;
}

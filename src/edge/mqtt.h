/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection to an MQTT 5 broker on the event loop: connects, authenticates by certificates,
 * renews its subscriptions, and connects again after a loss, in 1 to 60 seconds. Without a
 * connection publishing is refused: the outbox and the senders of leases repeat what matters.
 *
 * libmosquitto is driven by its socket, never by its own loop (select, 1,024 descriptors). Its
 * look-up of a host's name blocks: mqtt_new() bounds it to a second by RES_OPTIONS. The event
 * loop's thread; used by src/unit, src/hub and bench.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <systemd/sd-event.h>

#include "base/error.h"

#define MQTT_FLIGHT_MAX        20 /* published and not yet acknowledged by the broker */
#define MQTT_SUBSCRIPTIONS_MAX 256
#define MQTT_BACKOFF_MAX_S     60

struct mqtt;

/* Valid during the call of got(). */
struct mqtt_message {
    const char *topic;
    const void *bytes;
    size_t len;
    bool retained;
};

struct mqtt_options {
    const char *host;
    uint16_t port;
    const char *ca, *cert, *key; /* paths; ca NULL: no TLS, which only a broker on loopback gets */
    const char *name;            /* client id; with certificates, their common name */
    const char *will_topic,
        *will;            /* the broker publishes it, retained, when this client is lost; or NULL */
    unsigned keepalive_s; /* 0: 15 */
    /*
     * None of these may call mqtt_free(). @problem NULL: connected. Otherwise the reason, once for
     * each new reason.
     */
    void (*up)(void *arg, const char *problem);
    void (*got)(void *arg, const struct mqtt_message *m);
    /*
     * The broker has it; may be NULL. @heard false: nobody has subscribed to it, so it is gone
     * unless it is retained.
     */
    void (*stored)(void *arg, int id, bool heard);
    void *arg;
};

/*
 * Copies @o's texts and begins to connect. Returns 0, -EINVAL (TLS is missing for a host that is
 * not loopback), -errno of a file of certificates that cannot be read, or -ENOMEM. No callback is
 * called before it returns.
 */
int mqtt_new(sd_event *event, const struct mqtt_options *o, struct mqtt **ret, struct error *err);
struct mqtt *
mqtt_free(struct mqtt *m); /* says goodbye, so that no will is published; NULL is fine */

bool mqtt_connected(const struct mqtt *m);

/* Subscribes now and after each connection. Returns 0, -EINVAL (no filter) or -ENOSPC (too many).
 */
int mqtt_subscribe(struct mqtt *m, const char *filter, int qos);

/*
 * @expiry_s: the broker drops it if it cannot be delivered in that time; 0: never. Returns 0 with
 * an id for stored(), -ENOTCONN, -EAGAIN (MQTT_FLIGHT_MAX are in flight), -EINVAL (topic) or
 * -ENOMEM.
 */
int mqtt_publish(struct mqtt *m, const char *topic, const void *bytes, size_t len, int qos,
                 bool retain, uint32_t expiry_s, int *ret_id);

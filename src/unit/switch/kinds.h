/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Relays and sensors of presence. A kind is one struct relay_ops or sensor_ops and a row in
 * kinds.c. They send and listen; whether a relay may be switched is area/site.c's and
 * power/site/relay.h's. The event loop's thread.
 */
#pragma once

#include <stdbool.h>

#include <systemd/sd-event.h>

#include "edge/mqtt.h"
#include "unit/config.h"

/* One relay on its wire. */
struct relay_port {
    const struct switch_config *config;
    struct mqtt *broker; /* of the area; borrowed, NULL without one */
    void *own;           /* of its kind */
    void (*told)(void *arg, bool on);
    void (*lost)(void *arg, const char *why);
    /* Whether an order is to go out still: a kind whose orders wait asks before it sends one. */
    bool (*wanted)(void *arg, bool on);
    void *arg;
};

struct relay_ops {
    const char *kind;
    bool broker;           /* it speaks through the area's broker */
    int32_t first_channel; /* of a device that has one relay */
    /* Names a setting that the section lacks; NULL: none. */
    const char *(*lacks)(const struct switch_config *c);
    int (*open)(struct relay_port *p, sd_event *event);              /* 0 or -errno */
    void (*got)(struct relay_port *p, const struct mqtt_message *m); /* kinds with a broker */
    void (*query)(struct relay_port *p); /* it shall tell how it is: told() or lost() */
    /* An order, of no use after @for_s. Sent: 0, or -errno; told() says what came. */
    int (*order)(struct relay_port *p, bool on, uint32_t for_s);
    void (*close)(struct relay_port *p);
};

/* One sensor. */
struct sensor_port {
    const struct presence_config *config;
    struct mqtt *broker;
    void *own;
    void (*told)(void *arg, bool present);
    void *arg;
};

struct sensor_ops {
    const char *kind;
    bool broker;
    const char *(*lacks)(const struct presence_config *c);
    int (*open)(struct sensor_port *p, sd_event *event);
    void (*got)(struct sensor_port *p, const struct mqtt_message *m);
    void (*close)(struct sensor_port *p);
};

extern const struct relay_ops relay_tasmota, relay_shelly, relay_modbus;
extern const struct sensor_ops sensor_tasmota, sensor_shelly, sensor_json, sensor_modbus;

const struct relay_ops *relay_kind(const char *kind);   /* NULL: unknown */
const struct sensor_ops *sensor_kind(const char *kind); /* NULL: unknown */

/* Whether both sections are of one relay: the second would go around what the first forbids. */
bool relay_same(const struct switch_config *a, const struct switch_config *b);

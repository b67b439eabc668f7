/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The connection to the parent: state, what the area draws, the outbox's records until their
 * receipt. The event loop's thread; used by tide-power and, for a hub that is an area of another,
 * tide-hub.
 */
#pragma once

#include <systemd/sd-event.h>

#include "base/error.h"
#include "edge/mqtt.h"
#include "edge/outbox.h"
#include "edge/payload.h"
#include "edge/topic.h"

#define UPLINK_EVENTS 32

struct uplink;

/* The child's name and its parent's broker; texts are borrowed. */
struct uplink_place {
    const char *name, *role; /* role: "machine", "unit", "hub" */
    const char *host;
    uint16_t port;
    const char *ca, *cert, *key; /* paths; "": none */
};

struct uplink_hooks {
    /* down/lease, down/policy, down/cmd, down/certificate, down/reading, down/revoked. */
    void (*got)(void *arg, enum topic_leaf leaf, const struct mqtt_message *m);
    /* Fills in what up/state tells beside name, version and boot. */
    void (*state)(void *arg, struct payload_state *ret);
    void (*say)(void *arg, const char *text); /* for the log */
    void *arg;
    bool lease, sealed; /* leases are for this program; policies and commands are */
    bool readings;      /* of the machine that this program is linked to */
    bool machines;      /* machines speak through a broker of this unit's: who of them is revoked */
};

/* Borrows the outbox. Returns 0 or -errno. */
int uplink_new(sd_event *event, const struct uplink_place *place, struct outbox *outbox,
               const struct uplink_hooks *hooks, struct uplink **ret, struct error *err);
struct uplink *uplink_free(struct uplink *u);

bool uplink_connected(const struct uplink *u);

/* Sends one message that is not kept. Takes @text over (NULL: -ENOMEM). Returns 0 or -errno. */
int uplink_send(struct uplink *u, enum topic_leaf leaf, char *text);

/*
 * An event for people; @data is a JSON object or NULL. Without a connection the newest
 * UPLINK_EVENTS wait in memory.
 */
void uplink_event(struct uplink *u, const char *type, const char *text, const char *data);

/* The next tick tells the state, as something in it has changed. */
void uplink_state_changed(struct uplink *u);

/* Once a second: sends what is due. @demand NULL: somebody else tells it. */
void uplink_tick(struct uplink *u, const struct payload_demand *demand, uint64_t now_ns);

/* Connects again with the same files: they hold another certificate. */
int uplink_renew(struct uplink *u, struct error *err);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The area's relays and its sensors of presence: who may switch what, and when. Only relays of the
 * configuration exist. A rule says off once, when it begins; what a person switches afterwards
 * stays. Whatever fails, nothing is switched. The event loop's thread; area.c calls it.
 *
 *             nothing wanted ──rule begins──> off is wanted ──relay says off──> nothing wanted
 *                   │                               └─rule ends, or a command comes─> …
 *                   └─────command──> on or off is wanted ──relay says so, or its end──> …
 */
#pragma once

#include <stdint.h>

#include <systemd/sd-event.h>

#include "base/error.h"
#include "edge/mqtt.h"
#include "edge/payload.h"
#include "unit/config.h"

struct site;

struct site_hooks {
    /* An event for people: what happened to a relay. @data: a JSON object, or NULL. */
    void (*say)(void *arg, const char *type, const char *text, const char *data);
    void (*changed)(void *arg); /* the state of a relay, or whether somebody is there */
    void *arg;
};

/* Borrows configuration and broker (NULL: none). Returns 0 or -errno with the reason. */
int site_new(sd_event *event, const struct unit_config *config, struct mqtt *broker,
             const struct site_hooks *hooks, struct site **ret, struct error *err);
struct site *site_free(struct site *s);

void site_got(struct site *s, const struct mqtt_message *m); /* of the area's broker */
void site_broker_lost(struct site *s);                       /* how its relays are is not known */

/* A command whose seal was checked. Its outcome is told by say(), with its id. */
void site_command(struct site *s, const struct payload_cmd *cmd, uint64_t wall_ms, uint64_t now_ns);

/* Once a second. @off: a bit for each relay: a rule says off. */
void site_tick(struct site *s, uint32_t off, uint64_t wall_ms, uint64_t now_ns);

/* For how long the area has been empty; 0: somebody is there, or nobody knows. */
uint64_t site_absent_s(const struct site *s, uint64_t now_ns);

/* Fills in switches and absent_s. */
void site_state(const struct site *s, uint64_t now_ns, struct payload_state *ret);

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

#include <stdbool.h>
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

/* The rules' word on relays, a bit for each. */
struct site_rules {
    bool known;      /* false: there is no policy, or it is past its end: nothing begins or ends */
    uint32_t off;    /* a rule says off */
    uint32_t unsure; /* a rule may say so: nobody knows the time, or whether somebody is there */
};

/*
 * Once a second. Which rules said off is on the disk: after a restart the same rule does not begin
 * again, and while it is unsure whether it goes on, nothing is switched, for two hours at most.
 */
void site_tick(struct site *s, const struct site_rules *rules, uint64_t wall_ms, uint64_t now_ns);

bool site_present(const struct site *s, uint64_t now_ns); /* a sensor says that somebody is there */

/* For how long the area has been empty; 0: somebody is there, or nobody knows. */
uint64_t site_absent_s(const struct site *s, uint64_t now_ns);

/* Fills in switches and absent_s. */
void site_state(const struct site *s, uint64_t now_ns, struct payload_state *ret);

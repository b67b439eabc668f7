/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connects a machine to its area: sends the demand of tided's jobs, asks for a lease, gives it to
 * tided and acknowledges it when tided says that it is kept; reports to a cluster what tided's cap
 * allows (kubernetes.h). The event loop's thread; area.c calls it.
 */
#pragma once

#include <stdbool.h>

#include <systemd/sd-event.h>

#include "edge/mqtt.h"
#include "edge/outbox.h"
#include "edge/payload.h"
#include "edge/topic.h"
#include "unit/config.h"

struct machine;

/* Sends one message to the parent; takes @text over. Returns 0 or -errno. */
typedef int (*machine_send)(void *arg, enum topic_leaf leaf, char *text);

/* Borrows configuration and outbox. @send may be NULL: without a parent. Returns 0 or -errno. */
int machine_new(sd_event *event, const struct unit_config *config, struct outbox *outbox,
                machine_send send, void *arg, struct machine **ret, struct error *err);
struct machine *machine_free(struct machine *m);

void machine_got_lease(struct machine *m, const struct mqtt_message *message);
void machine_got_reading(struct machine *m, const struct mqtt_message *message);

/* Hands a meter's reading of the machine on to tided. */
void machine_reading(struct machine *m, const struct payload_reading *reading);
void machine_tick(struct machine *m); /* once a second */

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The connection to the parent: state, what the area draws, the outbox's records until their
 * receipt. The event loop's thread; area.c calls it.
 */
#pragma once

#include <systemd/sd-event.h>

#include "base/error.h"
#include "edge/mqtt.h"
#include "edge/outbox.h"
#include "edge/topic.h"
#include "power/measure/range.h"
#include "unit/config.h"

struct uplink;

/* A lease of the parent. */
typedef void (*uplink_lease)(void *arg, const struct mqtt_message *m);

/* Borrows configuration and outbox. @lease NULL: leases are not for this program. Returns 0 or
 * -errno. */
int uplink_new(sd_event *event, const struct unit_config *config, struct outbox *outbox,
               uplink_lease lease, void *arg, struct uplink **ret, struct error *err);
struct uplink *uplink_free(struct uplink *u);

/* Sends one message that is not kept. Takes @text over (NULL: -ENOMEM). Returns 0 or -errno. */
int uplink_send(struct uplink *u, enum topic_leaf leaf, char *text);

/* Once a second: sends what is due. @draw NULL: somebody else tells it. */
void uplink_tick(struct uplink *u, const struct power_range *draw, uint64_t now_ns);

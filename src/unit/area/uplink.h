/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The connection to the parent: state, what the area draws, the outbox's records until their
 * receipt. The event loop's thread; area.c calls it.
 */
#pragma once

#include <systemd/sd-event.h>

#include "base/error.h"
#include "edge/outbox.h"
#include "power/measure/range.h"
#include "unit/config.h"

struct uplink;

/* Borrows configuration and outbox. Returns 0 or -errno. */
int uplink_new(sd_event *event, const struct unit_config *config, struct outbox *outbox,
               struct uplink **ret, struct error *err);
struct uplink *uplink_free(struct uplink *u);

/* Once a second: sends what is due. */
void uplink_tick(struct uplink *u, const struct power_range *draw, uint64_t now_ns);

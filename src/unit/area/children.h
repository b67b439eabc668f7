/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machines and areas below this one: divides the area's cap by what each would do with the
 * watts, and lends each its part (power/division/lease.h). Each offer is on the disk before it is
 * sent, so that a restart gives nothing away twice. The event loop's thread; area.c calls it.
 */
#pragma once

#include "base/error.h"
#include "edge/mqtt.h"
#include "unit/config.h"

struct children;

/*
 * Reads the book of leases in the state directory. Without it, or if it cannot be read, nothing is
 * lent until any lease of before has ended. Borrows configuration and broker. Returns 0 or -errno.
 */
int children_new(const struct unit_config *config, struct mqtt *broker, struct children **ret,
                 struct error *err);
struct children *children_free(struct children *c);

void children_got(struct children *c, const struct mqtt_message *m); /* other topics are ignored */
void children_tick(struct children *c);                              /* once a second */

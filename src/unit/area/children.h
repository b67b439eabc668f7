/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machines and areas below this one, to which it lends power (edge/lending.h). The event loop's
 * thread; area.c calls it.
 */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "edge/mqtt.h"
#include "edge/payload.h"
#include "edge/topic.h"
#include "power/division/demand.h"
#include "unit/config.h"

struct children;

/* Passes a child's message on to the parent; takes @text over. Returns 0 or -errno. */
typedef int (*children_send)(void *arg, enum topic_leaf leaf, char *text);

/*
 * Reads the book of leases in the state directory. Without it, or if it cannot be read, nothing is
 * lent until any lease of before has ended. Borrows configuration and broker. Returns 0 or -errno.
 */
int children_new(const struct unit_config *config, struct mqtt *broker, children_send send,
                 void *arg, struct children **ret, struct error *err);
struct children *children_free(struct children *c);

void children_got(struct children *c, const struct mqtt_message *m); /* other topics are ignored */
void children_tick(struct children *c);                              /* once a second */

/*
 * down/certificate of the parent: with the name of a machine before it, it is passed on to that
 * one. Returns false: it is no machine's.
 */
bool children_certificate(struct children *c, const struct mqtt_message *m);

/*
 * The cap to divide from now on (as the parent's lease or a window of the policy has it;
 * UINT64_MAX: none), and what children do when their leases have ended.
 */
void children_cap(struct children *c, uint64_t cap_uw, uint32_t kind);

/* Users whose jobs have fewer cores because of a cap. Borrowed. */
const struct payload_shrunk *children_shrunk(const struct children *c);

uint64_t children_sum(const struct children *c); /* what all may draw by their leases now */

uint64_t children_floor(const struct children *c); /* of all together */

/* The demand of all children together (no points: none has sent one), and the sum of their floors.
 */
void children_demand(const struct children *c, struct demand *ret, uint64_t *ret_floor_uw);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An area as a child: asks its parent (a hub, or an outer unit) for a lease, and acknowledges
 * one when its own children's leases fit into it. Floor and kind for the time without a lease are
 * on the disk, so that a restart obeys what the parent counts on. The event loop's thread; used by
 * tide-power and, for a hub that is an area of another, tide-hub.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "edge/mqtt.h"
#include "edge/topic.h"

struct parent;

/* Sends one message; takes @text over. Returns 0 or -errno. */
typedef int (*parent_send)(void *arg, enum topic_leaf leaf, char *text);

typedef void (*parent_say)(void *arg, const char *text); /* for the log */

/* @path: of the file that says what counts without a lease; copied. */
int parent_new(const char *path, parent_send send, parent_say tell, void *arg, struct parent **ret,
               struct error *err);
struct parent *parent_free(struct parent *p);

void parent_got(struct parent *p, const struct mqtt_message *m); /* down/lease */

/* The watts that the area may draw by its lease. Returns false: the parent does not cap it. */
bool parent_cap(const struct parent *p, uint64_t *ret_uw, uint32_t *ret_kind);

/* Once a second, after the cap was passed on. @sum_uw: what the children's leases allow now. */
void parent_tick(struct parent *p, uint64_t sum_uw);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Controllers on agent.sock: other schedulers and programs that list jobs, set targets, and lend,
 * borrow, reclaim or return cores (src/proto). An order is carried out within the same turn of the
 * loop. Daemon's event loop only; called by link.c.
 */
#pragma once

#include "base/error.h"
#include "node/job.h"
#include "proto/proto.h"

#include <stdbool.h>
#include <sys/types.h>

struct job;
struct node;
struct peer;

/* A checked message. Returns 0, or -errno with *err: the peer is then hung up on. */
int control_message(struct peer *peer, const struct proto_control *m, struct error *err);

void control_writable(struct peer *peer); /* there is room in its socket again */
void control_gone(struct peer *peer);     /* it is about to be freed */

/* Who may do what, here and in the HTTP interface. */
bool control_may_read(const struct node *n, uid_t uid, const struct job *j);
bool control_may_change(const struct node *n, uid_t uid, const struct job *j);

/* Pins @j to @threads by hand; intra 0: automatic. Carried out at once. */
void control_pin(struct job *j, struct threads threads);

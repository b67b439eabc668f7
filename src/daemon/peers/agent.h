/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agents' side of agent.sock: which job a process belongs to, what its agent reports, and the
 * targets it is sent. Daemon's event loop only; called by link.c (messages) and plan.c (targets).
 */
#pragma once

#include "base/error.h"
#include "proto/proto.h"

struct peer;
struct process;
struct node;

/* A checked message. Returns 0, or -errno with *err: the peer is then hung up on. */
int agent_message(struct peer *peer, union proto_message *m, struct error *err);

void agent_writable(struct peer *peer); /* there is room in its socket again */
void agent_gone(struct peer *peer);     /* it is about to be freed */

/*
 * Commands @p to its `want` under the node's present generation. What does not fit into the socket
 * now is sent when it drains: the state then, not this one.
 */
void agent_send_target(struct process *p);

/* Tells every agent how often to report; the answer to each hello does so, too. */
void agent_welcome_all(struct node *n);

/* The end of this daemon: every agent follows its own limit again. */
void agent_release_all(struct node *n);

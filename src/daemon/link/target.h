/* SPDX-License-Identifier: Apache-2.0 */
/* Targets that agents are sent. Daemon's event loop only; called by plan.c and agent.c. */
#pragma once

struct process;

/*
 * Commands @p to its `want` under the node's present generation. What does not fit into the socket
 * now is sent when it drains: the state then, not this one.
 */
void target_send(struct process *p);

/* SPDX-License-Identifier: Apache-2.0 */
/* Sends targets to agents. Daemon's event loop only; called by plan.c and agent.c. */
#pragma once

struct process;

/*
 * Sends @p its `want` under the present generation. If the socket is full, sends the target of that
 * later moment once it drains.
 */
void target_send(struct process *p);

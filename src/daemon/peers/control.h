/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Controllers on agent.sock: other schedulers and programs that list jobs, set targets, and lend,
 * borrow, reclaim or return cores (src/proto). An order is carried out within the same turn of the
 * loop. Daemon's event loop only; called by agent_socket.c through control_role, and by routes.c.
 */
#pragma once

#include "base/cpuset.h"
#include "daemon/job/job.h"

struct job;
struct agent_socket_role;

extern const struct agent_socket_role control_role;

/*
 * Pins @j to @threads by hand; intra 0: automatic. Carried out at once. @governs: whoever asks is
 * an administrator, whose pin comes before users' shares.
 */
void control_pin(struct job *j, struct threads threads, bool governs);

/*
 * `tide pin`: it stays at @threads (intra 0: what it has) and on @cores (NULL: what it has), and a
 * container's limits that a person changes from now on are left as they are. Until control_pin with
 * intra 0.
 */
void control_keep(struct job *j, struct threads threads, const struct cpuset *cores, bool governs);

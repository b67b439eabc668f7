/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Controlling programs on agent.sock: they list jobs, set targets, and lend, borrow, reclaim or
 * return cores (src/proto). An order is carried out within the same turn of the loop. Daemon's
 * event loop only; called by agent_socket.c through control_role, and by routes.c.
 */
#pragma once

#include "base/cpuset.h"
#include "daemon/job/job.h"

struct job;
struct agent_socket_role;

extern const struct agent_socket_role control_role;

/*
 * Pins @j to @threads at once; intra 0: automatic. @governs: an administrator asks, whose pin
 * precedes users' shares.
 */
void control_pin(struct job *j, struct threads threads, bool governs);

/*
 * `tide pin`: keeps @j at @threads (intra 0: its present ones) and on @cores (NULL: its present
 * ones), and accepts limits of its container that a person changes, until control_pin with intra 0.
 */
void control_keep(struct job *j, struct threads threads, const struct cpuset *cores, bool governs);

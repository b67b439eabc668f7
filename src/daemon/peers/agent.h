/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agents' side of agent.sock: which job a process belongs to, and its agent's reports. Daemon's
 * event loop only; called by agent_socket.c through agent_role, and by the top level.
 */
#pragma once

struct agent_socket_role;
struct daemon;

extern const struct agent_socket_role agent_role;

/* Tells every agent how often to report, as the answer to each hello does. */
void agent_welcome_all(struct daemon *d);

/* The daemon ends: every agent follows its own limit again. */
void agent_release_all(struct daemon *d);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agents' side of agent.sock: which job a process belongs to, and what its agent reports.
 * Daemon's event loop only; called by link.c through agent_role, and by the top level.
 */
#pragma once

struct link_role;
struct node;

extern const struct link_role agent_role;

/* Tells every agent how often to report; the answer to each hello does so, too. */
void agent_welcome_all(struct node *n);

/* The end of this daemon: every agent follows its own limit again. */
void agent_release_all(struct node *n);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hard limits that hold a power cap while threads and cores follow it: a power limit of the
 * packages (RAPL) where the kernel has one, and a CPU quota. That of processes is on the daemon's
 * own control group, below which every job's are moved. Containers are not below it: each gets a
 * part of the quota by its share, through its engine, and the group the rest. The guardian puts all
 * of it back when the daemon is gone, however it died: it is told of a limit before that is
 * written, containers' own quotas are in its journal, and the group's ends with the group.
 *
 * A quota does not hold processes of no job; a user's own daemon has neither.
 * Daemon's event loop only; called by cap.c and daemon.c.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct backstop;
struct daemon;
struct keeper_plan;

int backstop_new(struct daemon *d, struct backstop **ret); /* 0 or -ENOMEM */

/* Puts both back. Takes NULL, returns NULL. */
struct backstop *backstop_free(struct backstop *b);

bool backstop_can_limit(const struct backstop *b);
bool backstop_can_quota(const struct backstop *b);

/*
 * Sets the plan's limits, at each step of the cap's keeper, and without a cap at each tick. One
 * that cannot be set is logged once; the cap then rests on jobs. One that cannot be lifted is tried
 * again at the next call.
 */
void backstop_apply(struct backstop *b, const struct keeper_plan *plan);

/* Lowers the quotas that jobs in containers are to have, after each decision on shares. @b may be
 * NULL. */
void backstop_divide(struct backstop *b);

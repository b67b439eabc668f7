/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What holds a power cap while threads and cores follow it: a power limit of the packages (RAPL)
 * where the kernel has one, and a CPU quota on the daemon's own control group, below which every
 * job's processes are moved. The guardian puts both back when the daemon is gone, however it died:
 * it is told of a limit before that is written; the quota ends with the group.
 *
 * A quota does not hold containers, or processes of no job; a user's own daemon has neither.
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

/* Sets what the plan asks for. What cannot be set is logged once; the cap then rests on jobs. */
void backstop_apply(struct backstop *b, const struct keeper_plan *plan);

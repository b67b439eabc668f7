/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes weights compare that lie in different parts of the tree of control groups: containers below
 * /docker or system.slice, jobs of `tide run` in a group of the daemon's own. Once a second it
 * reads the jobs' groups, their ancestors and what lies beside them (weight, processor time), gives
 * the daemon's own group the weight that tree_weights.h computes, and looks whether each job has
 * its part now. Groups of others are read only: /docker's part of the machine is the machine's.
 * The own group ends with the daemon (guardian.h), and the weight with it.
 * Daemon's event loop only; called by daemon.c and view.c.
 */
#pragma once

#include "base/error.h"

#include <stdint.h>

struct balance;
struct daemon;

int balance_new(struct daemon *d, struct balance **ret, struct error *err); /* 0 or -ENOMEM */
struct balance *balance_free(struct balance *g); /* takes NULL, returns NULL */

/* Reads, writes, reads back. @now_ns as of clock_now_ns(). */
void balance_look(struct balance *g, uint64_t now_ns);

/* Which job does not get its part, and where it lies; empty if all do. */
const char *balance_note(const struct balance *g);

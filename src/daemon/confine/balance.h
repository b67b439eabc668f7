/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes weights in different branches of the control group tree compare: containers below /docker
 * or system.slice, jobs of `tide run` below the daemon's own group. Once a second it reads the
 * jobs' groups, their ancestors and all siblings (weight, processor time), sets the weight of the
 * daemon's group that tree_weights.h computes, and checks that each job gets its part. Other groups
 * are only read: /docker's part of the machine is an administrator's matter. The daemon's group and
 * its weight end with the daemon (guardian.h). Daemon's event loop only; called by daemon.c and
 * view.c.
 */
#pragma once

#include "base/error.h"

#include <stdint.h>

struct balance;
struct daemon;

int balance_new(struct daemon *d, struct balance **ret, struct error *err); /* 0 or -ENOMEM */
struct balance *balance_free(struct balance *g); /* takes NULL, returns NULL */

/* Reads, writes, reads back. @now_ns: clock_now_ns(). */
void balance_look(struct balance *g, uint64_t now_ns);

/* Names the job that misses its part, and its group; "": none. */
const char *balance_note(const struct balance *g);

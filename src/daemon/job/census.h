/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One look at all processes of the machine, and whose job each belongs to: that of the nearest
 * ancestor that is known to be in one; of an orphan, that of its session's leader (a submitted
 * job's first process leads one). tided is told of registered processes and of those with an agent
 * alone, not of what they fork.
 * Daemon's event loop only; called by usage.c and freezer.c.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct job;
struct daemon;

struct census_entry {
    pid_t pid, parent, session;
    struct job *job; /* NULL: nobody's */
    uint64_t start;  /* ticks after boot: with the pid it names the process for ever */
    uint64_t cpu_ns; /* its own time, and that of its children that have ended */
};

struct census {
    struct census_entry *entry; /* by pid, ascending */
    size_t n;
};

int census_take(const struct daemon *d, struct census *ret); /* 0 or -errno */
void census_by_job(struct census *c); /* sorts them by their jobs' numbers; nobody's last */
void census_done(struct census *c);

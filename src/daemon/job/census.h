/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All processes of the machine at one moment, each with its job: that of the nearest ancestor known
 * to be in one; an orphan has its session leader's (a submitted job's first process leads one).
 * tided itself is told only of registered processes and those with an agent, not of their children.
 * Daemon's event loop only; called by usage.c, freezer.c and routes_limits.c.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct job;
struct daemon;

struct census_entry {
    pid_t pid, parent, session;
    struct job *job; /* NULL: none */
    uint64_t start;  /* ticks after boot: unique together with the pid */
    uint64_t cpu_ns; /* its own time and that of its ended children */
};

struct census {
    struct census_entry *entry; /* ascending by pid */
    size_t n;
};

int census_take(const struct daemon *d, struct census *ret); /* 0 or -errno */
void census_by_job(struct census *c); /* sorts by job number; processes without a job last */
void census_done(struct census *c);

/* Whether the process @pid is one of the job's. */
bool census_has(const struct daemon *d, const struct job *j, pid_t pid);

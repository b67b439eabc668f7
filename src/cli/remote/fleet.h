/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks all machines of an inventory at the same time, each until a common deadline. Threads of its
 * own, which have ended when fleet_ask() returns.
 */
#pragma once

#include "cli/remote/inventory.h"

#include <jansson.h>
#include <stdbool.h>

#define FLEET_DEADLINE_MS 10000
#define FLEET_AT_ONCE     128 /* machines that are asked at the same time */

/* A machine's answer. @machine is borrowed from the inventory. */
struct fleet_answer {
    const struct machine *machine;
    bool reached;
    struct error why;     /* where it was not */
    json_t *state, *jobs; /* of /v1/machine and /v1/jobs; NULL where it was not reached */
    json_t *power;        /* of /v1/power; NULL: it tells this user nothing */
};

struct fleet {
    struct fleet_answer *answer; /* in the inventory's order */
    size_t n, reached;
};

/* Returns 0, also when no machine was reached, or -ENOMEM. */
int fleet_ask(const struct inventory *i, unsigned deadline_ms, struct fleet *ret);
void fleet_done(struct fleet *f);

/* A list of objects with each machine's name, address and answer, for JSON; NULL: out of memory. */
json_t *fleet_json(const struct fleet *f);

/* ---- an answer's numbers ---- */

long fleet_cores(const struct fleet_answer *a);
long fleet_jobs(const struct fleet_answer *a);    /* that wait included */
long fleet_waiting(const struct fleet_answer *a); /* queued or held */
double fleet_load(const struct fleet_answer *a);  /* busy cores; below 0: not known */

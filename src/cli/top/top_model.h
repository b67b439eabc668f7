/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of `tide top`: which job had each core in each of the last seconds. Single-threaded,
 * no I/O; called by top_main.c. Each core is a number of slots, so that three jobs on two cores can
 * be told apart.
 *
 * A job of placement `exclusive` has the cores that the daemon fenced for it. The other jobs share
 * the remaining cores: the picture gives each as much as its target says, in the order of the list,
 * and all in proportion when the targets add up to more.
 */
#pragma once

#include <jansson.h>
#include <stdint.h>

#define TOP_SAMPLES 512 /* one a second; wider than any terminal */

#define TOP_SLOTS 12 /* minimum number of slots in all (about: each core has a whole number) */

struct top_model {
    unsigned cpus;
    unsigned per_cpu; /* slots of one core */
    unsigned n;       /* samples ever taken */
    uint16_t *owner;  /* ring of TOP_SAMPLES rows of slots: a job's number, 0 for idle */
};

/* @cpus: 1 … CPUSET_MAX_CPUS. Returns 0 or -ENOMEM. */
int top_model_init(struct top_model *m, unsigned cpus);
void top_model_done(struct top_model *m);

/* The number in a job's id ("j17" → 17); 0 for anything else. */
uint16_t top_job_number(const json_t *job);

/* Slots of the whole machine. */
unsigned top_slots(const struct top_model *m);

/* Fills @ret_owner[0 … top_slots-1] for @jobs, the daemon's array. */
void top_owners(const struct top_model *m, const json_t *jobs, uint16_t *ret_owner);

/* Adds a sample and drops the oldest. */
void top_model_add(struct top_model *m, const json_t *jobs);

/* Returns the job that had core @slot @age samples ago (0: the newest); -1: no such sample. */
int top_model_owner(const struct top_model *m, unsigned age, unsigned slot);

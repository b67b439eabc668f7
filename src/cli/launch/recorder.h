/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watches the jobs of a daemon for `tide record`. The daemon tells their threads, their work and
 * their attributes. The kernel tells their threads' CPU time and waiting, and when their processes
 * end. Single-threaded.
 */
#pragma once

#include "cli/api.h"

#include "sim/input/recording.h"

#define RECORDER_LOOK_NS (500 * NS_PER_MS)

struct recorder;

/* Begins to record. Returns NULL with *err on failure. */
struct recorder *recorder_new(struct error *err);
struct recorder *recorder_free(struct recorder *r); /* NULL */

/* Takes the daemon's answers to GET /v1/machine and /v1/policy, once. */
void recorder_machine(struct recorder *r, const json_t *machine, const json_t *policy);

/* The answer to GET /v1/jobs, every RECORDER_LOOK_NS; further jobs are dropped. 0 or -ENOMEM. */
int recorder_look(struct recorder *r, const json_t *jobs);

/* Sleeps until then and notes processes that end meanwhile. A signal ends the sleep early. */
void recorder_sleep(struct recorder *r, uint64_t until_ns);

struct recorder_sum {
    size_t jobs;     /* in the scenario */
    size_t cut;      /* of these, jobs that still run */
    size_t left_out; /* jobs that hardly used a core */
    size_t missed;   /* began and ended between two looks, or came when there were too many */
};

/* Ends the recording: returns the scenario (a new reference), or NULL with *err. */
json_t *recorder_scenario(struct recorder *r, struct recorder_sum *ret_sum, struct error *err);

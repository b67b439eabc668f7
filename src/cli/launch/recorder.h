/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watches the jobs of a daemon for `tide record`: what the daemon says of them (threads, work done,
 * their owners' words), what the kernel says of their threads (CPU time, waiting), and when their
 * processes end, which nobody has to be asked about. Single-threaded.
 */
#pragma once

#include "cli/api.h"

#include "sim/input/recording.h"

#define RECORDER_LOOK_NS (500 * NS_PER_MS)

struct recorder;

/* Begins now. NULL with *err. */
struct recorder *recorder_new(struct error *err);
struct recorder *recorder_free(struct recorder *r); /* NULL */

/* The daemon's answers to GET /v1/machine and /v1/policy, once. */
void recorder_machine(struct recorder *r, const json_t *machine, const json_t *policy);

/* To GET /v1/jobs, every RECORDER_LOOK_NS. 0 or -ENOMEM; jobs above the most are not seen. */
int recorder_look(struct recorder *r, const json_t *jobs);

/* Sleeps until then, noting processes that end meanwhile. Ends early by a signal. */
void recorder_sleep(struct recorder *r, uint64_t until_ns);

struct recorder_sum {
    size_t jobs;     /* in the scenario */
    size_t cut;      /* of these, still running */
    size_t left_out; /* hardly computed anything */
    size_t missed;   /* began and ended between two looks, or came when there were too many */
};

/* Ends now: the scenario (a new reference), or NULL with *err. */
json_t *recorder_scenario(struct recorder *r, struct recorder_sum *ret_sum, struct error *err);

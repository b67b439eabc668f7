/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that survive the daemon: jobs/ID.json, one per job, `epoch`, `policy` (set last),
 * `engines`. All are hints: a job is recovered if one of its processes lives, an epoch grows with
 * the clock if its file is lost, and the default replaces an unknown policy. Every write goes to a
 * temporary file first; a failure (full disk, read-only) is logged, no more. Daemon's event loop
 * only.
 */
#pragma once

#include <jansson.h>
#include <stdint.h>
#include <sys/types.h>

struct job;
struct daemon;
struct policy_spec;
struct store;

extern const struct job_observer store_observer;

int store_new(struct store **ret);         /* 0 or -ENOMEM */
struct store *store_free(struct store *s); /* takes NULL, returns NULL */

#define STORE_JOBS    "jobs"
#define STORE_EPOCH   "epoch"
#define STORE_POLICY  "policy"
#define STORE_ENGINES "engines"
#define STORE_MAX     65536 /* bytes of a file; a longer one is ignored */

/* Returns max(stored + 1, CLOCK_REALTIME in ns) and stores it; *ret_before: the stored one or 0. */
uint64_t store_next_epoch(struct daemon *d, uint64_t *ret_before);

/*
 * Writes down the policy in force: 0 or -errno. Reads the one that an earlier daemon wrote: 0,
 * -ESTALE (another one is configured since) or another -errno.
 */
int store_save_policy(struct daemon *d);
int store_load_policy(struct daemon *d, struct policy_spec *ret);

/*
 * Keeps the list of watched engines for a daemon that `tide run` starts without any configured
 * engine after this one was killed: that one reads the list into its configuration. A daemon that
 * ends normally removes the list.
 */
void store_engines(struct daemon *d);
void store_forget_engines(const struct daemon *d);

/* Recovers the jobs of an earlier daemon that have a living process; removes the other files. */
void store_load(struct daemon *d);

/* Writes jobs that changed, removes files of jobs that ended. */
void store_save(struct daemon *d);
void store_tick(struct daemon *d); /* tries failed writes again */

/* Returns the last save's -errno, or 0. A job that could not be saved stays dirty. */
int store_error(const struct daemon *d);

/* Appends a note for people on each file that cannot be written. */
void store_notes(const struct daemon *d, json_t *notes);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Accounts of energy outlive the daemon: a job's in its file (store.c), the machine's in a file of
 * its own. The time in which no daemon ran is a gap. Daemon's event loop only.
 */
#pragma once

#include <jansson.h>

#define ENERGY_FILE "energy"

struct daemon;
struct energy_file;
struct job;

json_t *energy_of_job_to_json(const struct job *j); /* null where nothing is known */
/* Without a readable account of energy in @json (may be NULL) the job's begins empty. */
void energy_of_job_from_json(struct job *j, const json_t *json);

/* Reads the machine's account of energy of an earlier daemon. Returns 0 or -ENOMEM. */
int energy_file_new(struct daemon *d, struct energy_file **ret);
/* Writes it once a minute. Takes NULL. */
void energy_file_tick(struct energy_file *f);
/* Writes it now, and has all jobs' files written with the next save. Takes NULL, returns NULL. */
struct energy_file *energy_file_free(struct energy_file *f);

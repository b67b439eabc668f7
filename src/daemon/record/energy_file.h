/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The accounts of energy outlive the daemon: a job's in its file (store.c), the machine's in a file
 * of its own. The time in which no daemon ran is a gap. Daemon's event loop only.
 */
#pragma once

#include <jansson.h>

#define ENERGY_FILE "energy"

struct daemon;
struct job;

json_t *energy_of_job_to_json(const struct job *j); /* null where nothing is known */
/* A missing or wrong account leaves the job's empty. @json may be NULL. */
void energy_of_job_from_json(struct job *j, const json_t *json);

/* Reads the machine's account of an earlier daemon. */
void energy_file_load(struct daemon *d);
/* Writes it, once a minute. */
void energy_file_tick(struct daemon *d);
/* Writes it now, and has all jobs' files written with the next save. */
void energy_file_end(struct daemon *d);

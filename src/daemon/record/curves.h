/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The speed-up curves of earlier runs: a table in memory of CURVES_MAX rows, and curves.db, which
 * mirrors it row by row and is read once. A row is of a user, a program (job/program.h) and a model
 * of processor; a job that begins is given the row of its user, or where tide.conf says so that of
 * another one. A row that a run refutes goes. The table is for speed, never the truth: without the
 * file it lasts as long as the daemon, and nothing waits for the disk.
 *
 * Rows that change are written together, once a second and when a job has ended. When the table is
 * full, the user with the most rows loses the one that was used least recently, so that nobody's
 * programs push out another user's.
 *
 * Daemon's event loop only; called by daemon.c whenever the chronicle is.
 */
#pragma once

#include "policy/model/prior.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define CURVES_FILE     "curves.db"
#define CURVES_MAX      1024
#define CURVES_WRITE_NS UINT64_C(1000000000)  /* shortest time between two batches */
#define CURVES_RETRY_NS UINT64_C(60000000000) /* after a failure */

struct curves;
struct daemon;
struct job_observer;

extern const struct job_observer curves_observer;

/* Takes the directory of the file, which is opened at the first look; 0 or -ENOMEM. */
int curves_new(const char *dir, struct curves **ret);
struct curves *curves_free(struct curves *c); /* writes what waits; takes NULL, returns NULL */

/* Gives jobs that have begun their curves, and takes over what jobs have learnt. */
void curves_look(struct daemon *d);

/* ---- the table, for this module and tests ---- */

struct curves_key {
    uid_t uid;
    uint64_t program, processor;
};

/* Opens and reads the file, now or again after a failure; @at_once: right after one, too. */
void curves_open(struct curves *c, bool at_once);

/* The row of this key, or where @shared the latest of another user's; false: there is none. */
bool curves_find(const struct curves *c, const struct curves_key *key, bool shared,
                 struct prior *ret, uid_t *ret_uid);
void curves_keep(struct curves *c, const struct curves_key *key, const struct prior *prior,
                 uint64_t now_s);
void curves_forget(struct curves *c, const struct curves_key *key);
void curves_write(struct curves *c); /* what has changed, at once */

extern const char *const curves_steps[]; /* as struct database_form has them */
extern const unsigned curves_version;

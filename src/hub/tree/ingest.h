/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takes units' energy, stores the records, and gives receipts: what has a receipt survives a
 * power cut. Messages wait for ingest_flush(), which stores all of them in one transaction; a unit
 * without a receipt sends again. A receipt is for all records up to it: so a message behind one
 * that never came, or that could not be stored, is not stored either, and the unit is asked for all
 * that it has no receipt for. Event loop's thread; called by tree.c.
 */
#pragma once

#include "edge/payload.h"
#include "hub/store/store.h"
#include "hub/tree/units.h"

#define INGEST_MESSAGES_MAX 128  /* that wait; a further one has them stored at once */
#define INGEST_RECEIPTS_MAX 4096 /* that wait for the broker; a unit beyond them sends again */

struct ingest;

struct ingest_options {
    struct store *store; /* borrowed */
    /* Publishes a receipt. Returns 0, or -errno: it waits for the next ingest_receipts(). */
    int (*receipt)(void *arg, const char *unit, const char *text);
    /* Logs for an administrator a message that is not understood, or records that cannot be. */
    void (*say)(void *arg, const char *unit, const char *text);
    void *arg;
};

struct ingest_counts {
    uint64_t messages, stored, known, refused; /* messages; records */
    uint64_t unreadable, early;                /* messages; early: one before it is missing */
};

/* @options is copied. Returns 0 or -ENOMEM. */
int ingest_new(const struct ingest_options *options, struct ingest **ret);
struct ingest *ingest_free(struct ingest *i); /* without a flush; takes NULL, returns NULL */

/* An energy message of a unit, which stays where it is. Returns 0 or what ingest_flush() says. */
int ingest_energy(struct ingest *i, struct unit *u, const void *bytes, size_t len,
                  struct error *err);

/* Whether messages wait. */
bool ingest_waits(const struct ingest *i);

/* Stores what waits, then gives receipts. Returns 0, or -errno: nobody gets
 * a receipt, and what waited is sent again. */
int ingest_flush(struct ingest *i, struct error *err);

/* Goes on with receipts that the broker did not take. */
void ingest_receipts(struct ingest *i);

struct ingest_counts ingest_counts(const struct ingest *i);

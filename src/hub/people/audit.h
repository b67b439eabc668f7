/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The audit log: who asked for which change, when, from where, and what came of it. It lies in the
 * file of people (people.h), which lets no program change a row, or remove one that is younger than
 * 30 days. Event loop's thread. Used by src/hub/serve, cmd_user.c and cmd_audit.c.
 */
#pragma once

#include "hub/people/people.h"

#define AUDIT_TEXT_MAX   128 /* bytes of each text; a longer one is cut */
#define AUDIT_LIST_MAX   1000
#define AUDIT_KEEP_MIN_S (30 * UINT64_C(86400))

/* Texts become visible() ones. */
struct audit_row {
    int64_t id, time_ms;          /* set by audit_append() */
    char user[AUDIT_TEXT_MAX];    /* "": nobody had logged in; "root" at the terminal */
    char from[AUDIT_TEXT_MAX];    /* an address, or "terminal" */
    char what[AUDIT_TEXT_MAX];    /* "login", "switch", "user.add", … */
    char target[AUDIT_TEXT_MAX];  /* a user, an area's switch, … */
    char outcome[AUDIT_TEXT_MAX]; /* "done", or "refused: why", "failed: why" */
};

/* On the disk when it returns 0; else -errno with *err. */
int audit_append(struct people *p, struct audit_row *row, struct error *err);

/*
 * Calls @each with rows from @since_ms on and with a smaller id than @before (0: all), newest
 * first, at most @limit (AUDIT_LIST_MAX). Returns 0 or -errno.
 */
int audit_list(struct people *p, int64_t since_ms, int64_t before, uint32_t limit,
               void (*each)(void *arg, const struct audit_row *row), void *arg, struct error *err);

/*
 * Removes rows that are older than @keep_s, at least AUDIT_KEEP_MIN_S, at @at_ms, or now if that is
 * earlier.
 */
int audit_tidy(struct people *p, uint64_t keep_s, int64_t at_ms, struct error *err);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many rows of the audit log a user's refused and failed changes may have: whoever may log in
 * can ask for thousands a minute, and no row is ever removed early. Each has a row, up to
 * REFUSALS_ROWS; beyond that one row a minute tells how many they were. A quiet minute gives one
 * row back. Event loop's thread; used by src/hub/serve.
 */
#pragma once

#include "hub/people/audit.h"

#include <stddef.h>

#define REFUSALS_ROWS 10

struct refusal {
    char user[PEOPLE_NAME_MAX];
    char from[AUDIT_TEXT_MAX]; /* the address of the last one without a row */
    uint32_t rows, more;       /* written lately; without a row */
};

/* Begins as zeros. */
struct refusals {
    struct refusal *of; /* those who were refused lately */
    size_t count, room;
};

/* Whether this one has a row; else it is counted. */
bool refusals_row(struct refusals *r, const char *user, const char *from);

/* Once a minute, and at the end: calls @tell for each user with refusals that have no row. */
void refusals_tell(struct refusals *r, void (*tell)(void *arg, const struct refusal *refusal),
                   void *arg);

void refusals_done(struct refusals *r);

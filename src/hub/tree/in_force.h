/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The power policy that is in force, and its number, which only grows: both stand in one file of
 * the hub's directory, DIR/policy.yaml, whose first line is ours and whose rest is the text that an
 * administrator wrote. It is replaced as a whole before any unit hears of it, so no two policies
 * ever had one number, whatever was killed or full. A text that was changed by hand or by
 * `tide-hub policy apply` is noticed by its hash and gets a new number. Event loop's thread; used
 * by tree.c and cmd_policy.c.
 */
#pragma once

#include "hub/tree/areas.h"

#include <stdbool.h>

#define IN_FORCE_FILE "policy.yaml"

struct in_force {
    uint64_t number; /* of what units get: new with each change of it, and each day; 0: no policy */
    uint64_t edition; /* the number at the text's last change: editors compare it */
    int64_t made_ms, valid_until_ms;
    char *text; /* terminated */
    size_t len;
    struct power_policy rules;
    struct areas areas;
};

/*
 * Reads the file anew. Returns 1: the text is another one, and got its number; 0: it is as it was,
 * or there is no file; or -errno with *err ("line:column: …" behind the path), and @p is as before.
 */
int in_force_read(const char *dir, int64_t now_ms, struct in_force *p, struct error *err);

/*
 * A new text. @edition: that of the text which the editor saw; 0: whatever it is. Returns 0;
 * -EINVAL with "line:column: …"; -ESTALE: the text changed meanwhile; or what writing says: @p and
 * the file are as before.
 */
int in_force_put(const char *dir, const char *text, size_t len, uint64_t edition, int64_t now_ms,
                 struct in_force *p, struct error *err);

/* The same text with a new number and end. Returns 0 or -errno: as before. */
int in_force_renew(const char *dir, int64_t now_ms, struct in_force *p, struct error *err);

/*
 * Only writes the text, for a hub that runs or will run: in_force_read() gives it its number.
 * Returns 0 or -errno.
 */
int in_force_leave(const char *dir, const char *text, size_t len, struct error *err);

/*
 * The number that stands in the file, and whether it is that of the text in it: until the hub has
 * read what in_force_leave() wrote, it is not. Returns 0, -ENOENT, or -errno with *err.
 */
int in_force_peek(const char *dir, uint64_t *ret_number, bool *ret_current, struct error *err);

int in_force_text(const char *dir, char **ret, struct error *err); /* the text alone */

void in_force_done(struct in_force *p);

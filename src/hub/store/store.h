/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the hub remembers of energy: an SQLite file. Units send cumulative records, again and again
 * until they have a receipt; the store turns them into the energy of stretches of time. Each
 * microjoule of a point stands in exactly one row: in one of the steps of 1 s, 1 min or 15 min into
 * which old rows are summed up. So what a point's rows add up to is its newest total, whatever was
 * sent twice, late or never. Event loop's thread.
 */
#pragma once

#include "base/error.h"
#include "edge/outbox.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STORE_UNIT_MAX   64
#define STORE_POINTS_MAX 4096 /* of one unit */

struct store;

/* How long rows of 1 s and of 1 min stay, and how long anything stays. */
struct store_keep {
    uint64_t second_ms, minute_ms, quarter_ms;
};

/*
 * Opens or makes the file @path, and upgrades the schema of an older program, step by step, each in
 * a transaction. Returns 0, -EPROTO (a newer program wrote it), -EBADMSG (damaged), or -errno.
 */
int store_open(const char *path, struct store **ret, struct error *err);
struct store *store_close(struct store *s); /* takes NULL, returns NULL */

/* What became of the records of one call. */
struct store_put {
    uint32_t stored,
        known;        /* known: at or before the newest of that boot, so they change nothing */
    uint32_t refused; /* a total that fell within a boot, or times that cannot be */
    uint32_t reboots; /* totals that began anew: what came since the last one is counted */
};

/*
 * Stores @n records of a unit, of one boot and by rising seq. When it returns 0, they survive a
 * power cut, and a receipt for the last one may be sent; between store_begin() and store_commit()
 * that is so when store_commit() returns 0. On failure, none of them is stored.
 */
int store_put(struct store *s, const char *unit, const struct outbox_record *r, size_t n,
              struct store_put *ret, struct error *err);

/* Many calls of store_put() in one transaction. A store_commit() that fails has stored nothing. */
int store_begin(struct store *s, struct error *err);
int store_commit(struct store *s, struct error *err);

/*
 * Sums up what is older than @keep says, at @now_ms, at most @rows of each step at a time. Returns
 * 1 when there is more to do, 0, or -errno.
 */
int store_rollup(struct store *s, const struct store_keep *keep, int64_t now_ms, uint32_t rows,
                 struct error *err);

struct store_stretch {
    int64_t from_ms;            /* a multiple of the step */
    struct energy_range energy; /* of rows that end in (from, from + step]; the worst basis */
    uint64_t gap_ms;            /* of which nothing is known */
};

/*
 * The energy of a point in steps of @step_ms, from the step that contains @from_ms to @to_ms,
 * without steps of which nothing is stored. Returns 0, -ENOSPC (more than @max), or -errno.
 */
int store_series(struct store *s, const char *unit, const char *point, int64_t from_ms,
                 int64_t to_ms, int64_t step_ms, struct store_stretch *ret, size_t max,
                 size_t *ret_n, struct error *err);

struct store_point {
    char unit[STORE_UNIT_MAX], point[OUTBOX_POINT_MAX];
    int64_t first_ms, last_ms;
    struct energy_range energy; /* of everything that is stored */
    uint64_t gap_ms;
};

/* Calls @each with every point, by unit and name, until it returns false. Returns 0 or -errno. */
int store_points(struct store *s, bool (*each)(void *arg, const struct store_point *p), void *arg,
                 struct error *err);

/*
 * Forgets a unit, or (@point) one of its points: personal data on request. A unit that still sends
 * it begins anew, with all energy since its boot. Returns 0, or -ENOENT.
 */
int store_erase(struct store *s, const char *unit, const char *point, struct error *err);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hub's store of energy: an SQLite file, or a database of PostgreSQL. Units send cumulative
 * records, again and again until they have a receipt; the store turns them into the energy of
 * stretches of time. Each microjoule of a point stands in exactly one row: in one of the steps of
 * 1 s, 1 min or 15 min into which old rows are summed up. So a point's rows add up to its newest
 * total, whatever was sent twice, late or never. Beside these rows stand the sums of each point and
 * day, so that a question about years is answered at once. Event loop's thread.
 *
 * A point "user:NAME" is personal: the energy of that user's jobs. It is stored in quarters of an
 * hour from the beginning, because seconds would tell when somebody works.
 */
#pragma once

#include "base/error.h"
#include "edge/outbox.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STORE_UNIT_MAX   64
#define STORE_POINTS_MAX 4096 /* of one unit */
#define STORE_USER       "user:"

struct store;

/* How long rows of 1 s and of 1 min stay, how long anything stays, and anything of users. */
struct store_keep {
    uint64_t second_ms, minute_ms, quarter_ms, user_ms;
};

/*
 * Opens or makes the store @where: the path of a file, or "postgresql://…" (libpq's words, a
 * database of the hub's own). Upgrades the schema of an older program, step by step, each in a
 * transaction. Returns 0, -EPROTO (a newer program wrote it), -EBADMSG (damaged), -ENOTCONN (no
 * server), or -errno. No message tells a password of @where.
 *
 * A connection that is lost later comes back by itself: until then store_begin() and all questions
 * return -ENOTCONN, after a fraction of a second.
 */
int store_open(const char *where, struct store **ret, struct error *err);
struct store *store_close(struct store *s); /* takes NULL, returns NULL */

/* Counts of records in one call, by what became of them. */
struct store_put {
    uint32_t stored,
        known;         /* known: at or before the newest of that boot, so they change nothing */
    uint32_t refused;  /* a total that fell within a boot, or times that cannot be */
    uint32_t reboots;  /* totals that began anew: what came since the last one is counted */
    uint32_t returned; /* totals of an earlier boot that went on after those of a later one */
};

/*
 * Stores @n records of a unit, of one boot and by rising seq. When it returns 0, they survive a
 * power cut, and a receipt for the last one may be sent; between store_begin() and store_commit()
 * that is so when store_commit() returns 0. On failure, none of them is stored, nor anything else
 * of the transaction. Time between two records that neither of them covers is a gap. The store
 * remembers the last 8 boots of each point: one that comes back goes on from its own total.
 */
int store_put(struct store *s, const char *unit, const struct outbox_record *r, size_t n,
              struct store_put *ret, struct error *err);

/*
 * Many calls of store_put() in one transaction. A store_commit() that fails has stored nothing,
 * or (a connection that was lost meanwhile) everything: who had no receipt sends again.
 */
int store_begin(struct store *s, struct error *err);
int store_commit(struct store *s, struct error *err);

/*
 * Sums up what is older than @keep says, at @now_ms, about @rows of each step at a time, and counts
 * days again after store_days(). Returns 1 when there is more to do, 0, or -errno.
 */
int store_rollup(struct store *s, const struct store_keep *keep, int64_t now_ms, uint32_t rows,
                 struct error *err);

/*
 * The time zone ("America/Argentina/Buenos_Aires") whose days are counted; UTC at first. The store
 * remembers it. After a change, store_rollup() counts the days again. Returns 0, -EINVAL (no such
 * zone), or -errno.
 */
int store_days(struct store *s, const char *name, struct error *err);

/* The mean price of a kWh in that time, in thousandths of the currency; less than 0: none. */
typedef double store_price(void *arg, int64_t from_ms, int64_t to_ms);

/*
 * From now on energy that comes in, and days that are counted again, cost the @price of their time:
 * these costs are summed up beside the energy of days. @currency NULL: there is no tariff. Where it
 * is another one than before, costs of days that have begun by @now_ms are forgotten. Returns 0 or
 * -errno.
 */
int store_prices(struct store *s, const char *currency, store_price *price, void *arg,
                 int64_t now_ms, struct error *err);

/*
 * Which @n units add up to the organization: those whose area lies in no other unit's, since that
 * one's meters see it, too. The store remembers them; until it is told, all do. Returns 0 or
 * -errno.
 */
int store_units(struct store *s, const char *const *unit, size_t n, struct error *err);

struct store_stretch {
    int64_t from_ms;            /* a multiple of the step */
    struct energy_range energy; /* of rows that end in (from, from + step]; the worst known basis */
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

/* ---- sums of days ---- */

/* Ten years of a large building are more microjoules than 64 bits hold. */
struct store_amount {
    uint64_t j;
    uint32_t uj; /* below a million */
};

#define STORE_AMOUNT_MAX 32
/* In microjoules, as decimal digits. Returns @ret. */
const char *store_amount_text(const struct store_amount *a, char ret[STORE_AMOUNT_MAX]);

enum store_by { STORE_BY_UNIT, STORE_BY_USER, STORE_BY_DAY, STORE_BY_MAX };

struct store_question {
    enum store_by by;
    int64_t from_ms, to_ms; /* widened to whole days of the store's zone */
    const char *user; /* by user, by day: this user's energy alone; NULL: every user's, areas' */
};

struct store_span {
    int64_t from_ms, to_ms; /* the days that were counted */
    bool filling;           /* store_rollup() still counts days again: some of these are missing */
};

struct store_total {
    char key[STORE_UNIT_MAX]; /* the unit's or user's name; empty for a day */
    int64_t day_ms, end_ms;   /* by day: its first moment and the next one's, else 0 */
    struct store_amount mid, low, high;
    uint32_t basis; /* the worst known one */
    uint64_t gap_ms;
    double cost, priced_uj; /* in the currency; of so much of the energy (store_prices()) */
};

/*
 * The energy of units ("area", or "machine" where a unit has no such point), of users, or of days
 * (of units that count together), by rising key. Returns 0 or -errno. @each as in store_points().
 */
int store_totals(struct store *s, const struct store_question *q, struct store_span *ret,
                 bool (*each)(void *arg, const struct store_total *t), void *arg,
                 struct error *err);

/* ---- what a hub above is told ---- */

#define STORE_NEWS_MAX 500 /* of one batch */

/* Energy that came in of units that count together. */
struct store_news {
    int64_t to_ms; /* the end of the minute in which it was used; or of the quarter of an hour */
    struct energy_range energy;
    uint64_t gap_ms; /* of all these units together */
};

/*
 * Up to when the hub above has been told; 0, at first: there is none, and nothing is noted for it.
 * Energy of the time before that comes in later is noted by quarters of an hour.
 */
void store_told(struct store *s, int64_t upto_ms);

/*
 * The oldest of what is noted up to @upto_ms. These have the number *ret_batch from then on, and
 * are answered again until @told is that number: who keeps the number together with them, tells
 * each exactly once. Erasure and the age of rows change nothing of it. Returns 0 or -errno.
 */
int store_news(struct store *s, uint64_t told, int64_t upto_ms,
               struct store_news ret[STORE_NEWS_MAX], size_t *ret_n, uint64_t *ret_batch,
               struct error *err);

/*
 * Forgets a unit (@point NULL), one of its points, or (@unit NULL) a point of all units: personal
 * data on request. Energy that a unit sends later of an erased point counts from then on; what was
 * erased does not come back. An erased unit begins anew, with all energy since its boot. Returns 0,
 * or -ENOENT.
 */
int store_erase(struct store *s, const char *unit, const char *point, struct error *err);

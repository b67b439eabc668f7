/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/store/schema.h"

#include "base/cleanup.h"

#include <assert.h>

/*
 * point: the newest total of each point of each unit, and from when to when it was heard. sample:
 * its energy in the stretch that ends at to_ms, in the row of the step (1, 60 or 900 s) that it was
 * summed up to.
 *
 * ID, NUMBER, TEXT: what SQLite and PostgreSQL call these types. ORDERED: rows lie by their key.
 */
#define STEP_1(ID, NUMBER, TEXT, ORDERED)                                                          \
    "CREATE TABLE point (id " ID " PRIMARY KEY, unit " TEXT " NOT NULL, name " TEXT " NOT NULL,"   \
    " boot " NUMBER " NOT NULL, seq " NUMBER " NOT NULL, uj " NUMBER " NOT NULL, low " NUMBER      \
    " NOT NULL, high " NUMBER " NOT NULL, UNIQUE (unit, name));"                                   \
    "CREATE TABLE sample (step " NUMBER " NOT NULL, point " NUMBER " NOT NULL, to_ms " NUMBER      \
    " NOT NULL, from_ms " NUMBER " NOT NULL, uj " NUMBER " NOT NULL, low " NUMBER                  \
    " NOT NULL, high " NUMBER " NOT NULL, basis " NUMBER " NOT NULL, gap " NUMBER                  \
    " NOT NULL, PRIMARY KEY (step, point, to_ms))" ORDERED ";"                                     \
    "CREATE INDEX sample_by_time ON sample (step, to_ms);"

/*
 * day: the sums of each point in each day, from its first millisecond to the next day's, whatever
 * its samples were summed up to. Whatever sums these up again (store_days()) begins with a store
 * that has samples and no zone yet.
 */
#define STEP_2(NUMBER, TEXT, ORDERED)                                                              \
    "ALTER TABLE point ADD COLUMN first_ms " NUMBER " NOT NULL DEFAULT 0;"                         \
    "ALTER TABLE point ADD COLUMN last_ms " NUMBER " NOT NULL DEFAULT 0;"                          \
    "UPDATE point SET first_ms = coalesce((SELECT min(from_ms) FROM sample WHERE point ="          \
    " point.id), 0), last_ms = coalesce((SELECT max(to_ms) FROM sample WHERE point = point.id),"   \
    " 0);"                                                                                         \
    "CREATE TABLE day (point " NUMBER " NOT NULL, begin_ms " NUMBER " NOT NULL, uj " NUMBER        \
    " NOT NULL, low " NUMBER " NOT NULL, high " NUMBER " NOT NULL, basis " NUMBER                  \
    " NOT NULL, gap " NUMBER " NOT NULL, PRIMARY KEY (point, begin_ms))" ORDERED ";"               \
    "CREATE INDEX day_by_time ON day (begin_ms);"                                                  \
    "CREATE TABLE note (name " TEXT " PRIMARY KEY, value " TEXT " NOT NULL)" ORDERED ";"

/*
 * day: what its energy cost, in billionths of the tariff's currency, and how much of the energy
 * that is the cost of. counted: the units that add up to the organization, and "" once somebody has
 * said which these are. news: what came in of them and the hub above was not told, by the end of
 * the minute or quarter of an hour in which it was used; batch: 0, or the number under which it is
 * told.
 */
#define STEP_3(NUMBER, TEXT, ORDERED)                                                              \
    "ALTER TABLE day ADD COLUMN cost " NUMBER " NOT NULL DEFAULT 0;"                               \
    "ALTER TABLE day ADD COLUMN priced " NUMBER " NOT NULL DEFAULT 0;"                             \
    "CREATE TABLE counted (unit " TEXT " PRIMARY KEY)" ORDERED ";"                                 \
    "CREATE TABLE news (batch " NUMBER " NOT NULL, to_ms " NUMBER " NOT NULL, uj " NUMBER          \
    " NOT NULL, low " NUMBER " NOT NULL, high " NUMBER " NOT NULL, basis " NUMBER                  \
    " NOT NULL, gap " NUMBER " NOT NULL, PRIMARY KEY (batch, to_ms))" ORDERED ";"

/*
 * boot: the newest totals of a point's earlier boots, one of which may come back; by rising turn,
 * each later than the ones before it.
 */
#define STEP_4(NUMBER, ORDERED)                                                                    \
    "CREATE TABLE boot (point " NUMBER " NOT NULL, boot " NUMBER " NOT NULL, turn " NUMBER         \
    " NOT NULL, seq " NUMBER " NOT NULL, uj " NUMBER " NOT NULL, low " NUMBER                      \
    " NOT NULL, high " NUMBER " NOT NULL, PRIMARY KEY (point, boot))" ORDERED ";"

#define ROWID " WITHOUT ROWID"

const char *const store_steps[] = {
    STEP_1("INTEGER", "INTEGER", "TEXT", ROWID),
    STEP_2("INTEGER", "TEXT", ROWID),
    STEP_3("INTEGER", "TEXT", ROWID),
    STEP_4("INTEGER", ROWID),
};
const unsigned store_version = ARRAY_LEN(store_steps);

#define SERIAL   "BIGINT GENERATED ALWAYS AS IDENTITY"
#define BYTEWISE "TEXT COLLATE \"C\"" /* as SQLite orders texts */

const char *const store_steps_postgres[] = {
    STEP_1(SERIAL, "BIGINT", BYTEWISE, ""),
    STEP_2("BIGINT", BYTEWISE, ""),
    STEP_3("BIGINT", BYTEWISE, ""),
    STEP_4("BIGINT", ""),
};
static_assert(ARRAY_LEN(store_steps) == ARRAY_LEN(store_steps_postgres), "one version for both");

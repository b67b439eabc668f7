/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/store/store_dialect.h"

#include "base/cleanup.h"

#include <assert.h>

/* The worse one of two known bases; 0 is an unknown one. */
#define WORSE(a, b) "CASE WHEN " a " = 0 OR (" b " > 0 AND " b " < " a ") THEN " b " ELSE " a " END"
#define WORST       "coalesce(min(nullif(s.basis, 0)), 0)"

/* Sums of energy end at 2^62 µJ: a unit that lies spoils its own sums and nobody else's. */
#define MOST "4611686018427387904"
#define PLUS(to, column)                                                                           \
    "CASE WHEN " to "." column " > " MOST " - excluded." column " THEN " MOST " ELSE " to          \
    "." column " + excluded." column " END"
#define SUM(column)                                                                                \
    "CAST(CASE WHEN sum(" column " / 1000000) >= " MOST " / 1000000 THEN " MOST                    \
    " ELSE sum(" column " / 1000000) * 1000000 + sum(" column " % 1000000) END AS BIGINT)"
#define JOULES(column)                                                                             \
    "CAST(sum(" column " / 1000000) AS BIGINT), CAST(sum(" column " % 1000000) AS BIGINT)"
#define SUMS                                                                                       \
    SUM("s.uj") ", " SUM("s.low") ", " SUM("s.high") ", " WORST ", CAST(sum(s.gap) AS BIGINT)"
#define NAMED_SUMS                                                                                 \
    SUM("s.uj")                                                                                    \
    " AS uj, " SUM("s.low") " AS low, " SUM(                                                       \
        "s.high") " AS high, " WORST " AS basis, CAST(sum(s.gap) AS BIGINT) AS gap"
/* Costs of days before $4 are in another currency. */
#define SINCE(column) "(CASE WHEN s.begin_ms >= $4 THEN s." column " ELSE 0 END)"
#define WIDE_SUMS                                                                                  \
    JOULES("s.uj")                                                                                 \
    ", " JOULES("s.low") ", " JOULES("s.high") ", " WORST ", CAST(sum(s.gap) AS BIGINT), " JOULES( \
        SINCE("cost")) ", " JOULES(SINCE("priced"))
/* The cost of µJ at $4 thousandths a kWh, in billionths. */
#define COST(uj)                                                                                   \
    "CASE WHEN " uj " / 3600000 >= " MOST " / ($4 + 1) THEN " MOST " ELSE " uj                     \
    " / 3600000 * $4 + " uj " % 3600000 * $4 / 3600000 END"

/* Rows that end at the same time (after a step of the clock) are added to each other. */
#define ADD_TO(table)                                                                              \
    "uj = " PLUS(table, "uj") ", low = " PLUS(table, "low") ", high = " PLUS(                      \
        table, "high") ", basis = " WORSE(table ".basis", "excluded.basis") ", gap = " table       \
                                                                            ".gap + excluded.gap"
#define ADD_TO_SAMPLE                                                                              \
    " ON CONFLICT (step, point, to_ms) DO UPDATE SET from_ms = CASE WHEN excluded.from_ms <"       \
    " sample.from_ms THEN excluded.from_ms ELSE sample.from_ms END, " ADD_TO("sample")
#define SAMPLE "sample (step, point, to_ms, from_ms, uj, low, high, basis, gap)"
#define DAY    "day (point, begin_ms, uj, low, high, basis, gap, cost, priced)"
#define ADD_TO_DAY                                                                                 \
    " ON CONFLICT (point, begin_ms) DO UPDATE SET " ADD_TO("day") ", cost = " PLUS(                \
        "day", "cost") ", priced = " PLUS("day", "priced")
#define CHOSEN                                                                                     \
    "(SELECT id FROM point WHERE ($1 IS NULL OR unit = $1) AND ($2 IS NULL OR name = $2))"
/* Users' points, also those that were erased. */
#define PERSONAL "(substr(name, 1, 5) = 'user:' OR substr(name, 1, 7) = 'erased:')"
#define STEPS    "s.step IN (1, 60, 900)"

/*
 * An area's energy, or that of a machine that stands alone. SQLite keeps the order of a CROSS JOIN:
 * points first, since a point's days lie together.
 */
#define WHOLE                                                                                      \
    "(p.name = 'area' OR (p.name = 'machine' AND NOT EXISTS (SELECT 1 FROM point a WHERE a.unit"   \
    " = p.unit AND a.name = 'area')))"
/* store_units() has said nothing, or named the unit. */
#define COUNTED                                                                                    \
    "(NOT EXISTS (SELECT 1 FROM counted) OR EXISTS (SELECT 1 FROM counted c WHERE c.unit = "       \
    "p.unit))"
#define CHOSEN_DAYS(whole)                                                                         \
    " FROM point p CROSS JOIN day s WHERE s.point = p.id AND ((p.name = $1) OR ($1 IS NULL "       \
    "AND " whole ")) AND s.begin_ms >= $2 AND s.begin_ms < $3"

const struct statement_text statement_text[] = {
    [FIND_POINT] =
        {.sql = "SELECT p.id, p.boot, p.seq, p.uj, p.low, p.high, p.last_ms, CASE WHEN " WHOLE
                " AND " COUNTED " THEN 1 ELSE 0 END FROM point p WHERE p.unit = $1 AND"
                " p.name = $2",
         .texts = 2},
    [ADD_POINT] = {.sql = "INSERT INTO point (unit, name, boot, seq, uj, low, high)"
                          " VALUES ($1, $2, 0, 0, 0, 0, 0) RETURNING id",
                   .texts = 2},
    [SET_POINT] = {.sql =
                       "UPDATE point SET boot = $2, seq = $3, uj = $4, low = $5, high = $6,"
                       " last_ms = $7, first_ms = CASE WHEN first_ms = 0 THEN $8 ELSE first_ms END"
                       " WHERE id = $1 AND boot = $9 AND seq = $10",
                   .one = true},
    [COUNT_POINTS] = {.sql = "SELECT count(*) FROM point WHERE unit = $1", .texts = 1},
    [FIND_BOOT] = {.sql = "SELECT seq, uj, low, high FROM boot WHERE point = $1 AND boot = $2"},
    [KEEP_BOOT] =
        {.sql = "INSERT INTO boot (point, boot, turn, seq, uj, low, high) VALUES ($1, $2,"
                " (SELECT coalesce(max(turn), 0) + 1 FROM boot WHERE point = $1), $3, $4, $5, $6)"
                " ON CONFLICT (point, boot) DO UPDATE SET turn = excluded.turn,"
                " seq = excluded.seq, uj = excluded.uj, low = excluded.low, high = excluded.high",
         .one = true},
    [DROP_BOOTS] = {.sql = "DELETE FROM boot WHERE point = $1 AND turn <= (SELECT turn FROM boot"
                           " WHERE point = $1 ORDER BY turn DESC LIMIT 1 OFFSET $2)"},
    [ADD_SAMPLE] = {.sql = "INSERT INTO " SAMPLE " VALUES ($1, $2, $3, $4, $5, $6, $7, $8,"
                           " $9)" ADD_TO_SAMPLE,
                    .one = true},
    [ADD_DAY] = {.sql =
                     "INSERT INTO " DAY " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)" ADD_TO_DAY,
                 .one = true},
    [GET_NOTE] = {.sql = "SELECT value FROM note WHERE name = $1", .texts = 1},
    [SET_NOTE] =
        {.sql = "INSERT INTO note (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET"
                " value = excluded.value",
         .texts = 2,
         .one = true},
    [NTH_SAMPLE] = {.sql = "SELECT to_ms FROM sample WHERE step = $1 AND to_ms <= $2 ORDER BY to_ms"
                           " LIMIT 1 OFFSET $3"},
    [SUM_UP] = {.sql =
                    "INSERT INTO " SAMPLE
                    " SELECT $2, s.point, (s.to_ms + $2 * 1000 - 1) / ($2 * 1000)"
                    " * ($2 * 1000), min(s.from_ms), " SUMS " FROM sample s WHERE s.step = $1 AND"
                    " s.to_ms <= $3 GROUP BY s.point, (s.to_ms + $2 * 1000 - 1) / ($2 * 1000)"
                    " * ($2 * 1000)" ADD_TO_SAMPLE},
    [DROP_SAMPLES] = {.sql = "DELETE FROM sample WHERE step = $1 AND to_ms <= $2"},
    [DROP_DAYS] = {.sql = "DELETE FROM day WHERE begin_ms <= $1"},
    [NEWEST_SAMPLE] =
        {.sql = "SELECT to_ms FROM sample WHERE step = $1 AND to_ms <= $2 ORDER BY to_ms DESC"
                " LIMIT 1"},
    [CLEAR_DAY] = {.sql = "DELETE FROM day WHERE begin_ms >= $1 AND begin_ms < $2"},
    /* Rows that end in ($2, $3] cost $4 a kWh, if $5 is 1. */
    [FILL_DAY] = {.sql = "INSERT INTO " DAY " SELECT q.point, $1, q.uj, q.low, q.high, q.basis,"
                         " q.gap, " COST("q.uj") ", q.uj * $5 FROM (SELECT s.point, " NAMED_SUMS
                                                 " FROM sample s WHERE " STEPS
                                                 " AND s.to_ms > $2 AND s.to_ms <= $3"
                                                 " GROUP BY s.point) AS q WHERE true" ADD_TO_DAY},
    [DROP_USER_SAMPLES] = {.sql = "DELETE FROM sample WHERE step = 900 AND to_ms <= $1 AND point IN"
                                  " (SELECT id FROM point WHERE " PERSONAL ")"},
    [DROP_USER_DAYS] = {.sql = "DELETE FROM day WHERE begin_ms <= $1 AND point IN"
                               " (SELECT id FROM point WHERE " PERSONAL ")"},
    [DROP_USER_BOOTS] = {.sql = "DELETE FROM boot WHERE point IN"
                                " (SELECT id FROM point WHERE last_ms <= $1 AND " PERSONAL ")"},
    [DROP_USERS] = {.sql = "DELETE FROM point WHERE last_ms <= $1 AND " PERSONAL},
    [SERIES] = {.sql = "SELECT (s.to_ms - 1) / $5, " SUMS
                       " FROM sample s WHERE s.point = (SELECT id FROM"
                       " point WHERE unit = $1 AND name = $2) AND " STEPS " AND s.to_ms > $3 AND"
                       " s.to_ms <= $4 GROUP BY 1 ORDER BY 1 LIMIT $6",
                .texts = 2},
    [POINTS] = {.sql =
                    "SELECT p.unit, p.name, p.first_ms, p.last_ms, " SUMS
                    " FROM point p JOIN day s ON"
                    " s.point = p.id WHERE substr(p.name, 1, 7) <> 'erased:' GROUP BY p.id, p.unit,"
                    " p.name, p.first_ms, p.last_ms ORDER BY p.unit, p.name"},
    /* Columns: unit, user's name, day; then the sums. */
    [BY_UNIT] = {.sql = "SELECT p.unit, '', 0, " WIDE_SUMS CHOSEN_DAYS(
                     WHOLE) " GROUP BY p.unit ORDER BY p.unit",
                 .texts = 1},
    [BY_USER] =
        {.sql =
             "SELECT p.unit, substr(p.name, 6), 0, " WIDE_SUMS " FROM point p CROSS JOIN day s"
             " WHERE s.point = p.id AND substr(p.name, 1, 5) = 'user:' AND ($1 IS NULL OR p.name ="
             " $1) AND s.begin_ms >= $2 AND s.begin_ms < $3 GROUP BY substr(p.name, 6), p.unit"
             " ORDER BY substr(p.name, 6), p.unit",
         .texts = 1},
    [BY_DAY] = {.sql = "SELECT '', '', s.begin_ms, " WIDE_SUMS CHOSEN_DAYS(
                    WHOLE " AND " COUNTED) " GROUP BY s.begin_ms ORDER BY s.begin_ms",
                .texts = 1},
    [CLEAR_COUNTED] = {.sql = "DELETE FROM counted"},
    [ADD_COUNTED] = {.sql = "INSERT INTO counted (unit) VALUES ($1)", .texts = 1, .one = true},
    [ADD_NEWS] =
        {.sql = "INSERT INTO news (batch, to_ms, uj, low, high, basis, gap) VALUES (0, $1, $2,"
                " $3, $4, $5, $6) ON CONFLICT (batch, to_ms) DO UPDATE SET " ADD_TO("news"),
         .one = true},
    [DROP_NEWS] = {.sql = "DELETE FROM news WHERE batch > 0 AND batch <= $1"},
    [NEWEST_BATCH] = {.sql = "SELECT coalesce(max(batch), 0) FROM news"},
    [NUMBER_NEWS] =
        {.sql = "UPDATE news SET batch = $1 WHERE batch = 0 AND to_ms IN (SELECT to_ms FROM"
                " news WHERE batch = 0 AND to_ms <= $2 ORDER BY to_ms LIMIT $3)"},
    [NEWS] =
        {.sql =
             "SELECT to_ms, uj, low, high, basis, gap FROM news WHERE batch = $1 ORDER BY to_ms"},
    [ERASE_SAMPLES] = {.sql = "DELETE FROM sample WHERE step IN (1, 60, 900) AND point IN " CHOSEN,
                       .texts = 2},
    [ERASE_DAYS] = {.sql = "DELETE FROM day WHERE point IN " CHOSEN, .texts = 2},
    [ERASE_BOOTS] = {.sql = "DELETE FROM boot WHERE point IN " CHOSEN, .texts = 2},
    [ERASE_POINTS] = {.sql = "DELETE FROM point WHERE id IN " CHOSEN, .texts = 2},
    [HIDE_POINTS] = {.sql =
                         "UPDATE point SET name = $3, first_ms = 0 WHERE ($1 IS NULL OR unit = $1)"
                         " AND name = $2",
                     .texts = 3},
    [SHOW_POINT] = {.sql = "UPDATE point SET name = $1 WHERE id = $2", .texts = 1, .one = true},
};
static_assert(ARRAY_LEN(statement_text) == STATEMENT_MAX, "a statement without text");

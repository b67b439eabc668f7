/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/people/audit.h"

#include "base/clock.h"
#include "base/visible.h"
#include "hub/people/people_state.h"

int audit_append(struct people *p, struct audit_row *row, struct error *err)
{
    int r;

    visible(row->user);
    visible(row->from);
    visible(row->what);
    visible(row->target);
    visible(row->outcome);
    row->time_ms = (int64_t)clock_real_ms();
    r = people_change(
        p, people_query(p,
                        "INSERT INTO audit (time_ms, user, origin, what, target, outcome)"
                        " VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                        "isssss", row->time_ms, row->user, row->from, row->what, row->target,
                        row->outcome));
    row->id = sqlite3_last_insert_rowid(p->db);
    return r < 0 ? people_said(p, r, "write the audit log", err) : 0;
}

int audit_list(struct people *p, int64_t since_ms, int64_t before, uint32_t limit,
               void (*each)(void *arg, const struct audit_row *row), void *arg, struct error *err)
{
    sqlite3_stmt *q = people_query(
        p,
        "SELECT id, time_ms, user, origin, what, target, outcome FROM audit"
        " WHERE time_ms >= ?1 AND (?2 = 0 OR id < ?2) ORDER BY id DESC LIMIT ?3",
        "iii", since_ms, before, (int64_t)(limit < AUDIT_LIST_MAX ? limit : AUDIT_LIST_MAX));
    int rc = SQLITE_ERROR;

    while (q && (rc = sqlite3_step(q)) == SQLITE_ROW) {
        struct audit_row row = {.id = sqlite3_column_int64(q, 0),
                                .time_ms = sqlite3_column_int64(q, 1)};

        people_text(q, 2, row.user, sizeof(row.user));
        people_text(q, 3, row.from, sizeof(row.from));
        people_text(q, 4, row.what, sizeof(row.what));
        people_text(q, 5, row.target, sizeof(row.target));
        people_text(q, 6, row.outcome, sizeof(row.outcome));
        each(arg, &row);
    }
    return people_said(p, people_finish(q, rc), "read the audit log", err);
}

int audit_tidy(struct people *p, uint64_t keep_s, int64_t at_ms, struct error *err)
{
    uint64_t keep = keep_s > AUDIT_KEEP_MIN_S ? keep_s : AUDIT_KEEP_MIN_S;
    int64_t now_ms = (int64_t)clock_real_ms();
    int64_t until_ms = (at_ms < now_ms ? at_ms : now_ms) - (int64_t)(keep * 1000) - 60000;

    return people_said(
        p, people_change(p, people_query(p, "DELETE FROM audit WHERE time_ms < ?1", "i", until_ms)),
        "tidy the audit log", err);
}

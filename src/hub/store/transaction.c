/* SPDX-License-Identifier: Apache-2.0 */
/* Transactions, and questions of one row. */
#include "hub/store/memory.h"
#include "hub/store/store_state.h"

#include <errno.h>
#include <stdio.h>

#define ERROR_WORD "store-failed"

int store_said(struct store *s, int r, const char *doing, struct error *err)
{
    if (r >= 0)
        return r;
    if (r == -ESTALE)
        return error_word(
            err, error_set(err, r, "cannot %s: another program changes the same store", doing),
            "store-locked");
    return error_set(err, r, "cannot %s: %s", doing, s->db->dialect->problem(s->db));
}

void store_roll_back(struct store *s)
{
    s->db->dialect->rollback(s->db);
    s->inside = false;
    s->days = s->n_news = 0;
    memory_forget(s->memory);
}

int store_write_days(struct store *s)
{
    int r = 0;

    for (size_t i = 0; r == 0 && i < s->days; i++) {
        const struct day_sum *d = &s->day[i];

        r = s->db->dialect->write(
            s->db, ADD_DAY,
            &(struct values){.numbers = 9,
                             .number = {d->point, d->begin_ms, (int64_t)d->energy.uj,
                                        (int64_t)d->energy.low_uj, (int64_t)d->energy.high_uj,
                                        d->energy.basis, d->gap_ms, (int64_t)d->cost,
                                        (int64_t)d->priced}});
    }
    s->days = 0;
    return r;
}

int store_begin(struct store *s, struct error *err)
{
    int r = s->db->dialect->begin(s->db);

    s->failed = 0;
    s->inside = r == 0;
    return store_said(s, r, "begin to store", err);
}

int store_commit(struct store *s, struct error *err)
{
    int r = s->inside ? s->failed : -EINVAL;

    if (!s->inside)
        return error_set(err, r, "no transaction to end");
    r = r ? r : store_write_days(s);
    r = r ? r : store_write_news(s);
    r = r ? r : s->db->dialect->commit(s->db);
    if (r < 0) {
        store_said(s, r, "store records of energy", err);
        store_roll_back(s);
    }
    s->inside = false;
    return r;
}

/* ---- one row ---- */

int store_ask_number(struct store *s, enum statement which, const struct values *v, int64_t *ret)
{
    int r = s->db->dialect->ask(s->db, which, v);

    if (r < 0)
        return r;
    r = s->db->dialect->next(s->db);
    if (r == 1)
        *ret = s->db->dialect->number(s->db, 0);
    s->db->dialect->end(s->db);
    return r == 1 ? 0 : r == 0 ? -ENOENT : r;
}

int store_note(struct store *s, const char *name, char ret[NOTE_MAX])
{
    int r = s->db->dialect->ask(s->db, GET_NOTE, &(struct values){1, 0, {name}, {0}});

    if (r < 0)
        return r;
    r = s->db->dialect->next(s->db);
    if (r == 1)
        snprintf(ret, NOTE_MAX, "%s", s->db->dialect->text(s->db, 0));
    s->db->dialect->end(s->db);
    return r == 1 ? 0 : r == 0 ? -ENOENT : r;
}

int store_set_note(struct store *s, const char *name, const char *value)
{
    return s->db->dialect->write(s->db, SET_NOTE, &(struct values){2, 0, {name, value}, {0}});
}

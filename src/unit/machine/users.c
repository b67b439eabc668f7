/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/machine/users.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/muldiv.h"
#include "base/wallclock.h"
#include "power/measure/range.h"

#define ERROR_WORD "bad-answer"

#define NAME_MAX_ 48

struct user {
    char name[NAME_MAX_];
    struct energy_range last; /* tided's */
    uint64_t gap_ms;          /* tided's */
    struct energy_range sum;  /* the point's */
};

struct users {
    struct outbox *outbox;
    bool begun; /* an answer was taken: who is new now has used all that is told */
    uint64_t told_ns;
    size_t n;
    struct user of[USERS_MAX];
};

int users_new(struct outbox *outbox, struct users **ret)
{
    struct users *u = calloc(1, sizeof(*u));

    if (!u)
        return -ENOMEM;
    u->outbox = outbox;
    *ret = u;
    return 0;
}

struct users *users_free(struct users *u)
{
    free(u);
    return NULL;
}

static void name_point(const char *name, char ret[OUTBOX_POINT_MAX])
{
    snprintf(ret, OUTBOX_POINT_MAX, "user:%.*s", NAME_MAX_ - 1, name);
}

/* NULL: there are too many. */
static struct user *find(struct users *u, const char *name)
{
    struct outbox_record last;
    char point[OUTBOX_POINT_MAX];
    struct user *user;

    for (size_t i = 0; i < u->n; i++)
        if (strcmp(u->of[i].name, name) == 0)
            return &u->of[i];
    if (u->n == USERS_MAX)
        return NULL;
    user = &u->of[u->n++];
    *user = (struct user){0};
    snprintf(user->name, sizeof(user->name), "%s", name);
    name_point(name, point);
    if (outbox_last(u->outbox, point, &last) == 0)
        user->sum = last.total;
    return user;
}

static uint64_t number(const json_t *row, const char *key)
{
    json_int_t n = json_integer_value(json_object_get(row, key));

    return n > 0 ? (uint64_t)n : 0;
}

static struct energy_range energy_of_row(const json_t *row)
{
    const char *word = json_string_value(json_object_get(row, "basis"));
    struct energy_range e = {number(row, "uj"), number(row, "low_uj"), number(row, "high_uj"), 0};

    for (uint32_t basis = 0; word && basis < POWER_BASIS_MAX; basis++)
        if (strcmp(word, power_basis_name((enum power_basis)basis)) == 0)
            e.basis = basis;
    return e;
}

static void put(struct users *u, struct user *user, const struct energy_range *now, uint64_t gap_ms)
{
    uint64_t ms = wallclock_ms(), ns = clock_now_ns();
    uint64_t lasted_ms = u->told_ns ? (ns - u->told_ns) / NS_PER_MS : 0;
    uint64_t gap = sub_sat(gap_ms, user->gap_ms);
    struct outbox_record r = {.from_ms = sub_sat(ms, lasted_ms), .to_ms = ms, .mono_ns = ns};
    struct energy_range more = {.uj = sub_sat(now->uj, user->last.uj),
                                .low_uj = sub_sat(now->low_uj, user->last.low_uj),
                                .high_uj = sub_sat(now->high_uj, user->last.high_uj),
                                .basis = now->basis};

    if (!u->begun) /* what of it an earlier process has told is unknown */
        more.uj = more.low_uj = more.high_uj = 0;
    more.low_uj = more.low_uj < more.uj ? more.low_uj : more.uj;
    more.high_uj = more.high_uj > more.uj ? more.high_uj : more.uj;
    energy_add(&user->sum, &more);
    user->last = *now;
    user->gap_ms = gap_ms;
    r.total = user->sum;
    r.gap_ms = (uint32_t)(gap < lasted_ms ? gap : lasted_ms);
    name_point(user->name, r.point);
    outbox_put(u->outbox, &r);
}

/* Letters, digits, '.', '_' and '-': what is a login name everywhere. */
static bool is_name(const char *name)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    size_t n = name ? strlen(name) : 0;

    return n > 0 && n < NAME_MAX_ && strspn(name, plain) == n;
}

int users_take(struct users *u, const char *body, struct error *err)
{
    json_t *j = json_loads(body, 0, NULL);
    const json_t *rows = json_object_get(j, "rows"), *row;
    size_t i;

    if (!json_is_array(rows)) {
        json_decref(j);
        return error_set(err, -EBADMSG, "its answer about users' energy is not understood");
    }
    json_array_foreach (rows, i, row) {
        const char *name = json_string_value(json_object_get(row, "key"));
        struct energy_range now = energy_of_row(row);
        struct user *user = is_name(name) ? find(u, name) : NULL;

        if (user && now.basis != POWER_UNKNOWN)
            put(u, user, &now, number(row, "gap_ms"));
    }
    u->begun = true;
    u->told_ns = clock_now_ns();
    json_decref(j);
    return 0;
}

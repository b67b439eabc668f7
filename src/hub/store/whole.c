/* SPDX-License-Identifier: Apache-2.0 */
/* What adds up to the organization. */
#include "hub/store/store_state.h"

#include "base/fnv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void text_of(const char *const *unit, size_t n, char ret[NOTE_MAX])
{
    uint64_t hash = FNV_START;

    for (size_t i = 0; i < n; i++)
        hash = fnv_bytes(fnv_text(hash, unit[i]), "/", 1);
    snprintf(ret, NOTE_MAX, "%016" PRIx64 " %zu", hash, n);
}

static int add_counted(struct store *s, const char *unit)
{
    return s->db->dialect->write(s->db, ADD_COUNTED, &(struct values){1, 0, {unit}, {0}});
}

int store_units(struct store *s, const char *const *unit, size_t n, struct error *err)
{
    char before[NOTE_MAX] = "", now[NOTE_MAX];
    int r = store_note(s, NOTE_UNITS, before);

    text_of(unit, n, now);
    if (r < 0 && r != -ENOENT)
        return store_said(s, r, "read which units count", err);
    if (strcmp(before, now) == 0)
        return 0;
    r = store_begin(s, err);
    if (r < 0)
        return r;
    r = s->db->dialect->write(s->db, CLEAR_COUNTED, &(struct values){0});
    r = r ? r : add_counted(s, ""); /* none at all is an answer, too */
    for (size_t i = 0; r == 0 && i < n; i++)
        r = add_counted(s, unit[i]);
    s->failed = r ? r : store_set_note(s, NOTE_UNITS, now);
    return store_commit(s, err);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/store/memory.h"
#include "hub/store/schema.h"
#include "hub/store/store_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_WORD "store-failed"

/* ---- open ---- */

static int upgrade(struct db *db)
{
    const struct db_dialect *d = db->dialect;
    int64_t version = -1;
    int r = d->version(db, &version);

    if (r < 0 || version < 0)
        return r < 0 ? r : -EBADMSG;
    if (version > store_version)
        return -EPROTO;
    for (; r == 0 && version < store_version; version++) {
        r = d->begin(db);
        r = r ? r : d->run(db, d->steps[version]);
        r = r ? r : d->set_version(db, version + 1);
        r = r ? r : d->commit(db);
    }
    return r ? r : d->prepare(db);
}

static bool names_server(const char *where)
{
    return strncmp(where, "postgresql://", 13) == 0 || strncmp(where, "postgres://", 11) == 0;
}

static int open_db(const char *where, struct db **ret, struct error *err)
{
    if (!names_server(where))
        return sqlite_store_open(where, ret, err);
#ifdef HAVE_POSTGRES
    return postgres_store_open(where, ret, err);
#else
    return error_set(err, -EPROTONOSUPPORT,
                     "this tide-hub was built without PostgreSQL (libpq): name a file");
#endif
}

int store_open(const char *where, struct store **ret, struct error *err)
{
    struct store *s = calloc(1, sizeof(*s));
    int r;

    if (!s || memory_new(&s->memory) < 0 || !(s->zone = calloc(1, sizeof(*s->zone)))) {
        store_close(s);
        return error_set(err, -ENOMEM, "out of memory");
    }
    r = open_db(where, &s->db, err);
    if (r < 0) {
        store_close(s);
        return r;
    }
    r = upgrade(s->db);
    if (r < 0)
        error_set(err, r, "%s: %s", names_server(where) ? "PostgreSQL" : where,
                  r == -EPROTO ? "a newer version of this program wrote it"
                               : s->db->dialect->problem(s->db));
    r = r ? r : store_load_days(s, err);
    if (r < 0) {
        store_close(s);
        return r;
    }
    *ret = s;
    return 0;
}

struct store *store_close(struct store *s)
{
    if (!s)
        return NULL;
    memory_free(s->memory);
    if (s->db)
        s->db->dialect->close(s->db);
    free(s->zone);
    free(s);
    return NULL;
}

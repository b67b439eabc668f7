/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/trust/authority.h"

#include "base/cleanup.h"
#include "base/wholefile.h"
#include "edge/topic.h"
#include "host/trust/seal.h"
#include "hub/trust/area_broker.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define ERROR_WORD "authority-fault"

#define TEXT_MAX     (1 << 20)
#define RECORDS_MAX  (AUTHORITY_UNITS_MAX * 128) /* bytes of the file `units` */
#define LIST_AGAIN_S 86400 /* a list of revoked certificates is made again after so long */
#define IN_NAME_S    3600
#define ADMITTED     "-" /* in place of a serial number: the name is good again */

enum file { CA_CERT, CA_KEY, SEAL_KEY, SEAL_PUBLIC, UNITS, LIST, FILES };
static const char *const names[FILES] = {"ca.crt",   "ca.key", "seal.key",
                                         "seal.pub", "units",  "revoked.crl"};

struct authority {
    char *dir, *path[FILES];
    struct identity_pem ca;
    char *seal_key, *seal_public;
    struct authority_unit *unit, *newest; /* newest: of authority_newest() */
    size_t count;
};

bool authority_name_good(const char *name)
{
    return edge_name_valid(name);
}

/* ---- files ---- */

static int put(const struct authority *a, enum file f, const char *text, mode_t mode,
               struct error *err)
{
    struct stat status = {.st_mode = mode, .st_uid = geteuid(), .st_gid = getegid()};
    int r = wholefile_replace(a->path[f], text, strlen(text), &status);

    return r < 0 ? error_set(err, r, "cannot write %s: %s", a->path[f], strerror(-r)) : 0;
}

/* -ENOENT without a text in *err: it is not there. */
static int get(const struct authority *a, enum file f, size_t max, char **ret, struct error *err)
{
    struct stat status;
    size_t len;
    int r = wholefile_read(a->path[f], max, ret, &len, &status);

    if (r == -ENOENT)
        return r;
    if (r < 0)
        return error_set(err, r, "cannot read %s: %s", a->path[f], strerror(-r));
    if ((f == CA_KEY || f == SEAL_KEY) && status.st_mode & 077)
        return error_set(err, -EPERM,
                         "%s may be read by others: chmod 600 it, and think of who did",
                         a->path[f]);
    return 0;
}

static int absent(const struct authority *a, enum file f, struct error *err)
{
    return error_set(err, -ENOENT, "%s is missing while its other half is there: restore it",
                     a->path[f]);
}

/* The private half is written last, so that a half that was written alone is never a key's. */
static int load_ca(struct authority *a, const char *org, int64_t now_s, struct error *err)
{
    char name[128];
    int key = get(a, CA_KEY, TEXT_MAX, &a->ca.key, err), r;

    if (key < 0 && key != -ENOENT)
        return key;
    if (key == 0) {
        r = get(a, CA_CERT, TEXT_MAX, &a->ca.cert, err);
        return r == -ENOENT ? absent(a, CA_CERT, err) : r;
    }
    snprintf(name, sizeof(name), "Threadtide hub of %s", org);
    r = identity_make_ca(name, now_s, &a->ca, err);
    if (r >= 0)
        r = put(a, CA_CERT, a->ca.cert, 0644, err);
    return r < 0 ? r : put(a, CA_KEY, a->ca.key, 0600, err);
}

static int load_seal(struct authority *a, struct error *err)
{
    int key = get(a, SEAL_KEY, TEXT_MAX, &a->seal_key, err), r;

    if (key < 0 && key != -ENOENT)
        return key;
    if (key == 0) {
        r = seal_public(a->seal_key, &a->seal_public);
        return r < 0 ? error_set(err, r, "%s is no Ed25519 key", a->path[SEAL_KEY]) : 0;
    }
    r = seal_make_key(&a->seal_key, &a->seal_public, err);
    if (r >= 0)
        r = put(a, SEAL_PUBLIC, a->seal_public, 0644, err);
    return r < 0 ? r : put(a, SEAL_KEY, a->seal_key, 0600, err);
}

static int load_units(struct authority *a, struct error *err)
{
    _cleanup_free_ char *text = NULL;
    int r = get(a, UNITS, RECORDS_MAX, &text, err), line = 0;

    if (r == -ENOENT)
        return 0;
    if (r < 0)
        return r;
    for (char *at = text, *next; *at; at = next) {
        struct authority_unit u = {0};
        char state[16] = "";

        next = strchr(at, '\n');
        next = next ? next + 1 : at + strlen(at);
        line++;
        if (sscanf(at, "%63s %32s %15s %" SCNd64, u.name, u.serial, state, &u.time_s) != 4 ||
            a->count == AUTHORITY_UNITS_MAX)
            return error_set(err, -EINVAL, "%s:%d: no record of a certificate", a->path[UNITS],
                             line);
        u.revoked = strcmp(state, "revoked") == 0;
        a->unit[a->count++] = u;
    }
    return 0;
}

static int save_units(const struct authority *a, struct error *err)
{
    _cleanup_free_ char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);

    if (!f)
        return error_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < a->count; i++)
        fprintf(f, "%s %s %s %" PRId64 "\n", a->unit[i].name, a->unit[i].serial,
                a->unit[i].revoked ? "revoked" : "signed", a->unit[i].time_s);
    if (fclose(f) != 0)
        return error_set(err, -ENOMEM, "out of memory");
    return put(a, UNITS, text, 0600, err);
}

static int save_list(struct authority *a, int64_t now_s, struct error *err)
{
    _cleanup_free_ struct identity_revoked *revoked =
        calloc(a->count + 1, sizeof(struct identity_revoked));
    _cleanup_free_ char *list = NULL;
    size_t n = 0;
    int r;

    if (!revoked)
        return error_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < a->count; i++)
        if (a->unit[i].revoked && strcmp(a->unit[i].serial, ADMITTED) != 0) {
            strcpy(revoked[n].serial, a->unit[i].serial);
            revoked[n++].time_s = a->unit[i].time_s;
        }
    r = identity_list_revoked(&a->ca, revoked, n, (uint64_t)now_s, now_s, &list, err);
    if (r >= 0)
        r = put(a, LIST, list, 0644, err);
    return r;
}

/* A list that is as young as the records has all of them; one that is a day old would end later. */
static bool list_is_due(const struct authority *a, int64_t now_s)
{
    struct stat list, units;

    if (stat(a->path[LIST], &list) < 0 || list.st_mtime + LIST_AGAIN_S <= now_s ||
        list.st_mtime > now_s + LIST_AGAIN_S)
        return true;
    return stat(a->path[UNITS], &units) == 0 && (units.st_mtim.tv_sec > list.st_mtim.tv_sec ||
                                                 (units.st_mtim.tv_sec == list.st_mtim.tv_sec &&
                                                  units.st_mtim.tv_nsec > list.st_mtim.tv_nsec));
}

static int set_up(struct authority *a, const char *dir, struct error *err)
{
    a->unit = calloc(AUTHORITY_UNITS_MAX, sizeof(*a->unit));
    a->dir = strdup(dir);
    if (!a->unit || !a->dir)
        return error_set(err, -ENOMEM, "out of memory");
    for (int f = 0; f < FILES; f++)
        if (asprintf(&a->path[f], "%s/%s", dir, names[f]) < 0) {
            a->path[f] = NULL;
            return error_set(err, -ENOMEM, "out of memory");
        }
    return 0;
}

static int load(struct authority *a, const char *dir, const char *org, int64_t now_s,
                struct error *err)
{
    int r;

    if (mkdir(dir, 0700) < 0 && errno != EEXIST)
        return error_set(err, -errno, "cannot make %s: %s", dir, strerror(errno));
    r = set_up(a, dir, err);
    if (r >= 0)
        r = load_ca(a, org, now_s, err);
    if (r >= 0)
        r = load_seal(a, err);
    if (r >= 0)
        r = load_units(a, err);
    return r < 0 || !list_is_due(a, now_s) ? r : save_list(a, now_s, err);
}

int authority_read(const char *dir, struct authority **ret, struct error *err)
{
    struct authority *a = calloc(1, sizeof(*a));
    int r = a ? set_up(a, dir, err) : error_set(err, -ENOMEM, "out of memory");

    if (r >= 0)
        r = load_units(a, err);
    if (r < 0)
        authority_free(a);
    else
        *ret = a;
    return r;
}

int authority_looked(const char *dir, struct stat *ret, struct error *err)
{
    char path[PATH_MAX];

    if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, names[UNITS]) >= sizeof(path))
        return error_set(err, -ENAMETOOLONG, "the path of the authority is too long");
    if (stat(path, ret) == 0)
        return 0;
    *ret = (struct stat){0};
    return errno == ENOENT ? 0 : error_set(err, -errno, "%.160s: %s", path, strerror(errno));
}

int authority_open(const char *dir, const char *org, int64_t now_s, struct authority **ret,
                   struct error *err)
{
    struct authority *a = calloc(1, sizeof(*a));
    int r = a ? load(a, dir, org, now_s, err) : error_set(err, -ENOMEM, "out of memory");

    if (r < 0)
        authority_free(a);
    else
        *ret = a;
    return r;
}

struct authority *authority_free(struct authority *a)
{
    if (!a)
        return NULL;
    for (int f = 0; f < FILES; f++)
        free(a->path[f]);
    free(a->dir);
    identity_pem_done(&a->ca);
    free(a->seal_key);
    free(a->seal_public);
    free(a->unit);
    free(a->newest);
    free(a);
    return NULL;
}

const char *authority_ca(const struct authority *a)
{
    return a->ca.cert;
}

const char *authority_seal_public(const struct authority *a)
{
    return a->seal_public;
}

const char *authority_seal_key(const struct authority *a)
{
    return a->seal_key;
}

const char *authority_ca_path(const struct authority *a)
{
    return a->path[CA_CERT];
}

const char *authority_list_path(const struct authority *a)
{
    return a->path[LIST];
}

size_t authority_units(const struct authority *a, const struct authority_unit **ret)
{
    *ret = a->unit;
    return a->count;
}

/* Sorts by name, the oldest first. */
static int by_name(const void *a, const void *b)
{
    const struct authority_unit *x = *(const struct authority_unit *const *)a;
    const struct authority_unit *y = *(const struct authority_unit *const *)b;
    int order = strcmp(x->name, y->name);

    return order ? order : x < y ? -1 : x > y;
}

size_t authority_newest(struct authority *a, const struct authority_unit **ret)
{
    _cleanup_free_ const struct authority_unit **at = calloc(a->count + 1, sizeof(*at));
    size_t n = 0;

    free(a->newest);
    a->newest = calloc(a->count + 1, sizeof(*a->newest));
    *ret = a->newest;
    if (!at || !a->newest)
        return 0;
    for (size_t i = 0; i < a->count; i++)
        at[i] = &a->unit[i];
    qsort(at, a->count, sizeof(const struct authority_unit *), by_name);
    for (size_t i = 0; i < a->count; i++)
        if (i + 1 == a->count || strcmp(at[i]->name, at[i + 1]->name) != 0)
            a->newest[n++] = *at[i];
    return n;
}

/* ---- certificates ---- */

int authority_compare_name(const void *name, const void *unit)
{
    return strcmp(name, ((const struct authority_unit *)unit)->name);
}

/*
 * Makes room: drops certificates that ended and have a younger one of their name beside them. A
 * revoked one that would be good still stays.
 */
static void drop_ended(struct authority *a, int64_t now_s)
{
    _cleanup_free_ struct authority_unit *kept = calloc(a->count + 1, sizeof(*kept));
    const struct authority_unit *newest;
    size_t n = 0, others = authority_newest(a, &newest);

    if (!kept || (others == 0 && a->count))
        return;
    for (size_t i = 0; i < a->count; i++) {
        const struct authority_unit *u = &a->unit[i];
        bool ended = u->time_s + (IDENTITY_CLIENT_DAYS + 1) * INT64_C(86400) < now_s;
        const struct authority_unit *k =
            ended ? bsearch(u->name, newest, others, sizeof(*newest), authority_compare_name)
                  : NULL;

        if (!ended || (k && k->time_s == u->time_s && strcmp(k->serial, u->serial) == 0))
            kept[n++] = *u;
    }
    memcpy(a->unit, kept, n * sizeof(*kept));
    a->count = n;
}

/* The last record of a name decides: a revocation, or what came after it. */
bool authority_revoked(const struct authority *a, const char *name)
{
    for (size_t i = a->count; i-- > 0;)
        if (strcmp(a->unit[i].name, name) == 0)
            return a->unit[i].revoked;
    return false;
}

static int add(struct authority *a, const char *name, const char *serial, int64_t now_s,
               struct error *err)
{
    struct authority_unit *u;
    int r;

    if (a->count == AUTHORITY_UNITS_MAX)
        drop_ended(a, now_s);
    u = &a->unit[a->count];
    if (a->count == AUTHORITY_UNITS_MAX)
        return error_word(err,
                          error_set(err, -ENOSPC,
                                    "%d certificates are on record: remove ended ones from %s",
                                    AUTHORITY_UNITS_MAX, a->path[UNITS]),
                          "hub-full");
    *u = (struct authority_unit){.time_s = now_s};
    strcpy(u->name, name);
    strcpy(u->serial, serial);
    a->count++;
    r = save_units(a, err);
    if (r < 0)
        a->count--;
    return r;
}

int authority_sign(struct authority *a, const char *request, const char *name, int64_t now_s,
                   char **ret_cert, struct error *err)
{
    char serial[IDENTITY_SERIAL_MAX], address[AREA_BROKER_MAX], host[AREA_BROKER_MAX];
    _cleanup_free_ char *cert = NULL;
    const char *also = NULL;
    int r;

    if (!authority_name_good(name))
        return error_set(
            err, -EINVAL,
            "'%.70s' is no name of a unit: use 1 to 63 of a-z, 0-9 and '-' between them", name);
    if (strcmp(name, AUTHORITY_HUB) == 0)
        return error_set(err, -EINVAL, "%s is the hub's own name: choose another", name);
    if (authority_revoked(a, name))
        return error_set(
            err, -EKEYREVOKED,
            "unit %.70s was revoked: 'tide-hub unit admit %.70s' allows the name again", name,
            name);
    r = area_broker_of_unit(a->dir, name, address);
    if (r < 0 && r != -ENOENT)
        return error_set(err, r, "cannot read %.160s/areas: %s", a->dir, strerror(-r));
    if (r == 0) {
        area_broker_host(address, host);
        also = host;
    }
    r = identity_sign_request(&a->ca, request, name, also, now_s, &cert, serial, err);
    if (r >= 0)
        r = add(a, name, serial, now_s, err); /* on record before anybody has it */
    if (r >= 0)
        *ret_cert = TAKE_PTR(cert);
    return r;
}

int authority_renew(struct authority *a, const char *request, const char *name, int64_t now_s,
                    char **ret_cert, struct error *err)
{
    unsigned recent = 0;

    for (size_t i = a->count; i-- > 0;)
        recent += a->unit[i].time_s > now_s - 86400 && strcmp(a->unit[i].name, name) == 0;
    if (recent >= AUTHORITY_RENEWED_MAX)
        return error_set(err, -EAGAIN, "it had %u certificates within a day", recent);
    return authority_sign(a, request, name, now_s, ret_cert, err);
}

static int make_client(const struct authority *a, const char *name, int64_t from_s,
                       struct identity_pem *ret, struct error *err)
{
    char serial[IDENTITY_SERIAL_MAX];
    _cleanup_free_ char *request = NULL;
    struct identity_pem made = {0};
    int r = identity_request(name, &made.key, &request, err);

    if (r >= 0)
        r = identity_sign_request(&a->ca, request, name, NULL, from_s, &made.cert, serial, err);
    if (r < 0)
        identity_pem_done(&made);
    else
        *ret = made;
    return r;
}

int authority_hub(struct authority *a, int64_t now_s, struct identity_pem *ret, struct error *err)
{
    return make_client(a, AUTHORITY_HUB, now_s, ret, err);
}

int authority_in_name(struct authority *a, const char *name, int64_t now_s,
                      struct identity_pem *ret, struct error *err)
{
    int64_t days = IDENTITY_CLIENT_DAYS * INT64_C(86400);

    return make_client(a, name, now_s - days + IN_NAME_S, ret, err);
}

int authority_issue(struct authority *a, const char *const *hosts, size_t n, int64_t now_s,
                    struct identity_pem *ret, struct error *err)
{
    return identity_issue(&a->ca, hosts, n, now_s, ret, err);
}

int authority_revoke(struct authority *a, const char *name, int64_t now_s, struct error *err)
{
    size_t bytes = a->count * sizeof(a->unit[0]);
    _cleanup_free_ struct authority_unit *before = malloc(bytes ? bytes : 1);
    bool any = false;
    int r;

    if (!before)
        return error_set(err, -ENOMEM, "out of memory");
    memcpy(before, a->unit, bytes);
    for (size_t i = 0; i < a->count; i++)
        if (!a->unit[i].revoked && strcmp(a->unit[i].name, name) == 0) {
            a->unit[i].revoked = true;
            a->unit[i].time_s = now_s;
            any = true;
        }
    if (!any)
        return error_set(err, -ENOENT, "there is no unit %.70s with a certificate", name);
    r = save_units(a, err);
    if (r >= 0)
        r = save_list(a, now_s, err);
    if (r < 0)
        memcpy(a->unit, before, bytes); /* so that the next try writes both files */
    return r;
}

int authority_admit(struct authority *a, const char *name, int64_t now_s, struct error *err)
{
    return authority_revoked(a, name) ? add(a, name, ADMITTED, now_s, err) : 0;
}

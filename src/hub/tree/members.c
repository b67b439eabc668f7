/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Members of the tree: units with a certificate. A revoked unit is gone at once: the broker denies
 * it every topic from its next reload on, and the hub takes none of its messages whatever the
 * broker lets through. mosquitto closes no connection for a new list of revoked certificates; but
 * one client's id has one connection, so the hub connects once in the unit's name, and the unit's
 * own ends.
 */
#include "hub/tree/tree_state.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/wallclock.h"
#include "base/wholefile.h"
#include "hub/trust/area_broker.h"
#include "hub/trust/state.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ERROR_WORD "hub-state"

#define REQUEST_NS (60 * NS_PER_S) /* a unit gets one certificate in so long, … */
#define MACHINE_NS NS_PER_S        /* … and its machines together */
#define CUT_NS     (15 * NS_PER_S) /* until the hub gives up */
#define RELOAD_NS  NS_PER_S /* until the broker has read its lists again: it could come back */
#define AGAIN_NS   (60 * NS_PER_S) /* between two cuts of a unit that is still heard */
#define LIST_MAX   (240 << 10)     /* bytes that a message holds */
#define RETRY_NS   (10 * NS_PER_S) /* after a cut that failed */

#define CUT_CERT "cut.crt" /* in the hub's directory, while it connects in a unit's name */
#define CUT_KEY  "cut.key"

struct members {
    struct authority *records;
    struct stat seen;                    /* the file that they are from */
    const struct authority_unit *newest; /* by name */
    size_t count, revoked;
    struct mqtt *cut;  /* NULL: no unit is cut off now */
    struct unit *unit; /* that one */
    bool done;
    uint64_t until_ns;
    struct stat list, areas, named; /* files of which brokers of areas were told */
    unsigned told;                  /* so many of them, in the order of the file */
    bool all_told;
};

/* ---- the records ---- */

static const struct authority_unit *find(const struct members *m, const char *name)
{
    return m->count ? bsearch(name, m->newest, m->count, sizeof(*m->newest), authority_compare_name)
                    : NULL;
}

bool members_revoked(const struct tree *t, const char *name)
{
    const struct authority_unit *u = t->members->revoked ? find(t->members, name) : NULL;

    return u && u->revoked;
}

/* Whatever it last said holds no more. */
static void silence(struct tree *t, struct unit *u)
{
    if (!u->cut_due_ns) /* whatever it goes on sending puts it off no further */
        u->cut_due_ns = clock_now_ns() + RELOAD_NS;
    if (!u->state.online)
        return;
    u->state.online = false;
    u->since_ms = (int64_t)wallclock_ms();
    tree_say(t, u->name, "unit revoked: what it sends is ignored");
    tree_changed(t, u, TREE_STATE, NULL);
}

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* Commands beside the hub change the records, too: the file says so. */
static int look(struct tree *t, struct error *err)
{
    struct members *m = t->members;
    struct authority *records;
    struct stat now = {0};
    char path[PATH_MAX];
    int r;

    if ((size_t)snprintf(path, sizeof(path), "%s/trust", t->options.state) >= sizeof(path))
        return error_set(err, -ENAMETOOLONG, "the path of the state is too long");
    r = authority_looked(path, &now, err);
    if (r < 0 || (m->records && same_file(&now, &m->seen)))
        return r;
    r = authority_read(path, &records, err);
    if (r < 0)
        return r;
    authority_free(m->records);
    m->records = records;
    m->seen = now;
    m->count = authority_newest(records, &m->newest);
    m->revoked = 0;
    for (size_t i = 0; i < m->count; i++)
        m->revoked += m->newest[i].revoked;
    for (size_t i = 0; i < units_count(t->units); i++) {
        struct unit *u = units_change(t->units, i);
        bool revoked = members_revoked(t, u->name);

        if (!revoked)
            u->cut_due_ns = 0;
        else if (!u->revoked)
            silence(t, u);
        u->revoked = revoked;
    }
    return 0;
}

/* ---- a revoked unit is cut off ---- */

bool members_refuse(struct tree *t, struct unit *u)
{
    uint64_t now = clock_now_ns();

    if (!members_revoked(t, u->name))
        return false;
    u->revoked = true;
    if (!u->cut_ns || now - u->cut_ns > AGAIN_NS)
        silence(t, u);
    return true;
}

static void on_up(void *arg, const char *problem)
{
    struct tree *t = arg;

    t->members->done = !problem;
}

static void on_got(void *arg, const struct mqtt_message *message)
{
}

static int write_pem(struct tree *t, const char *name, struct state *ret, char cert[PATH_MAX],
                     char key[PATH_MAX], struct error *err)
{
    struct identity_pem pem = {0};
    int r = authority_in_name(ret->authority, name, time(NULL), &pem, err);

    if (r >= 0)
        r = state_put(ret, CUT_KEY, pem.key, err);
    if (r >= 0)
        r = state_put(ret, CUT_CERT, pem.cert, err);
    if (r >= 0)
        r = state_path(ret, CUT_KEY, key, PATH_MAX, err);
    if (r >= 0)
        r = state_path(ret, CUT_CERT, cert, PATH_MAX, err);
    identity_pem_done(&pem);
    return r;
}

/* Also what a hub that was killed meanwhile has left: a key in a unit's name. */
static void end_cut(struct tree *t)
{
    static const char *const names[] = {CUT_CERT, CUT_KEY};
    struct members *m = t->members;
    char path[PATH_MAX];

    m->cut = mqtt_free(m->cut);
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if ((size_t)snprintf(path, sizeof(path), "%s/%s", t->options.state, names[i]) <
            sizeof(path))
            unlink(path);
}

static void fail_cut(struct tree *t, struct unit *u, const char *why)
{
    tree_say(t, u->name,
             "is revoked, and its connection may be open still: %s; the hub tries again" ERROR_WHY,
             why);
    end_cut(t);
    u->cut_due_ns = clock_now_ns() + RETRY_NS;
}

static void begin_cut(struct tree *t, struct unit *u)
{
    const struct tree_options *o = &t->options;
    struct members *m = t->members;
    char cert[PATH_MAX], key[PATH_MAX];
    struct error err = {0};
    struct state state;
    int r = state_open(o->state, &state, &err);

    u->cut_due_ns = 0;
    u->cut_ns = clock_now_ns();
    if (r >= 0) {
        r = write_pem(t, u->name, &state, cert, key, &err);
        state_close(&state);
    }
    if (r >= 0)
        r = mqtt_new(o->event,
                     &(struct mqtt_options){.host = o->host,
                                            .port = o->port,
                                            .ca = o->ca,
                                            .cert = cert,
                                            .key = key,
                                            .name = u->name,
                                            .up = on_up,
                                            .got = on_got,
                                            .arg = t},
                     &m->cut, &err);
    if (r < 0) {
        fail_cut(t, u, err.text);
        return;
    }
    m->unit = u;
    m->done = false;
    m->until_ns = u->cut_ns + CUT_NS;
}

/* ---- brokers of areas ---- */

struct telling {
    struct tree *tree;
    const char *list;
    unsigned unit; /* counts them */
};

/* Retained: a unit that connects later learns it, too. */
static void tell_broker(void *arg, const char *unit, const char *revoked)
{
    struct telling *telling = arg;
    struct members *m = telling->tree->members;
    _cleanup_free_ char *text = NULL;
    char topic[TOPIC_MAX];
    int id;

    if (telling->unit++ != m->told) /* told already, or one before it could not be */
        return;
    if (asprintf(&text, "%s\n%s", revoked, telling->list) < 0)
        text = NULL;
    m->told += text && mqtt_publish(telling->tree->mqtt, topic_make(unit, TOPIC_REVOKED, topic),
                                    text, strlen(text), 1, true, 0, &id) >= 0;
}

/* Units with a broker of their own learn which certificates are revoked, and that the list is
 * young. */
static void tell_brokers(struct tree *t)
{
    _cleanup_free_ char *list = NULL;
    struct members *m = t->members;
    struct telling telling = {.tree = t};
    char trust[PATH_MAX], path[PATH_MAX];
    struct stat list_now, areas_now;
    struct error err = {0};
    size_t len;
    int r;

    if ((size_t)snprintf(trust, sizeof(trust), "%s/trust", t->options.state) >= sizeof(trust) ||
        (size_t)snprintf(path, sizeof(path), "%s/revoked.crl", trust) >= sizeof(path) ||
        stat(path, &list_now) < 0)
        return;
    area_broker_looked(trust, &areas_now);
    if (!areas_now.st_ino)
        return;
    if (!same_file(&list_now, &m->list) || !same_file(&areas_now, &m->areas) ||
        !same_file(&m->seen, &m->named))
        members_again(t);
    else if (m->all_told)
        return;
    m->list = list_now;
    m->areas = areas_now;
    m->named = m->seen;
    r = wholefile_read(path, LIST_MAX, &list, &len, &list_now);
    if (r < 0) {
        tree_say(t, NULL, "units' brokers are not told who is revoked: %s: %s (tide why hub-state)",
                 path, strerror(-r));
        return;
    }
    telling.list = list;
    if (area_broker_each(trust, m->records, tell_broker, &telling, &err) < 0)
        tree_say(t, NULL, "%s", error_said(&err));
    m->all_told = m->told == telling.unit;
}

void members_again(struct tree *t)
{
    t->members->told = 0;
    t->members->all_told = false;
}

/* ---- time ---- */

/* One unit at a time is cut off. */
void members_tick(struct tree *t)
{
    struct members *m = t->members;
    struct error err = {0};

    if (m->cut && m->done) {
        tree_say(t, m->unit->name, "is revoked: its connection is cut");
        end_cut(t);
    } else if (m->cut && clock_now_ns() > m->until_ns) {
        fail_cut(t, m->unit, "no answer");
    }
    for (size_t i = 0; !m->cut && m->revoked && t->options.cert && i < units_count(t->units); i++) {
        struct unit *u = units_change(t->units, i);

        if (u->revoked && u->cut_due_ns && clock_now_ns() >= u->cut_due_ns)
            begin_cut(t, u);
    }
    if (look(t, &err) < 0)
        tree_say(t, NULL, "%s", error_said(&err));
    else
        tell_brokers(t);
}

/* ---- certificates ---- */

/* "NAME" before the request of a machine that speaks through the unit's own broker. */
static int take_machine(const struct tree *t, const struct unit *u, char **request,
                        const char **ret_name, struct error *err)
{
    char trust[PATH_MAX], unit[EDGE_NAME_MAX];

    *ret_name = u->name;
    if (**request == '-')
        return 0;
    *ret_name = strsep(request, "\n");
    snprintf(trust, sizeof(trust), "%.4000s/trust", t->options.state);
    if (!*request || !edge_name_valid(*ret_name) ||
        area_broker_of_machine(trust, *ret_name, unit) < 0 || strcmp(unit, u->name) != 0)
        return error_set(err, -EACCES, "it asks for a machine that was not enrolled below it");
    return 0;
}

static int sign(struct tree *t, const char *name, const char *request, char **ret,
                struct error *err)
{
    struct state state;
    int r = state_open(t->options.state, &state, err);

    if (r < 0)
        return r;
    r = authority_renew(state.authority, request, name, time(NULL), ret, err);
    state_close(&state);
    return r;
}

/*
 * The hub's broker has proved the unit's name by the certificate that it still has, and the unit's
 * own broker a machine's. The unit gets its machines' certificates with the name before them.
 */
void members_request(struct tree *t, struct unit *u, const void *bytes, size_t len)
{
    _cleanup_free_ char *text = strndup(bytes, len), *cert = NULL, *told = NULL;
    char *request = text, topic[TOPIC_MAX];
    uint64_t now = clock_now_ns(), *asked;
    struct error err = {0};
    const char *name;
    int id, r;

    asked = request && *request == '-' ? &u->asked_ns : &u->machines_asked_ns;
    if (!request || (*asked && now - *asked < (asked == &u->asked_ns ? REQUEST_NS : MACHINE_NS)))
        return;
    *asked = now;
    r = take_machine(t, u, &request, &name, &err);
    if (r == 0)
        r = sign(t, name, request, &cert, &err);
    if (r == 0 && asprintf(&told, "%s%s%s", name == u->name ? "" : name,
                           name == u->name ? "" : "\n", cert) < 0) {
        told = NULL;
        r = error_set(&err, -ENOMEM, "out of memory");
    }
    if (r == 0 && mqtt_publish(t->mqtt, topic_make(u->name, TOPIC_CERTIFICATE, topic), told,
                               strlen(told), 1, false, 0, &id) < 0)
        r = error_word(&err,
                       error_set(&err, -EAGAIN, "the broker does not take it: the unit asks again"),
                       "broker-refused");
    if (r < 0)
        tree_say(t, u->name, "no new certificate: %s", error_said(&err));
    else
        tree_say(t, name, "has a new certificate");
}

static int change(struct tree *t, const char *name, bool revoke, struct error *err)
{
    struct state state;
    int r = state_open(t->options.state, &state, err);

    if (r < 0)
        return r;
    r = revoke ? authority_revoke(state.authority, name, time(NULL), err)
               : authority_admit(state.authority, name, time(NULL), err);
    if (r >= 0)
        r = state_tell_broker(&state, err);
    state_close(&state);
    return r < 0 ? r : look(t, err);
}

int tree_revoke(struct tree *t, const char *name, struct error *err)
{
    return change(t, name, true, err);
}

int tree_admit(struct tree *t, const char *name, struct error *err)
{
    return change(t, name, false, err);
}

int tree_certificates(struct tree *t,
                      void (*each)(void *arg, const char *name, int64_t until_ms, bool revoked),
                      void *arg, struct error *err)
{
    const struct members *m = t->members;
    int r = look(t, err);

    for (size_t i = 0; r == 0 && i < m->count; i++)
        each(arg, m->newest[i].name,
             (m->newest[i].time_s + IDENTITY_CLIENT_DAYS * INT64_C(86400)) * 1000,
             m->newest[i].revoked);
    return r;
}

/* ---- begin and end ---- */

int members_begin(struct tree *t, struct error *err)
{
    t->members = calloc(1, sizeof(*t->members));
    if (!t->members)
        return error_set(err, -ENOMEM, "out of memory");
    end_cut(t);
    return look(t, err);
}

void members_end(struct tree *t)
{
    if (!t->members)
        return;
    if (t->members->cut)
        end_cut(t);
    authority_free(t->members->records);
    free(t->members);
    t->members = NULL;
}

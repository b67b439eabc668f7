/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hub that is an area of another one, as a faculty's is of its university's. Upwards it is a
 * unit: it sends the energy of all its areas, what they draw and would do with watts, how many jobs
 * have fewer cores, asks for a lease, and takes the policy of the hub above. Their caps bound its
 * own by minimum.
 */
#include "hub/tree/tree_state.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/minmax.h"
#include "base/muldiv.h"
#include "base/wallclock.h"
#include "base/wholefile.h"
#include "edge/parent.h"
#include "edge/renew.h"
#include "edge/sealed.h"
#include "edge/shrunk.h"
#include "edge/uplink.h"
#include "power/cap/caps.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#define ERROR_WORD "hub-above"

#define PORT         8883
#define OUTBOX_BYTES (64 << 20)
#define MINUTE_MS    60000
#define QUARTER_MS   900000
#define ASK_MS       10000  /* so often the store is asked for what is new */
#define SETTLE_MS    30000  /* so long behind a minute units have told what they used in it */
#define SILENT_MS    180000 /* nobody told anything for so long: it is unknown */
#define FIRST_MS     1000   /* the length of the first record, in which nothing is known */
#define POINT        "area"
#define DAY_S        86400

struct above {
    struct tree *tree;
    struct uplink *uplink;
    struct parent *parent;
    struct renew *renew; /* its certificate there */
    struct outbox *outbox;
    struct bundle *policy; /* of the hub above; NULL: none */
    char *seal;            /* PEM */
    char name[EDGE_NAME_MAX], host[256];
    uint16_t port;
    char ca[PATH_MAX], cert[PATH_MAX], key[PATH_MAX], stored[PATH_MAX];
    bool low;         /* said that the lease is below our floors */
    uint64_t batch;   /* the number of the store's news that were told last; 0: none */
    int64_t told_ms;  /* up to when all is told that had come in until then */
    int64_t asked_ms; /* when the store was last asked; 0: never */
    int64_t deaf_ms;  /* the last moment at which units could not tell anything */
    bool more;        /* the last batch was not all */
    bool unwritten;   /* said that the outbox cannot be written */
    struct energy_range total;
    struct store_news news[STORE_NEWS_MAX];
    struct payload_shrunk shrunk; /* of all units, in one row */
    struct shrunk_told shrunk_told;
};

/* ---- energy ---- */

static void put_record(struct above *a, int64_t from_ms, int64_t to_ms,
                       const struct energy_range *more, int64_t gap_ms)
{
    struct outbox_record r = {.point = POINT,
                              .from_ms = (uint64_t)from_ms,
                              .to_ms = (uint64_t)to_ms,
                              .mono_ns = clock_now_ns(),
                              .raw_uj = a->batch,
                              .gap_ms = (uint32_t)gap_ms};

    a->total.uj += more->uj;
    a->total.low_uj += more->low_uj;
    a->total.high_uj += more->high_uj;
    a->total.basis = more->basis;
    r.total = a->total;
    outbox_put(a->outbox, &r);
}

/* Energy that came late stands in the time in which it was used. */
static void tell_news(struct above *a, const struct store_news *n)
{
    bool late = n->to_ms <= a->told_ms;
    int64_t lasted_ms = late && n->to_ms % QUARTER_MS == 0 ? QUARTER_MS : MINUTE_MS;
    int64_t gap_ms = n->gap_ms < (uint64_t)lasted_ms ? (int64_t)n->gap_ms : lasted_ms;

    put_record(a, n->to_ms - lasted_ms, n->to_ms, &n->energy, gap_ms);
    if (!late)
        a->told_ms = n->to_ms;
}

/*
 * Silence says nothing as long as units' records may be on the way. The hub above takes the time
 * since the last record for a gap, too.
 */
static void tell_silence(struct above *a, int64_t now_ms, int64_t upto_ms)
{
    int64_t since_ms = a->told_ms > a->deaf_ms ? a->told_ms : a->deaf_ms;

    if (now_ms - since_ms < SILENT_MS)
        return;
    put_record(a, upto_ms - MINUTE_MS, upto_ms, &(struct energy_range){0}, MINUTE_MS);
    a->told_ms = upto_ms;
}

static bool write_records(struct above *a)
{
    struct error err = {0};
    bool written = outbox_flush(a->outbox, &err) >= 0;

    if (!written && !a->unwritten)
        tree_say(a->tree, NULL, "hub above: %s; records stay in memory" ERROR_WHY, err.text);
    a->unwritten = !written;
    return written;
}

/* A store that cannot say keeps it for the next time; it says itself what is wrong. */
static void count_energy(struct above *a)
{
    int64_t now = (int64_t)wallclock_ms(), upto = (now - SETTLE_MS) / MINUTE_MS * MINUTE_MS;
    struct store *store = a->tree->options.store;
    uint64_t batch = 0;
    size_t n = 0;

    if (!a->more && now >= a->asked_ms && now - a->asked_ms < ASK_MS)
        return;
    a->asked_ms = now;
    if (a->told_ms > now || a->deaf_ms > now) /* somebody has set the clock back */
        a->told_ms = a->deaf_ms = upto;
    if (!mqtt_connected(a->tree->mqtt))
        a->deaf_ms = now;
    if (a->unwritten && !write_records(a))
        return;
    if (store_news(store, a->batch, upto, a->news, &n, &batch, NULL) < 0) {
        a->deaf_ms = now;
        return;
    }
    a->more = n == STORE_NEWS_MAX;
    a->batch = n ? batch : a->batch;
    for (size_t i = 0; i < n; i++)
        tell_news(a, &a->news[i]);
    if (!a->more)
        tell_silence(a, now, upto);
    store_told(store, a->told_ms);
    write_records(a);
}

/* Energy from before the first start of all is no news, and the first record notes it so. */
static void load_total(struct above *a)
{
    int64_t now = (int64_t)wallclock_ms();
    struct outbox_record last;

    a->told_ms = a->deaf_ms = now;
    if (outbox_last(a->outbox, POINT, &last) == 0) {
        a->total = last.total;
        a->batch = last.raw_uj;
        a->told_ms = (int64_t)last.to_ms;
    } else {
        put_record(a, now - FIRST_MS, now, &(struct energy_range){0}, FIRST_MS);
    }
    store_told(a->tree->options.store, a->told_ms);
}

/* ---- what all areas draw ---- */

/* Units within another one's area are in that one's draw, as in its energy. */
static struct power_range draw_of_all(const struct tree *t)
{
    struct power_range sum = {.basis = POWER_UNKNOWN};
    int64_t now = (int64_t)wallclock_ms();

    for (size_t i = 0; i < units_count(t->units); i++) {
        const struct unit *u = units_at(t->units, i);
        struct power_range p = unit_draw(u, now);

        if (t->policy.number && !u->topmost)
            continue;
        if (p.basis == POWER_UNKNOWN) /* a part of it is nothing that could be told */
            return p;
        sum.uw += p.uw;
        sum.low_uw += p.low_uw;
        sum.high_uw += p.high_uw;
        sum.basis = sum.basis == POWER_UNKNOWN || p.basis < sum.basis ? p.basis : sum.basis;
    }
    return sum;
}

/* ---- who was shrunk ---- */

/* In one row, as energy is one point: jobs and their users are told to this hub alone. */
static void count_shrunk(struct above *a)
{
    struct payload_shrunk_node *sum = &a->shrunk.node[0];
    const struct units *units = a->tree->units;
    int64_t now = (int64_t)wallclock_ms();

    *sum = (struct payload_shrunk_node){0};
    strcpy(sum->name, a->name);
    for (size_t i = 0; i < units_count(units); i++) {
        const struct unit *u = units_at(units, i);
        const struct payload_shrunk *told = *u->area ? unit_shrunk(u, now) : NULL;

        if (told)
            shrunk_add(sum, told);
    }
    a->shrunk.nodes = sum->jobs > 0;
}

/* ---- the policy of the hub above ---- */

static int open_policy(struct above *a, const void *bytes, size_t len, struct error *err)
{
    struct bundle *b;
    const char *text;
    size_t text_len;
    int r = sealed_open(a->seal, SEALED_POLICY, a->name, bytes, len, &text, &text_len);

    if (r < 0)
        return error_set(err, r,
                         "the seal is not that of the hub above, or it is for another unit or use");
    r = bundle_read(text, text_len, NULL, &b, err);
    if (r < 0)
        return r;
    if (a->policy && b->number <= a->policy->number) {
        r = b->number == a->policy->number
                ? 0
                : error_set(err, -ESTALE, "number %" PRIu64 " is older than %" PRIu64, b->number,
                            a->policy->number);
        bundle_free(b);
        return r;
    }
    bundle_free(a->policy);
    a->policy = b;
    if (bundle_zones(b, err) < 0)
        tree_say(a->tree, NULL, "policy of the hub above: %s" ERROR_WHY, err->text);
    return 1;
}

static void got_policy(struct above *a, const void *bytes, size_t len)
{
    struct stat status = {.st_mode = 0600, .st_uid = geteuid(), .st_gid = getegid()};
    struct error err = {0};
    int r = open_policy(a, bytes, len, &err);

    if (r < 0)
        tree_say(a->tree, NULL, "the policy of the hub above is refused: %s" ERROR_WHY, err.text);
    if (r <= 0)
        return;
    tree_say(a->tree, NULL, "policy %" PRIu64 " of the hub above for %s", a->policy->number,
             a->policy->area);
    a->tree->caps_due_ms = 0; /* its budget may be another one */
    r = wholefile_replace(a->stored, bytes, len, &status);
    if (r < 0)
        tree_say(a->tree, NULL, "cannot write %s: %s" ERROR_WHY, a->stored, strerror(-r));
}

static void load_policy(struct above *a)
{
    _cleanup_free_ char *bytes = NULL;
    struct error err = {0};
    struct stat status;
    size_t len;

    if (wholefile_read(a->stored, SEALED_BYTES_MAX, &bytes, &len, &status) == 0 &&
        open_policy(a, bytes, len, &err) < 0)
        tree_say(a->tree, NULL, "%s: %s" ERROR_WHY, a->stored, err.text);
}

/*
 * The budget of all that is below this hub, as the hub above says it; false: there is none. One
 * that is shared with other units is kept by the leases from above; without these, our part counts.
 */
bool above_budget(const struct tree *t, const struct rule_now *now, struct rule_view *ret)
{
    const struct above *a = t->above;
    const struct bundle *b = a ? a->policy : NULL;
    uint64_t lease_uw, floor_uj = mul_div(lending_floor(t->lending), DAY_S, 1);
    uint32_t kind;

    if (!b || now->utc_s * 1000 >= (int64_t)b->valid_until_ms)
        return false;
    rules_view(&b->set, b->area, now, ret);
    ret->floor_uw = lending_floor(t->lending);
    if (parent_cap(a->parent, &lease_uw, &kind))
        return ret->budget_by != RULE_NONE;
    for (uint32_t i = rules_next(&b->set, b->area, now, RULE_BUDGET, 0); i != RULE_NONE;
         i = rules_next(&b->set, b->area, now, RULE_BUDGET, i + 1)) {
        uint64_t part = add_sat(b->set.rule[i].alone, floor_uj);

        if (b->set.rule[i].alone && part < ret->budget_uj)
            ret->budget_uj = part;
    }
    return ret->budget_by != RULE_NONE;
}

const struct bundle *above_policy(const struct tree *t)
{
    return t->above ? t->above->policy : NULL;
}

/* A lease that is below our floors is never acknowledged, and cannot be kept. */
static void complain_of_floor(struct above *a, uint64_t lease_uw)
{
    uint64_t floor_uw = lending_floor(a->tree->lending);
    char have[AMOUNT_TEXT_MAX], need[AMOUNT_TEXT_MAX];
    bool low = lease_uw < floor_uw;

    if (low && !a->low) {
        amount_power_text(lease_uw, have);
        amount_power_text(floor_uw, need);
        tree_say(a->tree, NULL,
                 "the hub above lends %s, less than the floors of this hub's areas, %s: its policy "
                 "has to promise this hub as much as a floor" ERROR_WHY,
                 have, need);
    }
    a->low = low;
}

/* The cap of the policy of the hub above; after its end a breaker falls to the floor. */
static uint64_t policy_cap(const struct above *a, uint32_t *ret_kind)
{
    const struct bundle *b = a->policy;
    struct rule_now now = tree_now(a->tree);
    uint64_t least = lending_floor(a->tree->lending);
    struct rule_view v;

    *ret_kind = CAP_ADVICE;
    if (!b)
        return DEMAND_MAX;
    rules_view(&b->set, b->area, &now, &v);
    if ((int64_t)wallclock_ms() < (int64_t)b->valid_until_ms) {
        *ret_kind = v.kind;
        return smaller_u64(v.cap_uw, DEMAND_MAX);
    }
    if (!rules_have_breaker(&b->set, b->area))
        return DEMAND_MAX;
    *ret_kind = CAP_BREAKER;
    return larger_u64(v.floor_uw, least);
}

/* The cap that lease and policy of the hub above leave this one, and the strictest kind of both. */
static void bound(struct above *a)
{
    uint32_t kind, lease_kind;
    uint64_t cap = policy_cap(a, &kind), lease_uw;
    struct tree *t = a->tree;

    if (parent_cap(a->parent, &lease_uw, &lease_kind)) {
        complain_of_floor(a, lease_uw);
        cap = smaller_u64(cap, lease_uw);
        kind = lease_kind < kind ? lease_kind : kind;
    }
    if (cap == t->parent_cap_uw && kind == t->parent_kind)
        return;
    t->parent_cap_uw = cap;
    t->parent_kind = kind;
    caps_look(t);
}

/* ---- the connection ---- */

static int send_up(void *arg, enum topic_leaf leaf, char *text)
{
    struct above *a = arg;

    return uplink_send(a->uplink, leaf, text);
}

static void on_say(void *arg, const char *text)
{
    struct above *a = arg;

    tree_say(a->tree, NULL, "hub above: %s", text);
}

static void on_got(void *arg, enum topic_leaf leaf, const struct mqtt_message *m)
{
    struct above *a = arg;

    if (leaf == TOPIC_LEASE)
        parent_got(a->parent, m);
    else if (leaf == TOPIC_CERTIFICATE)
        renew_got(a->renew, m);
    else if (leaf == TOPIC_POLICY && m->len)
        got_policy(a, m->bytes, m->len);
}

static void fill_state(void *arg, struct payload_state *ret)
{
    const struct above *a = arg;

    ret->policy = a->policy ? a->policy->number : 0;
    if (a->tree->parent_cap_uw < DEMAND_MAX)
        ret->cap_uw = a->tree->parent_cap_uw;
}

void above_tick(struct tree *t)
{
    struct above *a = t->above;
    struct payload_demand demand;
    struct error err = {0};

    if (!a)
        return;
    if (renew_tick(a->renew, uplink_connected(a->uplink), clock_now_ns()) &&
        uplink_renew(a->uplink, &err) < 0)
        tree_say(t, NULL, "hub above: %s; the present connection goes on" ERROR_WHY, err.text);
    count_energy(a);
    bound(a);
    parent_tick(a->parent, lending_sum(t->lending));
    demand = (struct payload_demand){.demand = *lending_demand(t->lending),
                                     .floor_uw = lending_floor(t->lending),
                                     .draw = draw_of_all(t)};
    uplink_tick(a->uplink, &demand, clock_now_ns());
    count_shrunk(a);
    shrunk_tell(&a->shrunk_told, &a->shrunk, clock_now_ns(), send_up, a);
}

/* ---- begin and end ---- */

static int set_paths(struct above *a, const struct tree_options *o, struct error *err)
{
    static const char *const names[] = {"ca.crt", "unit.crt", "unit.key", "policy"};
    char *const paths[] = {a->ca, a->cert, a->key, a->stored};
    const char *colon = strrchr(o->parent, ':');
    int host = colon ? (int)(colon - o->parent) : (int)strlen(o->parent);
    unsigned long port = colon ? strtoul(colon + 1, NULL, 10) : PORT;

    if (host == 0 || host > 255 || port < 1 || port > 65535)
        return error_set(err, -EINVAL, "parent '%.100s': use HOST or HOST:PORT", o->parent);
    if (!o->parent_name || !edge_name_valid(o->parent_name))
        return error_set(err, -EINVAL,
                         "'parent-name' is missing: the name of the certificate in 'parent-files'");
    snprintf(a->host, sizeof(a->host), "%.*s", host, o->parent);
    a->port = (uint16_t)port;
    strcpy(a->name, o->parent_name);
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if ((size_t)snprintf(paths[i], PATH_MAX, "%s/%s", o->parent_files, names[i]) >= PATH_MAX)
            return error_set(err, -ENAMETOOLONG, "'parent-files' is too long");
    return 0;
}

static int read_seal(struct above *a, const char *dir, struct error *err)
{
    char path[PATH_MAX];
    struct stat status;
    size_t len;
    int r;

    if ((size_t)snprintf(path, sizeof(path), "%s/hub-seal.pub", dir) >= sizeof(path))
        return error_set(err, -ENAMETOOLONG, "'parent-files' is too long");
    r = wholefile_read(path, 4096, &a->seal, &len, &status);
    return r < 0 ? error_set(err, r, "%s: %s: 'tide-power enrol … --state DIR' writes it", path,
                             strerror(-r))
                 : 0;
}

static int open_files(struct above *a, const struct tree_options *o, struct error *err)
{
    char outbox[PATH_MAX], tenure[PATH_MAX];
    uint64_t boot;
    int r;

    if (getrandom(&boot, sizeof(boot), 0) != sizeof(boot))
        return error_set(err, -EIO, "no random numbers");
    if ((size_t)snprintf(outbox, PATH_MAX, "%s/outbox.db", o->parent_files) >= PATH_MAX ||
        (size_t)snprintf(tenure, PATH_MAX, "%s/tenure", o->parent_files) >= PATH_MAX)
        return error_set(err, -ENAMETOOLONG, "'parent-files' is too long");
    r = outbox_open(outbox, OUTBOX_BYTES, boot >> 1 | 1, &a->outbox, err);
    if (r > 0)
        tree_say(a->tree, NULL, "%s", error_said(err));
    return r < 0 ? r : parent_new(tenure, send_up, on_say, a, &a->parent, err);
}

int above_begin(struct tree *t, struct error *err)
{
    const struct tree_options *o = &t->options;
    struct above *a;
    int r;

    if (!o->parent || !*o->parent)
        return 0;
    a = t->above = calloc(1, sizeof(*a));
    if (!a)
        return error_set(err, -ENOMEM, "out of memory");
    a->tree = t;
    r = set_paths(a, o, err);
    if (r >= 0)
        r = read_seal(a, o->parent_files, err);
    if (r >= 0)
        r = open_files(a, o, err);
    if (r < 0)
        return r;
    r = renew_new(&(struct renew_place){a->name, a->ca, a->cert, a->key},
                  &(struct renew_hooks){send_up, on_say, a}, &a->renew, err);
    if (r < 0)
        return r;
    load_total(a);
    load_policy(a);
    t->has_parent = true;
    return uplink_new(o->event,
                      &(struct uplink_place){.name = a->name,
                                             .role = "hub",
                                             .host = a->host,
                                             .port = a->port,
                                             .ca = a->ca,
                                             .cert = a->cert,
                                             .key = a->key},
                      a->outbox,
                      &(struct uplink_hooks){.got = on_got,
                                             .state = fill_state,
                                             .say = on_say,
                                             .arg = a,
                                             .lease = true,
                                             .sealed = true},
                      &a->uplink, err);
}

void above_end(struct tree *t)
{
    struct above *a = t->above;

    if (!a)
        return;
    uplink_free(a->uplink);
    parent_free(a->parent);
    renew_free(a->renew);
    outbox_close(a->outbox);
    bundle_free(a->policy);
    free(a->seal);
    free(a);
    t->above = NULL;
}

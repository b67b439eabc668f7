/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/area/children.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/wholefile.h"
#include "edge/payload.h"
#include "edge/topic.h"
#include "power/division/divide.h"
#include "power/division/lease.h"
#include "unit/log.h"

#define BOOK_HEAD     "threadtide leases 1"
#define BOOK_MAX      (64 * 1024)
#define BOOK_LINE_MAX 128
#define TWINS_NS      (60 * NS_PER_S) /* a boot that comes back so soon is another process's */
#define COMPLAIN_NS   (60 * NS_PER_S) /* about names that are not ours */
#define DEMAND_OLD_NS (60 * NS_PER_S) /* an older demand is nobody's */

/* What a child told, beside its row in the book. */
struct child {
    const struct child_config *config;
    struct demand demand;
    uint64_t demand_ns; /* 0: none */
    uint64_t boot_before, boot_changed_ns, twins_ns;
};

struct children {
    struct mqtt *broker; /* borrowed */
    struct child *child;
    struct lease_book book;
    struct divide_child *part;
    uint64_t *want_uw;
    void *scratch;
    uint64_t stored; /* the book's counter that is on the disk */
    uint64_t complained_ns;
    bool unstored; /* said that the book cannot be written */
    char path[CONFIG_PATH_MAX + 16];
};

/* Goes on while the machine sleeps, as the children's does. */
static uint64_t boot_now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_BOOTTIME, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

/* ---- the book on the disk -------------------------------------------------------------------- */

static int store(struct children *c)
{
    size_t size = BOOK_LINE_MAX * ((size_t)c->book.count + 2), n;
    _cleanup_free_ char *text = malloc(size);
    int r;

    if (!text)
        return -ENOMEM;
    n = (size_t)snprintf(text, size, "%s %" PRIu64 " %d\n", BOOK_HEAD, c->book.counter,
                         c->book.silent_until_ns != 0);
    for (uint32_t i = 0; i < c->book.count; i++) {
        const struct lease *l = &c->book.lease[i];

        n += (size_t)snprintf(text + n, size - n, "%s %" PRIu64 " %" PRIu64 " %" PRIu64 "\n",
                              c->child[i].config->name, l->number, l->offer_uw, l->given_uw);
    }
    r = wholefile_replace(c->path, text, n, NULL);
    if (r == 0)
        c->stored = c->book.counter;
    return r;
}

static bool load_child(struct children *c, const char *line)
{
    uint64_t number, offer, given;
    char name[EDGE_NAME_MAX];

    if (sscanf(line, "%63s %" SCNu64 " %" SCNu64 " %" SCNu64, name, &number, &offer, &given) != 4)
        return false;
    for (uint32_t i = 0; i < c->book.count; i++)
        if (strcmp(c->child[i].config->name, name) == 0) {
            c->book.lease[i].number = c->book.lease[i].acked = number;
            c->book.lease[i].offer_uw = offer;
            c->book.lease[i].given_uw = given;
            return true;
        }
    return offer == 0 && given == 0; /* a lease of a child that is gone is still in force */
}

/* Returns whether the whole book is known. */
static bool load(struct children *c)
{
    _cleanup_free_ char *text = NULL;
    struct stat status;
    bool known = true;
    int silent = 0;
    size_t len;
    char *next;

    if (wholefile_read(c->path, BOOK_MAX, &text, &len, &status) < 0)
        return false;
    next = text;
    if (sscanf(strsep(&next, "\n"), BOOK_HEAD " %" SCNu64 " %d", &c->book.counter, &silent) != 2)
        return false;
    c->book.silent_until_ns = silent != 0;
    while (next && *next)
        known &= load_child(c, strsep(&next, "\n"));
    return known;
}

/* ---- messages -------------------------------------------------------------------------------- */

static struct child *find(struct children *c, const char *name, uint32_t *ret_i)
{
    uint64_t now = clock_now_ns();

    for (uint32_t i = 0; i < c->book.count; i++)
        if (strcmp(c->child[i].config->name, name) == 0) {
            *ret_i = i;
            return &c->child[i];
        }
    if (!c->complained_ns || now - c->complained_ns > COMPLAIN_NS)
        unit_log(
            "'%s' asks for a lease and is no child of this unit: it needs a section [child %s]",
            name, name);
    c->complained_ns = now;
    return NULL;
}

/* Two processes of one name ask in turns: nobody knows which of them obeys, so neither gets more.
 */
static bool is_one_of_twins(struct child *k, uint64_t boot, uint64_t known, uint64_t now_ns)
{
    if (known && boot != known) {
        if (boot == k->boot_before && now_ns - k->boot_changed_ns < TWINS_NS) {
            if (!k->twins_ns)
                unit_log(
                    "two programs say that they are %s; neither gets a lease until one is gone",
                    k->config->name);
            k->twins_ns = now_ns;
        }
        k->boot_before = known;
        k->boot_changed_ns = now_ns;
    }
    if (k->twins_ns && now_ns - k->twins_ns >= TWINS_NS)
        k->twins_ns = 0;
    return k->twins_ns != 0;
}

static void take_ask(struct children *c, struct child *k, uint32_t i, const struct mqtt_message *m)
{
    struct payload_ask ask;
    struct error err;
    uint64_t now = boot_now_ns();

    if (payload_ask_read(m->bytes, m->len, &ask, &err) < 0)
        unit_log("%s: %s", k->config->name, err.text);
    else if (!is_one_of_twins(k, ask.boot, c->book.lease[i].boot, now))
        lease_ask(&c->book, i, ask.boot, ask.stamp_ns, now);
}

static void take_ack(struct children *c, struct child *k, uint32_t i, const struct mqtt_message *m)
{
    struct payload_ack ack;
    struct error err;

    if (payload_ack_read(m->bytes, m->len, &ack, &err) < 0)
        unit_log("%s: %s", k->config->name, err.text);
    else if (ack.kept)
        lease_ack(&c->book, i, ack.boot, ack.number, ack.uw, boot_now_ns());
}

static void take_demand(struct children *c, struct child *k, uint32_t i,
                        const struct mqtt_message *m)
{
    struct payload_demand demand;
    uint64_t now = boot_now_ns();
    struct error err;

    if (payload_demand_read(m->bytes, m->len, &demand, &err) < 0) {
        unit_log("%s: %s", k->config->name, err.text);
        return;
    }
    k->demand = demand.demand;
    k->demand_ns = now;
    if (demand.draw.basis != POWER_UNKNOWN)
        lease_seen(&c->book, i, demand.draw.low_uw, now);
}

void children_got(struct children *c, const struct mqtt_message *m)
{
    char name[EDGE_NAME_MAX];
    enum topic_leaf leaf;
    struct child *k;
    uint32_t i;

    if (topic_read(m->topic, name, &leaf) < 0 ||
        (leaf != TOPIC_ASK && leaf != TOPIC_ACK && leaf != TOPIC_DEMAND))
        return;
    k = find(c, name, &i);
    if (!k)
        return;
    if (leaf == TOPIC_ASK)
        take_ask(c, k, i, m);
    else if (leaf == TOPIC_ACK)
        take_ack(c, k, i, m);
    else
        take_demand(c, k, i, m);
    children_tick(c);
}

/* ---- dividing and lending -------------------------------------------------------------------- */

/* A child that is heard and has told no curve may use what the others leave, in equal parts. */
static void share_rest(struct children *c, uint64_t left_uw, uint64_t now_ns)
{
    uint32_t takers = 0;

    for (uint32_t i = 0; i < c->book.count; i++)
        takers += !c->part[i].demand && c->book.lease[i].boot != 0;
    for (uint32_t i = 0; i < c->book.count && takers; i++) {
        uint64_t most = c->child[i].config->most_uw, part = left_uw / takers;

        if (c->part[i].demand || c->book.lease[i].boot == 0)
            continue;
        if (most && c->want_uw[i] + part > most)
            part = most > c->want_uw[i] ? most - c->want_uw[i] : 0;
        c->want_uw[i] += part;
        left_uw -= part;
        takers--;
    }
}

static void divide(struct children *c, uint64_t now_ns)
{
    uint64_t left = 0;

    for (uint32_t i = 0; i < c->book.count; i++) {
        const struct child *k = &c->child[i];
        bool told = k->demand_ns && now_ns - k->demand_ns < DEMAND_OLD_NS && k->demand.count;

        c->part[i] = (struct divide_child){
            .demand = told ? &k->demand : NULL,
            .floor_uw = k->config->floor_uw,
            .most_uw = k->config->most_uw,
            .fixed_uw = c->book.lease[i].defiant ? lease_counts(&c->book, i, now_ns) : 0,
        };
    }
    if (divide_cap(c->book.cap_uw, c->part, c->book.count, c->scratch, c->want_uw, &left) < 0) {
        for (uint32_t i = 0; i < c->book.count; i++) /* somebody takes more than there is */
            c->want_uw[i] = c->child[i].config->floor_uw;
        return;
    }
    share_rest(c, left, now_ns);
}

static void lend(struct children *c, uint64_t now_ns)
{
    struct lease_message message;
    char topic[TOPIC_MAX];
    uint32_t i;
    int id;

    while (lease_next(&c->book, now_ns, &i, &message)) {
        _cleanup_free_ char *text = payload_lease_text(&message);

        if (text)
            mqtt_publish(c->broker, topic_make(c->child[i].config->name, TOPIC_LEASE, topic), text,
                         strlen(text), 1, false, LEASE_TTL_MS / 1000, &id);
    }
}

void children_tick(struct children *c)
{
    uint64_t now = boot_now_ns();
    int r = 0;

    divide(c, now);
    lease_want(&c->book, c->want_uw, now);
    if (c->stored != c->book.counter)
        r = store(c);
    if (r < 0 && !c->unstored)
        unit_log("cannot write %s: %s; no lease is given or renewed until then", c->path,
                 strerror(-r));
    c->unstored = r < 0;
    if (r == 0)
        lend(c, now);
}

/* ---- begin and end --------------------------------------------------------------------------- */

static bool allocate(struct children *c, uint32_t n)
{
    c->child = calloc(n, sizeof(*c->child));
    c->book.lease = calloc(n, sizeof(*c->book.lease));
    c->part = calloc(n, sizeof(*c->part));
    c->want_uw = calloc(n, sizeof(*c->want_uw));
    c->scratch = malloc(divide_bytes(n));
    return c->child && c->book.lease && c->part && c->want_uw && c->scratch;
}

int children_new(const struct unit_config *config, struct mqtt *broker, struct children **ret,
                 struct error *err)
{
    struct children *c = calloc(1, sizeof(*c));
    bool known;
    int r;

    if (!c || !allocate(c, config->children)) {
        children_free(c);
        return error_set(err, -ENOMEM, "no memory for the children");
    }
    c->broker = broker;
    c->book.count = config->children;
    c->book.kind = config->kind;
    c->book.cap_uw = config->cap_uw;
    snprintf(c->path, sizeof(c->path), "%s/leases", config->state_dir);
    for (uint32_t i = 0; i < config->children; i++) {
        c->child[i].config = &config->child[i];
        c->book.lease[i].floor_uw = config->child[i].floor_uw;
    }
    known = load(c);
    lease_recover(&c->book, known, boot_now_ns());
    if (!known)
        unit_log("which leases are in force is not known: none is given for half a minute");
    r = mqtt_subscribe(broker, "tide/1/+/up/ask", 1);
    r = r ? r : mqtt_subscribe(broker, "tide/1/+/up/ack", 1);
    r = r ? r : mqtt_subscribe(broker, "tide/1/+/up/demand", 0);
    if (r < 0) {
        children_free(c);
        return error_set(err, r, "cannot listen to the children: %s", strerror(-r));
    }
    c->stored = UINT64_MAX; /* a file that is as it is now stands there from the first lease on */
    *ret = c;
    return 0;
}

struct children *children_free(struct children *c)
{
    if (!c)
        return NULL;
    free(c->child);
    free(c->book.lease);
    free(c->part);
    free(c->want_uw);
    free(c->scratch);
    free(c);
    return NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "edge/lending.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/minmax.h"
#include "base/wholefile.h"
#include "edge/payload.h"
#include "power/cap/caps.h"

#define ERROR_WORD "bad-broker-message"

#define BOOK_HEAD     "threadtide leases 1"
#define BOOK_MAX      (16 << 20)
#define BOOK_LINE_MAX 168
#define ROWS_MAX      131072          /* of children and of those that left */
#define TWINS_NS      (60 * NS_PER_S) /* a boot that comes back so soon is another process's */
#define DEMAND_OLD_NS (60 * NS_PER_S) /* an older demand is nobody's */
#define CALM_NS       (10 * NS_PER_S) /* curves that hardly changed are taken so seldom */
#define FAR_PARTS     4               /* a curve is another one when it differs by such a part */

/* A child, or one that left while its lease may be in force; beside its row in the book. */
struct row {
    struct lending_child child;
    bool left;
    struct demand demand, used; /* as the child told it; as the cap is divided by it */
    uint64_t demand_ns;         /* 0: none */
    uint64_t last_uw; /* the most that its newest lease in force allowed; also when it has ended */
    uint64_t due_uw;  /* of one that ignores its lease: its part if it obeyed */
    uint64_t boot_before, boot_changed_ns, twins_ns;
};

/* Children stand by rising name; all arrays have room for the rows and groups that are there. */
struct table {
    struct row *row;
    struct lease *lease;
    struct lease_group *bound; /* the caps, as the book wants them */
    struct divide_group *group;
    struct divide_leaf *leaf;
    uint64_t *want_uw;
    void *scratch;
    uint32_t rows, groups;
};

struct lending {
    struct lending_options options;
    char path[PATH_MAX];
    struct table t;
    struct lease_book book;
    struct demand demand;
    uint64_t calm_ns; /* when all curves were taken as told */
    uint64_t stored;  /* the book's counter that is on the disk */
    bool unstored;    /* said that the book cannot be written */
};

static void say(const struct lending *l, const char *child, const char *text)
{
    l->options.say(l->options.arg, child, text);
}

/* ---- the table ---- */

static void free_table(struct table *t)
{
    free(t->row);
    free(t->lease);
    free(t->bound);
    free(t->group);
    free(t->leaf);
    free(t->want_uw);
    free(t->scratch);
    *t = (struct table){0};
}

static int make_table(uint32_t rows, uint32_t groups, struct table *ret)
{
    struct table t = {.rows = rows, .groups = groups};
    size_t n = rows ? rows : 1;

    t.row = calloc(n, sizeof(*t.row));
    t.lease = calloc(n, sizeof(*t.lease));
    t.bound = calloc(groups, sizeof(*t.bound));
    t.group = calloc(groups, sizeof(*t.group));
    t.leaf = calloc(n, sizeof(*t.leaf));
    t.want_uw = calloc(n, sizeof(*t.want_uw));
    t.scratch = malloc(divide_tree_bytes(groups, rows));
    if (!t.row || !t.lease || !t.bound || !t.group || !t.leaf || !t.want_uw || !t.scratch) {
        free_table(&t);
        return -ENOMEM;
    }
    *ret = t;
    return 0;
}

static int compare_name(const void *name, const void *row)
{
    return strcmp(name, ((const struct row *)row)->child.name);
}

static struct row *find(const struct lending *l, const char *name)
{
    return bsearch(name, l->t.row, l->t.rows, sizeof(struct row), compare_name);
}

static struct lease *lease_of(const struct lending *l, const struct row *r)
{
    return &l->t.lease[r - l->t.row];
}

static void use_table(struct lending *l, struct table *t)
{
    free_table(&l->t);
    l->t = *t;
    l->book.lease = l->t.lease;
    l->book.count = l->t.rows;
    l->book.group = l->t.bound;
    l->book.groups = l->t.groups;
    l->book.cap_uw = l->t.group[0].cap_uw;
}

/* ---- the book on the disk ---- */

static int store(struct lending *l)
{
    size_t size = BOOK_LINE_MAX * ((size_t)l->book.count + 2), n;
    _cleanup_free_ char *text = malloc(size);
    int r;

    if (!text)
        return -ENOMEM;
    n = (size_t)snprintf(text, size, "%s %" PRIu64 " %d\n", BOOK_HEAD, l->book.counter,
                         l->book.silent_until_ns != 0);
    for (uint32_t i = 0; i < l->book.count; i++) {
        const struct lease *k = &l->book.lease[i];

        n += (size_t)snprintf(text + n, size - n,
                              "%s %" PRIu64 " %" PRIu64 " %" PRIu64 " %d %" PRIu64 "\n",
                              l->t.row[i].child.name, k->number, k->offer_uw, k->given_uw, k->loose,
                              l->t.row[i].last_uw);
    }
    r = wholefile_replace(l->path, text, n, NULL);
    if (r == 0) {
        l->stored = l->book.counter;
        failpoint(FAILPOINT_LEASES_STORED);
    }
    return r;
}

/* Earlier versions wrote lines without the last number or the last two. */
static bool read_line(const char *line, struct row *row, struct lease *lease)
{
    uint64_t number, offer, given, last;
    char name[EDGE_NAME_MAX];
    int loose = 0;
    int fields = sscanf(line, "%63s %" SCNu64 " %" SCNu64 " %" SCNu64 " %d %" SCNu64, name, &number,
                        &offer, &given, &loose, &last);

    if (fields < 4 || !edge_name_valid(name))
        return false;
    strcpy(row->child.name, name);
    row->left = true;
    row->last_uw = fields == 6 ? last : offer > given ? offer : given;
    lease->number = lease->acked = number;
    lease->offer_uw = offer;
    lease->given_uw = given;
    lease->loose = loose != 0;
    lease->group = LEASE_NO_GROUP;
    return true;
}

static uint32_t count_lines(const char *text)
{
    uint32_t n = 0;

    for (; *text && n < ROWS_MAX; text++)
        n += *text == '\n';
    return n;
}

/* Names are in order, as they were written; a book that is not is none of ours. */
static bool read_lines(char *next, struct table *t)
{
    uint32_t most = t->rows;

    for (t->rows = 0; next && *next && t->rows < most; t->rows++)
        if (!read_line(strsep(&next, "\n"), &t->row[t->rows], &t->lease[t->rows]) ||
            (t->rows && strcmp(t->row[t->rows - 1].child.name, t->row[t->rows].child.name) >= 0))
            return false;
    return !next || !*next;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct lending_child *)a)->name, ((const struct lending_child *)b)->name);
}

/* Returns whether the whole book is known. */
static bool load(struct lending *l)
{
    _cleanup_free_ char *text = NULL;
    struct stat status;
    struct table t;
    int silent = 0;
    size_t len;
    char *next;

    if (wholefile_read(l->path, BOOK_MAX, &text, &len, &status) < 0)
        return false;
    next = text;
    if (sscanf(strsep(&next, "\n"), BOOK_HEAD " %" SCNu64 " %d", &l->book.counter, &silent) != 2)
        return false;
    if (make_table(next ? count_lines(next) : 0, 1, &t) < 0)
        return false;
    t.group[0] = (struct divide_group){DIVIDE_NO_GROUP, DEMAND_MAX, 0};
    t.bound[0] = (struct lease_group){LEASE_NO_GROUP, DEMAND_MAX, 0};
    if (!read_lines(next, &t)) {
        free_table(&t);
        return false;
    }
    l->book.silent_until_ns = silent != 0;
    use_table(l, &t);
    return true;
}

/* ---- who borrows ---- */

/* A child that goes counts until its lease has ended. */
static bool may_go(const struct lending *l, const struct row *r, uint64_t now_ns)
{
    const struct lease *k = lease_of(l, r);

    return now_ns >= k->until_ns && now_ns >= k->given_until_ns;
}

static void copy_row(const struct lending *l, const struct row *from, struct table *t)
{
    t->row[t->rows] = *from;
    t->lease[t->rows++] = *lease_of(l, from);
}

/* Old rows and children, both by rising name, become one table. */
static void merge(const struct lending *l, const struct lending_child *child, uint32_t children,
                  struct table *t, uint64_t now_ns)
{
    uint32_t old = 0;

    for (uint32_t i = 0; i <= children; i++) {
        for (; old < l->t.rows &&
               (i == children || strcmp(l->t.row[old].child.name, child[i].name) < 0);
             old++)
            if (!may_go(l, &l->t.row[old], now_ns)) {
                copy_row(l, &l->t.row[old], t);
                t->row[t->rows - 1].left = true;
                t->lease[t->rows - 1].floor_uw = 0;
                t->lease[t->rows - 1].group = LEASE_NO_GROUP;
            }
        if (i == children)
            break;
        if (old < l->t.rows && strcmp(l->t.row[old].child.name, child[i].name) == 0)
            copy_row(l, &l->t.row[old++], t);
        else
            t->rows++;
        t->row[t->rows - 1].child = child[i];
        t->row[t->rows - 1].left = false;
        t->lease[t->rows - 1].floor_uw = child[i].floor_uw;
        t->lease[t->rows - 1].kind = child[i].kind;
        t->lease[t->rows - 1].group = child[i].group;
    }
}

int lending_set(struct lending *l, const struct divide_group *group, uint32_t groups,
                const struct lending_child *child, uint32_t children)
{
    size_t bytes = children * sizeof(*child);
    _cleanup_free_ struct lending_child *sorted = malloc(bytes ? bytes : 1);
    struct table t;

    if (!sorted || make_table(l->t.rows + children, groups, &t) < 0)
        return -ENOMEM;
    if (children)
        memcpy(sorted, child, bytes);
    qsort(sorted, children, sizeof(*sorted), by_name);
    t.rows = 0;
    merge(l, sorted, children, &t, clock_boot_ns());
    for (uint32_t g = 0; g < groups; g++) {
        t.group[g] = group[g];
        t.bound[g] = (struct lease_group){g ? group[g].parent : LEASE_NO_GROUP, group[g].cap_uw, 0};
    }
    use_table(l, &t);
    return 0;
}

void lending_cap(struct lending *l, uint64_t cap_uw)
{
    uint64_t uw = cap_uw < DEMAND_MAX ? cap_uw : DEMAND_MAX;

    l->t.group[0].cap_uw = l->t.bound[0].cap_uw = l->book.cap_uw = uw;
}

/* ---- messages ---- */

/* Two processes of one name ask in turns: nobody knows which of them obeys, so neither gets more.
 */
static bool is_one_of_twins(struct lending *l, struct row *r, uint64_t boot, uint64_t known,
                            uint64_t now_ns)
{
    if (known && boot != known) {
        if (boot == r->boot_before && now_ns - r->boot_changed_ns < TWINS_NS) {
            if (!r->twins_ns) {
                char text[EDGE_NAME_MAX + 128];

                snprintf(text, sizeof(text),
                         "two programs say that they are %s; neither gets a lease until one is "
                         "gone (tide why two-of-a-name)",
                         r->child.name);
                say(l, NULL, text);
            }
            r->twins_ns = now_ns;
        }
        r->boot_before = known;
        r->boot_changed_ns = now_ns;
    }
    if (r->twins_ns && now_ns - r->twins_ns >= TWINS_NS)
        r->twins_ns = 0;
    return r->twins_ns != 0;
}

static int take_ask(struct lending *l, struct row *r, const void *bytes, size_t len,
                    struct error *err)
{
    uint32_t i = (uint32_t)(r - l->t.row);
    uint64_t now = clock_boot_ns();
    struct payload_ask ask;

    if (payload_ask_read(bytes, len, &ask, err) < 0)
        return -EINVAL;
    if (!is_one_of_twins(l, r, ask.boot, l->book.lease[i].boot, now))
        lease_ask(&l->book, i, ask.boot, ask.stamp_ns, now);
    return 0;
}

static int take_ack(struct lending *l, struct row *r, const void *bytes, size_t len,
                    struct error *err)
{
    struct payload_ack ack;

    if (payload_ack_read(bytes, len, &ack, err) < 0)
        return -EINVAL;
    if (ack.kept)
        lease_ack(&l->book, (uint32_t)(r - l->t.row), ack.boot, ack.number, ack.uw,
                  clock_boot_ns());
    return 0;
}

static int take_demand(struct lending *l, struct row *r, const void *bytes, size_t len,
                       struct error *err)
{
    struct payload_demand demand;
    uint64_t now = clock_boot_ns();

    if (payload_demand_read(bytes, len, &demand, err) < 0)
        return -EINVAL;
    r->demand = demand.demand;
    r->demand_ns = now;
    if (demand.draw.basis != POWER_UNKNOWN)
        lease_seen(&l->book, (uint32_t)(r - l->t.row), demand.draw.low_uw, now);
    return 0;
}

bool lending_got(struct lending *l, const char *child, enum topic_leaf leaf, const void *bytes,
                 size_t len)
{
    struct row *r = find(l, child);
    struct error err = {0};
    int k = 0;

    if (leaf != TOPIC_ASK && leaf != TOPIC_ACK && leaf != TOPIC_DEMAND)
        return true;
    if (!r || r->left)
        return false;
    if (leaf == TOPIC_ASK)
        k = take_ask(l, r, bytes, len, &err);
    else if (leaf == TOPIC_ACK)
        k = take_ack(l, r, bytes, len, &err);
    else
        k = take_demand(l, r, bytes, len, &err);
    if (k < 0)
        say(l, child, error_said(&err));
    return true;
}

/* ---- dividing and lending ---- */

static bool is_far(uint64_t a, uint64_t b)
{
    uint64_t more = larger_u64(a, b);

    return more - smaller_u64(a, b) > more / FAR_PARTS;
}

/* Whether the child draws, can use, or makes of its watts clearly more or less than by @b. */
static bool is_another(const struct demand *a, const struct demand *b)
{
    const struct demand_point *x = &a->point[a->count ? a->count - 1 : 0];
    const struct demand_point *y = &b->point[b->count ? b->count - 1 : 0];

    return (a->count == 0) != (b->count == 0) || is_far(a->point[0].uw, b->point[0].uw) ||
           is_far(x->uw, y->uw) || is_far(x->value, y->value);
}

/*
 * Curves are measured, and those of machines that are alike differ by chance: followed each second,
 * watts would go to and fro between them, and each way takes an acknowledgement.
 */
static void take_curves(struct lending *l, uint64_t now_ns)
{
    bool all = now_ns - l->calm_ns >= CALM_NS;

    for (uint32_t i = 0; i < l->t.rows; i++)
        if (all || is_another(&l->t.row[i].used, &l->t.row[i].demand))
            l->t.row[i].used = l->t.row[i].demand;
    if (all)
        l->calm_ns = now_ns;
}

/*
 * Whether the child takes part in what no curve wants: it has none, or, without jobs, only its
 * draw. What needs watts there may be no job: pods of a Kubernetes node are none.
 */
static bool takes_rest(const struct lending *l, uint32_t i, bool told)
{
    const struct row *r = &l->t.row[i];

    return !r->left && l->book.lease[i].boot != 0 && (!told || r->used.count == 1);
}

/* Divides the cap. @fixed: whoever ignores its lease has what it draws, the others the rest. */
static void divide_once(struct lending *l, bool fixed, uint64_t now_ns)
{
    for (uint32_t i = 0; i < l->t.rows; i++) {
        const struct row *r = &l->t.row[i];
        bool told =
            !r->left && r->demand_ns && now_ns - r->demand_ns < DEMAND_OLD_NS && r->demand.count;
        bool counts = r->left || (fixed && l->book.lease[i].defiant);

        l->t.leaf[i] = (struct divide_leaf){
            .child = {.demand = told ? &r->used : NULL,
                      .floor_uw = r->left ? 0 : r->child.floor_uw,
                      .most_uw = r->child.most_uw,
                      .fixed_uw = counts ? lease_counts(&l->book, i, now_ns) : 0},
            .group = r->left ? 0 : r->child.group,
            .rest = takes_rest(l, i, told),
        };
    }
    divide_tree(l->t.group, l->t.groups, l->t.leaf, l->t.rows, l->t.scratch, l->t.want_uw,
                &l->demand);
}

/* Whoever draws more than it may makes the others' parts smaller, and its own no larger. */
static void divide(struct lending *l, uint64_t now_ns)
{
    bool defiant = false;

    take_curves(l, now_ns);
    for (uint32_t i = 0; i < l->t.rows; i++)
        defiant |= l->book.lease[i].defiant;
    if (defiant) {
        divide_once(l, false, now_ns);
        for (uint32_t i = 0; i < l->t.rows; i++)
            l->t.row[i].due_uw = l->t.want_uw[i];
    }
    divide_once(l, true, now_ns);
    for (uint32_t i = 0; i < l->t.rows; i++) {
        if (l->book.lease[i].defiant)
            l->t.want_uw[i] = l->t.row[i].due_uw;
        if (l->t.row[i].left)
            l->t.want_uw[i] = l->book.lease[i].offer_uw; /* it gets no other lease, and ends */
    }
}

void lending_send(struct lending *l)
{
    uint64_t now = clock_boot_ns();
    struct lease_message message;
    uint32_t i;

    while (!l->unstored && l->stored == l->book.counter &&
           lease_next(&l->book, now, &i, &message)) {
        _cleanup_free_ char *text = payload_lease_text(&message);

        if (text && l->options.send(l->options.arg, l->t.row[i].child.name, text) == -EAGAIN) {
            l->book.lease[i].sent_ns = 0;
            break;
        }
        failpoint(FAILPOINT_LEASE_SENT);
    }
}

/* A smaller one may not have come as long as nobody has acknowledged it. */
static void note_last(struct lending *l, uint64_t now_ns)
{
    for (uint32_t i = 0; i < l->t.rows; i++) {
        const struct lease *k = &l->book.lease[i];

        if (now_ns < k->until_ns)
            l->t.row[i].last_uw =
                now_ns < k->given_until_ns && k->given_uw > k->offer_uw ? k->given_uw : k->offer_uw;
    }
}

void lending_tick(struct lending *l)
{
    uint64_t now = clock_boot_ns();
    char text[PATH_MAX + 128];
    int r = 0;

    divide(l, now);
    lease_want(&l->book, l->t.want_uw, now);
    note_last(l, now);
    if (l->stored != l->book.counter)
        r = store(l);
    if (r < 0 && !l->unstored) {
        snprintf(text, sizeof(text),
                 "cannot write %s: %s; no lease is given or renewed until then (tide why "
                 "state-unusable)",
                 l->path, strerror(-r));
        say(l, NULL, text);
    }
    l->unstored = r < 0;
    lending_send(l);
}

/* ---- for the others ---- */

bool lending_told(const struct lending *l, const char *child, uint64_t *ret_uw, bool *ret_kept)
{
    const struct row *r = find(l, child);
    const struct lease *k = r ? lease_of(l, r) : NULL;

    if (!k || clock_boot_ns() >= k->until_ns)
        return false;
    *ret_uw = k->offer_uw;
    *ret_kept = k->acked == k->number;
    return true;
}

bool lending_unheard(const struct lending *l, const char *child, uint64_t *ret_uw)
{
    const struct row *r = find(l, child);
    const struct lease *k = r ? lease_of(l, r) : NULL;

    if (!k || !k->number)
        return false;
    *ret_uw = k->kind == CAP_BREAKER && !k->loose ? lending_counts(l, child) : r->last_uw;
    return true;
}

bool lending_binds(const struct lending *l, const char *child)
{
    const struct row *r = find(l, child);
    const struct lease *k = r ? lease_of(l, r) : NULL;

    return k && k->number && !(k->loose && k->acked == k->number);
}

uint64_t lending_counts(const struct lending *l, const char *child)
{
    const struct row *r = find(l, child);

    return r ? lease_counts(&l->book, (uint32_t)(r - l->t.row), clock_boot_ns()) : 0;
}

uint64_t lending_sum(const struct lending *l)
{
    return lease_sum(&l->book, clock_boot_ns());
}

uint64_t lending_floor(const struct lending *l)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < l->t.rows; i++)
        if (!l->t.row[i].left && sum < DEMAND_MAX)
            sum += l->t.row[i].child.floor_uw;
    return sum < DEMAND_MAX ? sum : DEMAND_MAX;
}

const struct demand *lending_demand(const struct lending *l)
{
    return &l->demand;
}

/* ---- begin and end ---- */

int lending_new(const struct lending_options *options, struct lending **ret)
{
    struct lending *l = calloc(1, sizeof(*l));
    struct table none;
    bool known;

    if (!l || make_table(0, 1, &none) < 0) {
        free(l);
        return -ENOMEM;
    }
    none.group[0] = (struct divide_group){DIVIDE_NO_GROUP, 0, 0};
    none.bound[0] = (struct lease_group){LEASE_NO_GROUP, 0, 0};
    l->options = *options;
    use_table(l, &none);
    if ((size_t)snprintf(l->path, sizeof(l->path), "%s", options->path) >= sizeof(l->path)) {
        lending_free(l);
        return -ENAMETOOLONG;
    }
    known = load(l);
    lease_recover(&l->book, known, clock_boot_ns());
    if (!known)
        say(l, NULL,
            "which leases are in force is not known: none is given for half a minute (tide why "
            "state-unusable)");
    l->stored = UINT64_MAX; /* a file that is as it is now stands there from the first tick on */
    *ret = l;
    return 0;
}

struct lending *lending_free(struct lending *l)
{
    if (!l)
        return NULL;
    free_table(&l->t);
    free(l);
    return NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Power leases in a world in small: a parent, children with clocks of their own, a network that
 * loses, delays, doubles and reorders, restarts of either side with and without the parent's file.
 * At each moment what the children may draw is at most what the parent counts, or counted before it
 * died, and at most the largest cap that was in force lately; what the parent counts grows never
 * above the cap. A lowered cap is kept after one term by a parent that has lived since, else after
 * three. The same in groups with caps of their own. The single rules: test_power_lease_book.c.
 */
#include "power/division/demand.h"
#include "power/division/lease.h"
#include "power/division/tenure.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "power/cap/caps.h"

#define MS       UINT64_C(1000000)
#define SECOND   (1000 * MS)
#define TERM     (31 * SECOND) /* a lease has ended everywhere by then */
#define CHILDREN 5
#define MESSAGES 512
#define CAPS     64            /* remembered: more than change within three terms */
#define STEP     (20 * SECOND) /* the longest time between two looks of the parent */
#define GROUPS   3             /* the second lies below the first */

static uint64_t state;

static uint64_t random_below(uint64_t bound)
{
    uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (z ^ z >> 31) % bound;
}

static bool chance(unsigned percent)
{
    return random_below(100) < percent;
}

/* ---- the world ------------------------------------------------------------------------------- */

/* A clock that is off by up to 0.9 % and counts from its own boot. */
struct clock {
    uint64_t zero_ns; /* real time */
    int64_t rate_ppm;
};

/*
 * A machine, and the process in it that holds the tenure. The limit is the machine's: it outlives
 * the process. A shrink takes up to two seconds, in which the machine draws what it drew before.
 */
struct machine {
    struct clock clock;
    struct tenure tenure;
    uint64_t limit_uw, limit_until_ns; /* by its clock */
    uint64_t floor_uw;
    uint64_t old_uw, old_until_ns,
        shrunk_ns; /* real time when the shrink is done; 0: none under way */
    uint64_t ack_number, ack_uw, ack_boot; /* owed when it is done */
    uint64_t next_ask_ns;                  /* real time */
};

enum kind { ASK, LEASE, ACK };
struct message {
    enum kind kind;
    uint32_t child;
    uint64_t at_ns;
    struct lease_message lease;
};

struct world {
    uint64_t now_ns; /* real time */
    struct machine machine[CHILDREN];
    struct clock clock; /* the parent's */
    struct lease row[CHILDREN], stored_row[CHILDREN];
    struct lease_book book, stored;
    bool alive;
    uint64_t back_ns; /* when the parent lives again */
    bool keeps_file;
    uint64_t want_uw[CHILDREN], cap_since_ns, sum_before, most_cap;
    uint64_t knows_since_ns;                 /* real time; 0: the parent does not know all leases */
    uint64_t counted_uw;                     /* when it last did */
    uint64_t cap_uw[CAPS], cap_end_ns[CAPS]; /* earlier caps, the newest first */
    struct lease_group group[GROUPS];        /* the policy's */
    uint32_t group_of[CHILDREN];
    uint64_t group_before[GROUPS];
    struct message message[MESSAGES];
    uint32_t messages;
    unsigned loss, doubles;
    uint64_t delay_ns;
};

static struct world w;

static uint64_t read_clock(const struct clock *c)
{
    uint64_t passed = w.now_ns - c->zero_ns;

    return SECOND + passed + (uint64_t)((int64_t)(passed / 1000) * c->rate_ppm / 1000);
}

static void new_clock(struct clock *c)
{
    c->zero_ns = w.now_ns;
    c->rate_ppm = (int64_t)random_below(18001) - 9000;
}

static void send(enum kind kind, uint32_t child, const struct lease_message *m)
{
    for (unsigned copies = chance(w.doubles) ? 3 : 1; copies > 0; copies--) {
        if (w.messages == MESSAGES || chance(w.loss))
            continue;
        w.message[w.messages++] = (struct message){
            kind, child, w.now_ns + 1 + random_below(chance(90) ? w.delay_ns / 20 : w.delay_ns),
            *m};
    }
}

/* ---- a machine ------------------------------------------------------------------------------- */

static uint64_t may_draw(const struct machine *m)
{
    uint64_t now = read_clock(&m->clock), uw = m->floor_uw;

    if (now < m->limit_until_ns)
        uw = m->limit_uw;
    if (m->shrunk_ns && now < m->old_until_ns && m->old_uw > uw)
        uw = m->old_uw;
    return uw;
}

static void begin_process(struct machine *m)
{
    tenure_begin(&m->tenure, 1 + random_below(UINT64_MAX - 1), CAP_BREAKER, m->floor_uw);
    m->ack_number = 0;
    m->next_ask_ns = w.now_ns;
}

static void begin_machine(struct machine *m)
{
    new_clock(&m->clock);
    m->limit_until_ns = m->old_until_ns = m->shrunk_ns = 0;
    begin_process(m);
}

static void take(struct machine *m, uint32_t child, const struct lease_message *lease)
{
    uint64_t now = read_clock(&m->clock), before = may_draw(m);
    bool draws_old = m->shrunk_ns && before != m->limit_uw;
    uint64_t before_until = draws_old ? m->old_until_ns : m->limit_until_ns;
    bool same = lease->number == m->tenure.number && lease->boot == m->tenure.boot;

    if (tenure_take(&m->tenure, lease, now) < 0)
        return;
    if (same && m->shrunk_ns)
        return; /* it is being done */
    m->limit_uw = lease->uw;
    m->limit_until_ns = m->tenure.until_ns;
    m->ack_number = lease->number;
    m->ack_uw = lease->uw;
    m->ack_boot = lease->boot;
    m->shrunk_ns = w.now_ns;
    if (lease->uw < before) {
        m->old_uw = before;
        m->old_until_ns = before_until;
        m->shrunk_ns = w.now_ns + random_below(2 * SECOND);
    } else {
        m->old_until_ns = 0;
    }
}

static void run_machine(struct machine *m, uint32_t child)
{
    if (m->shrunk_ns && w.now_ns >= m->shrunk_ns) {
        m->shrunk_ns = 0;
        if (m->ack_number)
            send(ACK, child,
                 &(struct lease_message){
                     .boot = m->ack_boot, .number = m->ack_number, .uw = m->ack_uw});
    }
    if (w.now_ns >= m->next_ask_ns) {
        m->next_ask_ns = w.now_ns + LEASE_ASK_MS * MS;
        send(ASK, child,
             &(struct lease_message){.boot = m->tenure.boot, .stamp_ns = read_clock(&m->clock)});
    }
}

/* ---- the parent ------------------------------------------------------------------------------ */

static void store(void)
{
    memcpy(w.stored_row, w.row, sizeof(w.row));
    w.stored = w.book;
    w.stored.lease = w.stored_row;
}

static void remember_sums(void)
{
    uint64_t now = read_clock(&w.clock);

    w.sum_before = lease_sum(&w.book, now);
    for (uint32_t g = 0; g < GROUPS; g++)
        w.group_before[g] = lease_group_sum(&w.book, g, now);
}

static void start_parent(bool reboot)
{
    if (reboot)
        new_clock(&w.clock);
    if (w.keeps_file) {
        memcpy(w.row, w.stored_row, sizeof(w.row));
        w.book = w.stored;
    } else {
        memset(w.row, 0, sizeof(w.row));
        w.book = (struct lease_book){.count = CHILDREN, .cap_uw = w.book.cap_uw};
        for (uint32_t i = 0; i < CHILDREN; i++)
            w.row[i].floor_uw = w.machine[i].floor_uw;
    }
    w.book.cap_uw = w.most_cap; /* of the policy, which it knows without the file */
    w.book.group = w.group;
    w.book.groups = GROUPS;
    for (uint32_t i = 0; i < CHILDREN; i++)
        w.row[i].group = w.group_of[i];
    w.book.lease = w.row;
    lease_recover(&w.book, w.keeps_file, read_clock(&w.clock));
    w.alive = true;
    remember_sums();
}

static void run_parent(void)
{
    uint64_t now = read_clock(&w.clock);
    struct lease_message m;
    uint32_t child;

    if (!w.alive) {
        if (w.now_ns >= w.back_ns)
            start_parent(chance(30));
        return;
    }
    lease_want(&w.book, w.want_uw, now);
    store();
    while (lease_next(&w.book, now, &child, &m)) {
        store();
        send(LEASE, child, &m);
    }
}

static void deliver(const struct message *m)
{
    uint64_t now = read_clock(&w.clock);

    if (m->kind == LEASE)
        take(&w.machine[m->child], m->child, &m->lease);
    else if (!w.alive)
        return;
    else if (m->kind == ASK)
        lease_ask(&w.book, m->child, m->lease.boot, m->lease.stamp_ns, now);
    else
        lease_ack(&w.book, m->child, m->lease.boot, m->lease.number, m->lease.uw, now);
}

static uint64_t floors(void)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < CHILDREN; i++)
        sum += w.machine[i].floor_uw;
    return sum;
}

static bool lies_in(uint32_t child, uint32_t group)
{
    uint32_t g = w.group_of[child];

    return g == group || (g != LEASE_NO_GROUP && w.group[g].parent == group);
}

/* A division of the caps, by whatever demand. */
static void draw_wants(void)
{
    uint64_t free = w.most_cap - floors(), left[GROUPS];

    for (uint32_t g = 0; g < GROUPS; g++) {
        left[g] = w.group[g].cap_uw;
        for (uint32_t i = 0; i < CHILDREN; i++)
            left[g] -= lies_in(i, g) ? w.machine[i].floor_uw : 0;
    }
    for (uint32_t n = 0, i = (uint32_t)random_below(CHILDREN); n < CHILDREN; n++) {
        uint64_t more = random_below(2 * w.most_cap / CHILDREN);

        more = more < free ? more : free;
        for (uint32_t g = 0; g < GROUPS; g++)
            more = lies_in(i, g) && left[g] < more ? left[g] : more;
        w.want_uw[i] = w.machine[i].floor_uw + more;
        free -= more;
        for (uint32_t g = 0; g < GROUPS; g++)
            left[g] -= lies_in(i, g) ? more : 0;
        i = (i + 1) % CHILDREN;
    }
}

/* Each group's floors fit below its cap, as the compiler of policies demands. */
static void set_group_caps(void)
{
    for (uint32_t g = 0; g < GROUPS; g++) {
        uint64_t cap = random_below(800);

        for (uint32_t i = 0; i < CHILDREN; i++)
            cap += lies_in(i, g) ? w.machine[i].floor_uw : 0;
        w.group[g].cap_uw = chance(20) ? DEMAND_MAX : cap;
    }
}

static void set_cap(uint64_t cap)
{
    memmove(w.cap_uw + 1, w.cap_uw, sizeof(w.cap_uw) - sizeof(*w.cap_uw));
    memmove(w.cap_end_ns + 1, w.cap_end_ns, sizeof(w.cap_end_ns) - sizeof(*w.cap_end_ns));
    w.cap_uw[0] = w.most_cap;
    w.cap_end_ns[0] = w.now_ns;
    set_group_caps();
    w.book.cap_uw = w.most_cap = cap;
    w.cap_since_ns = w.now_ns;
    draw_wants();
}

/* For how long leases of an earlier cap may last. */
static uint64_t term(void)
{
    return w.knows_since_ns && w.knows_since_ns <= w.cap_since_ns ? TERM + STEP : 3 * TERM;
}

/* The largest cap in force within that time. */
static uint64_t largest_cap(void)
{
    uint64_t most = w.most_cap;

    for (int i = 0; i < CAPS; i++)
        if (w.cap_end_ns[i] && w.now_ns <= w.cap_end_ns[i] + 3 * TERM && w.cap_uw[i] > most)
            most = w.cap_uw[i];
    return most;
}

static void check_groups(uint64_t seed, bool knows)
{
    for (uint32_t g = 0; g < GROUPS; g++) {
        uint64_t counted = lease_group_sum(&w.book, g, read_clock(&w.clock)), drawn = 0;

        for (uint32_t i = 0; i < CHILDREN; i++)
            drawn += lies_in(i, g) ? may_draw(&w.machine[i]) : 0;
        if (knows && counted > w.group[g].cap_uw && counted > w.group_before[g])
            fail_msg("seed %lu, %lu ms: the sum of group %u grows to %lu above its cap %lu", seed,
                     w.now_ns / MS, g, counted, w.group[g].cap_uw);
        if (w.now_ns > w.cap_since_ns + term() && drawn > w.group[g].cap_uw)
            fail_msg("seed %lu, %lu ms: group %u draws %lu long after its cap became %lu", seed,
                     w.now_ns / MS, g, drawn, w.group[g].cap_uw);
    }
}

/* Properties that no loss and no order of events may break. */
static void check(uint64_t seed)
{
    uint64_t counted = lease_sum(&w.book, read_clock(&w.clock)), drawn = 0;
    bool knows = w.alive && read_clock(&w.clock) >= w.book.silent_until_ns;

    for (uint32_t i = 0; i < CHILDREN; i++)
        drawn += may_draw(&w.machine[i]);
    if (!knows)
        w.knows_since_ns = 0;
    else if (!w.knows_since_ns)
        w.knows_since_ns = w.now_ns;
    if (knows)
        w.counted_uw = counted;
    if (drawn > w.counted_uw)
        fail_msg("seed %lu, %lu ms: the children may draw %lu, the parent counts %lu%s", seed,
                 w.now_ns / MS, drawn, w.counted_uw, knows ? "" : " (before it died)");
    if (drawn > largest_cap())
        fail_msg("seed %lu, %lu ms: the children may draw %lu, no cap of late was above %lu", seed,
                 w.now_ns / MS, drawn, largest_cap());
    if (knows && counted > w.book.cap_uw && counted > w.sum_before)
        fail_msg("seed %lu, %lu ms: the sum grows to %lu above the cap %lu", seed, w.now_ns / MS,
                 counted, w.book.cap_uw);
    if (w.now_ns > w.cap_since_ns + term() && drawn > w.most_cap)
        fail_msg("seed %lu, %lu ms: %lu is drawn long after the cap became %lu", seed,
                 w.now_ns / MS, drawn, w.most_cap);
    check_groups(seed, knows);
    remember_sums();
}

static void step(uint64_t seed, uint64_t ns)
{
    w.now_ns += ns;
    check(seed); /* time alone */
    for (uint32_t i = 0; i < w.messages;) {
        struct message m = w.message[i];

        if (m.at_ns > w.now_ns) {
            i++;
            continue;
        }
        w.message[i] = w.message[--w.messages];
        deliver(&m);
        check(seed);
    }
    for (uint32_t i = 0; i < CHILDREN; i++)
        run_machine(&w.machine[i], i);
    run_parent();
    check(seed);
}

static void disturb(void)
{
    struct machine *m = &w.machine[random_below(CHILDREN)];

    if (chance(5))
        set_cap(floors() + random_below(1500));
    else if (chance(30))
        draw_wants();
    if (chance(3))
        begin_process(m);
    if (chance(2))
        begin_machine(m);
    if (chance(2) && w.alive) {
        w.alive = false;
        w.back_ns = w.now_ns + random_below(60 * SECOND);
        w.keeps_file = chance(70);
    }
    if (chance(5)) {
        w.loss = (unsigned)random_below(chance(20) ? 101 : 40);
        w.doubles = (unsigned)random_below(50);
        w.delay_ns = 20 + (chance(50) ? random_below(2 * SECOND) : random_below(60 * SECOND));
    }
}

static void begin_world(uint64_t seed)
{
    state = seed;
    w = (struct world){.now_ns = SECOND, .delay_ns = SECOND, .loss = 10, .keeps_file = true};
    w.book =
        (struct lease_book){.lease = w.row, .count = CHILDREN, .group = w.group, .groups = GROUPS};
    for (uint32_t g = 0; g < GROUPS; g++)
        w.group[g].parent = g == 1 ? 0 : LEASE_NO_GROUP;
    new_clock(&w.clock);
    for (uint32_t i = 0; i < CHILDREN; i++) {
        uint32_t g = (uint32_t)random_below(GROUPS + 1);

        w.group_of[i] = w.row[i].group = g < GROUPS ? g : LEASE_NO_GROUP;
        w.machine[i].floor_uw = w.row[i].floor_uw = 1 + random_below(100);
        begin_machine(&w.machine[i]);
    }
    set_cap(floors() + random_below(1500));
    store();
    w.alive = true;
    w.counted_uw = lease_sum(&w.book, read_clock(&w.clock));
    remember_sums();
}

/* A quiet network for two minutes: everybody has what was wanted as far as the cap goes. */
static void everybody_is_served_in_the_end(uint64_t seed)
{
    uint64_t cap = 0, wanted[CHILDREN];

    w.loss = w.doubles = 0;
    w.delay_ns = 20 * 50 * MS;
    for (uint32_t i = 0; i < CHILDREN; i++)
        cap += wanted[i] = w.machine[i].floor_uw + random_below(300);
    set_cap(cap);
    for (uint32_t g = 0; g < GROUPS; g++) {
        w.group[g].cap_uw = 0;
        for (uint32_t i = 0; i < CHILDREN; i++)
            w.group[g].cap_uw += lies_in(i, g) ? wanted[i] : 0;
    }
    memcpy(w.want_uw, wanted, sizeof(wanted));
    for (int i = 0; i < 1000; i++)
        step(seed, 200 * MS);
    for (uint32_t i = 0; i < CHILDREN; i++)
        if (may_draw(&w.machine[i]) != w.want_uw[i])
            fail_msg("seed %lu: child %u may draw %lu in the end, %lu was wanted", seed, i,
                     may_draw(&w.machine[i]), w.want_uw[i]);
    assert_int_equal(lease_sum(&w.book, read_clock(&w.clock)), cap);
}

static void the_sum_is_kept_whatever_happens(void **arg)
{
    const char *soak = getenv("TIDE_SOAK");
    uint64_t seeds = soak ? 10000 : 500, events = soak ? 2000 : 200;

    for (uint64_t seed = 0; seed < seeds; seed++) {
        begin_world(seed);
        for (uint64_t event = 0; event < events; event++) {
            disturb();
            for (uint64_t n = random_below(12); n > 0; n--)
                step(seed, random_below(chance(10) ? 20 * SECOND : SECOND));
        }
        everybody_is_served_in_the_end(seed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_sum_is_kept_whatever_happens),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

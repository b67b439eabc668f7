/* SPDX-License-Identifier: Apache-2.0 */
/*
 * settle() against a small world: agents that park threads at any time, acknowledgements that are
 * reordered, lost and repeated, an engine that answers late, wrongly or not at all, people who
 * change their orders meanwhile, a daemon that dies after any action. After every action no core
 * has two owners, and no thread is above its allocation beyond the grace. In the end all jobs have
 * what they should have.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/plan/settle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CPUS  4
#define JOBS  3
#define PROCS 2 /* of a job */
#define ACKS  8
#define STEP  200000000ull

struct ack {
    uint64_t generation;
};

struct program { /* a process: what the daemon knows of it, and what it does */
    struct settle_process known;
    uint64_t generation; /* of the last target */
    uint32_t limit, running;
    uint64_t heard; /* generation of the limit; acknowledged when running <= limit */
    bool owes;
    struct ack acks[ACKS];
    unsigned n_acks;
};

struct task {
    struct settle_job known;
    struct settle_process processes[PROCS]; /* scratch of one settle() */
    struct program program[PROCS];
    unsigned n;
    unsigned cores;        /* in force; 0: no fence */
    unsigned update;       /* what the engine was asked for */
    unsigned before;       /* its cores at the beginning of this batch */
    bool pausing, started; /* the second: in this batch; what it had to park before goes on */
};

static struct {
    struct task task[JOBS];
    unsigned n;
    uint64_t now, generation;
    bool engine_away, engine_refuses;
    unsigned seed;
    uint64_t random;
} world;

static unsigned roll(unsigned sides)
{
    world.random = world.random * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(world.random >> 33) % sides;
}

static struct cpuset set_of(unsigned mask)
{
    struct cpuset set;

    cpuset_zero(&set);
    set.word[0] = mask;
    return set;
}

#define ALL ((1u << CPUS) - 1)

static void check(bool good, const char *what)
{
    if (!good)
        fail_msg("seed %u: %s", world.seed, what);
}

/* ---- what may not happen ---- */

static bool may_still_park(const struct task *t)
{
    for (unsigned k = 0; k < t->n; k++) {
        const struct settle_process *p = &t->program[k].known;

        if (!t->known.paused && !t->known.frozen && t->program[k].running > p->want.intra &&
            p->shrink_since_ns && world.now < p->shrink_since_ns + SETTLE_GRACE_NS)
            return true;
    }
    return false;
}

static bool anybody_leaves(void)
{
    for (unsigned i = 0; i < world.n; i++)
        if ((may_still_park(&world.task[i]) && !world.task[i].started) ||
            (world.task[i].known.running && !world.task[i].known.wanted))
            return true;
    return false;
}

/* Before @t gets @mask: whose threads are in the way, outside of what is wanted for them? */
static void check_owners(const struct task *t, unsigned mask)
{
    unsigned gained = mask & ~t->cores;

    for (unsigned i = 0; i < world.n; i++) {
        const struct task *o = &world.task[i];
        unsigned want = (unsigned)o->known.want_cores.word[0];

        if (o == t || !want || (!o->known.exclusive && !t->known.exclusive))
            continue;
        check(!may_still_park(o) || !(gained & ~want & (o->cores ? o->cores : ALL)),
              "a core is given away while its owner's threads park");
        check(!o->known.busy || o->known.paused || !(gained & ~want & o->cores),
              "a core is given away before an engine has taken it from its owner");
    }
    check(!may_still_park(t) || !t->cores || !(t->cores & ~mask),
          "cores are taken from threads that park");
}

/* An acknowledgement may be lost: the process has parked, but the daemon does not know. */
static bool is_waited_for(const struct task *t)
{
    for (unsigned k = 0; k < t->n; k++)
        if (t->program[k].known.shrink_since_ns &&
            world.now < t->program[k].known.shrink_since_ns + SETTLE_GRACE_NS)
            return true;
    return false;
}

/* When a batch is carried out and no engine is asked, no core has been given a second owner. */
static void check_disjoint(void)
{
    for (unsigned i = 0; i < world.n; i++)
        if (world.task[i].known.busy)
            return;
    for (unsigned i = 0; i < world.n; i++)
        for (unsigned k = 0; k < world.n; k++) {
            const struct task *a = &world.task[i], *b = &world.task[k];

            if (a == b || (!a->known.exclusive && !b->known.exclusive) || a->known.remote ||
                b->known.remote || b->known.paused ||
                (a->known.want_cores.word[0] & b->known.want_cores.word[0]))
                continue;
            check(!(a->cores & ~a->before & b->cores) || is_waited_for(b), "a core has two owners");
        }
}

/* ---- carrying out, as plan.c does ---- */

static uint32_t present(const struct settle_process *p)
{
    return p->commanded ? p->sent.intra : p->max;
}

static void send_target(struct program *p)
{
    struct settle_process *known = &p->known;

    if (!known->commanded)
        known->held = known->max;
    if (known->want.intra < known->held && !known->shrink_since_ns)
        known->shrink_since_ns = world.now;
    if (known->want.intra > known->held)
        known->held = known->want.intra;
    known->sent = known->want;
    known->commanded = true;
    p->generation = ++world.generation;
}

/* True if the state has to be filled in again. */
static bool set_cores(struct task *t, unsigned mask)
{
    if (!t->known.remote) {
        t->cores = mask;
        t->known.cores = set_of(mask);
        return false;
    }
    t->update = mask;
    t->known.behind = t->cores != mask;
    if (world.engine_away || t->cores == mask) {
        t->known.stuck = world.engine_away;
        return true;
    }
    t->known.busy = true;
    if (t->cores)
        t->known.cores = set_of(t->cores | mask);
    return false;
}

static bool carry_out(const struct settle_action *a)
{
    struct task *t = &world.task[a->job];

    switch (a->verb) {
    case SETTLE_LOWER:
        check(t->program[a->process].known.want.intra <= present(&t->program[a->process].known),
              "a target is raised before its time");
        send_target(&t->program[a->process]);
        return false;
    case SETTLE_NARROW:
    case SETTLE_WIDEN:
        check(!t->known.busy, "one operation is outstanding already");
        check_owners(t, (unsigned)a->cores.word[0]);
        return set_cores(t, (unsigned)a->cores.word[0]);
    case SETTLE_QUOTA:
        check(t->known.want_quota_mcpu > t->known.quota_mcpu || !may_still_park(t),
              "a quota is narrowed while threads park");
        t->known.quota_mcpu = t->known.want_quota_mcpu;
        return t->known.remote && !t->known.busy;
    case SETTLE_RAISE:
        check(t->cores == t->known.want_cores.word[0], "threads grow before their cores are there");
        check(t->known.urgent || t->known.exclusive || !anybody_leaves(),
              "threads grow while others park");
        send_target(&t->program[a->process]);
        return false;
    case SETTLE_START:
        check(!anybody_leaves() && t->cores == t->known.want_cores.word[0],
              "a job starts before there is room");
        t->known.running = t->started = true;
        t->known.paused = t->pausing = false;
        return false;
    default:
        fail_msg("an unknown verb");
        return false;
    }
}

static void describe(struct settle_state *ret, struct settle_job *jobs, bool again)
{
    for (unsigned i = 0; i < world.n; i++) {
        struct task *t = &world.task[i];

        if (!again)
            t->known.stuck = false;
        jobs[i] = t->known;
        jobs[i].processes = t->processes;
        jobs[i].n_processes = t->n;
        for (unsigned k = 0; k < t->n; k++)
            t->processes[k] = t->program[k].known;
    }
    *ret = (struct settle_state){
        .now_ns = world.now, .cpus = set_of(ALL), .jobs = jobs, .n_jobs = world.n};
}

/* Dies after @life actions; true if it did. Returns how many were asked for. */
static bool advance(unsigned life, size_t *ret_n)
{
    static struct settle_action room[SETTLE_ACTIONS_MAX(JOBS, JOBS * PROCS)];
    struct settle_actions actions = {.action = room};
    struct settle_job jobs[JOBS];
    struct settle_state s;
    bool again = false;

    *ret_n = 0;
    for (unsigned i = 0; i < world.n; i++) {
        world.task[i].pausing |= world.task[i].known.running && !world.task[i].known.wanted;
        world.task[i].started = false;
        world.task[i].before = world.task[i].cores;
    }
    for (unsigned rounds = 0; rounds == 0 || again; rounds++) {
        check(rounds <= 2 * JOBS + 1, "it goes round in circles");
        describe(&s, jobs, again);
        settle(&s, &actions);
        check(actions.n <= SETTLE_ACTIONS_MAX(JOBS, JOBS * PROCS), "there is no room");
        again = false;
        for (size_t i = 0; i < actions.n; i++, ++*ret_n) {
            if (life-- == 0)
                return true;
            again |= carry_out(&actions.action[i]);
        }
    }
    check_disjoint();
    return false;
}

/* ---- what happens meanwhile ---- */

static void hear(struct program *p)
{
    if (p->heard == p->generation || !p->known.commanded)
        return;
    p->heard = p->generation;
    p->limit = p->known.sent.intra;
    p->running = p->running < p->limit ? p->limit : p->running;
    p->owes = true;
}

static void park(struct task *t, struct program *p)
{
    if (t->known.paused)
        return;
    if (p->running > p->limit)
        p->running--;
    if (p->owes && p->running <= p->limit && p->n_acks < ACKS) {
        p->acks[p->n_acks++] = (struct ack){p->heard};
        p->owes = false;
    }
}

/* One of those under way, in any order; it may come again, or be lost. */
static void acknowledge(struct program *p)
{
    unsigned i = p->n_acks ? roll(p->n_acks) : 0;
    bool lost = roll(8) == 0, repeated = roll(4) == 0;

    if (p->n_acks == 0)
        return;
    if (!lost && p->known.commanded && p->acks[i].generation == p->generation) {
        p->known.held = p->known.sent.intra;
        p->known.shrink_since_ns = 0;
    }
    if (lost || !repeated)
        p->acks[i] = p->acks[--p->n_acks];
}

static void engine_answers(struct task *t, bool well)
{
    if (!t->known.busy)
        return;
    if (well)
        t->cores = t->update;
    t->update = t->cores; /* refused: asked for no more, until the plan does */
    t->known.busy = t->known.behind = false;
    t->known.cores = set_of(t->cores);
}

/* The engine now gets the requests that waited while it was away. */
static void engine_comes_back(void)
{
    world.engine_away = false;
    for (unsigned i = 0; i < world.n; i++)
        world.task[i].known.busy |= world.task[i].known.behind;
}

static void connect(struct program *p)
{
    p->known = (struct settle_process){.malleable = true, .max = CPUS, .want = p->known.want};
    p->limit = p->running = CPUS; /* without a daemon each follows its own limit */
    p->heard = p->generation = 0;
    p->owes = false;
    p->n_acks = 0;
}

/* Exclusive jobs get cores of their own, the others what is left; without exclusive ones no fence.
 */
static void decide(void)
{
    unsigned left = ALL, exclusive = 0;

    for (unsigned i = 0; i < world.n; i++) {
        struct settle_job *j = &world.task[i].known;
        unsigned cores = 1 + roll(2);

        j->exclusive = roll(2) && i + 1 < world.n;
        j->wanted = roll(5) > 0;
        j->urgent = roll(4) == 0;
        j->want_quota_mcpu = 1000 * (1 + roll(3));
        j->want_cores = set_of(0);
        if (!j->exclusive || !j->wanted)
            continue;
        exclusive++;
        for (unsigned c = roll(CPUS), tried = 0; tried < CPUS && cores; tried++, c = (c + 1) % CPUS)
            if ((left & (1u << c)) && (left & ~(1u << c))) {
                j->want_cores.word[0] |= 1u << c;
                left &= ~(1u << c);
                cores--;
            }
    }
    for (unsigned i = 0; i < world.n; i++) {
        struct task *t = &world.task[i];
        unsigned share;

        if (exclusive && !t->known.want_cores.word[0] && t->known.wanted)
            t->known.want_cores = set_of(left);
        if (t->known.exclusive && t->known.want_cores.word[0] == left)
            t->known.exclusive = false; /* no core was left for it alone */
        share = cpuset_count(&t->known.want_cores);
        for (unsigned k = 0; k < t->n; k++)
            t->program[k].known.want.intra =
                t->known.wanted ? 1 + roll((share ? share : CPUS) / t->n + 1) : 0;
    }
}

/* The guardian lifts fences and thaws; an engine's update may still arrive, or had not been sent.
 */
static void die(void)
{
    for (unsigned i = 0; i < world.n; i++) {
        struct task *t = &world.task[i];

        engine_answers(t, roll(2));
        if (!t->known.remote || roll(2))
            t->cores = 0;
        t->known.cores = set_of(t->cores);
        t->known.quota_mcpu = UINT32_MAX;
        t->known.behind = false;
        t->update = t->cores;
        t->pausing = false;
        if (t->known.paused) {
            t->known.paused = false;
            t->known.running = true;
        }
        for (unsigned k = 0; k < t->n; k++)
            connect(&t->program[k]);
    }
}

static void happen(void)
{
    struct task *t = &world.task[roll(world.n)];
    struct program *p = &t->program[roll(t->n)];

    switch (roll(12)) {
    case 0:
    case 1:
    case 2:
        hear(p);
        break;
    case 3:
    case 4:
    case 5:
        park(t, p);
        break;
    case 6:
    case 7:
        acknowledge(p);
        break;
    case 8:
        engine_answers(t, roll(4) > 0);
        break;
    case 9:
        world.now += STEP * roll(15);
        break;
    case 10:
        if (t->pausing && t->known.running && !t->known.wanted) {
            t->known.running = t->pausing = false;
            t->known.paused = true;
        }
        break;
    default:
        if (roll(4) == 0)
            decide();
        else if (roll(4) == 0 && world.engine_away)
            engine_comes_back();
        else if (roll(4) == 0)
            world.engine_away = true;
        else if (roll(8) == 0)
            connect(p);
    }
}

/* ---- and in the end ---- */

static bool is_settled(const struct task *t)
{
    for (unsigned k = 0; k < t->n; k++) {
        const struct program *p = &t->program[k];

        if (t->known.wanted &&
            (p->known.sent.intra != p->known.want.intra || p->running != p->known.want.intra))
            return false;
    }
    return t->known.wanted == t->known.running && t->cores == t->known.want_cores.word[0] &&
           t->known.quota_mcpu == t->known.want_quota_mcpu && !t->known.busy;
}

static void converge(void)
{
    bool settled = false;
    size_t n = 1;

    engine_comes_back();
    for (unsigned i = 0; i < 40 && (!settled || n); i++) {
        settled = true;
        advance(UINT32_MAX, &n);
        for (unsigned k = 0; k < world.n; k++) {
            struct task *t = &world.task[k];

            engine_answers(t, true);
            if (t->pausing && !t->known.wanted && t->known.running) {
                t->known.running = false;
                t->known.paused = true;
            }
            for (unsigned m = 0; m < t->n; m++) {
                hear(&t->program[m]);
                for (unsigned more = 0; more < CPUS + 1; more++)
                    park(t, &t->program[m]);
                while (t->program[m].n_acks)
                    acknowledge(&t->program[m]);
            }
            settled &= is_settled(t);
        }
        world.now += SETTLE_GRACE_NS / 4;
    }
    check(settled && n == 0, "it does not come to rest where it should");
}

static void begin(unsigned seed, bool remotes)
{
    memset(&world, 0, sizeof(world));
    world.seed = seed;
    world.random = seed * 2654435761u + 1;
    world.now = 1000 * STEP;
    world.n = 2 + roll(JOBS - 1);
    for (unsigned i = 0; i < world.n; i++) {
        struct task *t = &world.task[i];

        t->n = 1 + roll(PROCS);
        t->known.running = true;
        t->known.remote = remotes && roll(3) == 0;
        t->known.quota_mcpu = UINT32_MAX;
        for (unsigned k = 0; k < t->n; k++)
            connect(&t->program[k]);
    }
    decide();
}

static void any_order_of_events_keeps_the_rules_and_comes_to_rest(void **unused)
{
    const char *soak = getenv("TIDE_SOAK");
    unsigned seeds = soak ? 200000 : 6000;
    size_t n;

    for (unsigned seed = 1; seed <= seeds; seed++) {
        begin(seed, seed % 2);
        for (unsigned i = 0; i < 120; i++) {
            if (advance(roll(25) ? UINT32_MAX : roll(6), &n))
                die();
            happen();
        }
        converge();
    }
}

/* The first decision is carried out by a daemon that dies after 0, 1, 2, … actions. */
static void a_daemon_may_die_after_any_action(void **unused)
{
    size_t n;

    for (unsigned seed = 1; seed <= 500; seed++) {
        bool died = true;

        for (unsigned life = 0; died; life++) {
            begin(seed, seed % 2);
            died = advance(life, &n);
            if (died)
                die();
            converge();
        }
    }
}

/* Two jobs on two cores: every fence, every state of a shrink, every wanted allocation. */
static void place(struct task *t, unsigned state, unsigned threads, unsigned want_cores)
{
    struct program *p = &t->program[0];

    t->n = 1;
    t->cores = state & 3;
    t->known = (struct settle_job){.cores = set_of(state & 3),
                                   .want_cores = set_of(want_cores),
                                   .exclusive = state & 4,
                                   .wanted = true,
                                   .running = !(state & 32),
                                   .paused = state & 32};
    connect(p);
    p->known.max = p->limit = p->running = 2;
    p->known.want.intra = threads;
    if ((state >> 3 & 3) == 0)
        return; /* never commanded */
    p->known.commanded = true;
    p->known.sent.intra = p->known.held = p->limit = 2;
    p->heard = p->generation = ++world.generation;
    if ((state >> 3 & 3) == 1)
        return; /* at rest */
    p->known.sent.intra = p->limit = 1;
    p->owes = true;
    p->known.shrink_since_ns = (state >> 3 & 3) == 2 ? world.now : world.now - SETTLE_GRACE_NS;
}

static void every_state_of_two_jobs_on_two_cores_comes_to_rest(void **unused)
{
    static const unsigned cores[][2] = {{0, 0}, {1, 2}, {2, 1}, {3, 3}, {1, 3}, {3, 2}};

    for (unsigned a = 0; a < 64; a++)
        for (unsigned b = 0; b < 64; b++)
            for (unsigned i = 0; i < 6 * 4; i++) {
                unsigned first = cores[i / 4][0], second = cores[i / 4][1];

                if ((first & second) && ((a | b) & 4))
                    continue; /* no policy decides that */
                memset(&world, 0, sizeof(world));
                world.seed = (a * 64 + b) * 24 + i;
                world.now = 1000 * STEP;
                world.n = 2;
                place(&world.task[0], a, 1 + i % 2, first);
                place(&world.task[1], b, 1 + i / 2 % 2, second);
                converge();
            }
}

/* A job of four threads that has been told to park three of them, and is to have one core. */
struct shrink {
    struct settle_process process;
    struct settle_job job;
    struct settle_state state;
    struct settle_action room[SETTLE_ACTIONS_MAX(1, 1)];
    struct settle_actions actions;
};

static void begin_shrink(struct shrink *s)
{
    s->process = (struct settle_process){.malleable = true,
                                         .commanded = true,
                                         .max = 4,
                                         .held = 4,
                                         .want = {1, 0},
                                         .sent = {1, 0},
                                         .shrink_since_ns = 1};
    s->job = (struct settle_job){
        .want_cores = set_of(1), .cores = set_of(15), .processes = &s->process, .n_processes = 1};
    s->state = (struct settle_state){.now_ns = 2, .cpus = set_of(15), .jobs = &s->job, .n_jobs = 1};
    s->actions = (struct settle_actions){.action = s->room};
}

static void a_shrink_is_waited_for_until_it_expires(void **unused)
{
    struct shrink s;

    begin_shrink(&s);
    s.job.exclusive = s.job.wanted = s.job.running = true;
    settle(&s.state, &s.actions);
    assert_int_equal(s.actions.n, 0);
    assert_int_equal(s.actions.next_ns, 1 + SETTLE_GRACE_NS);
    assert_false(s.job.late);
    s.state.now_ns = 1 + SETTLE_GRACE_NS;
    settle(&s.state, &s.actions);
    assert_int_equal(s.actions.n, 1);
    assert_int_equal(s.room[0].verb, SETTLE_NARROW);
    assert_int_equal(s.actions.next_ns, SETTLE_NEVER);
    assert_true(s.job.late);
}

/* A paused job's agents get a smaller target when the job goes on, so no job waits for them. */
static void what_stands_still_is_not_waited_for(void **unused)
{
    struct shrink s;

    begin_shrink(&s);
    s.job.paused = true;
    settle(&s.state, &s.actions);
    assert_int_equal(s.actions.n, 1);
    assert_int_equal(s.room[0].verb, SETTLE_NARROW);
}

/* Its threads park at a safe point that may be minutes away; others come in by weight meanwhile. */
static void what_waits_for_a_safe_point_keeps_its_cores_where_weights_divide_them(void **unused)
{
    struct shrink s;

    begin_shrink(&s);
    s.process.waits = s.job.weighed = true;
    s.state.now_ns = 1 + SETTLE_GRACE_NS;
    settle(&s.state, &s.actions);
    assert_int_equal(s.actions.n, 0);
    assert_true(s.job.late);
    s.process.held = 1; /* acknowledged */
    s.process.shrink_since_ns = 0;
    s.process.waits = false;
    settle(&s.state, &s.actions);
    assert_int_equal(s.actions.n, 1);
    assert_int_equal(s.room[0].verb, SETTLE_NARROW);
}

static void without_weights_it_leaves_its_cores_at_once(void **unused)
{
    struct shrink s;

    begin_shrink(&s);
    s.process.waits = true;
    settle(&s.state, &s.actions);
    assert_int_equal(s.actions.n, 1);
    assert_int_equal(s.room[0].verb, SETTLE_NARROW);
}

static void a_job_with_cores_of_its_own_leaves_nobody_on_them(void **unused)
{
    struct shrink s;

    begin_shrink(&s);
    s.process.waits = s.job.weighed = s.job.exclusive = true;
    settle(&s.state, &s.actions);
    assert_int_equal(s.actions.n, 1);
    assert_int_equal(s.room[0].verb, SETTLE_NARROW);
}

static void what_waits_gets_a_larger_target_as_everybody_does(void **unused)
{
    struct shrink s;

    begin_shrink(&s);
    s.process.waits = s.job.weighed = true;
    s.process.want.intra = 2;
    s.job.want_cores = set_of(3);
    settle(&s.state, &s.actions);
    assert_int_equal(s.actions.n, 2);
    assert_int_equal(s.room[0].verb, SETTLE_NARROW);
    assert_int_equal(s.room[1].verb, SETTLE_RAISE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_waits_for_a_safe_point_keeps_its_cores_where_weights_divide_them),
        cmocka_unit_test(without_weights_it_leaves_its_cores_at_once),
        cmocka_unit_test(a_job_with_cores_of_its_own_leaves_nobody_on_them),
        cmocka_unit_test(what_waits_gets_a_larger_target_as_everybody_does),
        cmocka_unit_test(a_shrink_is_waited_for_until_it_expires),
        cmocka_unit_test(what_stands_still_is_not_waited_for),
        cmocka_unit_test(every_state_of_two_jobs_on_two_cores_comes_to_rest),
        cmocka_unit_test(a_daemon_may_die_after_any_action),
        cmocka_unit_test(any_order_of_events_keeps_the_rules_and_comes_to_rest),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Idle cores lent as extra threads: single looks by hand, and a machine in small on which loads of
 * all frequencies run, with weights of control groups and without.
 */
#include "policy/core/extras.h"

#include "test_random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define MS     UINT64_C(1000000)
#define SECOND UINT64_C(1000000000)
#define JOBS   6

/* ---- looks by hand --------------------------------------------------------------------------- */

static struct extras x;
static struct extras_job jobs[JOBS];
static struct extras_user users[JOBS];
static uint64_t now_ns;
static uint32_t count;

static void setup(uint32_t n)
{
    memset(&x, 0, sizeof(x));
    memset(jobs, 0, sizeof(jobs));
    now_ns = SECOND;
    count = n;
    for (uint32_t i = 0; i < JOBS; i++) {
        users[i].most = UINT32_MAX;
        jobs[i] = (struct extras_job){.id = i + 1,
                                      .share = 2,
                                      .most = 8,
                                      .weight = 100,
                                      .busy_mcpu = 2000,
                                      .rate = 1000,
                                      .user = i};
    }
}

static enum extras_end look(int64_t idle_mcpu)
{
    struct extras_machine machine = {.now_ns = now_ns += EXTRAS_LOOK_NS, .idle_mcpu = idle_mcpu};

    extras_look(&x, &machine, jobs, count, users, JOBS);
    return jobs[0].end;
}

/* A loan of one thread to the first job of two; the second one is idle. */
static void lend_one(void)
{
    setup(2);
    jobs[1].busy_mcpu = 700;
    look(1300);
    look(1300);
    assert_int_equal(jobs[0].loan.extra, 1);
    jobs[0].busy_mcpu = 2900;
    jobs[0].rate = 1400;
    look(400);
    assert_int_equal(jobs[0].loan.extra, 1);
}

static void cores_idle_for_two_looks_are_lent(void **state)
{
    setup(2);
    jobs[1].busy_mcpu = 700;
    look(1300);
    assert_int_equal(jobs[0].loan.extra, 0);
    look(300);
    look(1300);
    assert_int_equal(jobs[0].loan.extra, 0);
    assert_int_equal(look(1300), EXTRAS_KEPT);
    assert_int_equal(jobs[0].loan.extra, 1);
    assert_int_equal(jobs[1].loan.extra, 0); /* it does not use its share */
    assert_int_equal(users[0].extra, 1);
    assert_int_equal(extras_of(&jobs[0].loan, 2), 1);
    assert_int_equal(extras_of(&jobs[0].loan, 3), 0);
}

static void a_loan_ends_when_somebody_waits(void **state)
{
    lend_one();
    jobs[1].busy_mcpu = 1700;
    jobs[1].wait_mcpu = 300;
    assert_int_equal(look(0), EXTRAS_WAITS);
    assert_int_equal(jobs[0].loan.extra, 0);
}

/* The machine slept for an hour, or nobody let the daemon run. */
static void a_loan_that_pays_outlives_a_leap_of_the_clock(void **state)
{
    lend_one();
    for (int i = 0; i < 10; i++)
        look(400);
    now_ns += 3600 * SECOND;
    assert_int_equal(look(400), EXTRAS_KEPT);
    assert_int_equal(jobs[0].loan.extra, 1);
    jobs[1].wait_mcpu = 300;
    assert_int_equal(look(0), EXTRAS_WAITS);
}

/* A process of no job took the core. */
static void a_loan_ends_when_no_core_is_idle(void **state)
{
    lend_one();
    jobs[0].busy_mcpu = 2050;
    assert_int_equal(look(20), EXTRAS_NO_IDLE);
    assert_int_equal(jobs[0].loan.extra, 0);
}

static void a_loan_ends_when_the_job_uses_it_no_more(void **state)
{
    lend_one();
    jobs[0].busy_mcpu = 1000; /* its serial phase */
    assert_int_equal(look(2300), EXTRAS_UNUSED);
    assert_int_equal(jobs[0].loan.extra, 0);
}

static void a_loan_ends_with_its_share(void **state)
{
    lend_one();
    jobs[0].share = 3;
    assert_int_equal(look(1000), EXTRAS_BOUND);
    assert_int_equal(jobs[0].loan.extra, 0);
    lend_one();
    jobs[0].share = 0; /* paused */
    look(1000);
    assert_int_equal(jobs[0].loan.extra, 0);
    lend_one();
    jobs[0].most = 2; /* tide set --max, or a pin */
    assert_int_equal(look(1000), EXTRAS_BOUND);
    assert_int_equal(jobs[0].loan.extra, 0);
}

static uint64_t held_until(void)
{
    uint64_t since = now_ns;

    while (jobs[0].loan.extra == 0 && now_ns < since + 1000 * SECOND)
        look(1300);
    return now_ns - since;
}

static void a_loan_without_progress_comes_ever_more_rarely(void **state)
{
    uint64_t before = 0;

    setup(2);
    jobs[1].busy_mcpu = 700;
    held_until();
    for (int i = 0; i < 6; i++) {
        uint64_t held, begin = now_ns;

        while (jobs[0].loan.extra)
            look(1300); /* its rate stays */
        assert_in_range(now_ns - begin, EXTRAS_TRIAL_NS, EXTRAS_TRIAL_NS + EXTRAS_LOOK_NS);
        held = held_until();
        assert_true(held > before);
        before = held;
    }
    assert_true(before >= 10 * SECOND);
}

/* A runtime that counts nothing: that it uses the cores has to do. */
static void without_known_progress_use_decides(void **state)
{
    lend_one();
    for (int i = 0; i < 20; i++) {
        jobs[0].rate = 0;
        look(400);
    }
    assert_int_equal(jobs[0].loan.extra, 1);
    lend_one();
    jobs[0].rate = jobs[0].loan.before = 0;
    jobs[0].busy_mcpu = 2100;
    for (uint64_t begin = now_ns; now_ns - begin < EXTRAS_TRIAL_NS && jobs[0].loan.extra;)
        look(1200);
    assert_int_equal(jobs[0].loan.extra, 0);
}

static void the_steeper_curve_gets_it(void **state)
{
    static const uint32_t flat[] = {1000, 1500, 1700, 1800}, steep[] = {1000, 1900, 2700, 3500};
    static const struct policy_curve slow = {flat, NULL, 4, 1000}, fast = {steep, NULL, 4, 1000};

    setup(3);
    jobs[0].curve = &slow;
    jobs[1].curve = &fast;
    jobs[2].busy_mcpu = 0;
    look(1300);
    look(1300);
    assert_int_equal(jobs[0].loan.extra, 1); /* each user one first */
    assert_int_equal(jobs[1].loan.extra, 1);
    setup(3);
    jobs[0].user = jobs[1].user = 0;
    jobs[0].curve = &slow;
    jobs[1].curve = &fast;
    jobs[2].busy_mcpu = 0;
    look(1900);
    look(1900);
    assert_int_equal(jobs[0].loan.extra, 0);
    assert_int_equal(jobs[1].loan.extra, 2);
}

/*
 * With many cores a job keeps but a part of them busy, and so does each extra thread. What the loan
 * keeps busy counts as lent, though it is less than the job's own share.
 */
static void threads_that_are_busy_in_part_are_lent_until_the_cores_are_full(void **state)
{
    enum { COUNT = 64 };
    static uint32_t speedup[COUNT];
    static const struct policy_curve curve = {speedup, NULL, COUNT, 1000};

    for (uint32_t k = 1; k <= COUNT; k++)
        speedup[k - 1] = 1000 * 50 * k / (49 + k); /* Amdahl, 0.98 parallel */
    setup(1);
    jobs[0].curve = &curve;
    jobs[0].share = 22;
    jobs[0].most = COUNT;
    jobs[0].busy_mcpu = speedup[22 - 1];
    look(6000);
    look(6000);
    assert_in_range(jobs[0].loan.extra, 10, 18); /* a thread more takes half a core */
    for (int i = 0; i < 100; i++) {
        uint32_t extra = jobs[0].loan.extra, has = 22 + extra;
        int64_t busy = speedup[has - 1], left = speedup[22 - 1] + 6000 - busy;

        jobs[0].busy_mcpu = busy;
        jobs[0].rate = (uint64_t)busy;
        assert_int_equal(look(left > 0 ? left : 0), EXTRAS_KEPT);
        assert_true(jobs[0].loan.extra >= extra);
    }
    jobs[0].busy_mcpu = speedup[22 - 1]; /* somebody else has taken them */
    assert_int_equal(look(0), EXTRAS_NO_IDLE);
    assert_int_equal(jobs[0].loan.extra, 0);
}

static void interactive_jobs_are_lent_first(void **state)
{
    setup(3);
    jobs[0].class = 10;
    jobs[1].weight = 50; /* gains less, and is younger */
    jobs[2].busy_mcpu = 700;
    look(1300);
    look(1300);
    assert_int_equal(jobs[0].loan.extra, 0);
    assert_int_equal(jobs[1].loan.extra, 1);
}

static void a_users_limit_holds(void **state)
{
    setup(3);
    jobs[0].user = jobs[1].user = 0;
    users[0].most = 5;
    jobs[2].busy_mcpu = 0;
    look(4000);
    look(4000);
    assert_int_equal(jobs[0].loan.extra + jobs[1].loan.extra, 1);
    users[0].most = 4;
    jobs[0].busy_mcpu = jobs[1].busy_mcpu = 2500;
    look(3000);
    assert_int_equal(jobs[0].end, EXTRAS_BOUND);
    assert_int_equal(jobs[0].loan.extra + jobs[1].loan.extra, 0);
}

/* The kernel has not moved a thread to the idle core yet, or the job is bound to others: its
 * progress tells. */
static void who_waits_beside_idle_cores_is_tried(void **state)
{
    setup(1);
    jobs[0].wait_mcpu = 500;
    look(3000);
    look(3000);
    assert_int_not_equal(jobs[0].loan.extra, 0);
    for (uint64_t begin = now_ns; now_ns - begin < EXTRAS_TRIAL_NS - EXTRAS_LOOK_NS;) {
        jobs[0].wait_mcpu = 500;
        assert_int_equal(look(3000), EXTRAS_KEPT);
    }
    jobs[0].wait_mcpu = 500;
    assert_int_equal(look(3000), EXTRAS_NO_GAIN);
    assert_int_equal(jobs[0].loan.extra, 0);
}

static void beside_another_users_loan_all_waiting_counts(void **state)
{
    lend_one();
    jobs[1].wait_mcpu = 300;
    assert_int_equal(look(400), EXTRAS_WAITS);
    assert_int_equal(jobs[0].loan.extra, 0);
    lend_one();
    jobs[1].user = jobs[0].user;
    jobs[1].wait_mcpu = 300;
    assert_int_equal(look(400), EXTRAS_KEPT);
    assert_int_equal(jobs[0].loan.extra, 1);
}

static void who_waits_for_more_than_is_idle_is_not_made_to_wait_longer(void **state)
{
    setup(2);
    for (int i = 0; i < 5; i++) {
        jobs[0].wait_mcpu = 300;
        jobs[1].wait_mcpu = 700;
        look(800);
    }
    assert_int_equal(jobs[0].loan.extra + jobs[1].loan.extra, 0);
}

/* ---- a machine in small ---------------------------------------------------------------------- */

#define STEP_NS (10 * MS)

/* A load: of each period the first part runs on all threads, the rest on `rest` threads. */
struct load {
    uint32_t share;
    uint64_t period_ns, busy_ns, phase_ns;
    uint32_t rest;
    bool flat; /* more threads than its share make it no faster */
    bool lies; /* its progress is told as it likes: with more threads ever more */
    double cpu, wait, work, done;
};

struct small {
    struct load load[JOBS];
    uint32_t cores, n;
    bool weights, off;
    uint64_t ns, look_ns;
    double idle;
    uint32_t changes;                /* of numbers of extra threads */
    uint64_t wronged_ns, longest_ns; /* how long somebody without loan has waited beside loans */
};

static uint32_t threads_now(const struct small *m, uint32_t i)
{
    const struct load *l = &m->load[i];
    bool parallel = (m->ns + l->phase_ns) % l->period_ns < l->busy_ns;
    uint32_t all = l->share + jobs[i].loan.extra;

    return parallel ? all : l->rest < all ? l->rest : all;
}

/* Divides the cores by weight (shares, as groups have) or by thread; nobody gets more than it can
 * use. */
static void divide(const struct small *m, const uint32_t *threads, double *got)
{
    double left = m->cores;
    bool done[JOBS] = {false}, again = true;

    while (again) {
        double weights = 0, level = left;

        again = false;
        for (uint32_t i = 0; i < m->n; i++)
            weights += done[i] ? 0 : m->weights ? m->load[i].share : threads[i];
        for (uint32_t i = 0; i < m->n && weights > 0; i++) {
            double weight = m->weights ? m->load[i].share : threads[i];

            if (done[i])
                continue;
            got[i] = level * weight / weights;
            if (got[i] < threads[i])
                continue;
            got[i] = threads[i];
            left -= got[i];
            done[i] = again = true;
        }
    }
}

static void step(struct small *m)
{
    uint32_t threads[JOBS], extra = 0;
    double got[JOBS] = {0}, used = 0;
    bool wronged = false;

    for (uint32_t i = 0; i < m->n; i++) {
        threads[i] = threads_now(m, i);
        extra += jobs[i].loan.extra;
    }
    divide(m, threads, got);
    for (uint32_t i = 0; i < m->n; i++) {
        struct load *l = &m->load[i];

        l->cpu += got[i];
        l->wait += threads[i] - got[i];
        l->work += l->flat && got[i] > l->share ? l->share : got[i];
        used += got[i];
        wronged |= jobs[i].loan.extra == 0 && threads[i] - got[i] > 0.2 * threads[i];
    }
    m->idle += m->cores - used;
    m->wronged_ns = wronged && extra ? m->wronged_ns + STEP_NS : 0;
    if (m->wronged_ns > m->longest_ns)
        m->longest_ns = m->wronged_ns;
    m->ns += STEP_NS;
}

static void look_at(struct small *m)
{
    double steps = (double)EXTRAS_LOOK_NS / STEP_NS;
    uint32_t before[JOBS];

    for (uint32_t i = 0; i < m->n; i++) {
        struct load *l = &m->load[i];

        jobs[i].share = l->share;
        jobs[i].busy_mcpu = (int64_t)(1000 * l->cpu / steps);
        jobs[i].wait_mcpu = (int64_t)(1000 * l->wait / steps);
        jobs[i].rate = l->lies ? (1 + jobs[i].loan.extra) * (1 + random_next() % 1000000)
                               : (uint64_t)(100000 * l->work / steps);
        l->done += l->work;
        l->cpu = l->wait = l->work = 0;
        before[i] = jobs[i].loan.extra;
    }
    if (!m->off)
        look((int64_t)(1000 * m->idle / steps));
    m->idle = 0;
    for (uint32_t i = 0; i < m->n; i++)
        m->changes += before[i] != jobs[i].loan.extra;
}

static void run(struct small *m, uint64_t ns)
{
    for (uint64_t end = m->ns + ns; m->ns < end;) {
        step(m);
        if (m->ns % EXTRAS_LOOK_NS == 0)
            look_at(m);
    }
}

static void machine(struct small *m, uint32_t cores, uint32_t n, bool weights)
{
    setup(n);
    *m = (struct small){.cores = cores, .n = n, .weights = weights};
    for (uint32_t i = 0; i < n; i++) {
        jobs[i].most = cores;
        m->load[i] =
            (struct load){.share = cores / n, .period_ns = SECOND, .busy_ns = SECOND, .rest = 1};
    }
}

static void a_long_gap_is_filled_and_left_in_a_second(void **state)
{
    for (int weights = 0; weights < 2; weights++) {
        struct small m;

        machine(&m, 8, 2, weights);
        m.load[1].period_ns = 20 * SECOND;
        m.load[1].busy_ns = 10 * SECOND;
        run(&m, 10 * SECOND);
        assert_int_equal(jobs[0].loan.extra, 0);
        run(&m, SECOND);
        assert_int_equal(jobs[0].loan.extra, 3); /* its serial phase uses one of its four */
        run(&m, 8800 * MS);
        assert_int_equal(jobs[0].loan.extra, 3);
        run(&m, 1200 * MS);
        assert_int_equal(jobs[0].loan.extra, 0);
        run(&m, 200 * SECOND);
        assert_in_range(m.changes, 20, 24); /* each gap, however many came before */
        assert_true(m.longest_ns <= SECOND);
    }
}

static double work_of(const struct small *m)
{
    double all = 0;

    for (uint32_t i = 0; i < m->n; i++)
        all += m->load[i].done;
    return all;
}

/* Changes of numbers of extra threads in the last half of the run. */
static uint32_t late_changes(struct small *m, uint64_t period_ns, bool weights, bool lends)
{
    uint32_t early;

    machine(m, 8, 2, weights);
    m->off = !lends;
    m->load[1].period_ns = period_ns;
    m->load[1].busy_ns = period_ns / 20 * 10;
    run(m, 150 * SECOND);
    early = m->changes;
    run(m, 150 * SECOND);
    return m->changes - early;
}

/*
 * Periods around the look's, with which looks beat: they gain more than they cost, and whoever
 * leaves cores idle loses a twentieth at most, and nothing under weights. Hold-offs have grown to a
 * minute by the last half, in which two jobs begin and end three loans each and one in progress; a
 * limit cycle has 50 and more. One is left, near three looks: the beat of 570 to 620 ms takes
 * twelve seconds or more, so that some loans are as long as honest gaps are. These come at most
 * once in a second and a half.
 */
static void no_load_makes_loans_swing(void **state)
{
    for (uint64_t period = 20 * MS; period <= 4000 * MS;
         period += period < 2500 * MS ? 10 * MS : 70 * MS)
        for (int weights = 0; weights < 2; weights++) {
            bool slow_beat = weights && period >= 570 * MS && period <= 620 * MS;
            struct small with, without;
            uint32_t changes = late_changes(&with, period, weights, true);

            late_changes(&without, period, weights, false);
            assert_true(changes <= (slow_beat ? 100 : 14));
            assert_true(with.load[0].done >= without.load[0].done);
            assert_true(with.load[1].done >= 0.95 * without.load[1].done);
            assert_true(work_of(&with) >= work_of(&without));
            assert_true(!weights || with.load[1].done >= 0.999 * without.load[1].done);
            assert_true(with.longest_ns <= SECOND);
        }
}

static void a_constant_load_converges(void **state)
{
    random_state = 7;

    for (int i = 0; i < 500; i++) {
        struct small m;
        uint32_t n = 1 + (uint32_t)(random_next() % JOBS);

        machine(&m, n + (uint32_t)(random_next() % 12), n, random_next() % 2);
        for (uint32_t k = 0; k < n; k++) {
            m.load[k].rest = (uint32_t)(random_next() % 4);
            m.load[k].busy_ns = random_next() % 2 ? SECOND : 0;
            m.load[k].flat = random_next() % 3 == 0;
        }
        run(&m, 120 * SECOND);
        m.changes = 0;
        run(&m, 60 * SECOND);
        assert_true(m.changes <= 2 * n); /* a trial now and then that does not pay */
        assert_true(m.longest_ns <= SECOND);
    }
}

static void who_has_work_is_never_without_its_cores_for_long(void **state)
{
    random_state = 11;

    for (int i = 0; i < 300; i++) {
        struct small m;
        uint32_t n = 2 + (uint32_t)(random_next() % (JOBS - 1));

        machine(&m, n + (uint32_t)(random_next() % 12), n, random_next() % 2);
        for (uint32_t k = 0; k < n; k++) {
            struct load *l = &m.load[k];

            l->period_ns = (2 + random_next() % 1000) * STEP_NS;
            l->busy_ns = random_next() % l->period_ns;
            l->phase_ns = random_next() % l->period_ns;
            l->rest = (uint32_t)(random_next() % 3);
            l->flat = random_next() % 4 == 0;
            l->lies = i % 2 && random_next() % 2;
        }
        for (int k = 0; k < 100; k++) {
            uint32_t extra = 0;

            run(&m, SECOND);
            for (uint32_t j = 0; j < n; j++) {
                assert_true(jobs[j].share + jobs[j].loan.extra <= m.cores);
                extra += jobs[j].loan.extra;
            }
            assert_true(extra < m.cores);
        }
        assert_true(m.longest_ns <= SECOND);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cores_idle_for_two_looks_are_lent),
        cmocka_unit_test(a_loan_ends_when_somebody_waits),
        cmocka_unit_test(a_loan_that_pays_outlives_a_leap_of_the_clock),
        cmocka_unit_test(a_loan_ends_when_no_core_is_idle),
        cmocka_unit_test(a_loan_ends_when_the_job_uses_it_no_more),
        cmocka_unit_test(a_loan_ends_with_its_share),
        cmocka_unit_test(a_loan_without_progress_comes_ever_more_rarely),
        cmocka_unit_test(without_known_progress_use_decides),
        cmocka_unit_test(the_steeper_curve_gets_it),
        cmocka_unit_test(threads_that_are_busy_in_part_are_lent_until_the_cores_are_full),
        cmocka_unit_test(interactive_jobs_are_lent_first),
        cmocka_unit_test(a_users_limit_holds),
        cmocka_unit_test(who_waits_beside_idle_cores_is_tried),
        cmocka_unit_test(beside_another_users_loan_all_waiting_counts),
        cmocka_unit_test(who_waits_for_more_than_is_idle_is_not_made_to_wait_longer),
        cmocka_unit_test(a_long_gap_is_filled_and_left_in_a_second),
        cmocka_unit_test(no_load_makes_loans_swing),
        cmocka_unit_test(a_constant_load_converges),
        cmocka_unit_test(who_has_work_is_never_without_its_cores_for_long),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keeper of a cap, against policies (which must count the same cores) and against a small
 * machine whose true curve it does not know.
 */
#include "keeper_case.h"
#include "policy/core/policy.h"
#include "sanitized.h"
#include "test_random.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* How many cores the policies' two ways of counting make of the plan. */
static void assert_policies_count(const struct keeper_plan *plan, uint32_t cores)
{
    struct policy_domain root;
    struct policy_snapshot snapshot = {.domains = &root, .domain_count = 1};
    struct policy_fault fault;
    int64_t multiplied;

    policy_machine_init(&root, POLICY_CORES_MAX * POLICY_CORE_MCPU, 0);
    root.idle_uw = plan->idle_uw;
    root.core_uw = plan->core_uw;
    root.cap_uw = plan->cap_uw;
    assert_int_equal(policy_snapshot_check(&snapshot, &fault), 0);
    multiplied = policy_domain_capacity(&snapshot, 0, POLICY_MCPU);
    assert_int_equal(multiplied, (int64_t)cores * POLICY_CORE_MCPU);
    assert_int_equal((plan->cap_uw - plan->idle_uw) / plan->core_uw, cores);
}

static void without_a_cap_nothing_is_asked(void **state)
{
    struct keeper k = {0};
    struct watts none = {0};
    struct keeper_input in = {.now_ns = SECOND, .cores = 8, .watts = &none, .quota = true};
    struct keeper_plan plan;

    (void)state;
    assert_int_equal(keeper_step(&k, &in, &plan), 0);
    assert_int_equal(plan.cap_uw, 0);
    assert_int_equal(plan.quota_mcpu, 0);
    assert_false(plan.changed);
    assert_true(plan.next_ns == UINT64_MAX);
}

static void a_cap_without_watts_is_no_plan(void **state)
{
    struct keeper k = {0};
    struct watts none = {0};
    struct keeper_input in = {.now_ns = SECOND, .cap_uw = 90 * W, .cores = 8, .watts = &none};
    struct keeper_plan plan = {.cores = 77};

    (void)state;
    assert_int_equal(keeper_step(&k, &in, &plan), -ENODATA);
    assert_int_equal(plan.cores, 77);
    assert_int_equal(k.cap_uw, 0);
}

static void the_plan_fits_under_the_cap_and_policies_count_it_alike(void **state)
{
    (void)state;
    random_state = 1;
    for (int run = 0; run < TIMES(4000); run++) {
        uint32_t cores = 1 + random_below(one_in(4) ? 512 : 16);
        uint64_t idle = random_below(100) * W + random_below(1000);
        struct watts w =
            curve_of(idle, idle + (uint64_t)cores * random_below(20) * W, cores, random_below(400));
        struct keeper k = {0};
        struct keeper_input in = {.now_ns = SECOND,
                                  .cap_uw = 1 + random_below(200) * W + random_below(1000000),
                                  .other_mcpu = random_below(2) * random_below(cores * 1000),
                                  .speed_permille = one_in(3) ? 500 + random_below(1000) : 0,
                                  .cores = cores,
                                  .watts = &w,
                                  .quota = one_in(2)};
        struct keeper_plan plan;
        struct power_range p;

        assert_int_equal(keeper_step(&k, &in, &plan), 0);
        assert_true(plan.changed);
        assert_true(plan.cores <= cores && plan.most_mcpu <= cores * 1000);
        assert_policies_count(&plan, plan.cores);
        p = keeper_forecast(&k, &in, plan.most_mcpu);
        if (plan.most_mcpu)
            assert_true(p.high_uw <= in.cap_uw);
        if (!in.quota)
            assert_true(plan.cores * 1000 <= plan.most_mcpu && plan.quota_mcpu == 0);
        else if (plan.cores)
            assert_true(plan.cores * 1000 < plan.most_mcpu + 1000);
        assert_int_equal(keeper_step(&k, &in, &plan), 0);
        assert_false(plan.changed);
    }
}

static void load_of_no_job_counts_as_idle(void **state)
{
    struct watts w = curve_of(40 * W, 140 * W, 8, 0);
    struct keeper quiet = {0}, busy = {0};
    struct keeper_input in = {.now_ns = SECOND, .cap_uw = 110 * W, .cores = 8, .watts = &w};
    struct keeper_plan without, with;

    (void)state;
    assert_int_equal(keeper_step(&quiet, &in, &without), 0);
    in.other_mcpu = 2000;
    assert_int_equal(keeper_step(&busy, &in, &with), 0);
    assert_int_equal(with.cores, without.cores - 2);
    assert_true(with.idle_uw >= watts_at(&w, 2000).uw);
    assert_true(without.idle_uw < watts_at(&w, 1000).uw);
    assert_int_equal(with.whole_mcpu, without.whole_mcpu); /* whoever's load it is */
    assert_true(with.whole_mcpu >= with.most_mcpu + 2000 && with.whole_mcpu < 5600);
    assert_true(keeper_forecast(&quiet, &in, with.whole_mcpu - 2000).uw <= in.cap_uw);

    in.other_mcpu = 7000; /* above the cap without any job */
    assert_int_equal(keeper_step(&busy, &in, &with), 0);
    assert_int_equal(with.cores, 0);
    assert_true(with.over);
    assert_true(with.changed);
}

static void the_fraction_of_a_core_is_held_by_a_quota(void **state)
{
    struct watts w = {.point = {{0, 20 * W}, {2000, 40 * W}}, .count = 2, .basis = POWER_MODELLED};
    struct keeper k = {0};
    struct keeper_input in = {
        .now_ns = SECOND, .cap_uw = 36 * W, .cores = 2, .watts = &w, .quota = true};
    struct keeper_plan plan;

    (void)state;
    assert_int_equal(keeper_step(&k, &in, &plan), 0);
    assert_int_equal(plan.most_mcpu, 1550); /* 12 permille and a quantum below 1600 */
    assert_int_equal(plan.cores, 2);
    assert_int_equal(plan.quota_mcpu, 1550);
    in.cap_uw = 10 * W; /* below the idle machine: jobs that cannot pause are not stopped */
    in.now_ns += SECOND;
    assert_int_equal(keeper_step(&k, &in, &plan), 0);
    assert_int_equal(plan.cores, 0);
    assert_int_equal(plan.quota_mcpu, KEEPER_QUOTA_MIN);
    assert_true(plan.over);
}

static void a_limit_is_the_cap_less_what_it_does_not_reach(void **state)
{
    struct watts w = curve_of(40 * W, 140 * W, 8, 0);
    struct keeper k = {0};
    struct keeper_input in = {.now_ns = SECOND,
                              .cap_uw = 90 * W,
                              .cores = 8,
                              .watts = &w,
                              .limit = true,
                              .unlimited_uw = 25 * W};
    struct keeper_plan plan;

    (void)state;
    assert_int_equal(keeper_step(&k, &in, &plan), 0);
    assert_int_equal(plan.limit_uw, 90 * W - 90 * W * 20 / 1000 - 25 * W);
    in.unlimited_uw = 100 * W;
    assert_int_equal(keeper_step(&k, &in, &plan), 0);
    assert_int_equal(plan.limit_uw, 1);
    in.cap_uw = 0;
    assert_int_equal(keeper_step(&k, &in, &plan), 0);
    assert_int_equal(plan.limit_uw, 0);
    assert_true(plan.changed);
}

static void a_stale_reading_changes_nothing(void **state)
{
    struct watts w = curve_of(40 * W, 140 * W, 8, 50);
    struct keeper k = {0}, before;
    struct keeper_input in = {.now_ns = 100 * SECOND,
                              .cap_uw = 110 * W,
                              .machine = measured(200 * W),
                              .machine_ns = 100 * SECOND - KEEPER_FRESH_NS - 1,
                              .sensed = true,
                              .load_mcpu = 1000,
                              .cores = 8,
                              .watts = &w};
    struct keeper_plan plan;

    (void)state;
    assert_int_equal(keeper_step(&k, &in, &plan), 0);
    assert_int_equal(k.bias_uw, 0);
    assert_int_equal(k.read_ns, 0);
    in.machine_ns = in.now_ns + 1; /* from the future */
    assert_int_equal(keeper_step(&k, &in, &plan), 0);
    assert_int_equal(k.bias_uw, 0);
    in.machine_ns = in.now_ns;
    in.sensed = false; /* the model's own word */
    assert_int_equal(keeper_step(&k, &in, &plan), 0);
    assert_int_equal(k.bias_uw, 0);
    in.sensed = true;
    assert_int_equal(keeper_step(&k, &in, &plan), 0);
    assert_true(k.bias_uw > (int64_t)(100 * W));
    before = k;
    in.now_ns += SECOND; /* the same one again */
    in.machine = measured(60 * W);
    assert_int_equal(keeper_step(&k, &in, &plan), 0);
    assert_int_equal(k.bias_uw, before.bias_uw);
}

static void without_readings_the_models_error_counts_again(void **state)
{
    struct watts w = curve_of(40 * W, 140 * W, 8, 400);
    struct keeper k = {0};
    struct keeper_input in = {.now_ns = 100 * SECOND,
                              .cap_uw = 110 * W,
                              .machine = measured(watts_at(&w, 2000).uw),
                              .machine_ns = 100 * SECOND,
                              .sensed = true,
                              .load_mcpu = 2000,
                              .cores = 8,
                              .watts = &w};
    struct keeper_plan trusted, blind;

    (void)state;
    assert_int_equal(keeper_step(&k, &in, &trusted), 0);
    in.now_ns += KEEPER_TRUST_NS;
    assert_int_equal(keeper_step(&k, &in, &blind), 0);
    assert_true(blind.most_mcpu >= trusted.most_mcpu);
    in.now_ns = blind.next_ns;
    while (in.now_ns <= 100 * SECOND + KEEPER_TRUST_NS)
        in.now_ns++;
    assert_int_equal(keeper_step(&k, &in, &blind), 0);
    assert_true(blind.most_mcpu < trusted.most_mcpu);
    assert_true(keeper_forecast(&k, &in, blind.most_mcpu).high_uw <= in.cap_uw);
}

/* ---- a machine ------------------------------------------------------------------------------- */

/* The machine as the keeper cannot see it: the true curve, the jobs' hunger, noise. */
struct machine {
    uint32_t cores;
    uint64_t idle_uw, bent_uw,
        straight_uw; /* power: idle + bent × (1 - 2^-load) + straight × load */
    uint32_t noise_permille;
    uint32_t allowed_mcpu; /* in force since the last step */
    uint32_t hunger_mcpu, other_mcpu;
};

static uint64_t truth_uw(const struct machine *m, uint32_t load_mcpu)
{
    uint64_t bent = m->bent_uw, load = load_mcpu;

    /* A hyperbola: concave, steep at first. */
    bent = bent * load / (load + 1000 * m->cores / 2);
    return m->idle_uw + bent + m->straight_uw * load / (1000 * m->cores);
}

static uint32_t jobs_mcpu(const struct machine *m)
{
    return m->hunger_mcpu < m->allowed_mcpu ? m->hunger_mcpu : m->allowed_mcpu;
}

static uint32_t load_of(const struct machine *m)
{
    uint32_t load = jobs_mcpu(m) + m->other_mcpu;

    return load < m->cores * 1000 ? load : m->cores * 1000;
}

static struct machine random_machine(void)
{
    struct machine m = {.cores = 2 + random_below(15)};

    m.idle_uw = (20 + random_below(100)) * W;
    m.bent_uw = m.cores * (1 + random_below(8)) * W;
    m.straight_uw = m.cores * (2 + random_below(8)) * W;
    m.noise_permille = random_below(15);
    m.allowed_mcpu = m.hunger_mcpu = m.cores * 1000;
    return m;
}

/* The model has the machine's idle and full power, wrong by up to an eighth, and a straight line.
 */
static struct watts wrong_model(const struct machine *m)
{
    uint64_t idle = m->idle_uw * (875 + random_below(251)) / 1000;
    uint64_t full = truth_uw(m, m->cores * 1000) * (875 + random_below(251)) / 1000;

    if (full < idle)
        full = idle;
    return (struct watts){.point = {{0, idle}, {m->cores * 1000, full}},
                          .count = 2,
                          .error_permille = 300,
                          .basis = POWER_ASSUMED};
}

static uint64_t noisy(const struct machine *m, uint64_t uw)
{
    return uw * (1000 - m->noise_permille + random_below(2 * m->noise_permille + 1)) / 1000;
}

/* Properties of each step; true power is judged by the caller. */
static void check_step(const struct keeper *before, const struct keeper *after,
                       const struct keeper_input *in, const struct keeper_plan *plan)
{
    struct keeper_input lasting = *in;

    assert_policies_count(plan, plan->cores);
    assert_true(plan->next_ns > in->now_ns);
    lasting.other_mcpu = after->other_mcpu;
    if (plan->most_mcpu) {
        assert_true(keeper_forecast(after, &lasting, plan->most_mcpu).high_uw <= in->cap_uw);
        assert_true(keeper_forecast(after, in, plan->most_mcpu).uw <= in->cap_uw / 1000 * 1011);
    }
    if (before->cap_uw && plan->most_mcpu > before->most_mcpu) {
        /* As far as a quota grows alone, or out of a pause that was not tried in vain before. */
        uint32_t up = (before->most_mcpu + 999) / 1000 * 1000;
        bool gone = in->other_mcpu + 100 < before->beside_mcpu;
        uint64_t wait_ns = gone ? KEEPER_GROW_NS : before->wait_ns;
        bool goes_on = before->most_mcpu == 0 && wait_ns <= KEEPER_GROW_NS;

        assert_true(plan->most_mcpu - before->most_mcpu <= (before->most_mcpu ? 2000 : 1000));
        assert_true(plan->most_mcpu <= up || goes_on || in->now_ns - before->changed_ns >= wait_ns);
    }
}

struct outcome {
    uint32_t seconds_above, longest_above; /* of true power, 3 % over it */
    uint64_t mean_permille;                /* of the cap, when all is settled */
};

/* Five minutes with readings each second; hunger and strangers change now and then. */
static struct outcome keep(struct machine *m, const struct watts *model, uint64_t cap_uw,
                           bool steady)
{
    struct keeper k = {0};
    struct outcome ret = {0};
    struct keeper_plan plan = {0}; /* of the last step */
    uint64_t sum = 0;
    uint32_t above = 0;

    for (uint32_t s = 1; s <= 300; s++) {
        uint64_t truth = truth_uw(m, load_of(m));
        struct keeper_input in = {.now_ns = s * SECOND,
                                  .cap_uw = cap_uw,
                                  .machine = measured(noisy(m, truth)),
                                  .machine_ns = s * SECOND,
                                  .sensed = true,
                                  .load_mcpu = load_of(m),
                                  .other_mcpu = m->other_mcpu,
                                  .cores = m->cores,
                                  .watts = model,
                                  .quota = true};
        struct keeper before = k;

        if (s > 1 && truth > cap_uw + cap_uw * 3 / 100 && plan.most_mcpu > KEEPER_QUOTA_MIN) {
            ret.seconds_above++;
            above++;
            ret.longest_above = above > ret.longest_above ? above : ret.longest_above;
        } else {
            above = 0;
        }
        if (s > 200)
            sum += truth * 1000 / cap_uw;
        assert_int_equal(keeper_step(&k, &in, &plan), 0);
        check_step(&before, &k, &in, &plan);
        m->allowed_mcpu = plan.quota_mcpu ? plan.quota_mcpu : m->cores * 1000;
        if (!steady && one_in(20))
            m->hunger_mcpu = random_below(m->cores * 1000 + 1);
        if (!steady && one_in(40))
            m->other_mcpu = random_below(m->cores * 250 + 1);
    }
    ret.mean_permille = sum / 100;
    return ret;
}

static uint64_t cap_between(const struct machine *m)
{
    uint64_t low = truth_uw(m, m->cores * 250), high = truth_uw(m, m->cores * 1000);

    return low * 105 / 100 + random_below((uint32_t)((high - low) / 1000)) * UINT64_C(1000);
}

static void a_steady_machine_settles_below_its_cap_and_near_it(void **state)
{
    uint32_t above = 0;

    (void)state;
    random_state = 11;
    for (int run = 0; run < TIMES(300); run++) {
        struct machine m = random_machine();
        struct watts model = wrong_model(&m);
        uint64_t cap = cap_between(&m);
        struct outcome got = keep(&m, &model, cap, true);
        uint64_t full = truth_uw(&m, m.cores * 1000) * 1000 / cap;

        above += got.seconds_above;
        assert_true(got.longest_above <= 2);
        assert_true(got.mean_permille <= 1000);
        /* All that the cap allows, less margins, noise and a quantum. */
        assert_true(got.mean_permille >= (full < 1000 ? full : 1000) - 130);
    }
    print_message("seconds above the cap by 3 %%: %u of %u\n", above, 300 * TIMES(300));
}

static void a_machine_whose_load_changes_is_brought_below_at_once(void **state)
{
    uint32_t above = 0;

    (void)state;
    random_state = 12;
    for (int run = 0; run < TIMES(300); run++) {
        struct machine m = random_machine();
        struct watts model = wrong_model(&m);
        struct outcome got = keep(&m, &model, cap_between(&m), false);

        above += got.seconds_above;
        assert_true(got.longest_above <= 3);
    }
    print_message("seconds above the cap by 3 %%: %u of %u\n", above, 300 * TIMES(300));
}

/* A tenth too much in one reading and too little in the next costs jobs nearly nothing. */
static void a_counter_that_moves_in_steps_leaves_the_cap_used(void **state)
{
    struct watts curve = curve_of(20 * W, 120 * W, 8, 50);
    struct keeper k = {0};
    struct keeper_plan plan = {.quota_mcpu = 8000};
    struct keeper_input in = {
        .cap_uw = 80 * W, .sensed = true, .cores = 8, .watts = &curve, .quota = true};

    (void)state;
    for (uint32_t s = 1; s <= 120; s++) {
        in.load_mcpu = plan.quota_mcpu ? plan.quota_mcpu : 8000;
        in.machine = measured(watts_at(&curve, in.load_mcpu).uw * (s % 2 ? 11 : 9) / 10);
        in.now_ns = in.machine_ns = s * SECOND;
        assert_int_equal(keeper_step(&k, &in, &plan), 0);
        assert_true(s < 10 || watts_at(&curve, plan.most_mcpu).uw <= in.cap_uw);
    }
    assert_true(watts_at(&curve, plan.most_mcpu).uw >= in.cap_uw * 97 / 100);
}

/* Fans and leakage follow the temperature: for twenty seconds the same load draws more and more. */
static void a_machine_that_warms_up_stays_below_its_cap_for_any_ten_seconds(void **state)
{
    struct watts curve = curve_of(20 * W, 60 * W, 2, 50);
    struct keeper k = {0};
    struct keeper_plan plan = {.quota_mcpu = 2000};
    struct keeper_input in = {
        .cap_uw = 45 * W, .sensed = true, .cores = 2, .watts = &curve, .quota = true};
    uint64_t drawn[121] = {0}, window = 0;

    (void)state;
    for (uint32_t s = 1; s <= 120; s++) {
        in.load_mcpu = plan.quota_mcpu ? plan.quota_mcpu : 2000;
        drawn[s] = watts_at(&curve, in.load_mcpu).uw + (s < 20 ? s : 20) * W / 5;
        in.machine = measured(drawn[s]);
        in.now_ns = in.machine_ns = s * SECOND;
        assert_int_equal(keeper_step(&k, &in, &plan), 0);
        window += drawn[s];
        if (s > 10)
            window -= drawn[s - 10];
        assert_true(s < 13 || window <= 10 * in.cap_uw);
    }
    assert_true(window >= 10 * in.cap_uw * 97 / 100);
}

static void what_was_drawn_above_the_cap_is_saved_again(void **state)
{
    struct watts curve = curve_of(20 * W, 60 * W, 2, 0);
    struct keeper k = {0};
    struct keeper_plan plan, later;
    struct keeper_input in = two_cores(&curve, 45 * W);

    /* All as the curve says: nothing here is an error of the curve. */
    (void)state;
    for (int s = 0; s < 60; s++) {
        in.load_mcpu = 900;
        in.machine = measured(watts_at(&curve, in.load_mcpu).uw);
        assert_int_equal(keeper_step(&k, &in, &plan), 0);
        in.now_ns = in.machine_ns += SECOND;
    }
    in.load_mcpu = 1500;
    in.machine = measured(watts_at(&curve, in.load_mcpu).uw);
    assert_int_equal(keeper_step(&k, &in, &later), 0);
    assert_true(later.most_mcpu + 100 < plan.most_mcpu);
    in.load_mcpu = 500;
    for (int s = 0; s < 4; s++) { /* saved with the first, then grown again step by step */
        in.machine = measured(watts_at(&curve, in.load_mcpu).uw);
        in.now_ns = in.machine_ns += SECOND;
        assert_int_equal(keeper_step(&k, &in, &later), 0);
        in.load_mcpu = later.quota_mcpu;
    }
    assert_int_equal(later.most_mcpu, plan.most_mcpu);
}

/* Two readings that were much too high for their load, as of a program that has just ended. */
static void a_curve_that_was_moved_too_far_comes_back_in_seconds(void **state)
{
    struct watts curve = curve_of(20 * W, 60 * W, 2, 50);
    struct keeper k = {0};
    struct keeper_plan plan, later;
    struct keeper_input in = {
        .cap_uw = 45 * W, .sensed = true, .cores = 2, .watts = &curve, .quota = true};

    (void)state;
    for (uint32_t s = 1; s <= 36; s++) {
        in.load_mcpu = s == 31 || s == 32 ? 300 : s == 1 ? 1000 : plan.quota_mcpu;
        in.machine = measured(s == 31 || s == 32 ? 58 * W : watts_at(&curve, in.load_mcpu).uw);
        in.now_ns = in.machine_ns = s * SECOND;
        assert_int_equal(keeper_step(&k, &in, s <= 30 ? &plan : &later), 0);
        if (s > 30)
            plan.quota_mcpu = later.quota_mcpu;
        else if (s == 30)
            assert_true(plan.most_mcpu >= 800);
        if (s == 32)
            assert_int_equal(later.most_mcpu, 0);
    }
    assert_true(later.most_mcpu >= 700);
}

static void a_cap_that_rises_is_used_at_once(void **state)
{
    struct watts curve = curve_of(20 * W, 120 * W, 8, 0);
    struct keeper k = {0};
    struct keeper_plan plan;
    struct keeper_input in = {
        .now_ns = SECOND, .cap_uw = 40 * W, .cores = 8, .watts = &curve, .quota = true};

    (void)state;
    assert_int_equal(keeper_step(&k, &in, &plan), 0);
    assert_true(plan.most_mcpu < 2000);
    in.now_ns += SECOND;
    in.cap_uw = 125 * W;
    assert_int_equal(keeper_step(&k, &in, &plan), 0);
    assert_int_equal(plan.most_mcpu, 8000);
}

/* A counter that moves in steps shows three of them in one reading of two, and one in the next. */
static void one_brief_reading_above_the_cap_changes_nothing_two_shrink(void **state)
{
    struct watts curve = curve_of(20 * W, 120 * W, 8, 0);
    struct keeper k = {0};
    struct keeper_plan plan;
    struct keeper_input in = {.now_ns = SECOND,
                              .cap_uw = 80 * W,
                              .machine = measured(70 * W),
                              .machine_ns = SECOND,
                              .sensed = true,
                              .cores = 8,
                              .watts = &curve};
    uint32_t before;

    (void)state;
    in.load_mcpu = watts_load(&curve, 70 * W, false);
    assert_int_equal(keeper_step(&k, &in, &plan), 0);
    before = plan.most_mcpu;
    in.brief = true;
    for (int i = 0; i < 10; i++) {
        in.machine = measured(i % 2 ? 40 * W : 110 * W);
        in.machine_ns = in.now_ns += SECOND / 5;
        assert_int_equal(keeper_step(&k, &in, &plan), 0);
        assert_int_equal(plan.most_mcpu, before);
    }
    in.machine = measured(83 * W);
    for (int i = 0; i < 3; i++) {
        in.machine_ns = in.now_ns += i == 1 ? SECOND : SECOND / 5;
        for (int again = 0; again < 2; again++)
            assert_int_equal(keeper_step(&k, &in, &plan), 0);
        assert_true(i == 2 || plan.most_mcpu == before);
    }
    assert_true(plan.most_mcpu < before);
    assert_true(keeper_forecast(&k, &in, plan.most_mcpu).uw <= 80 * W);
}

/* A power limit lowers the speed; the room below the cap that this shows is nobody's before
 * readings tell that it is there. */
static void a_speed_that_falls_lets_jobs_grow_in_steps_alone(void **state)
{
    struct watts curve = curve_of(20 * W, 60 * W, 2, 0);
    struct keeper k = {0};
    struct keeper_plan plan;
    struct keeper_input in = two_cores(&curve, 45 * W);
    uint32_t before;

    (void)state;
    in.limit = true;
    in.machine = measured(watts_at(&curve, in.load_mcpu).uw);
    assert_int_equal(keeper_step(&k, &in, &plan), 0);
    in.speed_permille = 400;
    for (int i = 1; i <= 50; i++) {
        in.brief = i % 5;
        in.load_mcpu = plan.most_mcpu * 2 / 5;
        in.machine = measured(watts_at(&curve, in.load_mcpu).uw);
        in.now_ns = in.machine_ns += SECOND / 5;
        before = plan.most_mcpu;
        assert_int_equal(keeper_step(&k, &in, &plan), 0);
        assert_true(plan.most_mcpu <= before + (in.brief ? 0 : 100));
    }
    assert_true(plan.most_mcpu > 1000); /* it does grow */
}

/* A reading of ten seconds tells more energy than the next ones of a second can pay back. */
static void a_reading_after_a_pause_does_not_move_the_curve_too_far(void **state)
{
    struct watts curve = curve_of(20 * W, 60 * W, 2, 50);
    struct keeper k = {0};
    struct keeper_plan plan;
    struct keeper_input in = two_cores(&curve, 70 * W);

    (void)state;
    for (int i = 0; i < 40; i++) {
        in.machine = measured(watts_at(&curve, in.load_mcpu).uw + (i < 10 ? 0 : 3 * W));
        in.now_ns = in.machine_ns = in.now_ns + (i == 10 ? 10 : 1) * SECOND;
        assert_int_equal(keeper_step(&k, &in, &plan), 0);
        assert_true(k.bias_uw <= (int64_t)(3 * W + W / 2));
    }
    assert_true(k.bias_uw >= (int64_t)(2 * W));
}

/* Seconds apart, they are of a time before the jobs grew. */
static void slow_readings_below_their_forecasts_lower_the_curve_step_by_step(void **state)
{
    struct watts curve = curve_of(20 * W, 60 * W, 2, 50);

    (void)state;
    for (int slow = 0; slow < 2; slow++) {
        struct keeper k = {0};
        struct keeper_plan plan;
        struct keeper_input in = two_cores(&curve, 70 * W);

        for (int i = 0; i < 12; i++) {
            in.machine = measured(watts_at(&curve, in.load_mcpu).uw - (i < 10 ? 0 : 10 * W));
            in.now_ns = in.machine_ns = in.now_ns + (slow ? 5 : 1) * SECOND;
            assert_int_equal(keeper_step(&k, &in, &plan), 0);
        }
        assert_true(slow ? k.bias_uw > -(int64_t)(6 * W) : k.bias_uw < -(int64_t)(9 * W));
    }
}

/* The least quota draws more than the cap leaves above idling. */
static void jobs_near_the_idle_power_are_not_paused_and_resumed_each_second(void **state)
{
    struct watts curve = {
        .point = {{0, 40 * W}, {2000, 80 * W}}, .count = 2, .basis = POWER_MODELLED};

    (void)state;
    random_state = 14;
    for (uint64_t above = 1; above < 40; above++) { /* tenths of a watt */
        struct keeper k = {0};
        struct keeper_plan plan = {.quota_mcpu = 2000};
        struct keeper_input in = {.cap_uw = 40 * W + above * W / 10,
                                  .sensed = true,
                                  .cores = 2,
                                  .watts = &curve,
                                  .quota = true};
        uint32_t changes = 0, before = 0;

        for (uint32_t s = 1; s <= 120; s++) {
            in.load_mcpu = plan.cores ? plan.quota_mcpu : 0;
            in.machine =
                measured(watts_at(&curve, in.load_mcpu).uw * (990 + random_below(21)) / 1000);
            in.now_ns = in.machine_ns = s * SECOND;
            assert_int_equal(keeper_step(&k, &in, &plan), 0);
            changes += s > 1 && (plan.cores > 0) != (before > 0);
            before = plan.cores;
        }
        assert_true(changes <= 12);
    }
}

/* Jobs take a second to shrink; what is drawn until then is no debt. */
static void a_cap_that_falls_does_not_pause_jobs_that_fit_below_it(void **state)
{
    struct watts curve = curve_of(20 * W, 120 * W, 8, 0);

    (void)state;
    for (uint64_t fall = 1; fall <= 55; fall++) {
        struct keeper k = {0};
        struct keeper_plan plan = {.quota_mcpu = 8000};
        struct keeper_input in = {
            .cap_uw = 110 * W, .sensed = true, .cores = 8, .watts = &curve, .quota = true};
        uint32_t quota = 8000, fits;

        for (uint32_t s = 1; s <= 60; s++) {
            if (s == 30)
                in.cap_uw -= fall * W;
            in.load_mcpu = quota; /* of the step before the last */
            in.machine = measured(watts_at(&curve, in.load_mcpu).uw);
            in.now_ns = in.machine_ns = s * SECOND;
            quota = plan.quota_mcpu;
            assert_int_equal(keeper_step(&k, &in, &plan), 0);
            fits = watts_load(&curve, in.cap_uw, false);
            assert_true(s < 30 || plan.most_mcpu >= fits * 7 / 10);
        }
    }
}

static void a_debt_is_forgotten_over_a_pause_and_no_credit(void **state)
{
    struct watts curve = curve_of(20 * W, 60 * W, 2, 50);
    struct keeper k = {0};
    struct keeper_plan plan;
    struct keeper_input in = two_cores(&curve, 45 * W);

    (void)state;
    for (int i = 0; i < 10; i++) {
        in.machine = measured(i < 9 ? 46 * W : 45 * W);
        in.now_ns = in.machine_ns = in.now_ns + (i < 9 ? 1 : 50) * SECOND;
        assert_true(i < 9 || k.debt_uj > 0);
        assert_int_equal(keeper_step(&k, &in, &plan), 0);
    }
    assert_int_equal(k.debt_uj, 0);
}

static void a_machine_that_stays_above_is_said_to(void **state)
{
    struct watts w = curve_of(40 * W, 140 * W, 8, 50);
    struct keeper k = {0};
    struct keeper_input in = {.cap_uw = 110 * W, .sensed = true, .cores = 8, .watts = &w};
    struct keeper_plan plan;

    (void)state;
    for (uint64_t s = 1; s <= 3; s++) {
        in.now_ns = in.machine_ns = s * SECOND;
        in.machine = measured(150 * W); /* whatever jobs were told */
        in.load_mcpu = 8000;
        assert_int_equal(keeper_step(&k, &in, &plan), 0);
    }
    for (uint64_t s = 4; s <= 8; s++) {
        in.now_ns = in.machine_ns = s * SECOND;
        assert_int_equal(keeper_step(&k, &in, &plan), 0);
    }
    assert_true(plan.over);
    in.now_ns = in.machine_ns = 9 * SECOND;
    in.machine = measured(100 * W);
    assert_int_equal(keeper_step(&k, &in, &plan), 0);
    assert_false(plan.over);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_cap_nothing_is_asked),
        cmocka_unit_test(a_cap_without_watts_is_no_plan),
        cmocka_unit_test(the_plan_fits_under_the_cap_and_policies_count_it_alike),
        cmocka_unit_test(load_of_no_job_counts_as_idle),
        cmocka_unit_test(the_fraction_of_a_core_is_held_by_a_quota),
        cmocka_unit_test(a_limit_is_the_cap_less_what_it_does_not_reach),
        cmocka_unit_test(a_stale_reading_changes_nothing),
        cmocka_unit_test(without_readings_the_models_error_counts_again),
        cmocka_unit_test(a_steady_machine_settles_below_its_cap_and_near_it),
        cmocka_unit_test(a_machine_whose_load_changes_is_brought_below_at_once),
        cmocka_unit_test(a_counter_that_moves_in_steps_leaves_the_cap_used),
        cmocka_unit_test(a_machine_that_warms_up_stays_below_its_cap_for_any_ten_seconds),
        cmocka_unit_test(what_was_drawn_above_the_cap_is_saved_again),
        cmocka_unit_test(a_curve_that_was_moved_too_far_comes_back_in_seconds),
        cmocka_unit_test(a_cap_that_rises_is_used_at_once),
        cmocka_unit_test(one_brief_reading_above_the_cap_changes_nothing_two_shrink),
        cmocka_unit_test(a_speed_that_falls_lets_jobs_grow_in_steps_alone),
        cmocka_unit_test(a_reading_after_a_pause_does_not_move_the_curve_too_far),
        cmocka_unit_test(slow_readings_below_their_forecasts_lower_the_curve_step_by_step),
        cmocka_unit_test(jobs_near_the_idle_power_are_not_paused_and_resumed_each_second),
        cmocka_unit_test(a_cap_that_falls_does_not_pause_jobs_that_fit_below_it),
        cmocka_unit_test(a_debt_is_forgotten_over_a_pause_and_no_credit),
        cmocka_unit_test(a_machine_that_stays_above_is_said_to),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

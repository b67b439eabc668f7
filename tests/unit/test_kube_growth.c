/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How quickly a training grows into room that becomes free, how it finds the best size, and that it
 * stays there: trainings whose rates follow given curves, on a small cluster.
 */
#include "kube_model.h"

#define NOISE_PERCENT 15

static struct model m;
static double (*curve)(int workers, int ps);
static int last_size, changes;

static int set_up(void **state)
{
    model_init(&m);
    last_size = changes = 0;
    return 0;
}

static int tear_down(void **state)
{
    model_done(&m);
    return 0;
}

/* ---- curves ---------------------------------------------------------------------------------- */

static double linear(int workers, int ps)
{
    return 100.0 * workers;
}

static double amdahl(int workers, int ps)
{
    return 100 / (0.1 + 0.9 / workers);
}

static double stops_at_three(int workers, int ps)
{
    return 100.0 * (workers < 3 ? workers : 3);
}

static double none(int workers, int ps)
{
    return 100;
}

/* The best is 3: more are in each other's way. */
static double falls(int workers, int ps)
{
    return workers <= 3 ? 100.0 * workers : 300 * pow(0.75, workers - 3);
}

/* A server answers one worker and a half. */
static double waits_for_servers(int workers, int ps)
{
    return fmin(100.0 * workers, 150.0 * ps);
}

/* Workers that have just come hold all others up. */
static double cold_at_first(int workers, int ps)
{
    static int before, since;

    since = workers == before ? since + 1 : 0;
    before = workers;
    return since < 4 ? 50 : 100.0 * workers;
}

static double noisy(int workers, int ps)
{
    double percent = (double)model_random(&m, 2 * NOISE_PERCENT + 1) - NOISE_PERCENT;

    return curve(workers, ps) * (1 + percent / 100);
}

/* ---- time ------------------------------------------------------------------------------------ */

static json_int_t examples(void)
{
    const json_t *report = json_object_get(m.reports, "j");

    return json_integer_value(json_object_get(json_object_get(report, "body"), "examples"));
}

/* Workers that the chief has in the training. */
static int workers_in(void)
{
    const json_t *body = json_object_get(json_object_get(m.reports, "j"), "body"), *node;
    int count = 0;
    size_t i;

    json_array_foreach (json_object_get(body, "nodes"), i, node)
        count += strcmp(json_string_value(json_object_get(node, "role")), "worker") == 0 &&
                 strcmp(json_string_value(json_object_get(node, "state")), "in") == 0;
    return count;
}

/* Counts how often the number of workers changes. */
static void pass(int seconds)
{
    for (int i = 0; i < seconds; i++) {
        int size;

        model_run(&m, 1);
        size = model_count(&m, "j", KUBE_WORKER);
        changes += last_size != 0 && size != last_size;
        last_size = size;
    }
}

static int seconds_until(int workers)
{
    int seconds = 0;

    for (; workers_in() != workers && seconds < 300; seconds++)
        pass(1);
    return seconds;
}

/* A training with one worker beside somebody who has the rest of 9 cores; then that one ends. */
static void start_beside_another(double (*rate)(int, int), const char *spec, int seconds)
{
    curve = rate;
    model_node(&m, "a", "9", "64Gi");
    model_other(&m, "other", "a", "7", 0);
    model_etj(&m, "j", spec);
    pass(seconds);
    assert_int_equal(workers_in(), 1);
    model_remove(m.pods, "other");
    changes = 0;
}

/* ---- quick ----------------------------------------------------------------------------------- */

static void a_training_begins_with_the_room_there_is(void **state)
{
    m.rate = linear;
    model_node(&m, "a", "9", "64Gi");
    model_etj(&m, "j", "{}");
    assert_in_range(seconds_until(8), 1, 6);
    changes = 0;
    pass(300);
    assert_int_equal(changes, 0);
    assert_int_equal(m.sent[KUBE_CREATE_POD], 10);
    assert_int_equal(model_events(&m, "RolledBack"), 0);
}

/* Also before the first has a chief that could let go of anything. */
static void who_comes_next_has_its_share_at_once(void **state)
{
    m.rate = linear;
    m.no_chiefs = true;
    model_node(&m, "a", "10", "64Gi");
    model_etj(&m, "j", "{}");
    pass(6);
    assert_int_equal(last_size, 8);
    model_etj(&m, "k", "{}");
    pass(8);
    assert_in_range(model_count(&m, "j", KUBE_WORKER), 3, 5);
    assert_in_range(model_count(&m, "k", KUBE_WORKER), 3, 5);
    m.no_chiefs = false;
    changes = 0;
    pass(20);
    assert_int_equal(changes, 0);
}

/* Much of a step is communication: fewer may do as well. */
static void what_began_large_is_compared_with_half_of_it(void **state)
{
    static double (*const rates[])(int, int) = {linear, stops_at_three, none, falls};
    static const int most[] = {8, 4, 1, 4}, least[] = {8, 3, 1, 2};

    m.communication_permille = 600;
    for (int i = 0; i < 4; i++) {
        if (i)
            tear_down(state), set_up(state), m.communication_permille = 600;
        m.rate = rates[i];
        model_node(&m, "a", "9", "64Gi");
        model_etj(&m, "j", "{}");
        pass(300);
        assert_in_range(last_size, least[i], most[i]);
        changes = 0;
        pass(400);
        assert_int_equal(changes, 0);
    }
}

static void freed_room_is_used_in_one_step(void **state)
{
    m.rate = linear;
    start_beside_another(linear, "{}", 30);
    /* a second each: to see it, until the batch is over, scheduled and started, in the report */
    assert_in_range(seconds_until(8), 1, 5);
    assert_int_equal(changes, 1);
    pass(600);
    assert_int_equal(changes, 1);
    assert_int_equal(model_events(&m, "RolledBack"), 0);
}

static void room_that_becomes_free_bit_by_bit_is_used_at_once(void **state)
{
    m.rate = linear;
    model_node(&m, "a", "9", "64Gi");
    model_other(&m, "other", "a", "4", 0);
    model_other(&m, "another", "a", "3", 0);
    model_etj(&m, "j", "{}");
    pass(30);
    model_remove(m.pods, "other");
    assert_in_range(seconds_until(5), 1, 5);
    model_remove(m.pods, "another"); /* while the first step is on trial */
    assert_in_range(seconds_until(8), 1, 5);
    pass(300);
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 8);
    assert_int_equal(model_events(&m, "RolledBack"), 0);
}

/* Three quarters of what it could have become free after a sixth of the time that it would take. */
static void a_short_training_takes_half_the_time(void **state)
{
    int seconds = 10;

    m.rate = noisy;
    curve = amdahl;
    model_node(&m, "a", "5", "64Gi");
    model_other(&m, "other", "a", "3", 0);
    model_etj(&m, "j", "{\"workers\": {\"max\": 4}}");
    while (examples() == 0)
        pass(1);
    pass(10);
    model_remove(m.pods, "other");
    for (; examples() < 60 * 100; seconds++)
        pass(1);
    assert_in_range(seconds, 10, 30);
}

static void room_that_was_given_back_is_used_again_without_a_trial(void **state)
{
    curve = amdahl;
    m.rate = noisy;
    start_beside_another(amdahl, "{}", 30);
    pass(120);
    assert_int_equal(last_size, 8);
    for (int round = 0; round < 5; round++) {
        model_other(&m, "other", NULL, "5", 0);
        assert_in_range(seconds_until(3), 1, 10);
        pass(20);
        assert_string_equal(model_text(model_find(m.pods, "other"), "spec", "nodeName"), "a");
        model_remove(m.pods, "other");
        changes = 0;
        assert_in_range(seconds_until(8), 1, 5);
        pass(100);
        assert_int_equal(changes, 1);
    }
    assert_int_equal(model_events(&m, "RolledBack"), 0);
}

static void a_trial_that_is_cut_short_says_nothing(void **state)
{
    m.rate = cold_at_first;
    start_beside_another(cold_at_first, "{}", 30);
    assert_in_range(seconds_until(8), 1, 5);
    pass(5);
    model_other(&m, "other", NULL, "7", 0);
    assert_in_range(seconds_until(1), 1, 10);
    pass(30);
    model_remove(m.pods, "other");
    assert_in_range(seconds_until(8), 1, 5);
    pass(100);
    assert_int_equal(last_size, 8);
    assert_int_equal(model_events(&m, "RolledBack"), 0);
}

/* A pod that ends only makes room for the next: nobody grows into it in between. */
static void what_has_just_been_given_back_is_left_for_a_while(void **state)
{
    m.rate = linear;
    start_beside_another(linear, "{}", 30);
    pass(60);
    model_other(&m, "other", NULL, "5", 0);
    assert_in_range(seconds_until(3), 1, 10);
    model_remove(m.pods, "other");
    changes = 0;
    pass(2);
    assert_int_equal(changes, 0);
}

/* ---- of use ---------------------------------------------------------------------------------- */

static void workers_that_the_slots_cannot_use_are_not_made(void **state)
{
    m.rate = linear;
    model_node(&m, "a", "8", "64Gi");
    model_etj(&m, "j", "{\"slots\": 8}");
    pass(60);
    assert_int_equal(last_size, 4); /* seven would take as long for a step */
    model_spec(&m, "j", "{\"workers\": {\"min\": 6}}");
    pass(20);
    assert_int_equal(last_size, 6);
    model_etj(&m, "async", "{\"mode\": \"async\"}");
    model_node(&m, "b", "10", "64Gi");
    pass(60);
    assert_int_equal(model_count(&m, "async", KUBE_WORKER), 8);
    assert_int_equal(last_size, 8); /* as many as there are slots */
}

static void what_one_cannot_use_is_for_another(void **state)
{
    m.rate = linear;
    model_node(&m, "a", "11", "64Gi"); /* both have four and a half, beside chiefs and servers */
    model_etj(&m, "j", "{\"slots\": 8}");
    model_etj(&m, "k", "{\"slots\": 5, \"workers\": {\"max\": 5}}");
    model_run(&m, 120);
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 4);
    assert_int_equal(model_count(&m, "k", KUBE_WORKER), 5);
}

static void the_size_that_pays_is_found(void **state)
{
    m.rate = stops_at_three;
    start_beside_another(stops_at_three, "{}", 30);
    pass(60);
    assert_int_equal(last_size, 3);
    assert_in_range(changes, 2, 3);
    pass(500);
    assert_in_range(changes, 2, 3);
}

static void the_size_that_pays_is_found_in_noise(void **state)
{
    m.rate = noisy;
    for (int world = 0; world < 10; world++) {
        if (world)
            tear_down(state), set_up(state), m.rate = noisy, m.random += (uint64_t)world * 977;
        start_beside_another(stops_at_three, "{}", 40);
        pass(500);
        assert_in_range(last_size, 3, 4);
        assert_in_range(changes, 1, 6);
    }
}

static void a_useful_size_is_not_left_for_noise(void **state)
{
    m.rate = noisy;
    for (int world = 0; world < 10; world++) {
        if (world)
            tear_down(state), set_up(state), m.rate = noisy, m.random += (uint64_t)world * 977;
        start_beside_another(amdahl, "{}", 40);
        pass(500);
        assert_int_equal(last_size, 8);
        assert_in_range(changes, 1, 3);
    }
}

/* A step of one in seven is less than the noise of a rate. */
static void one_more_is_judged_by_as_many_rates_as_it_takes(void **state)
{
    int lost = 0;

    for (int world = 0; world < 10; world++) {
        if (world)
            tear_down(state), set_up(state), m.random += (uint64_t)world * 977;
        curve = linear;
        m.rate = noisy;
        model_node(&m, "a", "9", "64Gi");
        model_other(&m, "other", "a", "1", 0);
        model_etj(&m, "j", "{\"workers\": {\"min\": 7}}");
        pass(40);
        model_remove(m.pods, "other");
        assert_in_range(seconds_until(8), 1, 5);
        pass(200);
        lost += last_size != 8;
    }
    assert_in_range(lost, 0, 1);
}

static void workers_that_bring_nothing_leave_and_are_tried_ever_more_rarely(void **state)
{
    m.rate = none;
    start_beside_another(none, "{}", 30);
    pass(60);
    assert_int_equal(last_size, 1);
    assert_in_range(changes, 2, 4);
    changes = 0;
    pass(500);
    assert_int_equal(changes, 0);
    pass(600); /* ten minutes, then twenty, then forty */
    assert_in_range(changes, 2, 4);
    changes = 0;
    pass(3000);
    assert_in_range(changes, 2, 8);
    assert_int_equal(last_size, 1);
}

static void the_peak_between_is_looked_for(void **state)
{
    m.rate = falls;
    start_beside_another(falls, "{}", 30);
    pass(100);
    assert_in_range(last_size, 2, 4);
    changes = 0;
    pass(400);
    assert_int_equal(changes, 0);
}

/* ---- several --------------------------------------------------------------------------------- */

/* Counts changes of all of them. */
static int pass_with(const char *const *names, int count, int seconds, int *ret_sizes)
{
    int all = 0;

    for (int i = 0; i < seconds; i++) {
        model_run(&m, 1);
        for (int j = 0; j < count; j++) {
            int size = model_count(&m, names[j], KUBE_WORKER);

            all += size != ret_sizes[j];
            ret_sizes[j] = size;
        }
    }
    return all;
}

static void several_share_what_there_is_and_rest(void **state)
{
    static const char *const names[] = {"j", "k", "l"};

    for (unsigned world = 0; world < 5; world++) {
        int sizes[3] = {0};

        if (world)
            tear_down(state), set_up(state), m.random += world * 977;
        curve = amdahl;
        m.rate = noisy;
        model_node(&m, "a", "8", "64Gi"); /* chiefs and servers have three of fifteen */
        model_node(&m, "b", "7", "64Gi");
        for (int j = 0; j < 3; j++) {
            model_etj(&m, names[j], "{}");
            pass_with(names, 3, 20, sizes);
        }
        pass_with(names, 3, 150, sizes); /* the last one waits while the others have just grown */
        assert_int_equal(sizes[0] + sizes[1] + sizes[2], 12);
        for (int j = 0; j < 3; j++)
            assert_in_range(sizes[j], 2, 7);
        assert_in_range(pass_with(names, 3, 300, sizes), 0, 4);
        assert_int_equal(sizes[0] + sizes[1] + sizes[2], 12);
        model_set_phase(model_find(m.pods, "l-chief"), "Succeeded");
        pass_with(names, 3, 10, sizes);
        assert_int_equal(sizes[0] + sizes[1], 13);
    }
}

/* Each that comes or goes moves a few workers, and that is all: whoever has just come is slow. */
static void trainings_that_come_and_go_move_few_workers(void **state)
{
    static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    int length[] = {30, 28, 20, 24, 20, 18, 30, 25} /* thousands of examples */, sizes[8] = {0},
        came = 0, gone = 0, changed[8] = {0}, before[8];
    double done[8] = {0};

    curve = amdahl;
    m.rate = noisy;
    m.communication_permille = 700;
    model_node(&m, "a", "12", "64Gi");
    for (int second = 0; gone < 8 && second < 900; second++) {
        if (came < 8 && second == 25 * came)
            model_etj(&m, names[came++], "{\"slots\": 4, \"workers\": {\"max\": 4}}");
        memcpy(before, sizes, sizeof(before));
        pass_with(names, 8, 1, sizes);
        for (int j = 0; j < came; j++) {
            char chief[16];
            json_t *pod;

            /* who has just come or grown keeps it, but for somebody who comes */
            if (sizes[j] && sizes[j] < before[j] && second > 25 * (came - 1) + 12)
                assert_true(second - changed[j] >= 29);
            changed[j] = sizes[j] != before[j] ? second : changed[j];
            done[j] += sizes[j] ? amdahl(sizes[j], 1) / 1000 : 0;
            snprintf(chief, sizeof(chief), "%s-chief", names[j]);
            pod = model_find(m.pods, chief);
            if (done[j] > length[j] && pod && strcmp(model_phase(&m, names[j]), "Running") == 0) {
                model_set_phase(pod, "Succeeded");
                done[j] = -1e9;
                gone++;
            }
        }
    }
    assert_int_equal(gone, 8);
    assert_in_range(m.sent[KUBE_ASK_LEAVE], 1, 20);
}

/* ---- servers --------------------------------------------------------------------------------- */

/* As the chief would see it: what a step takes beyond what the workers compute. */
static void pass_with_split(int seconds)
{
    for (int i = 0; i < seconds; i++) {
        int workers = workers_in(), ps = model_count(&m, "j", KUBE_PS);
        double share = workers ? m.rate(workers, ps) / (100.0 * workers) : 1;

        m.communication_permille = 50 + (unsigned)(900 * (1 - share));
        pass(1);
    }
}

static void servers_come_before_workers_are_given_up(void **state)
{
    m.rate = waits_for_servers;
    model_node(&m, "a", "12", "64Gi");
    model_other(&m, "other", "a", "10", 0);
    model_etj(&m, "j", "{\"ps\": {\"max\": 8}}");
    pass_with_split(30);
    assert_int_equal(model_count(&m, "j", KUBE_PS), 1); /* computing takes the time */
    model_remove(m.pods, "other");
    pass_with_split(60);
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 8);
    assert_in_range(model_count(&m, "j", KUBE_PS), 4, 6);
    assert_int_equal(model_events(&m, "RolledBack"), 0);
}

static void servers_do_not_come_for_a_split_that_nobody_has_measured(void **state)
{
    m.rate = linear;
    m.communication_permille = 1000;
    model_node(&m, "a", "12", "64Gi");
    model_etj(&m, "j", "{\"ps\": {\"max\": 4}, \"workers\": {\"min\": 4, \"max\": 4}}");
    pass(60);
    assert_int_equal(model_count(&m, "j", KUBE_PS), 1);
}

/* 5 workers of 8 slots have 2 each, 4 have, too; but of 4, a fourth of the speed would be lost. */
static void a_worker_leaves_for_a_server_only_if_the_split_says_so(void **state)
{
    m.rate = linear;
    m.communication_permille = 400;
    model_node(&m, "a", "5", "64Gi");
    model_etj(&m, "j", "{\"slots\": 4, \"ps\": {\"max\": 2}, \"workers\": {\"max\": 4}}");
    pass(100);
    assert_int_equal(last_size, 4);
    assert_int_equal(model_count(&m, "j", KUBE_PS), 1);
}

/* ---- the end --------------------------------------------------------------------------------- */

static void nothing_is_made_for_a_training_that_has_finished(void **state)
{
    size_t made;

    m.rate = linear;
    model_node(&m, "a", "9", "64Gi");
    model_etj(&m, "j", "{}");
    pass(30);
    assert_int_equal(last_size, 8);
    made = json_array_size(m.used);
    m.finished = true;
    pass(30);
    assert_int_equal(last_size, 0);
    assert_int_equal(json_array_size(m.used), made);
}

/* Half a core that one of them has, and the other cannot: it stays where it is. */
static void workers_that_are_resized_rest(void **state)
{
    static const char *const nodes[] = {"2500m", "2750m", "3250m", "4"};
    char spec[100];
    unsigned sent, resized = 0;

    for (int others = 0; others <= 2; others++)
        for (size_t i = 0; i < 4; i++) {
            model_done(&m);
            model_init(&m);
            model_node(&m, "a", nodes[i], "64Gi");
            model_node(&m, "b", nodes[i], "64Gi");
            snprintf(spec, sizeof(spec), "{\"workers\": {\"max\": %d, \"cpu\": {\"max\": \"%s\"}}}",
                     others == 1 ? 1 : 2, others == 1 ? "1500m" : "2");
            model_etj(&m, "j", spec);
            if (others == 1)
                model_etj(&m, "k", spec);
            if (others == 2) /* one that waits, and never will begin */
                model_etj(&m, "k", "{\"workers\": {\"min\": 9, \"max\": 9}}");
            model_run(&m, 60);
            sent = m.sent[KUBE_RESIZE_POD];
            resized += sent > 0;
            model_run(&m, 60);
            assert_int_equal(m.sent[KUBE_RESIZE_POD], sent);
        }
    assert_in_range(resized, 6, 12);
}

/* ---- bursts ---------------------------------------------------------------------------------- */

static double speed; /* examples a second while it works */

static int64_t worker_mcpu(void)
{
    struct kube_pod *pod = NULL;
    int64_t mcpu;

    assert_int_equal(kube_pod_parse(model_find(m.pods, "j-worker-0"), &pod, NULL), 0);
    mcpu = pod->mcpu;
    kube_pod_free(pod);
    return mcpu;
}

/* At full speed with two cores; with fewer, 256 examples in a burst every ten seconds. */
static double in_bursts(int workers, int ps)
{
    int64_t second = m.now_ns / S % 10, begun = (int64_t)speed * second;

    if (worker_mcpu() >= 2000)
        return speed;
    return begun >= 256 ? 0 : fmin(speed, 256 - (double)begun);
}

/* However long the bursts last: two cores are faster, so the worker gets back what it gave a guest.
 */
static void a_rate_in_bursts_is_that_of_the_whole_time(void **state)
{
    for (int i = 0; i < 10; i++) {
        model_done(&m);
        set_up(NULL);
        speed = 40 + 20 * i;
        m.rate = in_bursts;
        model_node(&m, "a", "4", "64Gi");
        model_etj(&m, "j", "{\"workers\": {\"max\": 1, \"cpu\": {\"min\": \"500m\", \"max\": 2}}}");
        model_run(&m, 60);
        assert_int_equal(worker_mcpu(), 2000);
        model_other(&m, "guest", NULL, "2", 0);
        model_run(&m, 100 + i);
        assert_int_equal(worker_mcpu(), 1000);
        model_remove(m.pods, "guest");
        model_run(&m, 60);
        assert_int_equal(worker_mcpu(), 2000);
    }
}

/* One long step, say with a checkpoint, among even ones. */
static double holds_up_once(int workers, int ps)
{
    return m.now_ns / S % 100 < 10 ? 0 : curve(workers, ps);
}

static void a_pause_now_and_then_makes_no_worker_leave(void **state)
{
    m.rate = holds_up_once;
    curve = linear;
    model_node(&m, "a", "6", "64Gi");
    model_etj(&m, "j", "{}");
    model_run(&m, 120);
    for (int i = 0; i < 150; i++) {
        model_run(&m, 1);
        assert_int_equal(model_count(&m, "j", KUBE_WORKER), 5);
    }
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(a_training_begins_with_the_room_there_is),
        T(who_comes_next_has_its_share_at_once),
        T(what_began_large_is_compared_with_half_of_it),
        T(freed_room_is_used_in_one_step),
        T(room_that_becomes_free_bit_by_bit_is_used_at_once),
        T(a_short_training_takes_half_the_time),
        T(room_that_was_given_back_is_used_again_without_a_trial),
        T(a_trial_that_is_cut_short_says_nothing),
        T(what_has_just_been_given_back_is_left_for_a_while),
        T(workers_that_the_slots_cannot_use_are_not_made),
        T(what_one_cannot_use_is_for_another),
        T(the_size_that_pays_is_found),
        T(the_size_that_pays_is_found_in_noise),
        T(a_useful_size_is_not_left_for_noise),
        T(one_more_is_judged_by_as_many_rates_as_it_takes),
        T(workers_that_bring_nothing_leave_and_are_tried_ever_more_rarely),
        T(the_peak_between_is_looked_for),
        T(several_share_what_there_is_and_rest),
        T(trainings_that_come_and_go_move_few_workers),
        T(servers_come_before_workers_are_given_up),
        T(servers_do_not_come_for_a_split_that_nobody_has_measured),
        T(a_worker_leaves_for_a_server_only_if_the_split_says_so),
        T(nothing_is_made_for_a_training_that_has_finished),
        T(workers_that_are_resized_rest),
        T(a_rate_in_bursts_is_that_of_the_whole_time),
        T(a_pause_now_and_then_makes_no_worker_leave),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

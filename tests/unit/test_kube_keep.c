/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trainings keep their workers, from others, for a time: new workers are dear, as each prepares
 * TensorFlow's functions before it is of use.
 */
#include "kube_model.h"

#define KEEP_S 120 /* KEEP_NS of counts.c */
#define LATE_S 15  /* that the pods of who begins take, and those that make room for them */

static struct model m;

static int set_up(void **state)
{
    model_init(&m);
    return 0;
}

static int tear_down(void **state)
{
    model_done(&m);
    return 0;
}

static int workers(const char *job)
{
    return model_count(&m, job, KUBE_WORKER);
}

/* A training with eight workers that it has had for @seconds, on a node that it fills. */
static void large_one(const char *node_cpu, int seconds)
{
    model_node(&m, "a", node_cpu, "64Gi");
    model_etj(&m, "j", "{}");
    for (int second = 0; workers("j") < 8; second++) {
        assert_in_range(second, 0, 30);
        model_run(&m, 1);
    }
    model_run(&m, seconds);
    assert_int_equal(workers("j"), 8);
}

static void who_comes_waits_for_workers_that_have_just_come_but_not_for_long(void **state)
{
    large_one("9", 10);
    model_etj(&m, "k", "{}");
    model_run(&m, KEEP_S - 15);
    assert_int_equal(workers("j"), 8);
    assert_int_equal(workers("k"), 0);
    model_run(&m, 15 + LATE_S);
    assert_in_range(workers("k"), 1, 4);
    assert_in_range(workers("j"), 3, 6);
}

static void who_comes_later_begins_at_once(void **state)
{
    large_one("9", KEEP_S);
    model_etj(&m, "k", "{}");
    model_run(&m, 6);
    assert_in_range(workers("k"), 1, 4);
}

/* Workers that leave for it count as free: nobody else gives workers, too, and gets them back. */
static void who_begins_takes_as_many_workers_as_it_needs(void **state)
{
    static const char spec[] = "{\"slots\": 4, \"workers\": {\"max\": 4}}";

    model_node(&m, "a", "10500m", "64Gi");
    model_etj(&m, "j", spec);
    model_etj(&m, "k", spec);
    model_run(&m, KEEP_S + 30);
    assert_int_equal(workers("j") + workers("k"), 8);
    model_etj(&m, "l", spec);
    for (int i = 0; i < 4; i++) {
        model_reconcile(&m, WHOLE_PLAN);
        m.now_ns += S / 10;
    }
    assert_int_equal(workers("j") + workers("k"), 6); /* of four slots: four workers or two */
    model_run(&m, 5);
    assert_in_range(workers("l"), 1, 2);
}

/* Nor does what never goes: after a while it is not counted any more. */
static void pods_that_never_go_hold_nobody_up(void **state)
{
    large_one("9", KEEP_S);
    m.saves = true; /* whoever is to leave does not */
    model_etj(&m, "k", "{}");
    model_run(&m, 60);
    assert_in_range(workers("k"), 1, 4);
}

static void a_person_gets_workers_at_once(void **state)
{
    large_one("12", 0);
    model_etj(&m, "k", "{\"workers\": {\"replicas\": 1}}");
    model_run(&m, 10);
    assert_int_equal(workers("k"), 1);
    model_spec(&m, "k", "{\"workers\": {\"replicas\": 4}}");
    model_run(&m, 10);
    assert_int_equal(workers("k"), 4);
}

static void foreign_pods_get_workers_at_once(void **state)
{
    large_one("9", 0);
    model_other(&m, "other", NULL, "3", 0);
    model_run(&m, 6);
    assert_in_range(workers("j"), 4, 5);
}

static void who_can_never_begin_takes_nothing(void **state)
{
    model_etj(&m, "x", "{\"workers\": {\"min\": 90, \"max\": 90}}");
    model_run(&m, 2 * KEEP_S);
    large_one("9", 10);
    model_etj(&m, "k", "{}");
    model_run(&m, KEEP_S - 30);
    assert_int_equal(workers("j"), 8);
    model_run(&m, 30 + LATE_S);
    assert_in_range(workers("k"), 1, 4);
}

/* ---- whoever comes --------------------------------------------------------------------------- */

#define COMERS  20
#define AT_ONCE 5 /* whose least fits together: two cores each */

struct comer {
    char name[8];
    int came, begun, changed, size, lasts; /* seconds; 0: not yet */
    bool ended;
};

/* Whether it has ended with this second. */
static bool ends(struct comer *x, int second)
{
    char chief[32];
    json_t *pod;

    snprintf(chief, sizeof(chief), "%.8s-chief", x->name);
    pod = model_find(m.pods, chief);
    if (x->begun == 0 || second < x->begun + x->lasts || !pod)
        return false;
    model_set_phase(pod, "Succeeded");
    return true;
}

/* Whether it loses workers of the last two minutes. */
static bool loses_new_ones(struct comer *x, int second)
{
    int size = workers(x->name), before = x->size, changed = x->changed;

    if (x->begun == 0 && size > 0)
        x->begun = second;
    x->size = size;
    if (size != before)
        x->changed = second;
    return size < before && second - changed < KEEP_S - 1 && second > x->begun + 10;
}

/* Trainings of any length come at any time; nobody waits for more than two minutes. */
static void new_workers_stay_and_nobody_waits_for_long(void **state)
{
    for (unsigned world = 0; world < 2; world++) {
        struct comer comers[COMERS] = {0};
        int count = 0, here = 0, waits, next = 1;

        if (world)
            tear_down(state), set_up(state), m.random += world * 7919;
        model_node(&m, "a", "8", "64Gi");
        model_node(&m, "b", "5500m", "64Gi");
        for (int second = 1; here > 0 || count < COMERS; second++) {
            assert_in_range(second, 1, 6000);
            if (count < COMERS && here < AT_ONCE && second >= next) {
                snprintf(comers[count].name, sizeof(comers[count].name), "j%d", count);
                model_etj(&m, comers[count].name, "{}");
                comers[count].lasts = 20 + (int)model_random(&m, world % 2 ? 80 : 400);
                comers[count++].came = second;
                here++;
                next = second + (int)model_random(&m, 60);
            }
            model_run(&m, 1);
            waits = 0;
            for (int i = 0; i < count; i++)
                if (!comers[i].begun && second - comers[i].came > waits)
                    waits = second - comers[i].came;
            assert_in_range(waits, 0, KEEP_S + LATE_S);
            for (int i = 0; i < count; i++) {
                if (comers[i].ended)
                    continue;
                if (loses_new_ones(&comers[i], second))
                    assert_in_range(waits, KEEP_S - 1, KEEP_S + LATE_S);
                comers[i].ended = ends(&comers[i], second);
                here -= comers[i].ended;
            }
        }
    }
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(who_comes_waits_for_workers_that_have_just_come_but_not_for_long),
        T(who_comes_later_begins_at_once),
        T(who_begins_takes_as_many_workers_as_it_needs),
        T(pods_that_never_go_hold_nobody_up),
        T(a_person_gets_workers_at_once),
        T(foreign_pods_get_workers_at_once),
        T(who_can_never_begin_takes_nothing),
        T(new_workers_stay_and_nobody_waits_for_long),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Properties of any cluster, with a controller that is killed after any action: random trainings,
 * Kubernetes nodes, quotas, foreign pods and faults on a small cluster (kube_model.h).
 */
#include "kube_model.h"
#include "sanitized.h"

#define WORLDS  ((unsigned)TIMES(25))
#define SECONDS 40
#define JOBS    4
#define CALM    240 /* seconds without disturbance */

static struct model m;
static unsigned world;

static bool one_in(unsigned n)
{
    return model_random(&m, n) == 0;
}

static int between(int least, int most)
{
    return least + (int)model_random(&m, (unsigned)(most - least + 1));
}

static double random_rate(int workers, int ps)
{
    return 50.0 * workers / (1 + 0.1 * (workers - 1)) * (ps > 1 ? 1.2 : 1);
}

static void build_world(void)
{
    static const char *const policies[] = {
        "", "equal", "throughput", "priority", "weighted", "makespan", "fcfs/max-prop/malleable"};
    char name[16], text[256];

    for (int i = between(1, 4); i > 0; i--) {
        snprintf(name, sizeof(name), "node%d", i);
        snprintf(text, sizeof(text), "%d", between(1, 8));
        model_node(&m, name, text, one_in(4) ? "4Gi" : "64Gi");
    }
    for (int i = between(1, JOBS); i > 0; i--) {
        int least = between(1, 3);

        snprintf(name, sizeof(name), "j%d", i);
        snprintf(text, sizeof(text),
                 "{\"priority\": %d, \"policy\": \"%s\", \"ps\": {\"max\": %d}, \"workers\": "
                 "{\"min\": %d, \"max\": %d, \"replicas\": %d, \"resources\": {\"requests\": "
                 "{\"cpu\": \"%dm\"}}}}",
                 between(-1, 1), policies[model_random(&m, 7)], between(1, 3), least,
                 least + between(0, 6), one_in(4) ? least : 0, 250 * between(1, 6));
        model_etj(&m, name, text);
    }
    if (one_in(3))
        model_quota(&m, "q", one_in(2) ? "3" : "8");
    m.communication_permille = model_random(&m, 800);
    m.rate = random_rate;
}

/* Something happens that the controller has not asked for. */
static void disturb(void)
{
    const json_t *pod = json_array_get(m.pods, model_random(&m, 20)), *etj;
    char name[32];

    switch (model_random(&m, 12)) {
    case 0:
        snprintf(name, sizeof(name), "other%u", m.uids);
        model_other(&m, name, NULL, one_in(2) ? "1" : "2500m", between(-5, 5));
        break;
    case 1:
        if (pod && *model_text(pod, "spec", "nodeName"))
            model_set_phase((json_t *)pod, one_in(3) ? "Succeeded" : "Failed");
        break;
    case 2:
        snprintf(name, sizeof(name), "new%u", m.uids);
        model_node(&m, name, "4", "16Gi");
        break;
    case 3:
        if (json_array_size(m.nodes) > 1)
            json_array_remove(m.nodes, 0);
        break;
    case 4:
        etj = json_array_get(m.etjs, 0);
        json_object_set_new(json_object_get(etj, "spec"), "suspend", json_boolean(one_in(2)));
        break;
    case 5:
        m.no_chiefs = one_in(2);
        break;
    default:
        break;
    }
}

/* Pods of a training that live and were not asked to leave. */
static int count_in(const struct model_world *w, const struct kube_etj *etj, enum kube_role role)
{
    int count = 0;

    for (size_t i = 0; i < w->world.pod_count; i++)
        count += model_serves(w->pods[i], etj->meta.name, role);
    return count;
}

/* Checks the properties that hold at every moment. */
static void check_bounds(void)
{
    struct model_world *w = model_world(&m);

    assert_int_equal(m.refused, 0);
    for (size_t j = 0; j < w->world.etj_count; j++) {
        const struct kube_etj *etj = w->etjs[j];

        if (etj->fault)
            fail_msg("%s", etj->fault);
        for (int role = 0; role < KUBE_ROLE_MAX; role++)
            if (count_in(w, etj, (enum kube_role)role) > etj->task[role].max)
                fail_msg("world %u: too many pods %s-%s", world, etj->meta.name,
                         kube_role_name((enum kube_role)role));
    }
    model_world_free(w);
}

/* When all is at rest, no pod waits for a node, and every running training has its minimum. */
static void check_settled(void)
{
    struct model_world *w = model_world(&m);

    for (size_t j = 0; j < w->world.etj_count; j++) {
        const struct kube_etj *etj = w->etjs[j];
        bool runs = etj->status.phase == KUBE_RUNNING;
        int workers = count_in(w, etj, KUBE_WORKER);

        if (runs && workers < etj->task[KUBE_WORKER].min && !etj->status.reason[0])
            fail_msg("%s runs with %d workers", etj->meta.name, workers);
        if (etj->status.phase == KUBE_PENDING || etj->status.phase == KUBE_SUSPENDED)
            assert_int_equal(workers, 0);
        if (runs && etj->replicas && strcmp(etj->status.reason, "Pinned") == 0)
            assert_true(workers <= etj->replicas);
    }
    model_world_free(w);
}

static void settle(bool crashes)
{
    size_t events = 0;

    m.no_chiefs = false;
    for (int i = 0; i < CALM; i++) {
        model_reconcile(&m, crashes && i < CALM / 4 ? model_random(&m, 6) : WHOLE_PLAN);
        check_bounds();
        model_tick(&m);
        if (i == CALM / 4 * 3)
            events = json_array_size(m.events);
    }
    if (json_array_size(m.events) != events)
        fail_msg("world %u does not come to rest: %s", world,
                 json_string_value(json_array_get(m.events, events)));
    check_settled();
}

static void random_worlds(bool crashes)
{
    for (world = 1; world <= WORLDS; world++) {
        model_init(&m);
        m.random = m.random * world + world;
        build_world();
        for (int i = 0; i < SECONDS; i++) {
            model_reconcile(&m, crashes ? model_random(&m, 8) : WHOLE_PLAN);
            check_bounds();
            if (one_in(3))
                disturb();
            model_tick(&m);
        }
        settle(crashes);
        model_done(&m);
    }
}

static void bounds_hold_and_all_worlds_settle(void **state)
{
    random_worlds(false);
}

static void a_controller_that_is_killed_at_any_action_gets_there(void **state)
{
    random_worlds(true);
}

/* One action, then a crash, again and again: the start of a training and its growth. */
static void one_action_at_a_time_is_enough(void **state)
{
    model_init(&m);
    model_node(&m, "a", "8", "64Gi");
    model_etj(&m, "j", "{\"ps\": {\"min\": 2, \"max\": 2}, \"workers\": {\"min\": 2, \"max\": 2}}");
    for (int i = 0; i < 60; i++) {
        model_reconcile(&m, 2); /* the status, and one more */
        check_bounds();
        if (i % 3 == 2)
            model_tick(&m);
    }
    model_run(&m, 20);
    assert_string_equal(model_phase(&m, "j"), "Running");
    assert_int_equal(model_count(&m, "j", KUBE_PS), 2);
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 2);
    model_done(&m);
}

/* ---- determinism ----------------------------------------------------------------------------- */

/* All of a plan as text. */
static char *plan_text(const struct kube_plan *plan)
{
    json_t *all = json_array();
    char *text;

    for (size_t i = 0; i < plan->count; i++) {
        const struct kube_action *a = &plan->actions[i];
        json_t *one = json_pack("{s:s, s:s, s:s*}", "kind", kube_action_name(a->kind), "job",
                                a->etj->meta.name, "pod", a->pod ? a->pod->meta.name : NULL);

        if (a->kind == KUBE_PATCH_STATUS)
            json_object_set_new(one, "status", kube_status_json(a->etj, a->status));
        if (a->kind == KUBE_SET_MEMBERS)
            json_object_set_new(one, "members", kube_members_json(a->members));
        if (a->kind == KUBE_CREATE_POD)
            json_object_set_new(one, "index", json_integer(a->create.index));
        json_array_append_new(all, one);
    }
    text = json_dumps(all, JSON_SORT_KEYS);
    json_decref(all);
    return text;
}

static void reverse(const void **list, size_t count)
{
    for (size_t i = 0; i < count / 2; i++) {
        const void *other = list[i];

        list[i] = list[count - 1 - i];
        list[count - 1 - i] = other;
    }
}

static void the_same_world_gives_the_same_actions(void **state)
{
    for (world = 1; world <= WORLDS; world++) {
        struct kube_memory *memories[2] = {kube_memory_new(), kube_memory_new()};
        char *texts[2];
        struct model_world *w;

        model_init(&m);
        m.random = m.random * world + world;
        build_world();
        model_run(&m, between(0, 20));
        w = model_world(&m);
        for (int i = 0; i < 2; i++) {
            struct kube_plan plan;

            assert_int_equal(kube_reconcile(&m.settings, &w->world, memories[i], &plan), 0);
            texts[i] = plan_text(&plan);
            kube_plan_done(&plan);
            kube_memory_free(memories[i]);
            /* nor does the order of the caches matter */
            reverse((const void **)w->nodes, w->world.node_count);
            reverse((const void **)w->pods, w->world.pod_count);
            reverse((const void **)w->etjs, w->world.etj_count);
        }
        assert_string_equal(texts[0], texts[1]);
        free(texts[0]);
        free(texts[1]);
        model_world_free(w);
        model_done(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_action_at_a_time_is_enough),
        cmocka_unit_test(bounds_hold_and_all_worlds_settle),
        cmocka_unit_test(a_controller_that_is_killed_at_any_action_gets_there),
        cmocka_unit_test(the_same_world_gives_the_same_actions),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

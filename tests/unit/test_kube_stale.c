/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A controller whose caches are old, or that reaches no API server, on a small cluster
 * (kube_model.h). The test fails when an index occurs twice.
 */
#include "kube_model.h"

#define PAST_MAX 600
#define LAG_MAX  8 /* seconds; what was sent is counted upon for ten */

static struct model m;
static json_t *past_pods[PAST_MAX], *past_etjs[PAST_MAX];
static int now, seen;

static int set_up(void **state)
{
    model_init(&m);
    now = seen = 0;
    return 0;
}

static int tear_down(void **state)
{
    for (int i = 0; i < now; i++) {
        json_decref(past_pods[i]);
        json_decref(past_etjs[i]);
    }
    model_done(&m);
    return 0;
}

static int alive(enum kube_role role)
{
    return model_count(&m, "j", role);
}

/* A second, in which the controller sees what there was @lag seconds ago; nothing becomes younger.
 */
static void pass_late(int lag)
{
    past_pods[now] = json_deep_copy(m.pods);
    past_etjs[now] = json_deep_copy(m.etjs);
    seen = now - lag > seen ? now - lag : seen;
    m.seen_pods = past_pods[seen];
    m.seen_etjs = past_etjs[seen];
    now++;
    model_run(&m, 1);
    m.seen_pods = m.seen_etjs = NULL;
    assert_true(alive(KUBE_CHIEF) <= 1);
    assert_true(alive(KUBE_PS) <= 1);
    assert_true(alive(KUBE_WORKER) <= 8);
}

/* ---- old caches ------------------------------------------------------------------------------ */

static void a_pod_that_is_not_seen_yet_is_not_made_twice(void **state)
{
    model_node(&m, "a", "9", "64Gi");
    model_etj(&m, "j", "{\"workers\": {\"min\": 4, \"max\": 4}}");
    model_reconcile(&m, WHOLE_PLAN);
    assert_int_equal(m.sent[KUBE_CREATE_POD], 6);
    m.seen_pods = json_array();
    for (int i = 0; i < LAG_MAX; i++) {
        m.now_ns += S;
        model_reconcile(&m, WHOLE_PLAN);
    }
    assert_int_equal(m.sent[KUBE_CREATE_POD], 6);
    json_decref(m.seen_pods);
    m.seen_pods = NULL;
    model_run(&m, 20);
    assert_int_equal(m.sent[KUBE_CREATE_POD], 6);
    assert_string_equal(model_phase(&m, "j"), "Running");
}

/* One that the API server has refused is made with another index, and not before. */
static void a_pod_that_never_came_is_made_with_another_index(void **state)
{
    model_node(&m, "a", "9", "64Gi");
    model_etj(&m, "j", "{\"workers\": {\"min\": 2, \"max\": 2}}");
    model_reconcile(&m, WHOLE_PLAN);
    model_remove(m.pods, "j-worker-1");
    for (int i = 0; i < 9; i++) {
        model_run(&m, 1);
        assert_int_equal(m.sent[KUBE_CREATE_POD], 4);
    }
    model_run(&m, 10);
    assert_int_equal(m.sent[KUBE_CREATE_POD], 5);
    assert_non_null(model_find(m.pods, "j-worker-2"));
}

static void a_pod_that_was_deleted_and_is_still_seen_is_left_alone(void **state)
{
    unsigned asked, deleted;

    model_node(&m, "a", "9", "64Gi");
    model_etj(&m, "j", "{}");
    model_run(&m, 30);
    assert_int_equal(alive(KUBE_WORKER), 8);
    model_spec(&m, "j", "{\"workers\": {\"replicas\": 4}}");
    asked = m.sent[KUBE_ASK_LEAVE];
    deleted = m.sent[KUBE_DELETE_POD];
    m.seen_pods = json_deep_copy(m.pods); /* before anybody is asked */
    for (int i = 0; i < 4; i++)
        model_run(&m, 1);
    assert_int_equal(alive(KUBE_WORKER), 4);
    assert_int_equal(m.sent[KUBE_ASK_LEAVE] - asked, 4);
    json_decref(m.seen_pods);
    m.seen_pods = json_deep_copy(m.pods); /* asked, released, not deleted */
    for (int i = 0; i < 4; i++)
        model_run(&m, 1);
    assert_int_equal(m.sent[KUBE_DELETE_POD] - deleted, 4);
    assert_int_equal(alive(KUBE_WORKER), 4);
    json_decref(m.seen_pods);
    m.seen_pods = NULL;
    model_run(&m, 60);
    assert_int_equal(alive(KUBE_WORKER), 4);
    assert_int_equal(m.sent[KUBE_CREATE_POD], 10);
}

static void a_controller_that_sees_everything_late_gets_there(void **state)
{
    for (int lag = 0; lag <= LAG_MAX; lag++) {
        if (lag)
            tear_down(state), set_up(state);
        model_node(&m, "a", "9", "64Gi");
        model_other(&m, "web", "a", "4", 0);
        model_etj(&m, "j", "{}");
        for (int i = 0; i < 100; i++)
            pass_late(lag);
        assert_int_equal(alive(KUBE_WORKER), 4);
        model_remove(m.pods, "web");
        for (int i = 0; i < 60; i++)
            pass_late(lag);
        assert_int_equal(alive(KUBE_WORKER), 8);
        model_other(&m, "web", NULL, "4", 0);
        for (int i = 0; i < 60; i++)
            pass_late(lag);
        assert_int_equal(alive(KUBE_WORKER), 4);
        assert_string_equal(model_text(model_find(m.pods, "web"), "spec", "nodeName"), "a");
        assert_int_equal(m.sent[KUBE_CREATE_POD], 2 + 8);
        assert_int_equal(model_events(&m, "NodeFailed") + model_events(&m, "Withdrawn"), 0);
    }
}

/* Sometimes up to date, sometimes not, while workers die. */
static void caches_that_falter_lead_nowhere_else(void **state)
{
    for (unsigned world = 0; world < 8; world++) {
        if (world)
            tear_down(state), set_up(state), m.random += world * 977;
        model_node(&m, "a", "5", "64Gi");
        model_node(&m, "b", "4", "64Gi");
        model_etj(&m, "j", "{}");
        for (int i = 0; i < 200; i++) {
            json_t *pod = json_array_get(m.pods, model_random(&m, 40));

            if (pod && strstr(model_text(pod, "metadata", "name"), "worker") &&
                *model_text(pod, "spec", "nodeName"))
                model_set_phase(pod, "Failed");
            pass_late((int)model_random(&m, LAG_MAX));
        }
        model_run(&m, 400);
        assert_int_equal(alive(KUBE_WORKER), 8);
    }
}

/* ---- no API server --------------------------------------------------------------------------- */

/* Neither reads nor writes; nodes, pods and chiefs go on. */
static void lose_the_api_server(int seconds)
{
    m.seen_pods = json_deep_copy(m.pods);
    m.seen_etjs = json_deep_copy(m.etjs);
    m.no_api = true;
    model_run(&m, seconds);
    m.no_api = false;
    json_decref(m.seen_pods);
    json_decref(m.seen_etjs);
    m.seen_pods = m.seen_etjs = NULL;
}

static void a_minute_without_api_server_changes_nothing(void **state)
{
    json_t *told;
    unsigned created, asked, deleted;

    model_node(&m, "a", "9", "64Gi");
    model_etj(&m, "j", "{}");
    model_run(&m, 60);
    told = json_deep_copy(m.told);
    created = m.sent[KUBE_CREATE_POD];
    asked = m.sent[KUBE_ASK_LEAVE];
    deleted = m.sent[KUBE_DELETE_POD];
    lose_the_api_server(60);
    assert_true(json_equal(told, m.told)); /* no pod is evicted */
    model_run(&m, 60);
    assert_true(json_equal(told, m.told));
    assert_int_equal(alive(KUBE_WORKER), 8);
    assert_int_equal(m.sent[KUBE_CREATE_POD], created);
    assert_int_equal(m.sent[KUBE_ASK_LEAVE], asked);
    assert_int_equal(m.sent[KUBE_DELETE_POD], deleted);
    json_decref(told);
}

static void what_could_not_be_sent_is_sent_as_soon_as_it_is_back(void **state)
{
    model_node(&m, "a", "9", "64Gi");
    model_etj(&m, "j", "{\"workers\": {\"min\": 4, \"max\": 4}}");
    lose_the_api_server(2);
    assert_int_equal(alive(KUBE_WORKER), 0);
    model_reconcile(&m, WHOLE_PLAN);
    assert_int_equal(alive(KUBE_WORKER), 4);
    model_run(&m, 20);
    model_spec(&m, "j", "{\"workers\": {\"replicas\": 2, \"min\": 1}}");
    lose_the_api_server(2);
    assert_int_equal(alive(KUBE_WORKER), 4);
    model_reconcile(&m, WHOLE_PLAN);
    assert_int_equal(alive(KUBE_WORKER), 2);
}

/* It is lost right before pods are to be made, or while they are on their way. */
static void what_was_to_be_made_is_made_once_when_it_is_back(void **state)
{
    for (int after = 0; after < 12; after++) {
        if (after)
            tear_down(state), set_up(state);
        model_node(&m, "a", "9", "64Gi");
        model_etj(&m, "j", "{}");
        for (int i = 0; i < after; i++)
            model_run(&m, 1);
        lose_the_api_server(60);
        assert_true(alive(KUBE_WORKER) <= 8);
        model_run(&m, 60);
        assert_int_equal(alive(KUBE_WORKER), 8);
        assert_int_equal(alive(KUBE_PS), 1);
        assert_int_equal(model_events(&m, "NodeFailed"), 0);
    }
}

static void what_has_died_meanwhile_is_replaced_once(void **state)
{
    model_node(&m, "a", "9", "64Gi");
    model_etj(&m, "j", "{\"workers\": {\"min\": 4, \"max\": 4}}");
    model_run(&m, 60);
    m.seen_pods = json_deep_copy(m.pods);
    m.no_api = true;
    model_run(&m, 10);
    model_set_phase(model_find(m.pods, "j-worker-2"), "Failed");
    model_run(&m, 50);
    assert_int_equal(alive(KUBE_WORKER), 3);
    json_decref(m.seen_pods);
    m.seen_pods = NULL;
    m.no_api = false;
    model_run(&m, 30);
    assert_int_equal(alive(KUBE_WORKER), 4);
    assert_non_null(model_find(m.pods, "j-worker-4"));
    assert_null(model_find(m.pods, "j-worker-5"));
}

static void a_give_back_waits_for_the_api_server(void **state)
{
    model_node(&m, "a", "9", "64Gi");
    model_etj(&m, "j", "{}");
    model_run(&m, 60);
    model_other(&m, "web", NULL, "3", 0);
    model_tick(&m); /* the scheduler has seen that there is no room, and so have the caches */
    lose_the_api_server(60);
    assert_int_equal(alive(KUBE_WORKER), 8);
    model_run(&m, 10);
    assert_int_equal(alive(KUBE_WORKER), 5);
    assert_string_equal(model_text(model_find(m.pods, "web"), "spec", "nodeName"), "a");
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(a_pod_that_is_not_seen_yet_is_not_made_twice),
        T(a_pod_that_never_came_is_made_with_another_index),
        T(a_pod_that_was_deleted_and_is_still_seen_is_left_alone),
        T(a_controller_that_sees_everything_late_gets_there),
        T(caches_that_falter_lead_nowhere_else),
        T(a_minute_without_api_server_changes_nothing),
        T(what_could_not_be_sent_is_sent_as_soon_as_it_is_back),
        T(what_was_to_be_made_is_made_once_when_it_is_back),
        T(what_has_died_meanwhile_is_replaced_once),
        T(a_give_back_waits_for_the_api_server),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

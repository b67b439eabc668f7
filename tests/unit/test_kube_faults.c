/* SPDX-License-Identifier: Apache-2.0 */
/* The controller's decisions after failures, refusals and ends (kube_model.h). */
#include "kube_model.h"

#include <errno.h>

static struct model m;

static void a_lost_worker_is_replaced_with_a_new_index(void **state)
{
    model_node(&m, "a", "3", "64Gi");
    model_etj(&m, "j", "{\"workers\": {\"min\": 2, \"max\": 2}}");
    model_run(&m, 20);
    model_set_phase(model_find(m.pods, "j-worker-1"), "Failed");
    model_run(&m, 10);
    assert_null(model_find(m.pods, "j-worker-1"));
    assert_non_null(model_find(m.pods, "j-worker-2"));
    assert_int_equal(model_events(&m, "NodeFailed"), 1);
}

static void a_lost_worker_above_the_least_is_replaced_at_once(void **state)
{
    model_node(&m, "a", "5", "64Gi");
    model_etj(&m, "j", "{}");
    model_run(&m, 60);
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 4);
    model_set_phase(model_find(m.pods, "j-worker-1"), "Failed");
    model_run(&m, 12);
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 4);
    model_assert_condition(&m, "j", "Degraded", "True", "NodesFail");
}

static void a_node_that_is_gone_is_left(void **state)
{
    model_node(&m, "a", "2", "64Gi");
    model_node(&m, "b", "4", "64Gi");
    model_etj(&m, "j", "{\"workers\": {\"min\": 3, \"max\": 3}}");
    model_run(&m, 20);
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 3);
    model_node(&m, "c", "4", "64Gi");
    model_remove(m.nodes, "b");
    model_run(&m, 60);
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 3);
    model_assert_condition(&m, "j", "Ready", "True", "InTraining");
}

/* The watch of pods may be ahead of that of nodes. */
static void nothing_is_deleted_for_a_node_that_is_not_known_yet(void **state)
{
    json_t *node = json_incref(model_node(&m, "a", "4", "64Gi"));

    model_etj(&m, "j", "{\"workers\": {\"min\": 2, \"max\": 2}}");
    model_run(&m, 20);
    model_remove(m.nodes, "a");
    model_run(&m, 10);
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 2);
    assert_int_equal(model_count(&m, "j", KUBE_CHIEF), 1);
    json_array_append_new(m.nodes, node);
    model_run(&m, 10);
    assert_non_null(model_find(m.pods, "j-worker-0"));
    assert_int_equal(model_events(&m, "NodeFailed"), 0);
    model_assert_phase(&m, "j", "Running");
}

static void a_chief_on_a_node_that_is_gone_is_left_to_kubernetes(void **state)
{
    model_node(&m, "a", "4", "64Gi");
    model_etj(&m, "j", "{\"workers\": {\"min\": 2, \"max\": 2}}");
    model_run(&m, 20);
    model_remove(m.nodes, "a");
    model_run(&m, 50);
    assert_int_equal(model_count(&m, "j", KUBE_CHIEF), 1);
    assert_null(model_find(m.pods, "j-worker-0"));
    model_node(&m, "b", "4", "64Gi");
    model_run(&m, 40);
    model_assert_phase(&m, "j", "Running");
    assert_string_equal(model_text(model_find(m.pods, "j-chief"), "spec", "nodeName"), "b");
}

static void a_failed_chief_begins_anew_until_the_limit(void **state)
{
    model_node(&m, "a", "8", "64Gi");
    model_etj(&m, "j", "{\"backoffLimit\": 2}");
    model_run(&m, 20);
    for (int i = 0; i < 2; i++) {
        model_set_phase(model_find(m.pods, "j-chief"), "Failed");
        model_run(&m, 30);
        model_assert_phase(&m, "j", "Running");
    }
    model_set_phase(model_find(m.pods, "j-chief"), "Failed");
    model_run(&m, 30);
    model_assert_phase(&m, "j", "Failed");
    model_assert_condition(&m, "j", "Degraded", "True", "BackoffLimitExceeded");
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 0);
    assert_non_null(model_find(m.pods, "j-chief")); /* its log is of use */
    assert_int_equal(model_events(&m, "ChiefFailed"), 2);
}

static void a_crash_does_not_count_a_failure_twice(void **state)
{
    model_node(&m, "a", "8", "64Gi");
    model_etj(&m, "j", "{\"backoffLimit\": 1}");
    model_run(&m, 20);
    model_set_phase(model_find(m.pods, "j-chief"), "Failed");
    for (int i = 0; i < 5; i++)
        model_reconcile(&m, 1);
    model_run(&m, 30);
    model_assert_phase(&m, "j", "Running");
}

static void an_ended_training_gives_everything_back(void **state)
{
    model_node(&m, "a", "8", "64Gi");
    model_etj(&m, "j", "{}");
    model_run(&m, 30);
    model_set_phase(model_find(m.pods, "j-chief"), "Succeeded");
    model_run(&m, 5);
    model_assert_phase(&m, "j", "Succeeded");
    assert_int_equal(json_array_size(m.pods), 1);
    model_assert_condition(&m, "j", "Complete", "True", "Succeeded");
}

static void a_missing_image_is_said_and_nothing_more_is_made(void **state)
{
    unsigned made;

    m.no_kubelet = true;
    model_node(&m, "a", "8", "64Gi");
    model_etj(&m, "j", "{}");
    model_run(&m, 3);
    json_object_set_new(json_object_get(model_find(m.pods, "j-worker-0"), "status"),
                        "containerStatuses",
                        model_json("[{\"name\": \"tide\", \"state\": {\"waiting\": {\"reason\": "
                                   "\"ImagePullBackOff\", \"message\": \"no such image\"}}}]"));
    made = m.sent[KUBE_CREATE_POD];
    m.no_kubelet = false;
    model_run(&m, 30);
    model_assert_condition(&m, "j", "Degraded", "True", "ImageUnavailable");
    assert_int_equal(m.sent[KUBE_CREATE_POD], made);
    assert_int_equal(model_events(&m, "ImageUnavailable"), 1);
}

static void a_training_that_never_reports_goes_back_to_its_least(void **state)
{
    m.no_chiefs = true;
    model_node(&m, "a", "8", "64Gi");
    model_etj(&m, "j", "{\"workers\": {\"min\": 2}}");
    model_run(&m, 50);
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 7);
    model_run(&m, 50);
    model_assert_phase(&m, "j", "Starting");
    model_assert_condition(&m, "j", "Progressing", "False", "NeverReported");
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 2);
}

static void a_worker_that_no_node_takes_is_withdrawn(void **state)
{
    json_t *node = model_node(&m, "a", "3", "64Gi");

    model_node(&m, "b", "3", "64Gi");
    /* only the scheduler knows why this Kubernetes node is unfit */
    json_object_set_new(json_object_get(model_find(m.nodes, "b"), "spec"), "taints",
                        json_pack("[{s:s, s:s}]", "key", "x", "effect", "PreferNoSchedule"));
    model_etj(&m, "j", "{}");
    model_run(&m, 100);
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 2);
    assert_true(model_events(&m, "Withdrawn") >= 1);
    assert_non_null(node);
}

/* ---- suspend, delete ------------------------------------------------------------------------- */

static void a_suspended_training_gives_back_and_returns(void **state)
{
    model_node(&m, "a", "8", "64Gi");
    model_etj(&m, "j", "{}");
    model_run(&m, 30);
    model_spec(&m, "j", "{\"suspend\": true}");
    model_run(&m, 10);
    model_assert_phase(&m, "j", "Suspended");
    model_assert_condition(&m, "j", "Suspended", "True", "Suspended");
    assert_int_equal(json_array_size(m.pods), 0);
    model_spec(&m, "j", "{\"suspend\": false}");
    model_run(&m, 20);
    model_assert_phase(&m, "j", "Running");
    model_assert_condition(&m, "j", "Suspended", "False", "NotSuspended");
}

static void a_deleted_training_is_drained_first(void **state)
{
    json_t *etj;

    model_node(&m, "a", "8", "64Gi");
    model_etj(&m, "j", "{}");
    model_run(&m, 30);
    etj = model_find(m.etjs, "j");
    assert_string_equal(json_string_value(json_array_get(
                            json_object_get(json_object_get(etj, "metadata"), "finalizers"), 0)),
                        KUBE_FINALIZER);
    json_object_set_new(json_object_get(etj, "metadata"), "deletionTimestamp",
                        json_string("2026-11-22T05:15:19Z"));
    model_reconcile(&m, WHOLE_PLAN);
    assert_true(json_is_true(json_object_get(json_object_get(m.told, "j"), "suspend")));
    assert_int_equal(model_count(&m, "j", KUBE_CHIEF), 1); /* it has to save first */
    model_run(&m, 10);
    assert_int_equal(json_array_size(m.pods), 0);
    assert_int_equal(json_array_size(m.etjs), 0);
}

/* The finalizer may be the manifest's, beside others; the watch may be late. */
static void a_finalizer_is_taken_out_once_and_others_stay(void **state)
{
    json_t *etj = model_etj(&m, "j", "{\"suspend\": true}"), *meta, *both;

    meta = json_object_get(etj, "metadata");
    json_object_set_new(meta, "finalizers", json_pack("[s,s]", "other/hold", KUBE_FINALIZER));
    json_object_set_new(meta, "deletionTimestamp", json_string("2026-11-22T05:15:19Z"));
    both = json_deep_copy(json_object_get(meta, "finalizers"));
    model_reconcile(&m, WHOLE_PLAN);
    assert_int_equal(json_array_size(json_object_get(meta, "finalizers")), 1);
    assert_string_equal(json_string_value(json_array_get(json_object_get(meta, "finalizers"), 0)),
                        "other/hold");
    json_object_set_new(meta, "finalizers", both);
    for (int i = 0; i < 4; i++) {
        m.now_ns += S;
        model_reconcile(&m, WHOLE_PLAN);
    }
    assert_int_equal(m.let_go, 1);
    m.now_ns += 2 * S; /* another program has added it again */
    model_reconcile(&m, WHOLE_PLAN);
    assert_int_equal(m.let_go, 2);
    assert_int_equal(json_array_size(m.etjs), 1);
}

static void answer(const struct kube_etj *etj, enum kube_action_kind kind, int code)
{
    struct kube_answer said = {.kind = kind, .code = code, .text = "Service j is there already"};

    kube_memory_answer(m.memory, etj, &said, m.now_ns);
}

static void a_refusal_is_said_until_it_is_over(void **state)
{
    struct kube_etj *etj = NULL;

    model_node(&m, "a", "8", "64Gi");
    assert_int_equal(kube_etj_parse(model_etj(&m, "j", "{}"), &etj, NULL), 0);
    model_run(&m, 5);
    model_assert_condition(&m, "j", "Degraded", "False", "AsExpected");
    answer(etj, KUBE_CREATE_SERVICE, -EEXIST);
    model_run(&m, 5);
    model_assert_condition(&m, "j", "Degraded", "True", "NameTaken");
    assert_int_equal(model_events(&m, "NameTaken"), 1);
    answer(etj, KUBE_CREATE_POD, 0);
    model_run(&m, 5);
    model_assert_condition(&m, "j", "Degraded", "True", "NameTaken");
    answer(etj, KUBE_CREATE_SERVICE, 0);
    model_run(&m, 5);
    model_assert_condition(&m, "j", "Degraded", "False", "AsExpected");
    kube_etj_free(etj);
}

static void a_controller_that_takes_over_lets_the_chief_save(void **state)
{
    model_node(&m, "a", "8", "64Gi");
    model_etj(&m, "j", "{}");
    model_run(&m, 30);
    model_spec(&m, "j", "{\"suspend\": true}");
    kube_memory_free(m.memory);
    m.memory = kube_memory_new();
    json_object_clear(m.reports);
    m.no_chiefs = true;
    model_run(&m, 10);
    assert_int_equal(model_count(&m, "j", KUBE_CHIEF), 1);
    assert_int_equal(model_count(&m, "j", KUBE_PS), 1);
    m.no_chiefs = false;
    model_run(&m, 10);
    model_assert_phase(&m, "j", "Suspended");
}

static void a_chief_that_reports_has_more_time_to_save(void **state)
{
    model_node(&m, "a", "8", "64Gi");
    model_etj(&m, "j", "{}");
    model_run(&m, 30);
    m.saves = true;
    model_spec(&m, "j", "{\"suspend\": true}");
    model_run(&m, 100);
    assert_int_equal(model_count(&m, "j", KUBE_CHIEF), 1);
    assert_int_equal(model_count(&m, "j", KUBE_PS), 1);
    model_run(&m, 30); /* not for ever */
    model_assert_phase(&m, "j", "Suspended");
    model_spec(&m, "j", "{\"suspend\": false}");
    model_run(&m, 30);
    model_assert_phase(&m, "j", "Running");
    m.no_chiefs = true;
    model_spec(&m, "j", "{\"suspend\": true}");
    model_run(&m, 40);
    model_assert_phase(&m, "j", "Suspended");
}

/* ---- refused --------------------------------------------------------------------------------- */

static void a_worker_that_is_refused_is_said_and_holds_up_nothing_else(void **state)
{
    const json_t *members;

    m.refuses = "-worker-3";
    model_node(&m, "a", "8", "64Gi");
    model_etj(&m, "j", "{\"workers\": {\"replicas\": 4}}");
    model_run(&m, 30);
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 4); /* with another index */
    m.refuses = "-worker";
    m.tries = 0;
    model_spec(&m, "j", "{\"workers\": {\"replicas\": 7}}");
    model_run(&m, 60);
    model_assert_condition(&m, "j", "Degraded", "True", "Refused");
    assert_int_equal(model_events(&m, "Refused"), 2);
    assert_in_range(m.tries, 2, 7);
    members = json_object_get(json_object_get(m.told, "j"), "worker");
    assert_int_equal(json_array_size(members), 4);
    model_assert_phase(&m, "j", "Running");
    /* it still gives way */
    model_spec(&m, "j", "{\"workers\": {\"replicas\": 0}}");
    model_other(&m, "web", NULL, "5", 0);
    model_run(&m, 10);
    assert_string_equal(model_text(model_find(m.pods, "web"), "spec", "nodeName"), "a");
    /* and grows when it may */
    model_remove(m.pods, "web");
    m.refuses = NULL;
    model_spec(&m, "j", "{\"workers\": {\"replicas\": 5}}");
    model_run(&m, 150);
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 5);
    model_assert_condition(&m, "j", "Degraded", "False", "AsExpected");
}

static void without_a_chief_nothing_else_is_made(void **state)
{
    m.refuses = "-chief";
    model_node(&m, "a", "8", "64Gi");
    model_etj(&m, "j", "{}");
    model_run(&m, 100);
    model_assert_condition(&m, "j", "Degraded", "True", "Refused");
    assert_int_equal(json_array_size(m.pods), 0);
    assert_in_range(m.tries, 5, 9);
    m.refuses = NULL;
    json_object_set_new(json_object_get(model_find(m.etjs, "j"), "metadata"), "generation",
                        json_integer(2)); /* somebody has mended the spec */
    model_run(&m, 10);
    model_assert_phase(&m, "j", "Running");
}

/* A status or event that is no text could not be sent, nor anything with it. */
static void a_text_of_others_is_told_however_it_is_cut(void **state)
{
    char message[200] = "x", spec[256]; /* an x, so that a cut is inside one of the characters */
    json_t *status;

    while (strlen(message) < 150)
        strcat(message, "\u00e9");
    snprintf(spec, sizeof(spec), "{\"mode\": \"%s\"}", message);
    m.no_kubelet = true;
    model_node(&m, "a", "8", "64Gi");
    model_etj(&m, "j", "{}");
    model_etj(&m, "k", spec);
    model_run(&m, 3);
    model_assert_condition(&m, "k", "Accepted", "False", "InvalidSpec");
    status = json_object_get(model_find(m.pods, "j-worker-0"), "status");
    json_object_set_new(status, "containerStatuses",
                        json_pack("[{s:s, s:{s:{s:s, s:s}}}]", "name", KUBE_CONTAINER, "state",
                                  "waiting", "reason", "CreateContainerError", "message", message));
    model_run(&m, 10);
    model_assert_condition(&m, "j", "Degraded", "True", "ContainerFails");
    assert_non_null(strstr(model_text(model_find(m.etjs, "j"), "status", "message"), "\u00e9"));
}

int main(void)
{
#define T(name) cmocka_unit_test_prestate_setup_teardown(name, model_set_up, model_tear_down, &m)
    const struct CMUnitTest tests[] = {
        T(a_lost_worker_is_replaced_with_a_new_index),
        T(a_lost_worker_above_the_least_is_replaced_at_once),
        T(a_node_that_is_gone_is_left),
        T(nothing_is_deleted_for_a_node_that_is_not_known_yet),
        T(a_chief_on_a_node_that_is_gone_is_left_to_kubernetes),
        T(a_failed_chief_begins_anew_until_the_limit),
        T(a_crash_does_not_count_a_failure_twice),
        T(an_ended_training_gives_everything_back),
        T(a_missing_image_is_said_and_nothing_more_is_made),
        T(a_training_that_never_reports_goes_back_to_its_least),
        T(a_worker_that_no_node_takes_is_withdrawn),
        T(a_suspended_training_gives_back_and_returns),
        T(a_deleted_training_is_drained_first),
        T(a_finalizer_is_taken_out_once_and_others_stay),
        T(a_refusal_is_said_until_it_is_over),
        T(a_controller_that_takes_over_lets_the_chief_save),
        T(a_chief_that_reports_has_more_time_to_save),
        T(a_worker_that_is_refused_is_said_and_holds_up_nothing_else),
        T(without_a_chief_nothing_else_is_made),
        T(a_text_of_others_is_told_however_it_is_cut),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

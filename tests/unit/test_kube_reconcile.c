/* SPDX-License-Identifier: Apache-2.0 */
/* What the controller decides, on a cluster in small (kube_model.h). */
#include "kube_model.h"

#include <errno.h>

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

#define assert_phase(job, phase) assert_string_equal(model_phase(&m, job), phase)

static void assert_condition(const char *job, const char *type, const char *status,
                             const char *reason)
{
    const json_t *condition = model_condition(&m, job, type);

    assert_string_equal(json_string_value(json_object_get(condition, "status")), status);
    assert_string_equal(json_string_value(json_object_get(condition, "reason")), reason);
}

static double stops_at_two(int workers, int ps)
{
    return workers < 2 ? 100 : 200;
}

static double better_with_two_servers(int workers, int ps)
{
    return workers * (ps < 2 ? 50 : ps < 3 ? 100 : 101);
}

/* ---- growing --------------------------------------------------------------------------------- */

static void a_training_grows_into_free_room(void **state)
{
    model_node(&m, "a", "4", "16Gi");
    model_node(&m, "b", "4", "16Gi");
    model_etj(&m, "j", "{}");
    model_run(&m, 60);
    assert_phase("j", "Running");
    /* of 8 cores chief and parameter server have one: a node has room for three, one for four */
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 7);
    assert_int_equal(model_count(&m, "j", KUBE_PS), 1);
    assert_condition("j", "Ready", "True", "InTraining");
    assert_condition("j", "Degraded", "False", "AsExpected");
}

static void a_steady_training_costs_few_requests(void **state)
{
    unsigned before;

    model_node(&m, "a", "8", "16Gi");
    model_etj(&m, "j", "{}");
    model_run(&m, 60);
    before = m.status_count;
    for (int i = 0; i < 100; i++) {
        size_t count = model_reconcile(&m, WHOLE_PLAN);

        assert_true(count <= 1); /* the progress */
        model_tick(&m);
    }
    assert_in_range(m.status_count - before, 5, 12);
}

static void memory_counts_as_cores_do(void **state)
{
    model_node(&m, "a", "16", "5Gi");
    model_etj(&m, "j", "{}");
    model_run(&m, 60);
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 3);
}

static void what_does_not_fit_waits_and_nothing_is_made(void **state)
{
    model_node(&m, "a", "1", "16Gi");
    model_etj(&m, "j", "{}");
    model_run(&m, 10);
    assert_phase("j", "Pending");
    assert_int_equal(json_array_size(m.pods), 0);
    model_node(&m, "b", "4", "16Gi");
    model_run(&m, 10);
    assert_phase("j", "Running");
}

static void workers_that_do_not_pay_are_rolled_back(void **state)
{
    m.rate = stops_at_two;
    model_node(&m, "a", "12", "32Gi");
    model_etj(&m, "j", "{}");
    model_run(&m, 100);
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 2);
    assert_int_equal(model_events(&m, "RolledBack"), 1);
}

static void parameter_servers_come_as_long_as_they_pay(void **state)
{
    m.rate = better_with_two_servers;
    m.communication_permille = 600;
    model_node(&m, "a", "12", "32Gi");
    model_etj(&m, "j", "{\"ps\": {\"max\": 4}, \"workers\": {\"min\": 4, \"max\": 4}}");
    model_run(&m, 100);
    assert_int_equal(model_count(&m, "j", KUBE_PS), 2);
    assert_int_equal(model_events(&m, "RolledBack"), 1);
}

static void a_pin_is_kept(void **state)
{
    model_node(&m, "a", "12", "32Gi");
    model_etj(&m, "j", "{\"workers\": {\"replicas\": 3}}");
    model_run(&m, 40);
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 3);
    model_spec(&m, "j", "{\"workers\": {\"replicas\": 0}}");
    model_run(&m, 60);
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 8);
}

static void trainings_share_by_policy(void **state)
{
    model_node(&m, "a", "10", "64Gi");
    model_etj(&m, "j", "{}");
    model_run(&m, 60);
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 8);
    model_etj(&m, "k", "{}");
    model_run(&m, 100);
    assert_phase("k", "Running");
    assert_in_range(model_count(&m, "k", KUBE_WORKER), 3, 5);
    assert_int_equal(model_count(&m, "j", KUBE_WORKER) + model_count(&m, "k", KUBE_WORKER), 8);
}

static void the_higher_group_goes_first(void **state)
{
    model_node(&m, "a", "8", "64Gi");
    model_etj(&m, "low", "{\"policy\": \"equal\"}");
    model_run(&m, 60);
    assert_int_equal(model_count(&m, "low", KUBE_WORKER), 7);
    model_etj(&m, "high", "{\"priority\": 5, \"policy\": \"throughput\"}");
    model_run(&m, 100);
    assert_int_equal(model_count(&m, "high", KUBE_WORKER), 5);
    assert_int_equal(model_count(&m, "low", KUBE_WORKER), 1);
}

/* ---- others ---------------------------------------------------------------------------------- */

static void room_that_others_wait_for_is_given_back(void **state)
{
    model_node(&m, "a", "8", "64Gi");
    model_etj(&m, "j", "{}");
    model_run(&m, 60);
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 7);
    model_other(&m, "web", NULL, "3", 0);
    model_run(&m, 10);
    assert_string_equal(model_text(model_find(m.pods, "web"), "spec", "nodeName"), "a");
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 4);
    assert_int_equal(model_events(&m, "GaveWay"), 1);
    model_remove(m.pods, "web");
    model_run(&m, 20);
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 7);
}

/* The size that was on trial is not there any more: nobody waits for its rate. */
static void room_that_was_given_back_on_trial_is_taken_again_soon(void **state)
{
    model_node(&m, "a", "3", "64Gi");
    model_other(&m, "web", "a", "1", 0);
    model_etj(&m, "j", "{}");
    for (int i = 0; i < 2; i++) {
        model_run(&m, 20);
        assert_int_equal(model_count(&m, "j", KUBE_WORKER), 1);
        model_remove(m.pods, "web");
        for (int s = 0; model_count(&m, "j", KUBE_WORKER) < 2; s++) {
            assert_true(s < 15);
            model_run(&m, 1);
        }
        model_run(&m, 2);
        model_other(&m, "web", NULL, "1", 0);
    }
}

static void the_least_is_not_given_back(void **state)
{
    model_node(&m, "a", "4", "64Gi");
    model_etj(&m, "j", "{\"workers\": {\"min\": 3, \"max\": 3}}");
    model_run(&m, 30);
    model_other(&m, "web", NULL, "3", 0);
    model_run(&m, 30);
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 3);
}

static void a_less_important_pod_gets_nothing(void **state)
{
    model_node(&m, "a", "8", "64Gi");
    model_etj(&m, "j", "{}");
    model_run(&m, 60);
    model_other(&m, "batch", NULL, "3", -10);
    model_run(&m, 20);
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 7);
}

static void who_lacks_something_else_than_room_gets_none(void **state)
{
    json_t *pod;

    model_node(&m, "a", "8", "64Gi");
    model_etj(&m, "j", "{}");
    pod = model_other(&m, "web", NULL, "3", 0);
    for (int i = 0; i < 60; i++) {
        model_reconcile(&m, WHOLE_PLAN);
        model_tick(&m);
        json_object_del(json_object_get(pod, "spec"), "nodeName");
        json_object_set_new(json_object_get(pod, "status"), "phase", json_string("Pending"));
        json_object_set_new(json_object_get(pod, "status"), "conditions",
                            json_pack("[{s:s, s:s, s:s, s:s}]", "type", "PodScheduled", "status",
                                      "False", "reason", "Unschedulable", "message",
                                      "pod has unbound immediate PersistentVolumeClaims"));
    }
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 7);
    assert_int_equal(model_events(&m, "GaveWay"), 0);
}

static void who_waits_for_gpus_gets_no_room_where_there_are_none(void **state)
{
    json_t *more = model_json("{\"nvidia.com/gpu\": \"1\"}"), *pod, *node, *container;

    model_node(&m, "a", "8", "64Gi");
    model_etj(&m, "j", "{}");
    pod = model_other(&m, "gpu", NULL, "3", 0);
    container = json_array_get(json_object_get(json_object_get(pod, "spec"), "containers"), 0);
    json_object_update(json_object_get(json_object_get(container, "resources"), "requests"), more);
    model_run(&m, 60);
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 7);
    assert_int_equal(model_events(&m, "GaveWay"), 0);
    node = model_node(&m, "b", "4", "64Gi");
    json_object_update(json_object_get(json_object_get(node, "status"), "allocatable"), more);
    model_spec(&m, "j", "{\"workers\": {\"max\": 12}}");
    model_run(&m, 60);
    assert_string_equal(model_text(pod, "spec", "nodeName"), "b");
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 8);
    json_decref(more);
}

static void quotas_are_respected(void **state)
{
    model_node(&m, "a", "16", "64Gi");
    model_quota(&m, "q", "5");
    model_etj(&m, "j", "{}");
    model_etj(&m, "k", "{}");
    model_run(&m, 80);
    assert_int_equal(m.refused, 0);
    assert_int_equal(model_count(&m, "j", KUBE_WORKER) + model_count(&m, "k", KUBE_WORKER), 3);
}

static void its_own_quota_is_respected(void **state)
{
    model_node(&m, "a", "16", "64Gi");
    model_etj(&m, "j", "{\"quota\": {\"cpu\": 4}}");
    model_run(&m, 80);
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 3);
}

static int64_t all_mcpu(void)
{
    return model_pods_mcpu(&m, "n");
}

static void its_own_quota_holds_for_what_grows_in_place_and_for_a_pin(void **state)
{
    model_node(&m, "a", "32", "64Gi");
    model_etj(&m, "j",
              "{\"quota\": {\"cpu\": 4}, \"workers\": {\"cpu\": {\"min\": 1, \"max\": 4}}}");
    for (int i = 0; i < 80; i++) {
        model_run(&m, 1);
        assert_true(all_mcpu() <= 4000);
    }
    assert_true(all_mcpu() >= 3900);
    model_spec(&m, "j", "{\"workers\": {\"replicas\": 6}}");
    for (int i = 0; i < 80; i++) {
        model_run(&m, 1);
        assert_true(all_mcpu() <= 4000);
    }
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 3);
    assert_string_equal(model_text(model_find(m.etjs, "j"), "status", "reason"), "Pinned");
    assert_non_null(strstr(model_text(model_find(m.etjs, "j"), "status", "message"), "spec.quota"));
}

static void quotas_of_limits_hold_for_what_grows_in_place(void **state)
{
    json_t *quota = model_json("{\"metadata\": {\"namespace\": \"n\"}, \"spec\": {}, \"status\":"
                               "{\"hard\": {\"limits.cpu\": \"6\"}, \"used\": {}}}");

    model_node(&m, "a", "32", "64Gi");
    model_stamp(&m, quota, "limits");
    json_array_append_new(m.quotas, quota);
    model_etj(&m, "j",
              "{\"workers\": {\"min\": 1, \"max\": 1, \"cpu\": {\"min\": 1, \"max\": 8},"
              "\"resources\": {\"limits\": {\"cpu\": 2}}}}");
    for (int i = 0; i < 60; i++) {
        struct model_world *w;
        int64_t limits = 0;
        char text[KUBE_QUANTITY_MAX];

        model_run(&m, 1);
        w = model_world(&m);
        for (size_t p = 0; p < w->world.pod_count; p++)
            limits += w->pods[p]->limit.mcpu;
        model_world_free(w);
        assert_true(limits <= 6000);
        kube_milli_text(limits, text);
        json_object_set_new(json_object_get(json_object_get(quota, "status"), "used"), "limits.cpu",
                            json_string(text));
    }
    assert_true(all_mcpu() >= 1000 + 2900);
}

static void a_disruption_budget_holds_workers_back(void **state)
{
    json_t *pdb = model_json("{\"metadata\": {\"namespace\": \"n\"}, \"spec\": {\"selector\": "
                             "{\"matchLabels\": {\"threadtide.io/role\": \"worker\"}}},"
                             "\"status\": {\"disruptionsAllowed\": 1}}");

    model_node(&m, "a", "8", "64Gi");
    model_etj(&m, "j", "{}");
    model_run(&m, 60);
    model_stamp(&m, pdb, "pdb");
    json_array_append_new(m.pdbs, pdb);
    model_spec(&m, "j", "{\"workers\": {\"replicas\": 4}}");
    model_reconcile(&m, WHOLE_PLAN);
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 6); /* one may leave, not three */
}

static void workers_that_a_budget_holds_back_keep_nobody_from_beginning(void **state)
{
    json_t *pdb = model_json("{\"metadata\": {\"namespace\": \"n\"}, \"spec\": {\"selector\": {}},"
                             "\"status\": {\"disruptionsAllowed\": 0}}");

    model_node(&m, "a", "8", "64Gi");
    model_etj(&m, "j", "{}");
    model_run(&m, 60);
    model_stamp(&m, pdb, "pdb");
    json_array_append_new(m.pdbs, pdb);
    model_other(&m, "web", NULL, "4", 0);
    model_run(&m, 5);
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 7);
    model_node(&m, "b", "3", "64Gi");
    model_etj(&m, "k", "{\"workers\": {\"max\": 1}}");
    model_run(&m, 5);
    assert_phase("k", "Running");
}

static void taints_and_selectors_are_respected(void **state)
{
    json_t *tainted = model_node(&m, "a", "8", "64Gi");

    json_object_set_new(json_object_get(tainted, "spec"), "taints",
                        json_pack("[{s:s, s:s}]", "key", "gpu", "effect", "NoSchedule"));
    model_etj(&m, "j", "{}");
    model_run(&m, 10);
    assert_phase("j", "Pending");
    model_etj(&m, "k",
              "{\"workers\": {\"template\": {\"spec\": {\"nodeSelector\": "
              "{\"disk\": \"ssd\"}}}}}");
    model_node(&m, "b", "8", "64Gi");
    model_run(&m, 60);
    assert_phase("j", "Running");
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 7);
    assert_phase("k", "Pending");
}

/* ---- faults ---------------------------------------------------------------------------------- */

static void an_impossible_spec_creates_nothing(void **state)
{
    model_node(&m, "a", "8", "64Gi");
    model_etj(&m, "j", "{\"workers\": {\"min\": 5, \"max\": 2}}");
    model_etj(&m, "k", "{\"workers\": {\"resources\": {\"requests\": {\"cpu\": \"1e30\"}}}}");
    model_run(&m, 5);
    assert_phase("j", "Invalid");
    assert_condition("j", "Accepted", "False", "InvalidSpec");
    assert_string_equal(model_text(model_find(m.etjs, "j"), "status", "message"),
                        "spec.workers.max: 2 is below min, which is 5");
    assert_string_equal(model_text(model_find(m.etjs, "k"), "status", "message"),
                        "spec.workers.resources.cpu: '1e30' is more than any machine has");
    assert_int_equal(json_array_size(m.pods), 0);
    assert_int_equal(model_events(&m, "InvalidSpec"), 2);
    model_spec(&m, "j", "{\"workers\": {\"min\": 1}}");
    model_run(&m, 20);
    assert_phase("j", "Running");
}

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
    assert_condition("j", "Degraded", "True", "NodesFail");
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
    assert_condition("j", "Ready", "True", "InTraining");
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
    assert_phase("j", "Running");
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
    assert_phase("j", "Running");
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
        assert_phase("j", "Running");
    }
    model_set_phase(model_find(m.pods, "j-chief"), "Failed");
    model_run(&m, 30);
    assert_phase("j", "Failed");
    assert_condition("j", "Degraded", "True", "BackoffLimitExceeded");
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
    assert_phase("j", "Running");
}

static void an_ended_training_gives_everything_back(void **state)
{
    model_node(&m, "a", "8", "64Gi");
    model_etj(&m, "j", "{}");
    model_run(&m, 30);
    model_set_phase(model_find(m.pods, "j-chief"), "Succeeded");
    model_run(&m, 5);
    assert_phase("j", "Succeeded");
    assert_int_equal(json_array_size(m.pods), 1);
    assert_condition("j", "Complete", "True", "Succeeded");
}

static void a_missing_image_is_said_and_nothing_more_is_made(void **state)
{
    m.no_kubelet = true;
    model_node(&m, "a", "8", "64Gi");
    model_etj(&m, "j", "{}");
    model_run(&m, 3);
    json_object_set_new(json_object_get(model_find(m.pods, "j-worker-0"), "status"),
                        "containerStatuses",
                        model_json("[{\"name\": \"tide\", \"state\": {\"waiting\": {\"reason\": "
                                   "\"ImagePullBackOff\", \"message\": \"no such image\"}}}]"));
    m.no_kubelet = false;
    model_run(&m, 30);
    assert_condition("j", "Degraded", "True", "ImageUnavailable");
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 1);
    assert_int_equal(model_events(&m, "ImageUnavailable"), 1);
}

static void a_training_that_never_reports_stays_as_it_is(void **state)
{
    m.no_chiefs = true;
    model_node(&m, "a", "8", "64Gi");
    model_etj(&m, "j", "{\"workers\": {\"min\": 2}}");
    model_run(&m, 100);
    assert_phase("j", "Starting");
    assert_condition("j", "Progressing", "False", "NeverReported");
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 2);
}

static void a_worker_that_no_node_takes_is_withdrawn(void **state)
{
    json_t *node = model_node(&m, "a", "3", "64Gi");

    model_node(&m, "b", "3", "64Gi");
    model_etj(&m, "j", "{}");
    model_run(&m, 4);
    /* the scheduler knows something of this node that nobody else does */
    json_object_set_new(json_object_get(model_find(m.nodes, "b"), "spec"), "taints",
                        json_pack("[{s:s, s:s}]", "key", "x", "effect", "PreferNoSchedule"));
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
    assert_phase("j", "Suspended");
    assert_int_equal(json_array_size(m.pods), 0);
    model_spec(&m, "j", "{\"suspend\": false}");
    model_run(&m, 20);
    assert_phase("j", "Running");
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

/* It may have come with the manifest, beside others; the watch may be slow to tell. */
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
    m.now_ns += 2 * S; /* it was somebody else who has put it in again */
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
    assert_condition("j", "Degraded", "False", "AsExpected");
    answer(etj, KUBE_CREATE_SERVICE, -EEXIST);
    model_run(&m, 5);
    assert_condition("j", "Degraded", "True", "NameTaken");
    assert_int_equal(model_events(&m, "NameTaken"), 1);
    answer(etj, KUBE_CREATE_POD, 0);
    model_run(&m, 5);
    assert_condition("j", "Degraded", "True", "NameTaken");
    answer(etj, KUBE_CREATE_SERVICE, 0);
    model_run(&m, 5);
    assert_condition("j", "Degraded", "False", "AsExpected");
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
    assert_phase("j", "Suspended");
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
    assert_phase("j", "Suspended");
    model_spec(&m, "j", "{\"suspend\": false}");
    model_run(&m, 30);
    assert_phase("j", "Running");
    m.no_chiefs = true;
    model_spec(&m, "j", "{\"suspend\": true}");
    model_run(&m, 40);
    assert_phase("j", "Suspended");
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
    assert_condition("j", "Degraded", "True", "Refused");
    assert_int_equal(model_events(&m, "Refused"), 2);
    assert_in_range(m.tries, 2, 7);
    members = json_object_get(json_object_get(m.told, "j"), "worker");
    assert_int_equal(json_array_size(members), 4);
    assert_phase("j", "Running");
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
    assert_condition("j", "Degraded", "False", "AsExpected");
}

static void without_a_chief_nothing_else_is_made(void **state)
{
    m.refuses = "-chief";
    model_node(&m, "a", "8", "64Gi");
    model_etj(&m, "j", "{}");
    model_run(&m, 100);
    assert_condition("j", "Degraded", "True", "Refused");
    assert_int_equal(json_array_size(m.pods), 0);
    assert_in_range(m.tries, 5, 9);
    m.refuses = NULL;
    json_object_set_new(json_object_get(model_find(m.etjs, "j"), "metadata"), "generation",
                        json_integer(2)); /* somebody has mended the spec */
    model_run(&m, 10);
    assert_phase("j", "Running");
}

/* ---- in place -------------------------------------------------------------------------------- */

static int64_t mcpu_of(const char *name)
{
    struct kube_pod *pod = NULL;
    int64_t mcpu;

    assert_int_equal(kube_pod_parse(model_find(m.pods, name), &pod, NULL), 0);
    mcpu = pod->mcpu;
    kube_pod_free(pod);
    return mcpu;
}

static void a_worker_is_resized_with_its_threads(void **state)
{
    const json_t *worker;

    model_node(&m, "a", "5", "64Gi");
    model_etj(&m, "j", "{\"workers\": {\"max\": 1, \"cpu\": {\"min\": \"500m\", \"max\": 4}}}");
    model_run(&m, 30);
    assert_int_equal(mcpu_of("j-worker-0"), 4000);
    model_other(&m, "web", NULL, "2", 0);
    model_tick(&m);
    model_reconcile(&m, WHOLE_PLAN);
    worker = json_array_get(json_object_get(json_object_get(m.told, "j"), "worker"), 0);
    assert_int_equal(json_integer_value(json_object_get(worker, "threads")), 2);
    assert_int_equal(mcpu_of("j-worker-0"), 4000); /* the threads go first */
    model_run(&m, 10);
    assert_int_equal(mcpu_of("j-worker-0"), 2000);
    worker = json_array_get(json_object_get(json_object_get(m.told, "j"), "worker"), 0);
    assert_int_equal(json_integer_value(json_object_get(worker, "threads")), 0);
    assert_string_equal(model_text(model_find(m.pods, "web"), "spec", "nodeName"), "a");
}

/* What it gives up already is not asked for again. */
static void a_worker_shrinks_once_however_slow_its_node_is(void **state)
{
    model_node(&m, "a", "5", "64Gi");
    model_etj(&m, "j", "{\"workers\": {\"max\": 1, \"cpu\": {\"min\": \"500m\", \"max\": 4}}}");
    model_run(&m, 30);
    m.slow_resize = true;
    model_other(&m, "web", NULL, "1", 0);
    model_run(&m, 20);
    assert_int_equal(mcpu_of("j-worker-0"), 3000);
    m.slow_resize = false;
    model_run(&m, 5);
    assert_string_equal(model_text(model_find(m.pods, "web"), "spec", "nodeName"), "a");
    assert_int_equal(mcpu_of("j-worker-0"), 3000);
}

static void an_infeasible_resize_is_taken_back(void **state)
{
    m.no_resize = true;
    model_node(&m, "a", "5", "64Gi");
    model_etj(&m, "j", "{\"workers\": {\"max\": 1, \"cpu\": {\"min\": \"500m\", \"max\": 4}}}");
    model_run(&m, 60);
    assert_int_equal(mcpu_of("j-worker-0"), 1000);
    assert_true(model_events(&m, "ResizeRefused") >= 1);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(a_training_grows_into_free_room),
        T(a_steady_training_costs_few_requests),
        T(memory_counts_as_cores_do),
        T(what_does_not_fit_waits_and_nothing_is_made),
        T(workers_that_do_not_pay_are_rolled_back),
        T(parameter_servers_come_as_long_as_they_pay),
        T(a_pin_is_kept),
        T(trainings_share_by_policy),
        T(the_higher_group_goes_first),
        T(room_that_others_wait_for_is_given_back),
        T(room_that_was_given_back_on_trial_is_taken_again_soon),
        T(the_least_is_not_given_back),
        T(a_less_important_pod_gets_nothing),
        T(who_lacks_something_else_than_room_gets_none),
        T(who_waits_for_gpus_gets_no_room_where_there_are_none),
        T(workers_that_a_budget_holds_back_keep_nobody_from_beginning),
        T(quotas_are_respected),
        T(its_own_quota_is_respected),
        T(its_own_quota_holds_for_what_grows_in_place_and_for_a_pin),
        T(quotas_of_limits_hold_for_what_grows_in_place),
        T(a_disruption_budget_holds_workers_back),
        T(taints_and_selectors_are_respected),
        T(an_impossible_spec_creates_nothing),
        T(a_lost_worker_is_replaced_with_a_new_index),
        T(a_lost_worker_above_the_least_is_replaced_at_once),
        T(a_node_that_is_gone_is_left),
        T(nothing_is_deleted_for_a_node_that_is_not_known_yet),
        T(a_chief_on_a_node_that_is_gone_is_left_to_kubernetes),
        T(a_failed_chief_begins_anew_until_the_limit),
        T(a_crash_does_not_count_a_failure_twice),
        T(an_ended_training_gives_everything_back),
        T(a_missing_image_is_said_and_nothing_more_is_made),
        T(a_training_that_never_reports_stays_as_it_is),
        T(a_worker_that_no_node_takes_is_withdrawn),
        T(a_suspended_training_gives_back_and_returns),
        T(a_deleted_training_is_drained_first),
        T(a_finalizer_is_taken_out_once_and_others_stay),
        T(a_refusal_is_said_until_it_is_over),
        T(a_controller_that_takes_over_lets_the_chief_save),
        T(a_chief_that_reports_has_more_time_to_save),
        T(a_worker_that_is_refused_is_said_and_holds_up_nothing_else),
        T(without_a_chief_nothing_else_is_made),
        T(a_worker_is_resized_with_its_threads),
        T(a_worker_shrinks_once_however_slow_its_node_is),
        T(an_infeasible_resize_is_taken_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

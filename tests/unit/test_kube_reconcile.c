/* SPDX-License-Identifier: Apache-2.0 */
/* The controller's decisions on a small cluster (kube_model.h). */
#include "kube_model.h"

#include <errno.h>

static struct model m;

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
    model_assert_phase(&m, "j", "Running");
    /* of 8 cores chief and parameter server have one: a node has room for three, one for four */
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 7);
    assert_int_equal(model_count(&m, "j", KUBE_PS), 1);
    model_assert_condition(&m, "j", "Ready", "True", "InTraining");
    model_assert_condition(&m, "j", "Degraded", "False", "AsExpected");
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
    model_assert_phase(&m, "j", "Pending");
    assert_int_equal(json_array_size(m.pods), 0);
    model_node(&m, "b", "4", "16Gi");
    model_run(&m, 10);
    model_assert_phase(&m, "j", "Running");
}

/* Chief and server want 0.3 cores and 2 GiB together. */
static void submit_small(const char *workers)
{
    char spec[512];

    snprintf(spec, sizeof(spec),
             "{\"chief\": {\"resources\": {\"requests\": {\"cpu\": \"200m\"}}},"
             " \"ps\": {\"resources\": {\"requests\": {\"cpu\": \"100m\"}}}, \"workers\": %s}",
             workers);
    model_etj(&m, "j", spec);
}

static void a_remainder_of_a_core_is_room_for_who_fits_into_it(void **state)
{
    model_node(&m, "a", "4300m", "5Gi");
    model_other(&m, "other", "a", "3", 0); /* it leaves 1.3 cores and 4 GiB */
    submit_small("{}");
    model_run(&m, 60);
    model_assert_phase(&m, "j", "Running");
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 1);
}

static void remainders_of_several_nodes_are_room(void **state)
{
    model_node(&m, "a", "300m", "16Gi");
    model_node(&m, "b", "1", "16Gi");
    model_node(&m, "c", "1900m", "16Gi");
    submit_small("{\"min\": 2}");
    model_run(&m, 60);
    model_assert_phase(&m, "j", "Running");
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 2);
}

static void what_lacks_a_thousandth_of_a_core_or_a_byte_waits(void **state)
{
    model_node(&m, "a", "1299m", "16Gi");
    model_node(&m, "b", "200m", "16Gi");
    submit_small("{\"min\": 2}");
    model_run(&m, 60);
    model_assert_phase(&m, "j", "Pending");
    json_array_clear(m.nodes);
    model_node(&m, "a", "2300m", "4294967295");
    model_run(&m, 60);
    model_assert_phase(&m, "j", "Pending");
    assert_int_equal(json_array_size(m.pods), 0);
    json_array_clear(m.nodes);
    model_node(&m, "a", "2300m", "4Gi");
    model_run(&m, 60);
    model_assert_phase(&m, "j", "Running");
}

static void two_do_not_start_in_room_for_one(void **state)
{
    model_node(&m, "a", "1600m", "16Gi");
    submit_small("{\"max\": 1}");
    json_object_set_new(json_object_get(json_array_get(m.etjs, 0), "metadata"), "name",
                        json_string("first"));
    submit_small("{\"max\": 1}");
    model_run(&m, 60);
    model_assert_phase(&m, "first", "Running");
    model_assert_phase(&m, "j", "Pending");
}

static void workers_that_do_not_pay_are_rolled_back(void **state)
{
    m.rate = stops_at_two;
    model_node(&m, "a", "12", "32Gi");
    model_other(&m, "other", "a", "10", 0);
    model_etj(&m, "j", "{}");
    model_run(&m, 20);
    model_remove(m.pods, "other");
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
    model_assert_phase(&m, "k", "Running");
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

/* The size on trial is gone, so the controller does not wait for its rate. */
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
    model_etj(&m, "j", "{\"gpuNodes\": \"use\"}");
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

static void cap(json_t *node, const char *cpu, const char *until)
{
    json_t *notes = json_pack("{s:s, s:s*}", KUBE_ANNOTATION_POWER_CPU, cpu,
                              KUBE_ANNOTATION_POWER_UNTIL, until);

    json_object_set_new(json_object_get(node, "metadata"), "annotations", notes);
}

static const json_t *sizes(void)
{
    return json_object_get(json_object_get(model_find(m.etjs, "j"), "status"), "sizes");
}

static void its_sizes_are_kept_in_its_status_and_the_oldest_go(void **state)
{
    json_t *many = json_array(), *last;
    char since[KUBE_TIME_TEXT];
    const char *before = "";
    json_t *size;
    size_t i;

    model_node(&m, "a", "6", "64Gi");
    model_etj(&m, "j", "{}");
    model_run(&m, 60);
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 5);
    assert_in_range(json_array_size(sizes()), 1, 8);
    json_array_foreach ((json_t *)sizes(), i, size) {
        assert_true(strcmp(model_text(size, NULL, "since"), before) > 0);
        before = model_text(size, NULL, "since");
    }
    last = json_array_get(sizes(), json_array_size(sizes()) - 1);
    assert_int_equal(json_integer_value(json_object_get(last, "workers")), 5);
    assert_int_equal(json_integer_value(json_object_get(last, "ps")), 1);

    for (int n = 0; n < KUBE_SIZES_MAX; n++) {
        kube_time_text(m.wall_ns - (KUBE_SIZES_MAX - n) * S, since);
        json_array_append_new(
            many, json_pack("{s:s, s:i, s:i}", "since", since, "ps", 1, "workers", 4 + n % 2));
    }
    json_object_set_new(json_object_get(model_find(m.etjs, "j"), "status"), "sizes", many);
    model_spec(&m, "j", "{\"workers\": {\"replicas\": 2}}");
    model_run(&m, 60);
    assert_int_equal(json_array_size(sizes()), KUBE_SIZES_MAX);
    last = json_array_get(sizes(), KUBE_SIZES_MAX - 1);
    assert_int_equal(json_integer_value(json_object_get(last, "workers")), 2);
}

static void trainings_grow_as_far_as_the_nodes_watts_allow(void **state)
{
    char until[KUBE_TIME_TEXT];
    json_t *node = model_node(&m, "a", "16", "64Gi");

    kube_time_text(m.wall_ns + 200 * S, until);
    cap(node, "5500m", until);
    model_etj(&m, "j", "{}");
    model_run(&m, 60);
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 4);
    cap(node, "3", until); /* what runs stays: the node's own daemon keeps its watts */
    model_run(&m, 60);
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 4);
    model_run(&m, 140); /* the cap has ended */
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 8);
}

static void a_cap_of_watts_that_cannot_be_read_is_none(void **state)
{
    json_t *node = model_node(&m, "a", "16", "64Gi");

    cap(node, "many", NULL);
    model_etj(&m, "j", "{}");
    model_run(&m, 80);
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 8);
    node = model_node(&m, "b", "16", "64Gi");
    cap(node, "0", "this evening");
    model_spec(&m, "j", "{\"workers\": {\"max\": 20}}");
    model_run(&m, 80);
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 20);
}

static void a_training_that_waits_for_watts_says_so(void **state)
{
    json_t *node = model_node(&m, "a", "16", "64Gi");

    cap(node, "1", NULL);
    model_etj(&m, "j", "{}");
    model_run(&m, 20);
    assert_string_equal(model_text(model_find(m.etjs, "j"), "status", "reason"), "NoPower");
    cap(node, "8", NULL);
    model_run(&m, 60);
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 7);
    assert_string_equal(model_text(model_find(m.etjs, "j"), "status", "reason"), "Policy");
}

static void workers_grow_in_place_as_far_as_the_nodes_watts_allow(void **state)
{
    json_t *node = model_node(&m, "a", "32", "64Gi");

    cap(node, "4", NULL);
    model_etj(&m, "j", "{\"workers\": {\"cpu\": {\"min\": 1, \"max\": 4}}}");
    for (int i = 0; i < 80; i++) {
        model_run(&m, 1);
        assert_true(all_mcpu() <= 4000);
    }
    assert_true(all_mcpu() >= 3900);
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

static int64_t all_limits_mcpu(void)
{
    struct model_world *w = model_world(&m);
    int64_t sum = 0;

    for (size_t p = 0; p < w->world.pod_count; p++)
        sum += w->pods[p]->limit.mcpu;
    model_world_free(w);
    return sum;
}

/* One training grows, then two at the same moment. */
static void quotas_hold_for_what_grows_in_place(void **state)
{
    static const char *const kinds[] = {"limits.cpu", "requests.cpu"};

    for (int i = 0; i < 4; i++) {
        const char *kind = kinds[i / 2];
        json_t *quota = json_pack("{s:{s:s}, s:{}, s:{s:{s:s}, s:{}}}", "metadata", "namespace",
                                  "n", "spec", "status", "hard", kind, "7", "used");
        int64_t sum = 0;

        model_done(&m);
        model_init(&m);
        model_node(&m, "a", "32", "64Gi");
        model_stamp(&m, quota, "q");
        json_array_append_new(m.quotas, quota);
        for (int n = 0; n <= i % 2; n++)
            model_etj(&m, n ? "k" : "j",
                      "{\"workers\": {\"min\": 1, \"max\": 1, \"cpu\": {\"min\": 1, \"max\": 8},"
                      "\"resources\": {\"limits\": {\"cpu\": 2}}}}");
        for (int second = 0; second < 60; second++) {
            char text[KUBE_QUANTITY_MAX];

            model_run(&m, 1);
            sum = i / 2 ? all_mcpu() : all_limits_mcpu();
            assert_true(sum <= 7000);
            kube_milli_text(sum, text);
            json_object_set_new(json_object_get(json_object_get(quota, "status"), "used"), kind,
                                json_string(text));
        }
        assert_true(sum >= 6800);
    }
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
    model_assert_phase(&m, "k", "Running");
}

static void taints_and_selectors_are_respected(void **state)
{
    json_t *tainted = model_node(&m, "a", "8", "64Gi");

    json_object_set_new(json_object_get(tainted, "spec"), "taints",
                        json_pack("[{s:s, s:s}]", "key", "gpu", "effect", "NoSchedule"));
    model_etj(&m, "j", "{}");
    model_run(&m, 10);
    model_assert_phase(&m, "j", "Pending");
    model_etj(&m, "k",
              "{\"workers\": {\"template\": {\"spec\": {\"nodeSelector\": "
              "{\"disk\": \"ssd\"}}}}}");
    model_node(&m, "b", "8", "64Gi");
    model_run(&m, 60);
    model_assert_phase(&m, "j", "Running");
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 7);
    model_assert_phase(&m, "k", "Pending");
}

/* ---- faults ---------------------------------------------------------------------------------- */

static void an_impossible_spec_creates_nothing(void **state)
{
    model_node(&m, "a", "8", "64Gi");
    model_etj(&m, "j", "{\"workers\": {\"min\": 5, \"max\": 2}}");
    model_etj(&m, "k", "{\"workers\": {\"resources\": {\"requests\": {\"cpu\": \"1e30\"}}}}");
    model_run(&m, 5);
    model_assert_phase(&m, "j", "Invalid");
    model_assert_condition(&m, "j", "Accepted", "False", "InvalidSpec");
    assert_string_equal(model_text(model_find(m.etjs, "j"), "status", "message"),
                        "spec.workers.max: 2 is below min, which is 5");
    assert_string_equal(model_text(model_find(m.etjs, "k"), "status", "message"),
                        "spec.workers.resources.cpu: '1e30' is more than any machine has");
    assert_int_equal(json_array_size(m.pods), 0);
    assert_int_equal(model_events(&m, "InvalidSpec"), 2);
    model_spec(&m, "j", "{\"workers\": {\"min\": 1}}");
    model_run(&m, 20);
    model_assert_phase(&m, "j", "Running");
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

/* The controller does not request cores again that a worker is already giving up. */
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

/* The higher priority begins first in its namespace, and does not count in another. */
static void priority_does_not_reach_into_other_namespaces(void **state)
{
    json_t *loud;

    for (int same = 0; same < 2; same++) {
        model_done(&m);
        model_init(&m);
        model_node(&m, "a", "3", "64Gi"); /* one of them fits */
        model_etj(&m, "quiet", "{}");
        loud = model_etj(&m, "loud", "{\"priority\": 1000}");
        json_object_set_new(json_object_get(loud, "metadata"), "namespace",
                            json_string(same ? "n" : "other"));
        model_run(&m, 10);
        model_assert_phase(&m, same ? "loud" : "quiet", "Running");
        model_assert_phase(&m, same ? "quiet" : "loud", "Pending");
    }
}

static double by_cores(int workers, int ps)
{
    (void)workers;
    (void)ps;
    return 100.0 * (double)mcpu_of("j-worker-0") / 1000;
}

/* A worker of two cores, of which it gives one to a guest. @slots: micro-batches of a step. */
static void host_a_guest_with(double (*rate)(int, int), int slots)
{
    char spec[100];

    m.rate = rate;
    model_node(&m, "a", "4", "64Gi");
    snprintf(spec, sizeof(spec),
             "{\"slots\": %d, \"workers\": {\"max\": 1, \"cpu\": {\"min\": \"500m\", \"max\": 2}}}",
             slots);
    model_etj(&m, "j", spec);
    model_run(&m, 40);
    assert_int_equal(mcpu_of("j-worker-0"), 2000);
    model_other(&m, "guest", NULL, "2", 0);
    model_run(&m, 10);
    assert_int_equal(mcpu_of("j-worker-0"), 1000);
}

static void host_a_guest(double (*rate)(int, int))
{
    host_a_guest_with(rate, 8);
}

/* The cores are gone, but the pod's status shows it a minute later. The slow rate until then says
 * nothing about the size that the status still shows. */
static void a_rate_while_a_node_resizes_does_not_count(void **state)
{
    m.slow_resize = false;
    m.rate = by_cores;
    model_node(&m, "a", "4", "64Gi");
    model_etj(&m, "j", "{\"workers\": {\"max\": 1, \"cpu\": {\"min\": \"500m\", \"max\": 2}}}");
    model_run(&m, 40);
    m.slow_resize = true;
    model_other(&m, "guest", NULL, "2", 0);
    model_run(&m, 60);
    assert_int_equal(mcpu_of("j-worker-0"), 1000);
    m.slow_resize = false;
    model_run(&m, 30);
    model_remove(m.pods, "guest");
    model_run(&m, 30);
    assert_int_equal(mcpu_of("j-worker-0"), 2000);
}

/* Both sizes are known to be equally fast, which may have had another reason. */
static void a_worker_that_did_not_gain_is_tried_larger_again(void **state)
{
    host_a_guest(model_linear); /* by the number of workers */
    model_run(&m, 60);
    model_remove(m.pods, "guest");
    model_run(&m, 60);
    assert_int_equal(mcpu_of("j-worker-0"), 1000);
    model_run(&m, 600);
    assert_int_equal(mcpu_of("j-worker-0"), 2000);
}

/* One micro-batch a step: a second worker is of no use, but a second core of its only one is. */
static void a_worker_that_gained_grows_again_where_a_second_one_is_of_no_use(void **state)
{
    host_a_guest_with(by_cores, 1);
    model_run(&m, 60);
    model_remove(m.pods, "guest");
    model_run(&m, 60);
    assert_int_equal(mcpu_of("j-worker-0"), 2000);
}

static void a_resize_that_was_put_off_is_tried_again_soon(void **state)
{
    host_a_guest(by_cores);
    m.defers = true;
    model_remove(m.pods, "guest");
    model_run(&m, 45); /* it is taken back after 30 */
    assert_int_equal(mcpu_of("j-worker-0"), 1000);
    m.defers = false;
    model_run(&m, 75);
    assert_int_equal(mcpu_of("j-worker-0"), 2000);
}

int main(void)
{
#define T(name) cmocka_unit_test_prestate_setup_teardown(name, model_set_up, model_tear_down, &m)
    const struct CMUnitTest tests[] = {
        T(a_training_grows_into_free_room),
        T(a_steady_training_costs_few_requests),
        T(memory_counts_as_cores_do),
        T(what_does_not_fit_waits_and_nothing_is_made),
        T(a_remainder_of_a_core_is_room_for_who_fits_into_it),
        T(remainders_of_several_nodes_are_room),
        T(what_lacks_a_thousandth_of_a_core_or_a_byte_waits),
        T(two_do_not_start_in_room_for_one),
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
        T(its_sizes_are_kept_in_its_status_and_the_oldest_go),
        T(trainings_grow_as_far_as_the_nodes_watts_allow),
        T(a_cap_of_watts_that_cannot_be_read_is_none),
        T(a_training_that_waits_for_watts_says_so),
        T(workers_grow_in_place_as_far_as_the_nodes_watts_allow),
        T(its_own_quota_holds_for_what_grows_in_place_and_for_a_pin),
        T(quotas_hold_for_what_grows_in_place),
        T(a_disruption_budget_holds_workers_back),
        T(taints_and_selectors_are_respected),
        T(an_impossible_spec_creates_nothing),
        T(a_worker_is_resized_with_its_threads),
        T(a_worker_shrinks_once_however_slow_its_node_is),
        T(an_infeasible_resize_is_taken_back),
        T(priority_does_not_reach_into_other_namespaces),
        T(a_rate_while_a_node_resizes_does_not_count),
        T(a_worker_that_did_not_gain_is_tried_larger_again),
        T(a_worker_that_gained_grows_again_where_a_second_one_is_of_no_use),
        T(a_resize_that_was_put_off_is_tried_again_soon),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trainings in queues of Kueue, whose part the tests play: they admit and evict Workloads as it
 * does.
 */
#include "kube_model.h"

static struct model m;

static int set_up(void **state)
{
    model_init(&m);
    m.kueue = KUBE_KUEUE_KNOWN;
    return 0;
}

static int tear_down(void **state)
{
    model_done(&m);
    return 0;
}

static json_t *queued(const char *name, const char *spec)
{
    json_t *etj = model_etj(&m, name, spec);

    json_object_set_new(json_object_get(etj, "metadata"), "labels",
                        json_pack("{s:s}", KUBE_LABEL_QUEUE, "team"));
    return etj;
}

/* The only Workload there is; NULL: none. */
static json_t *workload(void)
{
    assert_true(json_array_size(m.workloads) <= 1);
    return json_array_get(m.workloads, 0);
}

static const char *condition(const char *type)
{
    json_t *entry;
    size_t i;

    json_array_foreach (json_object_get(json_object_get(workload(), "status"), "conditions"), i,
                        entry)
        if (strcmp(model_text(entry, NULL, "type"), type) == 0)
            return model_text(entry, NULL, "status");
    return "";
}

static json_t *as_condition(const char *type, bool truth, const char *reason)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:s}", "type", type, "status", truth ? "True" : "False",
                     "reason", reason, "message", "the test says so", "lastTransitionTime",
                     "2026-01-01T00:00:00Z");
}

/* Admits so many workers, with @flavor for cores and memory (NULL: none). */
static void admit(int workers, const char *flavor)
{
    json_t *status = json_object_get(workload(), "status");
    json_t *flavors =
        flavor ? json_pack("{s:s, s:s}", "cpu", flavor, "memory", flavor) : json_object();

    json_object_set_new(status, "admission",
                        json_pack("{s:s, s:[{s:s, s:i, s:O}, {s:s, s:i, s:O}, {s:s, s:i, s:o}]}",
                                  "clusterQueue", "all", "podSetAssignments", "name", "chief",
                                  "count", 1, "flavors", flavors, "name", "ps", "count", 1,
                                  "flavors", flavors, "name", "worker", "count", workers, "flavors",
                                  flavors));
    json_object_set_new(status, "conditions",
                        json_pack("[o, o, o]", as_condition("QuotaReserved", true, "Reserved"),
                                  as_condition("Admitted", true, "Admitted"),
                                  as_condition("Evicted", false, "Admitted")));
}

static void evict(const char *reason)
{
    json_t *list = json_object_get(json_object_get(workload(), "status"), "conditions");

    json_array_set_new(list, 2, as_condition("Evicted", true, reason));
}

static json_t *pod_set(const char *name)
{
    json_t *set;
    size_t i;

    json_array_foreach (json_object_get(json_object_get(workload(), "spec"), "podSets"), i, set)
        if (strcmp(model_text(set, NULL, "name"), name) == 0)
            return set;
    fail_msg("no pod set %s", name);
    return NULL;
}

/* ---- admission ------------------------------------------------------------------------------- */

static void a_training_asks_its_queue_and_waits(void **state)
{
    json_t *container;

    model_node(&m, "a", "16", "64Gi");
    queued("j", "{}");
    model_run(&m, 20);
    assert_int_equal(json_array_size(m.pods), 0);
    model_assert_phase(&m, "j", "Suspended");
    model_assert_condition(&m, "j", "Suspended", "True", "Queued");
    assert_string_equal(model_text(workload(), "spec", "queueName"), "team");
    assert_int_equal(json_integer_value(json_object_get(pod_set("worker"), "count")), 8);
    assert_int_equal(json_integer_value(json_object_get(pod_set("worker"), "minCount")), 1);
    assert_null(json_object_get(pod_set("ps"), "minCount")); /* Kueue takes one such set alone */
    container = json_array_get(
        json_object_get(json_object_get(json_object_get(pod_set("worker"), "template"), "spec"),
                        "containers"),
        0);
    assert_int_equal(
        json_integer_value(json_object_get(
            json_object_get(json_object_get(container, "resources"), "requests"), "cpu")),
        1);
    assert_int_equal(m.sent[KUBE_MAKE_WORKLOAD], 1);
    assert_true(model_events(&m, "Queued") == 1);
}

static void the_admitted_count_bounds_the_workers(void **state)
{
    model_node(&m, "a", "16", "64Gi");
    queued("j", "{}");
    model_run(&m, 3);
    admit(3, NULL);
    model_run(&m, 60);
    model_assert_phase(&m, "j", "Running");
    model_assert_condition(&m, "j", "Suspended", "False", "NotSuspended");
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 3);
    assert_string_equal(condition("PodsReady"), "True");
    assert_int_equal(m.sent[KUBE_TELL_WORKLOAD], 1);
    assert_true(model_events(&m, "Admitted") == 1);
    model_spec(&m, "j", "{\"workers\": {\"replicas\": 5}}"); /* a person's wish does not, either */
    model_run(&m, 30);
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 3);
}

static void workers_that_grow_in_place_stay_within_it(void **state)
{
    json_t *pod;
    size_t i;

    model_node(&m, "a", "32", "64Gi");
    queued("j", "{\"workers\": {\"max\": 2, \"cpu\": {\"min\": 1, \"max\": 8}}}");
    model_run(&m, 3);
    admit(2, NULL);
    model_run(&m, 120);
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 2);
    json_array_foreach (m.pods, i, pod) {
        struct kube_pod *parsed = NULL;

        assert_int_equal(kube_pod_parse(pod, &parsed, NULL), 0);
        assert_true(parsed->request.mcpu <= 1000);
        kube_pod_free(parsed);
    }
}

static void pods_go_to_the_flavor_that_the_queue_gives(void **state)
{
    json_t *flavor = json_pack("{s:{}, s:{s:{s:s}, s:[{s:s, s:s, s:s}]}}", "metadata", "spec",
                               "nodeLabels", "pool", "spot", "tolerations", "key", "spot",
                               "operator", "Exists", "effect", "NoSchedule");
    const json_t *spec;

    model_stamp(&m, flavor, "spot");
    model_node(&m, "a", "16", "64Gi");
    json_object_set_new(
        json_object_get(json_object_get(model_node(&m, "b", "5", "64Gi"), "metadata"), "labels"),
        "pool", json_string("spot"));
    queued("j", "{}");
    model_run(&m, 3);
    admit(8, "spot");
    model_run(&m, 10);
    assert_int_equal(json_array_size(m.pods), 0); /* nobody knows this flavor yet */
    json_array_append_new(m.flavors, flavor);
    model_run(&m, 30);
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 4);
    spec = json_object_get(model_find(m.pods, "j-worker-0"), "spec");
    assert_string_equal(model_text(spec, "nodeSelector", "pool"), "spot");
    assert_string_equal(
        model_text(json_array_get(json_object_get(spec, "tolerations"), 0), NULL, "key"), "spot");
    assert_string_equal(model_text(spec, NULL, "nodeName"), "b");
}

static void a_priority_class_orders_the_queue(void **state)
{
    json_t *class = json_pack("{s:{}, s:i}", "metadata", "value", 700);

    model_stamp(&m, class, "urgent");
    json_array_append_new(m.classes, class);
    queued("j", "{\"priorityClassName\": \"urgent\"}");
    model_run(&m, 3);
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(workload(), "spec"), "priority")), 700);
}

/* ---- eviction, pause ------------------------------------------------------------------------- */

static void who_is_evicted_gives_everything_back_and_waits_again(void **state)
{
    model_node(&m, "a", "16", "64Gi");
    queued("j", "{}");
    model_run(&m, 3);
    admit(4, NULL);
    model_run(&m, 30);
    evict("Preempted");
    model_reconcile(&m, WHOLE_PLAN);
    assert_string_equal(condition("QuotaReserved"), "True"); /* as long as pods run */
    model_assert_phase(&m, "j", "Suspending");
    model_run(&m, 30);
    assert_int_equal(json_array_size(m.pods), 0);
    assert_string_equal(condition("QuotaReserved"), "False");
    assert_string_equal(condition("Admitted"), "False");
    assert_string_equal(condition("Requeued"), "True");
    assert_null(json_object_get(json_object_get(workload(), "status"), "admission"));
    model_assert_phase(&m, "j", "Suspended");
    model_assert_condition(&m, "j", "Suspended", "True", "Evicted");
    admit(2, NULL);
    model_run(&m, 30);
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 2);
}

/* It is cut, and what is cut goes back into the Workload: a half of a character would be no JSON.
 */
static void a_long_reason_of_an_eviction_does_not_keep_the_quota(void **state)
{
    char text[2 * KUBE_TEXT_MAX + 2] = "x";
    json_t *evicted;

    for (size_t i = 1; i + 2 < sizeof(text); i += 2)
        memcpy(text + i, "\xc3\xa9", 3);
    model_node(&m, "a", "16", "64Gi");
    queued("j", "{}");
    model_run(&m, 3);
    admit(4, NULL);
    model_run(&m, 30);
    evict("AdmissionCheck");
    evicted =
        json_array_get(json_object_get(json_object_get(workload(), "status"), "conditions"), 2);
    json_object_set_new(evicted, "message", json_string(text));
    model_run(&m, 30);
    assert_int_equal(json_array_size(m.pods), 0);
    assert_string_equal(condition("QuotaReserved"), "False");
}

static void a_paused_training_leaves_its_queue_and_comes_back(void **state)
{
    model_node(&m, "a", "16", "64Gi");
    queued("j", "{}");
    model_run(&m, 3);
    admit(4, NULL);
    model_run(&m, 30);
    model_spec(&m, "j", "{\"suspend\": true}");
    while (json_array_size(m.pods) > 0) { /* Kueue would give its quota to others */
        assert_false(json_is_false(json_object_get(json_object_get(workload(), "spec"), "active")));
        model_run(&m, 1);
    }
    model_run(&m, 2);
    assert_true(json_is_false(json_object_get(json_object_get(workload(), "spec"), "active")));
    evict("Deactivated");
    model_run(&m, 30);
    model_assert_condition(&m, "j", "Suspended", "True", "Suspended");
    assert_string_equal(condition("QuotaReserved"), "False");
    model_spec(&m, "j", "{\"suspend\": false}");
    model_run(&m, 10);
    assert_true(json_is_true(json_object_get(json_object_get(workload(), "spec"), "active")));
    assert_int_equal(json_array_size(m.pods), 0);
    admit(4, NULL);
    model_run(&m, 30);
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 4);
}

static void who_was_turned_off_by_others_stays_so(void **state)
{
    model_node(&m, "a", "16", "64Gi");
    queued("j", "{}");
    model_run(&m, 3);
    json_object_set_new(json_object_get(workload(), "spec"), "active", json_false());
    model_run(&m, 30);
    assert_int_equal(m.sent[KUBE_TURN_WORKLOAD], 0);
}

static void another_wish_is_another_workload_once_the_pods_have_gone(void **state)
{
    char *before;

    model_node(&m, "a", "16", "64Gi");
    queued("j", "{}");
    model_run(&m, 3);
    admit(4, NULL);
    model_run(&m, 30);
    before = strdup(model_text(workload(), "metadata", "uid"));
    model_spec(&m, "j", "{\"workers\": {\"max\": 6}}");
    model_reconcile(&m, WHOLE_PLAN);
    assert_string_equal(model_text(workload(), "metadata", "uid"), before);
    model_run(&m, 30);
    assert_string_not_equal(model_text(workload(), "metadata", "uid"), before);
    assert_int_equal(json_integer_value(json_object_get(pod_set("worker"), "count")), 6);
    assert_int_equal(json_array_size(m.pods), 0);
    free(before);
}

/* ---- the end, and Kueue's own ---------------------------------------------------------------- */

static void the_end_of_a_training_is_the_end_of_its_workload(void **state)
{
    json_t *chief;

    model_node(&m, "a", "16", "64Gi");
    queued("j", "{}");
    model_run(&m, 3);
    admit(4, NULL);
    model_run(&m, 30);
    m.finished = true;
    model_run(&m, 5);
    chief = model_find(m.pods, "j-chief");
    json_object_set_new(json_object_get(chief, "status"), "phase", json_string("Succeeded"));
    model_run(&m, 20);
    model_assert_phase(&m, "j", "Succeeded");
    assert_string_equal(condition("Finished"), "True");
}

static void without_kueue_a_queue_means_nothing(void **state)
{
    m.kueue = KUBE_KUEUE_ABSENT;
    model_node(&m, "a", "16", "64Gi");
    queued("j", "{}");
    model_run(&m, 60);
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 8);
    assert_int_equal(m.sent[KUBE_MAKE_WORKLOAD], 0);
}

static void while_nobody_can_tell_what_runs_goes_on_and_nothing_begins(void **state)
{
    model_node(&m, "a", "16", "64Gi");
    queued("j", "{}");
    model_run(&m, 3);
    admit(4, NULL);
    model_run(&m, 30);
    m.kueue = KUBE_KUEUE_UNKNOWN;
    queued("k", "{}");
    model_remove(m.pods, "j-worker-1");
    model_run(&m, 30);
    model_assert_phase(&m, "j", "Running");
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 3);
    model_assert_condition(&m, "k", "Suspended", "True", "QueueUnknown");
    m.kueue = KUBE_KUEUE_KNOWN;
    model_run(&m, 30);
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 4);
}

/* All workers' pods together request no more than @mcpu. */
static void assert_workers_request(int64_t mcpu)
{
    int64_t sum = 0;
    json_t *pod;
    size_t i;

    json_array_foreach (m.pods, i, pod) {
        struct kube_pod *parsed = NULL;

        assert_int_equal(kube_pod_parse(pod, &parsed, NULL), 0);
        sum += parsed->role == KUBE_WORKER ? parsed->request.mcpu : 0;
        kube_pod_free(parsed);
    }
    assert_int_equal(sum, mcpu);
}

static void while_nobody_can_tell_workers_do_not_grow_in_place(void **state)
{
    model_node(&m, "a", "32", "64Gi");
    queued("j", "{\"workers\": {\"max\": 2, \"cpu\": {\"min\": 1, \"max\": 8}}}");
    model_run(&m, 3);
    admit(2, NULL);
    model_run(&m, 60);
    assert_workers_request(2000);
    m.kueue = KUBE_KUEUE_UNKNOWN;
    model_run(&m, 120);
    model_assert_phase(&m, "j", "Running");
    assert_workers_request(2000);
}

/* As after a restart of the controller, or an upgrade of Kueue, before the first list. */
static void while_nobody_can_tell_what_drains_goes_on_draining(void **state)
{
    model_node(&m, "a", "16", "64Gi");
    queued("j", "{}");
    model_run(&m, 3);
    admit(4, NULL);
    model_run(&m, 30);
    evict("Preempted");
    model_reconcile(&m, WHOLE_PLAN);
    model_assert_phase(&m, "j", "Suspending");
    m.kueue = KUBE_KUEUE_UNKNOWN;
    model_run(&m, 30);
    assert_int_equal(json_array_size(m.pods), 0);
    model_assert_condition(&m, "j", "Suspended", "True", "QueueUnknown");
    m.kueue = KUBE_KUEUE_KNOWN;
    model_run(&m, 3);
    assert_string_equal(condition("QuotaReserved"), "False");
}

/* A spec with a fault keeps its pods, but not from those for whom its queue takes the room. */
static void an_eviction_is_followed_whatever_the_spec_says_by_then(void **state)
{
    model_node(&m, "a", "16", "64Gi");
    queued("j", "{}");
    model_run(&m, 3);
    admit(4, NULL);
    model_run(&m, 30);
    model_spec(&m, "j", "{\"workers\": {\"cpu\": {\"start\": \"1m\"}}}");
    model_run(&m, 5);
    model_assert_phase(&m, "j", "Invalid");
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 4);
    evict("Preempted");
    model_reconcile(&m, WHOLE_PLAN);
    assert_non_null(workload());
    model_run(&m, 30);
    assert_int_equal(json_array_size(m.pods), 0);
    assert_null(workload());
    model_assert_phase(&m, "j", "Invalid");
    model_spec(&m, "j", "{\"workers\": {\"cpu\": null}}");
    model_run(&m, 3);
    assert_non_null(workload());
}

static void who_needs_no_queue_any_more_gives_its_place_back(void **state)
{
    model_node(&m, "a", "16", "64Gi");
    queued("j", "{}");
    model_run(&m, 3);
    json_object_del(json_object_get(model_find(m.etjs, "j"), "metadata"), "labels");
    model_run(&m, 60);
    assert_null(workload());
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 8);
}

/* Adds copies of the Workload as others may write them: under another name, in another namespace.
 */
static void add_copies(void)
{
    json_t *name = json_deep_copy(workload()), *space = json_deep_copy(workload());

    json_object_set_new(json_object_get(name, "metadata"), "name", json_string("etj-other"));
    json_object_set_new(json_object_get(space, "metadata"), "namespace", json_string("others"));
    json_array_append_new(m.workloads, name);
    json_array_append_new(m.workloads, space);
}

static void workloads_that_others_wrote_do_not_admit(void **state)
{
    json_t *waits;

    model_node(&m, "a", "16", "64Gi");
    queued("j", "{}");
    model_run(&m, 3);
    waits = json_deep_copy(workload());
    admit(3, NULL);
    add_copies();
    json_array_set_new(m.workloads, 0, waits);
    model_run(&m, 20);
    model_assert_condition(&m, "j", "Suspended", "True", "Queued");
    assert_int_equal(json_array_size(m.pods), 0);
}

static void workloads_that_others_wrote_do_not_hide_ours(void **state)
{
    json_t *admitted;

    model_node(&m, "a", "16", "64Gi");
    queued("j", "{}");
    model_run(&m, 3);
    admit(3, NULL);
    admitted = json_deep_copy(workload());
    evict("Preempted");
    add_copies(); /* which come behind ours */
    json_array_set_new(m.workloads, 0, admitted);
    model_run(&m, 60);
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 3);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(a_training_asks_its_queue_and_waits),
        T(the_admitted_count_bounds_the_workers),
        T(workers_that_grow_in_place_stay_within_it),
        T(pods_go_to_the_flavor_that_the_queue_gives),
        T(a_priority_class_orders_the_queue),
        T(who_is_evicted_gives_everything_back_and_waits_again),
        T(a_long_reason_of_an_eviction_does_not_keep_the_quota),
        T(a_paused_training_leaves_its_queue_and_comes_back),
        T(who_was_turned_off_by_others_stays_so),
        T(another_wish_is_another_workload_once_the_pods_have_gone),
        T(the_end_of_a_training_is_the_end_of_its_workload),
        T(without_kueue_a_queue_means_nothing),
        T(while_nobody_can_tell_what_runs_goes_on_and_nothing_begins),
        T(while_nobody_can_tell_workers_do_not_grow_in_place),
        T(while_nobody_can_tell_what_drains_goes_on_draining),
        T(an_eviction_is_followed_whatever_the_spec_says_by_then),
        T(who_needs_no_queue_any_more_gives_its_place_back),
        T(workloads_that_others_wrote_do_not_admit),
        T(workloads_that_others_wrote_do_not_hide_ours),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

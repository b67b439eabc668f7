/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the pods of a training may run beyond what their template says: close to their chief, not
 * on nodes with GPUs, and not on nodes whose watts are taken. The model's scheduler obeys the pods'
 * affinity.
 */
#include "kube_model.h"

#define ZONE "topology.kubernetes.io/zone"

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

/* A node in a zone (NULL: in none), with so many GPUs. */
static json_t *node(const char *name, const char *cpu, const char *zone, int gpus)
{
    json_t *made = model_node(&m, name, cpu, "64Gi");
    json_t *labels = json_object_get(json_object_get(made, "metadata"), "labels");
    json_t *allocatable = json_object_get(json_object_get(made, "status"), "allocatable");

    json_object_set_new(labels, "kubernetes.io/hostname", json_string(name));
    if (zone)
        json_object_set_new(labels, ZONE, json_string(zone));
    if (gpus)
        json_object_set_new(allocatable, "nvidia.com/gpu", json_integer(gpus));
    return made;
}

/* How many pods of the role are on nodes whose names begin with @prefix. */
static int count_on(const char *prefix, const char *role)
{
    json_t *pod;
    int count = 0;
    size_t i;

    json_array_foreach (m.pods, i, pod) {
        const json_t *labels = json_object_get(json_object_get(pod, "metadata"), "labels");
        const char *its = json_string_value(json_object_get(labels, KUBE_LABEL_ROLE));

        count += its && strcmp(its, role) == 0 &&
                 strncmp(model_text(pod, "spec", "nodeName"), prefix, strlen(prefix)) == 0;
    }
    return count;
}

static const json_t *affinity_of(const char *pod, const char *kind)
{
    const json_t *spec = json_object_get(model_find(m.pods, pod), "spec");
    const json_t *node_affinity =
        json_object_get(json_object_get(spec, "affinity"), "nodeAffinity");

    return json_object_get(node_affinity, kind);
}

/* ---- closeness ------------------------------------------------------------------------------- */

static void a_training_begins_in_the_zone_with_most_room_and_stays_there(void **state)
{
    node("a-0", "3", "a", 0);
    node("b-0", "4", "b", 0);
    node("b-1", "4", "b", 0);
    node("c-0", "16", NULL, 0);
    model_etj(&m, "j", "{\"topology\": {\"key\": \"" ZONE "\", \"mode\": \"require\"}}");
    model_run(&m, 60);
    assert_int_equal(count_on("b", "chief"), 1);
    assert_int_equal(count_on("b", "ps"), 1);
    assert_int_equal(count_on("b", "worker"), 7); /* of 8 that it may have */
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 7);
    assert_int_equal(model_events(&m, "Withdrawn"), 0); /* none was asked for in vain */
}

static void a_training_that_had_rather_be_close_also_goes_elsewhere(void **state)
{
    const json_t *preference;

    node("a-0", "3", "a", 0);
    node("b-0", "5", "b", 0);
    model_etj(&m, "j", "{\"topology\": {\"key\": \"" ZONE "\"}}");
    model_run(&m, 60);
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 7); /* 4 in one zone, 3 in the other */
    preference = json_array_get(
        affinity_of("j-worker-0", "preferredDuringSchedulingIgnoredDuringExecution"), 0);
    assert_int_equal(json_integer_value(json_object_get(preference, "weight")), 100);
    assert_null(affinity_of("j-worker-0", "requiredDuringSchedulingIgnoredDuringExecution"));
}

static void a_training_that_fits_into_no_zone_waits(void **state)
{
    node("a-0", "1500m", "a", 0);
    node("b-0", "1500m", "b", 0);
    model_etj(&m, "j", "{\"topology\": {\"key\": \"" ZONE "\", \"mode\": \"require\"}}");
    model_run(&m, 10);
    assert_int_equal(json_array_size(m.pods), 0);
    model_assert_phase(&m, "j", "Pending");
    node("b-1", "1", "b", 0);
    model_run(&m, 10);
    model_assert_phase(&m, "j", "Running");
    assert_int_equal(count_on("b", "worker"), 1);
}

static void a_chief_that_is_made_anew_comes_to_its_workers(void **state)
{
    json_t *chief;

    node("b-0", "4", "b", 0);
    model_etj(&m, "j", "{\"topology\": {\"key\": \"" ZONE "\", \"mode\": \"require\"}}");
    model_run(&m, 30);
    assert_int_equal(count_on("b", "worker"), 3);
    node("a-0", "32", "a", 0);
    chief = model_find(m.pods, "j-chief");
    json_object_set_new(json_object_get(chief, "status"), "phase", json_string("Failed"));
    model_run(&m, 30);
    assert_int_equal(count_on("b", "chief"), 1);
    assert_int_equal(count_on("a", "worker"), 0);
    model_assert_phase(&m, "j", "Running");
}

/* The new controller finds the zone in the pod of a chief that has no node yet. */
static void a_zone_outlives_the_controller(void **state)
{
    node("a-0", "8", "a", 0);
    model_etj(&m, "j", "{\"topology\": {\"key\": \"" ZONE "\", \"mode\": \"require\"}}");
    while (!model_find(m.pods, "j-chief"))
        assert_true(model_reconcile(&m, WHOLE_PLAN) > 0);
    kube_memory_free(m.memory);
    m.memory = kube_memory_new();
    model_remove(m.pods, "j-worker-0");
    node("b-0", "64", "b", 0);
    model_reconcile(&m, WHOLE_PLAN);
    model_run(&m, 60);
    assert_int_equal(count_on("b", "worker"), 0);
    assert_int_equal(count_on("a", "worker"), 7);
}

/* ---- GPUs ------------------------------------------------------------------------------------ */

static void nodes_with_gpus_are_left_alone(void **state)
{
    json_t *told = node("gpu-1", "16", NULL, 0);

    json_object_set_new(json_object_get(json_object_get(told, "metadata"), "labels"),
                        "amd.com/gpu.present", json_string("true"));
    node("gpu-0", "16", NULL, 4);
    node("plain", "4", NULL, 0);
    model_etj(&m, "j", "{}");
    model_run(&m, 60);
    assert_int_equal(count_on("gpu", "chief") + count_on("gpu", "worker"), 0);
    assert_int_equal(count_on("plain", "worker"), 3);
    assert_int_equal(model_events(&m, "Withdrawn"), 0);
}

static void nodes_with_gpus_are_used_where_the_spec_says_so(void **state)
{
    node("gpu-0", "16", NULL, 4);
    node("plain", "4", NULL, 0);
    model_etj(&m, "j", "{\"gpuNodes\": \"use\"}");
    model_run(&m, 60);
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 8);
}

static void nodes_with_gpus_are_used_where_there_are_no_others(void **state)
{
    node("gpu-0", "16", NULL, 4);
    model_etj(&m, "j", "{}");
    model_run(&m, 60);
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 8);
    assert_null(affinity_of("j-worker-0", "requiredDuringSchedulingIgnoredDuringExecution"));
}

static void a_node_that_is_away_for_a_while_still_keeps_trainings_off_gpus(void **state)
{
    json_t *plain = node("plain", "16", NULL, 0);

    json_object_set_new(plain, "spec",
                        json_pack("{s:b, s:[{s:s, s:s}]}", "unschedulable", 1, "taints", "key",
                                  "node.kubernetes.io/unschedulable", "effect", "NoSchedule"));
    node("gpu-0", "16", NULL, 4);
    model_etj(&m, "j", "{}");
    model_run(&m, 10);
    assert_int_equal(json_array_size(m.pods), 0);
}

static void workers_that_ask_for_gpus_come_where_there_are_some_left(void **state)
{
    node("gpu-0", "64", NULL, 3);
    node("plain", "64", NULL, 0);
    /* the API server fills in the request, as the model does not */
    model_etj(&m, "j",
              "{\"workers\": {\"resources\": {\"limits\": {\"nvidia.com/gpu\": 1},"
              " \"requests\": {\"nvidia.com/gpu\": 1}}}}");
    model_run(&m, 60);
    assert_int_equal(count_on("gpu", "worker"), 3);
    assert_int_equal(count_on("plain", "chief"), 1);
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 3);
    assert_int_equal(model_events(&m, "Withdrawn"), 0);
}

static void no_resource_counts_as_a_gpu_where_none_is_named(void **state)
{
    m.settings.gpu_count = 0;
    node("gpu-0", "16", NULL, 4);
    node("plain", "4", NULL, 0);
    model_etj(&m, "j", "{}");
    model_run(&m, 60);
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 8);
}

/* ---- watts ----------------------------------------------------------------------------------- */

static json_t *capped(const char *name, const char *cpu, const char *power_cpu)
{
    json_t *made = node(name, cpu, NULL, 0);

    json_object_set_new(json_object_get(made, "metadata"), "annotations",
                        json_pack("{s:s}", KUBE_ANNOTATION_POWER_CPU, power_cpu));
    return made;
}

/* The first expression of a pod's affinity, required or preferred. */
static const json_t *expression_of(const char *pod, bool required)
{
    const json_t *affinity =
        affinity_of(pod, required ? "requiredDuringSchedulingIgnoredDuringExecution"
                                  : "preferredDuringSchedulingIgnoredDuringExecution");
    const json_t *term = required
                             ? json_array_get(json_object_get(affinity, "nodeSelectorTerms"), 0)
                             : json_object_get(json_array_get(affinity, 0), "preference");

    return json_array_get(json_object_get(term, "matchExpressions"), 0);
}

static const char *host_of(const char *pod, bool required)
{
    const json_t *e = expression_of(pod, required);

    assert_string_equal(model_text(e, NULL, "key"), "kubernetes.io/hostname");
    assert_string_equal(model_text(e, NULL, "operator"), required ? "NotIn" : "In");
    assert_int_equal(json_array_size(json_object_get(e, "values")), 1);
    return json_string_value(json_array_get(json_object_get(e, "values"), 0));
}

/* The scheduler knows requests alone: by these the first node has room for all workers. */
static void pods_come_to_no_node_whose_watts_are_taken(void **state)
{
    capped("a", "16", "3");
    node("b", "16", NULL, 0);
    model_etj(&m, "j", "{}");
    model_run(&m, 60);
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 8);
    assert_int_equal(count_on("a", "worker"), 2); /* beside chief and server */
    assert_int_equal(count_on("b", "worker"), 6);
    assert_int_equal(model_events(&m, "Withdrawn"), 0);
    assert_string_equal(host_of("j-worker-7", true), "a");
    assert_string_equal(host_of("j-worker-7", false), "b");
}

/* As under a cap that all nodes share. */
static void each_node_gets_the_pods_that_its_watts_are_counted_for(void **state)
{
    capped("b", "16", "3");
    capped("a", "16", "6");
    model_etj(&m, "j", "{}");
    model_run(&m, 60);
    assert_int_equal(count_on("a", "worker"), 5);
    assert_int_equal(count_on("b", "worker"), 3);
    assert_string_equal(host_of("j-chief", true), "b");
    assert_string_equal(host_of("j-chief", false), "a");
}

static void pods_that_spread_by_themselves_stay_off_nodes_whose_watts_are_taken(void **state)
{
    capped("a", "16", "3");
    capped("b", "16", "8");
    model_etj(
        &m, "j",
        "{\"workers\": {\"template\": {\"spec\": {\"affinity\": {\"podAntiAffinity\": {}}}}}}");
    model_run(&m, 60);
    assert_null(expression_of("j-worker-0", true)); /* b has watts, though it is counted on a */
    assert_string_equal(host_of("j-worker-0", false), "a");
    assert_string_equal(host_of("j-worker-7", true), "a");
}

static void where_watts_bound_no_node_pods_come_to_any(void **state)
{
    capped("a", "16", "16");
    model_etj(&m, "j", "{}");
    model_run(&m, 60);
    assert_int_equal(model_count(&m, "j", KUBE_WORKER), 8);
    assert_null(expression_of("j-worker-0", true));
    assert_null(expression_of("j-worker-0", false));
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(a_training_begins_in_the_zone_with_most_room_and_stays_there),
        T(a_training_that_had_rather_be_close_also_goes_elsewhere),
        T(a_training_that_fits_into_no_zone_waits),
        T(a_chief_that_is_made_anew_comes_to_its_workers),
        T(a_zone_outlives_the_controller),
        T(nodes_with_gpus_are_left_alone),
        T(nodes_with_gpus_are_used_where_the_spec_says_so),
        T(nodes_with_gpus_are_used_where_there_are_no_others),
        T(a_node_that_is_away_for_a_while_still_keeps_trainings_off_gpus),
        T(workers_that_ask_for_gpus_come_where_there_are_some_left),
        T(no_resource_counts_as_a_gpu_where_none_is_named),
        T(pods_come_to_no_node_whose_watts_are_taken),
        T(each_node_gets_the_pods_that_its_watts_are_counted_for),
        T(pods_that_spread_by_themselves_stay_off_nodes_whose_watts_are_taken),
        T(where_watts_bound_no_node_pods_come_to_any),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

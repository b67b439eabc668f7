/* SPDX-License-Identifier: Apache-2.0 */
/* src/kube: more cores for the start of a worker, and how they are given back. */
#include "kube_model.h"

#include "kube/view/memory.h"

#define SPEC(max, cpu)                                                                             \
    "{\"workers\": {\"max\": " #max ", \"cpu\": {" cpu "},"                                        \
    " \"resources\": {\"requests\": {\"cpu\": \"100m\", \"memory\": \"1Gi\"},"                     \
    " \"limits\": {\"cpu\": \"100m\", \"memory\": \"1Gi\"}}}}"
#define START "\"start\": \"2\""

static struct model m;

static struct kube_pod *pod_of(const char *name)
{
    struct kube_pod *pod = NULL;

    assert_non_null(model_find(m.pods, name));
    assert_int_equal(kube_pod_parse(model_find(m.pods, name), &pod, NULL), 0);
    return pod;
}

static int64_t limit_of(const char *name)
{
    struct kube_pod *pod = pod_of(name);
    int64_t mcpu = pod->limit_mcpu;

    kube_pod_free(pod);
    return mcpu;
}

static int64_t request_of(const char *name)
{
    struct kube_pod *pod = pod_of(name);
    int64_t mcpu = pod->request.mcpu;

    kube_pod_free(pod);
    return mcpu;
}

static json_int_t threads_of_first(void)
{
    const json_t *workers = json_object_get(json_object_get(m.told, "j"), "worker");

    return json_integer_value(json_object_get(json_array_get(workers, 0), "threads"));
}

static const char *memory_of(const char *name, const char *kind)
{
    const json_t *spec = json_object_get(model_find(m.pods, name), "spec");
    const json_t *container = json_array_get(json_object_get(spec, "containers"), 0);

    return model_text(json_object_get(json_object_get(container, "resources"), kind), NULL,
                      "memory");
}

/* Until its pod runs it has been created alone. */
static void begin(const char *spec)
{
    model_node(&m, "a", "4", "64Gi");
    model_etj(&m, "j", spec);
    model_run(&m, 2);
}

static void a_worker_starts_with_more_and_gives_it_back_as_it_works(void **state)
{
    begin(SPEC(1, START));
    assert_int_equal(limit_of("j-worker-0"), 2000);
    assert_int_equal(request_of("j-worker-0"), 100);
    model_run(&m, 10);
    assert_int_equal(limit_of("j-worker-0"), 100);
    assert_int_equal(request_of("j-worker-0"), 100);
    assert_int_equal(m.sent[KUBE_RESIZE_POD], 1);
    assert_int_equal(model_events(&m, "StartTooLong"), 0);
}

/* Requests and limits of a Guaranteed pod are the same, and a resize may not make it one. */
static void its_class_is_the_same_before_and_after(void **state)
{
    begin(SPEC(1, START));
    model_run(&m, 10);
    assert_string_equal(memory_of("j-worker-0", "requests"), "1073741823");
    assert_string_equal(memory_of("j-worker-0", "limits"), "1Gi");
}

static void without_it_a_worker_is_as_the_spec_says(void **state)
{
    begin(SPEC(1, ""));
    assert_int_equal(limit_of("j-worker-0"), 100);
    assert_string_equal(memory_of("j-worker-0", "requests"), "1Gi");
    model_run(&m, 10);
    assert_int_equal(m.sent[KUBE_RESIZE_POD], 0);
}

/* Results depend on the number of threads: it is that of the usual limit all the time. */
static void its_threads_do_not_follow_the_start(void **state)
{
    begin(SPEC(1, START));
    model_run(&m, 1);
    assert_int_equal(limit_of("j-worker-0"), 2000);
    assert_int_equal(threads_of_first(), 1);
    model_run(&m, 10);
    assert_int_equal(limit_of("j-worker-0"), 100);
    assert_int_equal(threads_of_first(), 1);
}

static void one_that_never_joins_gives_it_back_after_a_minute(void **state)
{
    m.no_chiefs = true;
    begin(SPEC(1, START));
    model_run(&m, 50);
    assert_int_equal(limit_of("j-worker-0"), 2000);
    model_run(&m, 20);
    assert_int_equal(limit_of("j-worker-0"), 100);
    assert_int_equal(m.sent[KUBE_RESIZE_POD], 1);
    assert_int_equal(model_events(&m, "StartTooLong"), 1);
}

/* It is the pod that tells, and not what the controller remembers or the spec says today. */
static void another_controller_gives_it_back_also_of_another_spec(void **state)
{
    json_t *cpu;

    m.no_chiefs = true;
    begin(SPEC(1, START));
    cpu = json_object_get(
        json_object_get(json_object_get(model_find(m.etjs, "j"), "spec"), "workers"), "cpu");
    json_object_del(cpu, "start");
    kube_memory_free(m.memory);
    m.memory = kube_memory_new();
    m.no_chiefs = false;
    model_run(&m, 10);
    assert_int_equal(limit_of("j-worker-0"), 100);
}

/* A node that has no room for a resize has room for a smaller limit; if not, nobody insists. */
static void a_resize_that_the_node_refuses_is_not_sent_again_and_again(void **state)
{
    m.no_resize = true;
    begin(SPEC(1, START));
    model_run(&m, 60);
    assert_int_equal(limit_of("j-worker-0"), 100);
    assert_int_equal(m.sent[KUBE_RESIZE_POD], 1);
}

/* Room is counted by requests, which a start does not raise: as many workers fit as without. */
static void a_start_takes_no_room_from_others(void **state)
{
    model_node(&m, "a", "1200m", "64Gi"); /* chief and server: 1000m */
    model_etj(&m, "j", SPEC(2, START));
    model_run(&m, 2);
    model_other(&m, "web", NULL, "100m", 0);
    model_run(&m, 20);
    assert_string_equal(model_text(model_find(m.pods, "web"), "spec", "nodeName"), "a");
    assert_int_equal(limit_of("j-worker-0"), 100);
}

static double no_rate(int workers, int ps)
{
    (void)workers;
    (void)ps;
    return 0;
}

/* A pod that waits gets cores of a worker that is still starting; with them goes what it had more.
 */
static void a_worker_shrinks_for_others_also_while_it_starts(void **state)
{
    m.rate = no_rate;
    model_node(&m, "a", "1100m", "64Gi");
    model_etj(&m, "j", SPEC(1, START ", \"min\": \"50m\", \"max\": \"400m\""));
    model_run(&m, 10);
    assert_int_equal(limit_of("j-worker-0"), 2000);
    model_other(&m, "web", NULL, "50m", 0);
    model_run(&m, 10);
    assert_string_equal(model_text(model_find(m.pods, "web"), "spec", "nodeName"), "a");
    assert_int_equal(request_of("j-worker-0"), 50);
    assert_int_equal(limit_of("j-worker-0"), 50);
    assert_int_equal(threads_of_first(), 1);
}

/* Both at once: examples are done, and somebody waits. One resize is enough, and at once. */
static void a_start_ends_with_the_resize_for_others(void **state)
{
    m.rate = no_rate;
    model_node(&m, "a", "1100m", "64Gi");
    model_etj(&m, "j", SPEC(1, START ", \"min\": \"50m\", \"max\": \"400m\""));
    model_run(&m, 10);
    m.rate = model_linear;
    model_other(&m, "web", NULL, "50m", 0);
    model_run(&m, 3);
    assert_int_equal(limit_of("j-worker-0"), 50);
    assert_int_equal(m.sent[KUBE_RESIZE_POD], 1);
}

/* With the larger limit, which the pod's status still shows, a worker is faster than it will be. */
static void rates_of_a_start_do_not_count(void **state)
{
    const struct record *record;

    begin(SPEC(2, START));
    model_run(&m, 2);
    m.slow_resize = true;
    for (int slow = 1; slow >= 0; slow--) {
        model_run(&m, 30);
        record =
            &memory_entry(m.memory, model_text(model_find(m.etjs, "j"), "metadata", "uid"))->record;
        assert_int_equal(limit_of("j-worker-0"), 100);
        assert_int_equal(record->rates.rate == 0, slow);
        m.slow_resize = false;
    }
}

/* A larger request would end the start: it comes when that is over. */
static void one_that_grew_to_the_same_limit_is_not_taken_for_one_that_starts(void **state)
{
    begin(SPEC(1, START ", \"min\": \"100m\", \"max\": \"2\""));
    model_run(&m, 60);
    assert_int_equal(request_of("j-worker-0"), 2000);
    assert_int_equal(limit_of("j-worker-0"), 2000);
    assert_int_equal(threads_of_first(), 2);
    assert_int_equal(m.sent[KUBE_RESIZE_POD], 2);
}

/* As without the right to resize pods: a larger limit that could not be given back is not made. */
static void while_resizes_are_refused_none_is_made_with_it(void **state)
{
    struct kube_answer refused = {
        .kind = KUBE_RESIZE_POD, .role = KUBE_WORKER, .code = -EACCES, .text = "forbidden"};

    begin(SPEC(1, START));
    assert_int_equal(limit_of("j-worker-0"), 2000);
    for (size_t i = 0; i < json_array_size(m.etjs); i++) {
        struct kube_etj *etj = NULL;

        assert_int_equal(kube_etj_parse(json_array_get(m.etjs, i), &etj, NULL), 0);
        for (int n = 0; n < 10; n++)
            kube_memory_answer(m.memory, etj, &refused, m.now_ns);
        kube_etj_free(etj);
    }
    model_remove(m.pods, "j-worker-0");
    model_run(&m, 10);
    assert_null(model_find(m.pods, "j-worker-0"));
    assert_int_equal(limit_of("j-worker-1"), 100);
}

/* A pod that is refused, for a LimitRange's maximum for example, comes with the usual limit. */
static void a_pod_that_is_refused_is_made_without_it(void **state)
{
    m.refuses = "j-worker";
    begin(SPEC(1, START));
    m.refuses = NULL;
    model_run(&m, 10);
    for (int i = 0; i < 5; i++) {
        char name[32];

        snprintf(name, sizeof(name), "j-worker-%d", i);
        if (model_find(m.pods, name)) {
            assert_int_equal(m.sent[KUBE_RESIZE_POD], 0);
            assert_int_equal(limit_of(name), 100);
            return;
        }
    }
    fail_msg("no worker was made");
}

/* A quota of limits.cpu that has room for the usual limit alone. */
static void a_quota_of_limits_is_kept(void **state)
{
    for (int enough = 0; enough < 2; enough++) {
        json_t *quota =
            json_pack("{s:{s:s}, s:{}, s:{s:{s:s}, s:{}}}", "metadata", "namespace", "n", "spec",
                      "status", "hard", "limits.cpu", enough ? "2" : "1", "used");

        model_done(&m);
        model_init(&m);
        model_stamp(&m, quota, "quota");
        json_array_append_new(m.quotas, quota);
        begin(SPEC(1, START));
        assert_int_equal(limit_of("j-worker-0"), enough ? 2000 : 100);
    }
}

/* A node whose watts do not allow all of its cores has none for a start. */
static void a_node_short_of_watts_has_nothing_to_spare(void **state)
{
    json_t *node = model_node(&m, "a", "4", "64Gi");

    json_object_set_new(json_object_get(node, "metadata"), "annotations",
                        json_pack("{s:s}", KUBE_ANNOTATION_POWER_CPU, "3"));
    model_etj(&m, "j", SPEC(1, START));
    model_run(&m, 2);
    assert_int_equal(limit_of("j-worker-0"), 100);
}

static void what_cannot_be_is_said(void **state)
{
    static const char *const wrong[][2] = {
        {"{\"workers\": {\"cpu\": {\"start\": \"2\"}}}", "needs the worker's limits.cpu"},
        {"{\"workers\": {\"cpu\": {\"start\": \"1\"}, \"resources\": {\"limits\": {\"cpu\": 1}}}}",
         "has to be above the worker's limits.cpu, which are 1000m"},
    };

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        json_t *etj = model_etj(&m, i ? "b" : "a", wrong[i][0]);
        struct kube_etj *parsed = NULL;

        assert_int_equal(kube_etj_parse(etj, &parsed, NULL), 0);
        assert_non_null(parsed->fault);
        assert_non_null(strstr(parsed->fault, "spec.workers.cpu.start"));
        assert_non_null(strstr(parsed->fault, wrong[i][1]));
        kube_etj_free(parsed);
    }
}

#define T(name)                                                                                    \
    {                                                                                              \
#name, name, model_set_up, model_tear_down, &m                                             \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_worker_starts_with_more_and_gives_it_back_as_it_works),
        T(its_class_is_the_same_before_and_after),
        T(without_it_a_worker_is_as_the_spec_says),
        T(its_threads_do_not_follow_the_start),
        T(one_that_never_joins_gives_it_back_after_a_minute),
        T(another_controller_gives_it_back_also_of_another_spec),
        T(a_resize_that_the_node_refuses_is_not_sent_again_and_again),
        T(a_start_takes_no_room_from_others),
        T(a_worker_shrinks_for_others_also_while_it_starts),
        T(a_start_ends_with_the_resize_for_others),
        T(rates_of_a_start_do_not_count),
        T(one_that_grew_to_the_same_limit_is_not_taken_for_one_that_starts),
        T(while_resizes_are_refused_none_is_made_with_it),
        T(a_pod_that_is_refused_is_made_without_it),
        T(a_quota_of_limits_is_kept),
        T(a_node_short_of_watts_has_nothing_to_spare),
        T(what_cannot_be_is_said),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

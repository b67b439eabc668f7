/* SPDX-License-Identifier: Apache-2.0 */
/* Objects of the API server as structs, and what the controller writes. */
#include "kube_model.h"

#include <errno.h>

/* ---- quantities and times -------------------------------------------------------------------- */

static void assert_milli(const char *text, int64_t expected)
{
    int64_t milli = -1;
    int r = kube_quantity_milli(text, &milli);

    if (expected < 0)
        assert_int_equal(r, expected);
    else if (r || milli != expected)
        fail_msg("'%s': %d, %lld", text, r, (long long)milli);
}

static void assert_whole(const char *text, int64_t expected)
{
    int64_t whole = -1;
    int r = kube_quantity_whole(text, &whole);

    if (expected < 0)
        assert_int_equal(r, expected);
    else if (r || whole != expected)
        fail_msg("'%s': %d, %lld", text, r, (long long)whole);
}

static void quantities_are_read_as_kubernetes_does(void **state)
{
    assert_milli("500m", 500);
    assert_milli("0.1", 100);
    assert_milli(".5", 500);
    assert_milli("1.", 1000);
    assert_milli("2", 2000);
    assert_milli("+3", 3000);
    assert_milli("1e3", 1000000);
    assert_milli("1E-3", 1);
    assert_milli("100u", 1); /* rounded up, as there */
    assert_milli("1n", 1);
    assert_milli("0", 0);
    assert_milli("0.0000000000000000000000001", 1);
    assert_whole("1Gi", INT64_C(1) << 30);
    assert_whole("1.5Gi", INT64_C(3) << 29);
    assert_whole("128974848", 128974848);
    assert_whole("129e6", 129000000);
    assert_whole("129M", 129000000);
    assert_whole("123Mi", INT64_C(123) << 20);
    assert_whole("100m", 1);
    assert_whole("1k", 1000);
}

static void what_is_no_quantity_is_refused(void **state)
{
    static const char *const wrong[] = {"",    "x",   "-1", "1 ",  "1Ki2", "1e",   "1.2.3", "Gi",
                                        "1ki", "1mi", "--", "1e+", ".",    "0x10", "1GiB",  "1K"};

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_milli(wrong[i], -EINVAL);
    assert_milli("1e24", -ERANGE);
    assert_milli("99999999999999999999999999999999999", -ERANGE);
    assert_milli("1e99999999999999999999", -ERANGE);
    assert_whole("1Ei", -ERANGE);
    assert_whole("1000000000000000000Ei", -ERANGE);
}

static void quantities_come_back(void **state)
{
    for (int64_t milli = 0; milli < 5000; milli += 37) {
        char text[KUBE_QUANTITY_MAX];

        kube_milli_text(milli, text);
        assert_milli(text, milli);
    }
}

static void times_come_back(void **state)
{
    static const char *const wrong[] = {"",
                                        "2026-11-22",
                                        "2026-11-22T05:15:19",
                                        "2026-13-22T05:15:19Z",
                                        "2026-11-22T05:15:19Zx",
                                        "2026-11-22 05:15:19Z",
                                        "9999-11-22T05:15:19Z"};
    int64_t ns = 0;
    char text[KUBE_TIME_TEXT];

    assert_int_equal(kube_time("1970-01-02T00:00:01Z", &ns), 0);
    assert_true(ns == 86401 * S);
    assert_int_equal(kube_time("2026-11-22T05:15:19Z", &ns), 0);
    assert_true(ns == 1795324519 * S);
    kube_time_text(ns, text);
    assert_string_equal(text, "2026-11-22T05:15:19Z");
    assert_int_equal(kube_time("2026-11-22T06:15:19.5+01:00", &ns), 0);
    assert_true(ns == 1795324519 * S + S / 2);
    kube_micro_time_text(ns, text);
    assert_string_equal(text, "2026-11-22T05:15:19.500000Z");
    for (int64_t day = 0; day < 84000; day += 13) {
        int64_t back = -1;

        kube_time_text(day * 86400 * S, text);
        assert_int_equal(kube_time(text, &back), 0);
        assert_true(back == day * 86400 * S);
    }
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_int_equal(kube_time(wrong[i], &ns), -EINVAL);
}

/* ---- pods ------------------------------------------------------------------------------------ */

#define META "\"metadata\": {\"name\": \"p\", \"uid\": \"u\"}"

static struct kube_pod *pod_of(const char *text)
{
    json_t *json = model_json(text);
    struct kube_pod *pod = NULL;
    struct error err = {0};

    if (kube_pod_parse(json, &pod, &err))
        fail_msg("%s", err.text);
    json_decref(json);
    return pod;
}

static void a_pods_request_is_what_the_scheduler_counts(void **state)
{
    struct kube_pod *pod =
        pod_of("{" META ", \"spec\": {\"overhead\": {\"cpu\": \"10m\"}, \"containers\": ["
               "{\"name\": \"tide\", \"resources\": {\"requests\": {\"cpu\": \"1\", \"memory\": "
               "\"1Gi\"}}},"
               "{\"name\": \"x\", \"resources\": {\"limits\": {\"cpu\": \"500m\"}}}],"
               "\"initContainers\": ["
               "{\"name\": \"a\", \"resources\": {\"requests\": {\"cpu\": \"3\"}}},"
               "{\"name\": \"b\", \"restartPolicy\": \"Always\","
               " \"resources\": {\"requests\": {\"cpu\": \"200m\"}}},"
               "{\"name\": \"c\", \"resources\": {\"requests\": {\"cpu\": \"2900m\"}}}]}}");

    assert_int_equal(pod->request.mcpu, 3110); /* c beside b, and the overhead */
    assert_int_equal(pod->request.bytes, INT64_C(1) << 30);
    assert_int_equal(pod->mcpu, 1000);
    kube_pod_free(pod);
    pod = pod_of("{" META ", \"spec\": {\"nodeName\": \"n\", \"containers\": [{\"name\": \"tide\","
                 "\"resources\": {\"requests\": {\"cpu\": \"1\"}}}]}, \"status\": "
                 "{\"containerStatuses\": [{\"name\": \"tide\", \"resources\": {\"requests\": "
                 "{\"cpu\": \"2\"}}}]}}");
    assert_int_equal(pod->request.mcpu, 2000); /* it still has what it is to give back */
    assert_int_equal(pod->actual_mcpu, 2000);
    kube_pod_free(pod);
}

static void what_has_no_identity_is_no_object(void **state)
{
    static const char *const cases[] = {"{}", "[]", "{\"metadata\": {\"name\": \"p\"}}"};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        json_t *json = model_json(cases[i]);
        struct kube_pod *pod = NULL;
        struct error err = {0};

        assert_int_equal(kube_pod_parse(json, &pod, &err), -EINVAL);
        assert_null(pod);
        assert_non_null(strstr(err.text, ": is missing or too long"));
        json_decref(json);
    }
}

/* A pod with invalid fields uses room all the same, so the controller must count it. */
static void a_pod_is_there_whatever_it_says(void **state)
{
    struct kube_pod *pod = pod_of(
        "{" META ", \"spec\": {\"nodeName\": \"n\", \"priority\": 99999999999, \"containers\": ["
        "{\"name\": \"x\", \"resources\": {\"requests\": {\"cpu\": \"much\", \"memory\": \"1Gi\"},"
        " \"limits\": {\"cpu\": \"2\", \"memory\": \"9E\"}}},"
        "{\"name\": \"y\", \"resources\": {\"requests\": {\"cpu\": 1}}}]},"
        " \"status\": {\"phase\": \"Sleeping\", \"startTime\": \"today\"}}");

    assert_string_equal(pod->node, "n");
    assert_int_equal(pod->request.mcpu, 3000);
    assert_true(pod->request.bytes == INT64_C(1) << 30);
    assert_true(pod->limit.bytes == KUBE_BYTES_MAX);
    assert_int_equal(pod->priority, 0);
    kube_pod_free(pod);
    pod = pod_of("{" META ", \"spec\": {\"containers\": 7, \"initContainers\": [8],"
                 " \"overhead\": {\"memory\": \"9E\"}}, \"status\": []}");
    assert_true(pod->request.bytes == KUBE_BYTES_MAX);
    kube_pod_free(pod);
}

static void a_long_message_is_cut_and_costs_no_pod(void **state)
{
    enum { LONG = KUBE_TEXT_MAX + 1 };
    char message[LONG + 1];
    json_t *json;
    struct kube_pod *pod = NULL;

    memset(message, 'x', LONG);
    message[LONG] = '\0';
    json = json_pack("{s:{s:s,s:s},s:{s:[{s:s,s:{s:{s:s,s:s}}}],s:[{s:s,s:s,s:s}]}}", "metadata",
                     "name", "p", "uid", "u", "status", "containerStatuses", "name", "tide",
                     "state", "waiting", "reason", "CreateContainerError", "message", message,
                     "conditions", "type", "PodScheduled", "status", "False", "message", message);
    assert_int_equal(kube_pod_parse(json, &pod, NULL), 0);
    assert_string_equal(pod->trouble, "CreateContainerError");
    assert_int_equal(strlen(pod->message), KUBE_TEXT_MAX);
    kube_pod_free(pod);
    json_decref(json);
}

static void strangers_labels_make_no_member(void **state)
{
    static const char *const labels[] = {
        "{\"threadtide.io/job\": \"j\", \"threadtide.io/role\": \"worker\"}",
        "{\"threadtide.io/job\": \"j\", \"threadtide.io/role\": \"boss\", "
        "\"threadtide.io/index\": \"1\"}",
        "{\"threadtide.io/job\": \"j\", \"threadtide.io/role\": \"ps\", "
        "\"threadtide.io/index\": \"99999999999\"}",
        "{\"threadtide.io/job\": \"j\", \"threadtide.io/role\": \"ps\", "
        "\"threadtide.io/index\": \"1x\"}",
    };

    for (size_t i = 0; i < sizeof(labels) / sizeof(labels[0]); i++) {
        char text[512];
        struct kube_pod *pod;

        snprintf(text, sizeof(text),
                 "{\"metadata\": {\"name\": \"p\", \"uid\": \"u\", \"ownerReferences\": "
                 "[{\"controller\": true, \"uid\": \"o\"}], \"labels\": %s}}",
                 labels[i]);
        pod = pod_of(text);
        assert_null(pod->job);
        kube_pod_free(pod);
    }
}

/* ---- trainings ------------------------------------------------------------------------------- */

static struct kube_etj *etj_of(struct model *m, const char *spec)
{
    struct kube_etj *etj = NULL;
    struct error err = {0};

    model_init(m);
    if (kube_etj_parse(model_etj(m, "j", spec), &etj, &err))
        fail_msg("%s", err.text);
    model_done(m);
    return etj;
}

static void what_a_spec_cannot_say_is_its_fault(void **state)
{
    static const struct {
        const char *spec, *fault;
    } cases[] = {
        {"{\"image\": \"\"}", "spec.image: is missing"},
        {"{\"command\": []}", "spec.command: is missing: what the chief runs"},
        {"{\"command\": [7]}", "spec.command: has an entry that is no short string"},
        {"{\"mode\": \"both\"}", "spec.mode: 'both' is unknown"},
        {"{\"slots\": 0}", "spec.slots: 0 is not within 1 and 4096"},
        {"{\"env\": [{\"name\": \"TIDE_ROLE\", \"value\": \"x\"}]}",
         "spec.env: TIDE_ROLE: names that begin with TIDE_ are the controller's"},
        {"{\"workers\": {\"replicas\": 9}}",
         "spec.workers.replicas: 9 is neither 0 (the policy decides) nor within 1 and 8"},
        {"{\"workers\": {\"resources\": {\"requests\": {\"cpu\": 0}}}}",
         "spec.workers.resources.requests.cpu: is below 10m: the controller needs to know what a "
         "worker asks for"},
        {"{\"workers\": {\"cpu\": {\"min\": 2, \"max\": 4}}}",
         "spec.workers.cpu.min: has to be at least 10m, and the worker's requests.cpu between "
         "min and max"},
        {"{\"quota\": {\"cpu\": 1}}",
         "spec.quota.cpu: is below what chief, ps.min and workers.min ask for together"},
        {"{\"workers\": {\"template\": {\"spec\": 7}}}",
         "spec.workers.template.spec: is no object"},
        {"{\"workers\": {\"template\": {\"metadata\": {\"annotations\": "
         "{\"threadtide.io/leave\": \"\"}}}}}",
         "spec.workers.template.metadata.annotations: threadtide.io/leave: names under "
         "threadtide.io/ are the controller's"},
        {"{\"ps\": {\"template\": {\"metadata\": {\"labels\": {\"threadtide.io/x\": \"\"}}}}}",
         "spec.ps.template.metadata.labels: threadtide.io/x: names under threadtide.io/ are the "
         "controller's"},
        {"{\"policy\": \"thruoghput\"}", NULL},
        {"{\"ps\": 7}", "spec.ps: is no object"},
        {"{\"topology\": {\"mode\": \"require\"}}",
         "spec.topology.key: is missing: a label of nodes, as topology.kubernetes.io/zone"},
        {"{\"gpuNodes\": \"all\"}", "spec.gpuNodes: 'all' is unknown"},
    };
    struct model m;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct kube_etj *etj = etj_of(&m, cases[i].spec);

        assert_non_null(etj->fault);
        if (cases[i].fault)
            assert_string_equal(etj->fault, cases[i].fault);
        else
            assert_non_null(strstr(etj->fault, "throughput")); /* what comes near */
        kube_etj_free(etj);
    }
}

static void a_status_comes_back(void **state)
{
    struct model m;
    struct kube_etj *etj = etj_of(&m, "{}"), *again = NULL;
    struct kube_status s = {.observed_generation = 7,
                            .members_generation = 12,
                            .members_hash = 0x7edcba9876543210,
                            .progress_ns = 1795324519 * S,
                            .restarts = 2,
                            .efficiency_percent = 87,
                            .phase = KUBE_RUNNING,
                            .has_progress = true,
                            .failed_uid = "uid",
                            .reason = "Policy",
                            .message = "because",
                            .ps = {3, 2, 2, 1},
                            .worker = {9, 5, 4, 3},
                            .progress = {100, 2, 3200, 0.25, 12.5, 0.5, 600, 400}};
    json_t *json, *object;

    s.size_count = KUBE_SIZES_MAX;
    for (int i = 0; i < KUBE_SIZES_MAX; i++)
        s.sizes[i] = (struct kube_size){(1795324519 + i) * S, i % 3, i};
    s.conditions[KUBE_READY] =
        (struct kube_condition){KUBE_TRUE, "InTraining", "all of them", 1795324519 * S, 7};
    json = kube_status_json(etj, &s);
    object = json_pack("{s:{s:s, s:s, s:s}, s:{}, s:O}", "metadata", "name", "j", "uid", "u",
                       "namespace", "n", "spec", "status", json_object_get(json, "status"));
    assert_int_equal(kube_etj_parse(object, &again, NULL), 0);
    assert_int_equal(again->status.observed_generation, 7);
    assert_int_equal(again->status.members_generation, 12);
    assert_true(again->status.members_hash == s.members_hash);
    assert_int_equal(again->status.restarts, 2);
    assert_int_equal(again->status.efficiency_percent, 87);
    assert_int_equal(again->status.phase, KUBE_RUNNING);
    assert_string_equal(again->status.failed_uid, "uid");
    assert_memory_equal(&again->status.ps, &s.ps, sizeof(s.ps));
    assert_memory_equal(&again->status.worker, &s.worker, sizeof(s.worker));
    assert_memory_equal(&again->status.progress, &s.progress, sizeof(s.progress));
    assert_int_equal(again->status.size_count, KUBE_SIZES_MAX);
    for (int i = 0; i < KUBE_SIZES_MAX; i++) {
        assert_int_equal(again->status.sizes[i].since_ns, s.sizes[i].since_ns);
        assert_int_equal(again->status.sizes[i].ps, i % 3);
        assert_int_equal(again->status.sizes[i].workers, i);
    }
    assert_memory_equal(&again->status.conditions[KUBE_READY], &s.conditions[KUBE_READY],
                        sizeof(s.conditions[0]));
    assert_int_equal(again->status.conditions[KUBE_DEGRADED].status, KUBE_UNKNOWN);
    kube_etj_free(etj);
    kube_etj_free(again);
    json_decref(json);
    json_decref(object);
}

/* ---- what pods are made of ------------------------------------------------------------------- */

static const char *env_of(const json_t *container, const char *name)
{
    json_t *entry;
    size_t i;

    json_array_foreach (json_object_get(container, "env"), i, entry)
        if (strcmp(json_string_value(json_object_get(entry, "name")), name) == 0)
            return json_string_value(json_object_get(entry, "value"));
    return NULL;
}

static const json_t *container_of(const json_t *pod, size_t index)
{
    return json_array_get(json_object_get(json_object_get(pod, "spec"), "containers"), index);
}

static void the_users_template_lies_under_ours(void **state)
{
    static const struct kube_pod_settings settings = {.controller = "tide-kube.x.svc:8443"};
    struct model m;
    struct kube_etj *etj =
        etj_of(&m, "{\"env\": [{\"name\": \"A\", \"value\": \"1\"}], \"workers\": {\"template\": "
                   "{\"metadata\": {\"labels\": {\"a\": \"b\", \"threadtide.io/job\": \"stolen\"}},"
                   "\"spec\": {\"restartPolicy\": \"Always\", \"containers\": ["
                   "{\"name\": \"side\", \"image\": \"s\"},"
                   "{\"name\": \"tide\", \"env\": [{\"name\": \"TIDE_ROLE\", \"value\": \"boss\"}],"
                   " \"volumeMounts\": [{\"name\": \"v\", \"mountPath\": \"/v\"}]}]}}}}");
    const struct kube_new_pod worker = {.role = KUBE_WORKER, .index = 3, .mcpu = 1500};
    const struct kube_new_pod chief = {.role = KUBE_CHIEF};
    json_t *pod = kube_pod_json(&settings, etj, &worker);
    const json_t *tide = container_of(pod, 1);
    const json_t *labels = json_object_get(json_object_get(pod, "metadata"), "labels");

    assert_string_equal(model_text(pod, "metadata", "name"), "j-worker-3");
    assert_string_equal(json_string_value(json_object_get(labels, "a")), "b");
    assert_string_equal(json_string_value(json_object_get(labels, KUBE_LABEL_JOB)), "j");
    assert_string_equal(model_text(pod, "spec", "restartPolicy"), "Never");
    assert_string_equal(json_string_value(json_object_get(container_of(pod, 0), "image")), "s");
    assert_string_equal(json_string_value(json_object_get(tide, "image")), "i");
    assert_string_equal(env_of(tide, "TIDE_ROLE"), "worker");
    assert_string_equal(env_of(tide, "TIDE_INDEX"), "3");
    assert_string_equal(env_of(tide, "A"), "1");
    assert_null(env_of(tide, "TIDE_CONTROLLER"));
    assert_int_equal(json_array_size(json_object_get(tide, "volumeMounts")), 1);
    assert_string_equal(
        json_string_value(json_object_get(
            json_object_get(json_object_get(tide, "resources"), "requests"), "cpu")),
        "1500m");
    json_decref(pod);

    pod = kube_pod_json(&settings, etj, &chief);
    tide = container_of(pod, 0);
    assert_string_equal(env_of(tide, "TIDE_CONTROLLER"), "https://tide-kube.x.svc:8443");
    assert_string_equal(env_of(tide, "TIDE_MODE"), "sync");
    assert_string_equal(json_string_value(json_array_get(json_object_get(tide, "command"), 0)),
                        "c");
    assert_non_null(json_object_get(json_object_get(pod, "spec"), "volumes"));
    json_decref(pod);
    kube_etj_free(etj);
}

static void the_users_python_path_comes_behind_ours_wherever_it_is_from(void **state)
{
    static const struct kube_pod_settings settings = {.controller = "c:1", .node_image = "n"};
    static const char *const paths[][2] = {
        {"\"value\": \"/mine\"", "/opt/threadtide/python:/mine"},
        {"\"valueFrom\": {\"configMapKeyRef\": {\"name\": \"m\", \"key\": \"k\"}}",
         "/opt/threadtide/python:$(TIDE_PYTHONPATH)"},
        {"\"value\": \"\"", "/opt/threadtide/python:"},
    };
    const struct kube_new_pod chief = {.role = KUBE_CHIEF};

    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        char spec[256];
        struct kube_etj *etj;
        struct model m;
        json_t *pod;

        snprintf(spec, sizeof(spec), "{\"env\": [{\"name\": \"PYTHONPATH\", %s}]}", paths[i][0]);
        etj = etj_of(&m, spec);
        pod = kube_pod_json(&settings, etj, &chief);
        assert_string_equal(env_of(container_of(pod, 0), "PYTHONPATH"), paths[i][1]);
        json_decref(pod);
        kube_etj_free(etj);
    }
}

static void a_resize_keeps_the_class_of_the_pod(void **state)
{
    struct kube_pod pod = {.mcpu = 1000, .limit_mcpu = 2000};
    json_t *json = kube_resize_json(&pod, 1500, 0);
    const json_t *resources = json_object_get(container_of(json, 0), "resources");

    assert_string_equal(model_text(resources, "requests", "cpu"), "1500m");
    assert_string_equal(model_text(resources, "limits", "cpu"), "3");
    json_decref(json);
    pod.limit_mcpu = 0;
    json = kube_resize_json(&pod, 1500, 0);
    resources = json_object_get(container_of(json, 0), "resources");
    assert_null(json_object_get(resources, "limits"));
    json_decref(json);
}

/* ---- reports --------------------------------------------------------------------------------- */

static void reports_are_read_and_hostile_ones_refused(void **state)
{
    static const char *const wrong[] = {
        "[]",
        "{\"step\": -1}",
        "{\"step\": \"1\"}",
        "{\"loss\": \"nan\"}",
        "{\"loss\": 1e300}",
        "{\"communication_permille\": 1001}",
        "{\"nodes\": [{\"role\": \"king\"}]}",
        "{\"nodes\": [{\"role\": \"ps\", \"index\": -1}]}",
        "{\"nodes\": 3}",
        "{\"pauses_ms\": [\"x\"]}",
        "{\"examples_per_s\": -1}",
    };
    json_t *json = model_json(
        "{\"step\": 5, \"epoch\": 1, \"loss\": 0.5, \"examples\": 640, \"examples_per_s\": 12.5,"
        " \"finished\": true, \"pauses_ms\": [12.5, 3], \"nodes\": [{\"role\": \"worker\","
        " \"index\": 3, \"state\": \"in\", \"threads\": 2}], \"from\": \"the future\"}");
    struct kube_report *report = NULL;

    assert_int_equal(kube_report_parse(json, &report, NULL), 0);
    assert_int_equal(report->progress.examples, 640);
    assert_int_equal(report->pauses_ms[0], 12);
    assert_int_equal(report->nodes[0].state, KUBE_NODE_IN);
    assert_true(report->finished);
    kube_report_free(report);
    json_decref(json);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct error err = {0};

        json = model_json(wrong[i]);
        report = NULL;
        if (kube_report_parse(json, &report, &err) != -EINVAL || !err.text[0])
            fail_msg("accepted: %s", wrong[i]);
        json_decref(json);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantities_are_read_as_kubernetes_does),
        cmocka_unit_test(what_is_no_quantity_is_refused),
        cmocka_unit_test(quantities_come_back),
        cmocka_unit_test(times_come_back),
        cmocka_unit_test(a_pods_request_is_what_the_scheduler_counts),
        cmocka_unit_test(what_has_no_identity_is_no_object),
        cmocka_unit_test(a_pod_is_there_whatever_it_says),
        cmocka_unit_test(a_long_message_is_cut_and_costs_no_pod),
        cmocka_unit_test(strangers_labels_make_no_member),
        cmocka_unit_test(what_a_spec_cannot_say_is_its_fault),
        cmocka_unit_test(a_status_comes_back),
        cmocka_unit_test(the_users_template_lies_under_ours),
        cmocka_unit_test(the_users_python_path_comes_behind_ours_wherever_it_is_from),
        cmocka_unit_test(a_resize_keeps_the_class_of_the_pod),
        cmocka_unit_test(reports_are_read_and_hostile_ones_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

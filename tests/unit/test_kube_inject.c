/* SPDX-License-Identifier: Apache-2.0 */
/* src/kube/inject: the patch of a pod, the API server's question and the answer. */
#include "base/startup.h"
#include "json_patch.h"
#include "kube/inject/agent_files.h"
#include "kube/inject/patch.h"
#include "kube/inject/review.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define OURS "/opt/threadtide/$LIB/libtide-agent.so"

/* JSON with ' for ", for a test's eyes. */
static json_t *parse(const char *text)
{
    char *copy = strdup(text);
    json_t *value;

    for (char *p = copy; *p; p++)
        if (*p == '\'')
            *p = '"';
    value = json_loads(copy, 0, NULL);
    assert_non_null(value);
    free(copy);
    return value;
}

static json_t *pod_of(const char *containers, const char *metadata, const char *spec)
{
    char text[8192];

    snprintf(text, sizeof(text), "{'metadata': {'name': 'p'%s}, 'spec': {'containers': [%s]%s}}",
             metadata, containers, spec);
    return parse(text);
}

/* The pod as the API server stores it; NULL: it was left alone. */
static json_t *patched(json_t *pod, bool sizes)
{
    json_t *patch = inject_patch(pod, sizes, NULL);

    if (!patch)
        return NULL;
    assert_true(patch_apply(pod, patch));
    json_decref(patch);
    patch = inject_patch(pod, sizes, NULL);
    assert_null(patch); /* a second time there is nothing to do */
    return pod;
}

static const json_t *container_of(const json_t *pod, size_t i)
{
    return json_array_get(json_object_get(json_object_get(pod, "spec"), "containers"), i);
}

/* The last value of a variable; NULL: none. */
static const char *variable(const json_t *pod, size_t container, const char *name)
{
    const json_t *env = json_object_get(container_of(pod, container), "env"), *one;
    const char *found = NULL;
    size_t i;

    json_array_foreach (env, i, one)
        if (strcmp(json_string_value(json_object_get(one, "name")), name) == 0)
            found = json_string_value(json_object_get(one, "value"));
    return found;
}

static const char *said(const json_t *pod)
{
    const json_t *notes = json_object_get(json_object_get(pod, "metadata"), "annotations");

    return json_string_value(json_object_get(notes, INJECT_DONE));
}

static size_t mounts(const json_t *pod, size_t i)
{
    return json_array_size(json_object_get(container_of(pod, i), "volumeMounts"));
}

static void check_said(const char *containers, const char *metadata, const char *spec,
                       const char *wanted)
{
    json_t *pod = pod_of(containers, metadata, spec);
    json_t *whole = json_deep_copy(pod);
    json_t *done = patched(pod, true);

    if (!wanted) {
        assert_null(done);
        assert_true(json_equal(pod, whole));
    } else {
        assert_non_null(done);
        assert_string_equal(said(pod), wanted);
        if (strncmp(wanted, "no: ", 4) == 0) /* nothing but that was changed */
            assert_true(json_equal(json_object_get(pod, "spec"), json_object_get(whole, "spec")));
    }
    json_decref(whole);
    json_decref(pod);
}

/* ---- the patch ---- */

static void a_bare_pod_gets_volume_mount_and_preload(void **state)
{
    json_t *pod = pod_of("{'name': 'main'}", "", ""), *volume, *mount;

    (void)state;
    assert_non_null(patched(pod, true));
    assert_string_equal(variable(pod, 0, "LD_PRELOAD"), OURS);
    assert_null(variable(pod, 0, "OMP_NUM_THREADS"));
    assert_null(variable(pod, 0, STARTUP_MARK));
    mount = json_array_get(json_object_get(container_of(pod, 0), "volumeMounts"), 0);
    assert_string_equal(json_string_value(json_object_get(mount, "mountPath")), "/opt/threadtide");
    assert_true(json_is_true(json_object_get(mount, "readOnly")));
    volume = json_array_get(json_object_get(json_object_get(pod, "spec"), "volumes"), 0);
    volume = json_object_get(volume, "configMap");
    assert_true(
        json_is_true(json_object_get(volume, "optional"))); /* its absence holds nobody up */
    assert_int_equal(json_array_size(json_object_get(volume, "items")), agent_files_count);
    assert_string_equal(said(pod), "main: agent");
    json_decref(pod);
}

static void what_is_there_stays_and_ours_comes_behind(void **state)
{
    json_t *pod =
        pod_of("{'name': 'a', 'env': [{'name': 'A', 'value': '1'}, {'name': 'LD_PRELOAD', "
               "'value': '/x.so'}, {'name': 'B'}], 'volumeMounts': [{'name': 'v', "
               "'mountPath': '/data'}]}, {'name': 'b', 'env': []}",
               ", 'annotations': {'k': 'v'}", ", 'volumes': [{'name': 'v'}]");

    (void)state;
    assert_non_null(patched(pod, true));
    assert_string_equal(variable(pod, 0, "LD_PRELOAD"), "/x.so:" OURS);
    assert_string_equal(variable(pod, 0, "A"), "1");
    assert_int_equal(json_array_size(json_object_get(container_of(pod, 0), "env")), 3);
    assert_int_equal(mounts(pod, 0), 2);
    assert_string_equal(variable(pod, 1, "LD_PRELOAD"), OURS);
    assert_int_equal(json_array_size(json_object_get(json_object_get(pod, "spec"), "volumes")), 2);
    assert_int_equal(
        json_object_size(json_object_get(json_object_get(pod, "metadata"), "annotations")), 2);
    json_decref(pod);
}

static void an_empty_preload_is_replaced(void **state)
{
    json_t *pod = pod_of("{'name': 'a', 'env': [{'name': 'LD_PRELOAD'}]}", "", "");

    (void)state;
    assert_non_null(patched(pod, false));
    assert_string_equal(variable(pod, 0, "LD_PRELOAD"), OURS);
    json_decref(pod);
}

static void the_cpu_limit_sizes_and_the_users_value_wins(void **state)
{
    json_t *pod = pod_of(
        "{'name': 'a', 'resources': {'limits': {'cpu': '2500m'}}, 'env': [{'name': "
        "'RAYON_NUM_THREADS', 'value': '7'}, {'name': 'NUMBA_NUM_THREADS', 'valueFrom': "
        "{'fieldRef': {'fieldPath': 'x'}}}, {'name': 'POLARS_MAX_THREADS'}]},"
        "{'name': 'b', 'resources': {'limits': {'cpu': '1'}}, 'envFrom': [{'configMapRef': {}}]},"
        "{'name': 'c'}",
        "", "");

    (void)state;
    assert_non_null(patched(pod, true));
    assert_string_equal(variable(pod, 0, "OMP_NUM_THREADS"), "3");
    assert_string_equal(variable(pod, 0, "LOKY_MAX_CPU_COUNT"), "3");
    assert_string_equal(variable(pod, 0, "RAYON_NUM_THREADS"), "7");
    assert_null(variable(pod, 0, "NUMBA_NUM_THREADS")); /* as before: without a value of ours */
    assert_null(variable(pod, 0, "POLARS_MAX_THREADS"));
    assert_null(variable(pod, 0, "JDK_JAVA_OPTIONS")); /* the image's would be lost */
    assert_non_null(variable(pod, 0, STARTUP_MARK));
    for (size_t i = 1; i <= 2; i++) { /* a list from elsewhere may have the same; no limit */
        assert_string_equal(variable(pod, i, "LD_PRELOAD"), OURS);
        assert_null(variable(pod, i, "OMP_NUM_THREADS"));
        assert_null(variable(pod, i, "OMP_WAIT_POLICY"));
    }
    assert_string_equal(said(pod), "a: agent, sized for 3; b: agent; c: agent");
    json_decref(pod);
}

static void sizes_are_left_out_on_wish_and_come_from_the_pods_limit(void **state)
{
    const char *container = "{'name': 'a', 'resources': {'limits': {'cpu': '2'}}}";

    (void)state;
    check_said(container, ", 'annotations': {'threadtide.io/inject-sizes': 'false'}", "",
               "a: agent");
    check_said("{'name': 'a'}", "", ", 'resources': {'limits': {'cpu': '4'}}",
               "a: agent, sized for 4");
    check_said("{'name': 'a', 'resources': {'limits': {'cpu': '99999'}}}", "", "", "a: agent");
    check_said("{'name': 'a', 'resources': {'limits': {'cpu': 'much'}}}", "", "", "a: agent");
}

static void containers_where_it_could_hurt_are_left_alone(void **state)
{
    static const struct {
        const char *members, *wanted;
    } rows[] = {
        {"'env': [{'name': 'LD_PRELOAD', 'valueFrom': {'configMapKeyRef': {}}}]",
         "a: no, its LD_PRELOAD comes from elsewhere"},
        {"'env': [{'name': 'LD_PRELOAD', 'value': '/my/libtide-agent.so'}]",
         "a: no, it has an agent"},
        {"'env': [{'name': 'LD_PRELOAD'}, {'name': 'LD_PRELOAD', 'value': '/x.so'}]",
         "a: no, it has LD_PRELOAD twice"},
        {"'securityContext': {'privileged': true}", "a: no, privileged"},
        {"'volumeMounts': [{'name': 'v', 'mountPath': '/opt'}]",
         "a: no, a volume is mounted at /opt/threadtide"},
        {"'volumeMounts': [{'name': 'v', 'mountPath': '/opt/threadtide/'}]",
         "a: no, a volume is mounted at /opt/threadtide"},
        {"'volumeMounts': [{'name': 'v', 'mountPath': '//opt/./threadtide/deep'}]",
         "a: no, a volume is mounted at /opt/threadtide"},
        {"'volumeMounts': [{'name': 'v', 'mountPath': '/x/../opt'}]",
         "a: no, a volume is mounted at /opt/threadtide"},
        {"'volumeMounts': [{'name': 'v', 'mountPath': '/'}]",
         "a: no, a volume is mounted at /opt/threadtide"},
        {"'volumeDevices': [{'name': 'v', 'devicePath': '/opt/threadtide'}]",
         "a: no, a volume is mounted at /opt/threadtide"},
        {"'volumeMounts': [{'name': 'v', 'mountPath': '/opt/threadtides'}]", "a: agent"},
        {"'volumeMounts': [{'name': 'v', 'mountPath': '/op'}]", "a: agent"},
    };
    char container[512];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        snprintf(container, sizeof(container), "{'name': 'a', %s}", rows[i].members);
        check_said(container, "", "", rows[i].wanted);
    }
    check_said("{'name': 'a'}, {'name': 'b'}, {'name': 'ab'}",
               ", 'annotations': {'threadtide.io/inject-except': 'x, b ,c'}", "",
               "a: agent; b: no, named in threadtide.io/inject-except; ab: agent");
    check_said("{'name': 'a', 'securityContext': {'privileged': true}}, {'name': 'b'}", "", "",
               "a: no, privileged; b: agent");
}

static void pods_where_it_could_hurt_only_say_so(void **state)
{
    const char *c = "{'name': 'a'}";

    (void)state;
    check_said(c, "", ", 'hostPID': true", "no: it shares the node's processes");
    check_said(c, "", ", 'os': {'name': 'windows'}", "no: it runs on Windows");
    check_said(c, "", ", 'nodeSelector': {'kubernetes.io/os': 'windows'}",
               "no: it runs on Windows");
    check_said(c, "", ", 'volumes': [{'name': 'threadtide-agent'}]",
               "no: it has a volume named threadtide-agent");
    check_said("{'name': 'a', 'resources': {'limits': {'ephemeral-storage': '1Mi'}}}", "", "",
               "no: its limit of ephemeral storage is small");
    check_said("{'name': 'a', 'resources': {'limits': {'ephemeral-storage': '1Gi'}}}", "", "",
               "a: agent");
    check_said(c, "", ", 'hostNetwork': true", "a: agent");
    check_said(c, "", ", 'nodeSelector': {'kubernetes.io/arch': '" AGENT_ARCH "'}", "a: agent");
    check_said(c, "", ", 'nodeSelector': {'kubernetes.io/arch': 's390x'}",
               "no: the agent that is here is for " AGENT_ARCH);
}

static void pods_that_do_not_want_it_are_not_even_told(void **state)
{
    const char *c = "{'name': 'a'}";

    (void)state;
    check_said(c, ", 'annotations': {'threadtide.io/inject': 'false'}", "", NULL);
    check_said(c, ", 'labels': {'threadtide.io/inject': 'false'}", "", NULL);
    check_said(c, ", 'labels': {'threadtide.io/job': 'digits'}", "", NULL);
    check_said(c, ", 'annotations': {'threadtide.io/injected': 'a: agent'}", "", NULL);
    check_said(c, ", 'annotations': {'kubernetes.io/config.mirror': 'hash'}", "", NULL);
    check_said("", "", "", NULL);
    check_said(c, ", 'labels': {'threadtide.io/inject': 'true'}", "", "a: agent");
}

static void annotations_that_are_full_stay_as_they_are(void **state)
{
    json_t *pod = pod_of("{'name': 'a'}", ", 'annotations': {}", "");
    json_t *notes = json_object_get(json_object_get(pod, "metadata"), "annotations");
    char *large = malloc(INJECT_NOTES_MAX);

    (void)state;
    memset(large, 'x', INJECT_NOTES_MAX);
    json_object_set_new(notes, "k", json_stringn(large, INJECT_NOTES_MAX - 100));
    assert_null(patched(pod, true));
    json_object_set_new(notes, "k", json_stringn(large, INJECT_NOTES_MAX - 4000));
    assert_non_null(patched(pod, true));
    free(large);
    json_decref(pod);
}

static void other_containers_and_init_containers_stay(void **state)
{
    json_t *pod =
        pod_of("{'name': 'a'}", "",
               ", 'initContainers': [{'name': 'i'}], 'ephemeralContainers': [{'name': 'e'}]");
    json_t *spec = json_object_get(pod, "spec"), *before = json_deep_copy(spec);

    (void)state;
    assert_non_null(patched(pod, true));
    for (size_t i = 0; i < 2; i++) {
        const char *name = i ? "ephemeralContainers" : "initContainers";

        assert_true(json_equal(json_object_get(spec, name), json_object_get(before, name)));
    }
    json_decref(before);
    json_decref(pod);
}

static void a_long_preload_is_left_alone_and_much_that_is_said_is_cut(void **state)
{
    json_t *pod = pod_of("{'name': 'a', 'env': [{'name': 'LD_PRELOAD'}]}", "", "");
    json_t *env = json_object_get((json_t *)container_of(pod, 0), "env");
    json_t *containers = json_object_get(json_object_get(pod, "spec"), "containers");
    char *large = malloc(128 << 10);

    (void)state;
    memset(large, 'x', 128 << 10);
    json_object_set_new(json_array_get(env, 0), "value", json_stringn(large, (127 << 10) - 60));
    for (int i = 0; i < 1000; i++)
        json_array_append_new(containers, json_pack("{s:s}", "name", "one-of-many"));
    assert_non_null(patched(pod, true));
    assert_int_equal(mounts(pod, 0), 0);
    assert_int_equal(mounts(pod, 1000), 1);
    assert_true(strlen(said(pod)) == INJECT_SAID_MAX - 1);
    assert_non_null(strstr(said(pod), "a: no, its LD_PRELOAD is too long; one-of-many: agent; "));
    free(large);
    json_decref(pod);
}

/* ---- questions and answers ---- */

#define REQUEST(members)                                                                           \
    "{'apiVersion': 'admission.k8s.io/v1', 'kind': 'AdmissionReview', 'request': {'uid': 'u-1', "  \
    "'kind': {'group': '', 'version': 'v1', 'kind': 'Pod'}, 'operation': 'CREATE', " members "}}"
#define OBJECT "'object': {'metadata': {}, 'spec': {'containers': [{'name': 'a'}]}}"

static int read_review(const char *text, struct review *ret)
{
    json_t *value = parse(text);
    char *plain = json_dumps(value, 0);
    struct error err;
    int r = review_read(plain, strlen(plain), ret, &err);

    free(plain);
    json_decref(value);
    return r;
}

static void a_question_about_a_new_pod_is_read(void **state)
{
    struct review r;

    (void)state;
    assert_int_equal(read_review(REQUEST("'namespace': 'team-a', 'dryRun': true, " OBJECT), &r), 0);
    assert_string_equal(r.uid, "u-1");
    assert_string_equal(r.name_space, "team-a");
    assert_true(r.dry_run);
    assert_non_null(r.pod);
    review_done(&r);
}

static void other_questions_are_answered_without_a_pod(void **state)
{
    static const char *const texts[] = {
        REQUEST("'namespace': 'n'"),
        REQUEST("'namespace': 'n', 'object': []"),
        REQUEST("'namespace': '../x', " OBJECT),
        REQUEST("'namespace': '', " OBJECT),
        REQUEST(OBJECT),
        REQUEST("'namespace': 'n', 'subResource': 'resize', " OBJECT),
        "{'apiVersion': 'admission.k8s.io/v1', 'kind': 'AdmissionReview', 'request': {'uid': "
        "'u-1', "
        "'kind': {'group': 'apps', 'version': 'v1', 'kind': 'Deployment'}, 'operation': 'CREATE', "
        "'namespace': 'n', " OBJECT "}}",
        "{'apiVersion': 'admission.k8s.io/v1', 'kind': 'AdmissionReview', 'request': {'uid': "
        "'u-1', "
        "'kind': {'group': '', 'version': 'v1', 'kind': 'Pod'}, 'operation': 'UPDATE', "
        "'namespace': 'n', " OBJECT "}}",
    };
    struct review r;

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        assert_int_equal(read_review(texts[i], &r), 0);
        assert_null(r.pod);
        review_done(&r);
    }
}

static void what_is_no_question_is_refused(void **state)
{
    static const char *const texts[] = {
        "",
        "{",
        "[]",
        "null",
        "{}",
        "{\"apiVersion\":\"admission.k8s.io/v1\"}",
        "{\"apiVersion\":\"admission.k8s.io/v1\",\"kind\":\"AdmissionReview\"}",
        "{\"apiVersion\":\"admission.k8s.io/"
        "v1beta1\",\"kind\":\"AdmissionReview\",\"request\":{\"uid\":\"u\"}}",
        "{\"apiVersion\":\"admission.k8s.io/"
        "v1\",\"kind\":\"AdmissionReview\",\"request\":{\"uid\":7}}",
    };
    size_t large = 10 << 20;
    char *text = malloc(large);
    struct error err = {0};
    struct review r;

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        assert_int_equal(review_read(texts[i], strlen(texts[i]), &r, &err), -EBADMSG);
        assert_true(*err.text);
    }
    memset(text, '[', large); /* 10 MB, and as deep */
    assert_int_equal(review_read(text, large, &r, &err), -EBADMSG);
    free(text);
}

/* A pod that fills the store would not fit in with more. */
static void a_pod_that_is_huge_is_left_alone(void **state)
{
    char *text = malloc(REVIEW_POD_MAX + 4096), *end = text;
    struct error err;
    struct review r;

    (void)state;
    end += sprintf(
        end, "{\"apiVersion\":\"admission.k8s.io/v1\",\"kind\":\"AdmissionReview\",\"request\":{"
             "\"uid\":\"u\",\"kind\":{\"group\":\"\",\"version\":\"v1\",\"kind\":\"Pod\"},"
             "\"operation\":\"CREATE\",\"namespace\":\"n\",\"object\":{\"a\":\"");
    memset(end, 'x', REVIEW_POD_MAX);
    strcpy(end + REVIEW_POD_MAX, "\"}}}");
    assert_int_equal(review_read(text, strlen(text), &r, &err), 0);
    assert_null(r.pod);
    review_done(&r);
    free(text);
}

static void the_answer_allows_and_holds_the_patch(void **state)
{
    struct review r;
    json_t *answer, *response;
    char *text;

    (void)state;
    assert_int_equal(read_review(REQUEST("'namespace': 'n', " OBJECT), &r), 0);
    for (int with = 0; with < 2; with++) {
        text = review_answer(&r, with ? inject_patch(r.pod, true, NULL) : NULL);
        answer = json_loads(text, 0, NULL);
        response = json_object_get(answer, "response");
        assert_string_equal(json_string_value(json_object_get(response, "uid")), "u-1");
        assert_true(json_is_true(json_object_get(response, "allowed")));
        assert_int_equal(json_object_size(response), with ? 4 : 2);
        if (with)
            assert_non_null(json_string_value(json_object_get(response, "patch")));
        json_decref(answer);
        free(text);
    }
    review_done(&r);
}

/* ---- the agent's files ---- */

static void put_file(const char *dir, const char *name, size_t size)
{
    char path[600], *slash;
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    for (slash = path + strlen(dir); (slash = strchr(slash + 1, '/'));) {
        *slash = '\0';
        mkdir(path, 0755);
        *slash = '/';
    }
    f = fopen(path, "w");
    assert_non_null(f);
    for (size_t i = 0; i < size; i++)
        fputc('x', f);
    fclose(f);
}

static void the_agent_becomes_a_configmap_if_it_fits(void **state)
{
    char dir[] = "/tmp/tide-inject-XXXXXX", command[64];
    struct error err = {0};
    json_t *map = NULL, *data;

    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(agent_files_read(dir, "n", &map, &err), -ENOENT);
    put_file(dir, agent_files[0].path, 6);
    assert_int_equal(agent_files_read(dir, "n", &map, &err), 0);
    data = json_object_get(map, "binaryData");
    assert_string_equal(json_string_value(json_object_get(data, AGENT_KEY)), "eHh4eHh4");
    assert_int_equal(json_object_size(data), 1);
    json_decref(map);
    put_file(dir, agent_files[0].path, AGENT_FILES_MAX + 1);
    assert_int_equal(agent_files_read(dir, "n", &map, &err), -EFBIG);
    assert_non_null(strstr(err.text, "strip"));
    snprintf(command, sizeof(command), "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bare_pod_gets_volume_mount_and_preload),
        cmocka_unit_test(what_is_there_stays_and_ours_comes_behind),
        cmocka_unit_test(an_empty_preload_is_replaced),
        cmocka_unit_test(the_cpu_limit_sizes_and_the_users_value_wins),
        cmocka_unit_test(sizes_are_left_out_on_wish_and_come_from_the_pods_limit),
        cmocka_unit_test(containers_where_it_could_hurt_are_left_alone),
        cmocka_unit_test(pods_where_it_could_hurt_only_say_so),
        cmocka_unit_test(pods_that_do_not_want_it_are_not_even_told),
        cmocka_unit_test(annotations_that_are_full_stay_as_they_are),
        cmocka_unit_test(other_containers_and_init_containers_stay),
        cmocka_unit_test(a_long_preload_is_left_alone_and_much_that_is_said_is_cut),
        cmocka_unit_test(a_question_about_a_new_pod_is_read),
        cmocka_unit_test(other_questions_are_answered_without_a_pod),
        cmocka_unit_test(what_is_no_question_is_refused),
        cmocka_unit_test(a_pod_that_is_huge_is_left_alone),
        cmocka_unit_test(the_answer_allows_and_holds_the_patch),
        cmocka_unit_test(the_agent_becomes_a_configmap_if_it_fits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

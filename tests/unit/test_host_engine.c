/* SPDX-License-Identifier: Apache-2.0 */
/* Recorded answers of real engines, and the requests to them; no engine runs. */
#include "host/engine/engine_dialect.h"
#include "host/engine/engine_text.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LEN(a) (sizeof(a) / sizeof((a)[0]))
#define ID     "9aa12ff456422f192812320324e08558cf22fcb2b554eaa0fe10abfc2f0e0230"

/* Docker Engine 20.10, API 1.41 */
static const char docker_list[] =
    "[{\"Id\":\"" ID "\",\"Names\":[\"/web\"],\"Image\":\"tide-skel:1\",\"ImageID\":\"sha256:108af2"
    "03799f7397e9d6054e7f46f58772c19cfc48ea45ad7c0e0e1897f2e621\",\"Command\":\"/usr/bin/python3\","
    "\"Created\":1795300137,\"Ports\":[],\"Labels\":{\"io.threadtide.min\":\"1\",\"x\":\"y\"},"
    "\"State\":\"running\",\"Status\":\"Up Less than a second\",\"HostConfig\":{\"NetworkMode\":"
    "\"host\"},\"NetworkSettings\":{\"Networks\":{\"host\":{\"IPAMConfig\":null,\"Links\":null}}},"
    "\"Mounts\":[{\"Type\":\"bind\",\"Source\":\"/usr\",\"RW\":false}]}]\n";
static const char docker_inspect[] =
    "{\"Id\":\"" ID "\",\"Created\":\"2026-11-21T22:28:57.395733013Z\",\"State\":{\"Status\":"
    "\"running\",\"Running\":true,\"Paused\":false,\"Restarting\":false,\"OOMKilled\":false,"
    "\"Dead\":false,\"Pid\":5004,\"ExitCode\":0,\"Error\":\"\",\"StartedAt\":\"2026-11-21T22:28:57"
    ".633167352Z\",\"FinishedAt\":\"0001-01-01T00:00:00Z\"},\"Image\":\"sha256:108af203799f7397\","
    "\"Name\":\"/web\",\"ExecIDs\":null,\"HostConfig\":{\"CpuShares\":512,\"Memory\":1073741824,"
    "\"NanoCpus\":500000000,\"CgroupParent\":\"\",\"CpuPeriod\":0,\"CpuQuota\":-1,\"CpusetCpus\":"
    "\"0-1\",\"MemorySwappiness\":null},\"Config\":{\"Tty\":false,\"Env\":null,\"Image\":"
    "\"tide-skel:1\",\"Labels\":{\"io.threadtide.min\":\"1\",\"x\":\"y\"}}}\n";
static const char docker_event[] =
    "{\"status\":\"die\",\"id\":\"" ID "\",\"from\":\"tide-skel:1\",\"Type\":\"container\","
    "\"Action\":\"die\",\"Actor\":{\"ID\":\"" ID "\",\"Attributes\":{\"exitCode\":\"137\","
    "\"image\":\"tide-skel:1\",\"io.threadtide.min\":\"1\",\"name\":\"web\"}},\"scope\":\"local\","
    "\"time\":1795300137,\"timeNano\":1795300137419920746}";

/* podman 4.3.1, libpod API */
static const char podman_list[] =
    "[{\"AutoRemove\":false,\"Command\":[\"/usr/bin/python3\"],\"Created\":\"2026-11-21T22:31:05"
    ".998985293Z\",\"Exited\":true,\"ExitedAt\":1795300269,\"ExitCode\":137,\"Id\":\"" ID "\","
    "\"Image\":\"localhost/tide-skel:1\",\"IsInfra\":false,\"Labels\":null,\"Names\":[\"web\"],"
    "\"Namespaces\":{},\"Pid\":9587,\"StartedAt\":1795300269,\"State\":\"stopped\"},{\"Id\":\"b\","
    "\"Names\":[],\"Pid\":0,\"StartedAt\":-62135596800,\"State\":\"configured\"}]";
static const char podman_event[] =
    "{\"status\":\"died\",\"id\":\"" ID "\",\"from\":\"localhost/tide-skel:1\",\"Type\":"
    "\"container\",\"Action\":\"died\",\"Actor\":{\"ID\":\"" ID "\",\"Attributes\":{"
    "\"containerExitCode\":\"3\",\"name\":\"web\",\"podId\":\"\"}},\"scope\":\"local\",\"time\":"
    "1795300268,\"timeNano\":1795300268689720923}";

/* ---- answers ---- */

static void a_list_of_docker_is_read(void **state)
{
    struct engine_containers found;
    const struct engine_container *c;

    assert_int_equal(engine_parse_list(docker_list, strlen(docker_list), &found, NULL), 0);
    assert_int_equal(found.n, 1);
    c = &found.list[0];
    assert_string_equal(c->id, ID);
    assert_string_equal(c->name, "web");
    assert_string_equal(c->image, "tide-skel:1");
    assert_int_equal(c->state, ENGINE_RUNNING);
    assert_int_equal(c->n_labels, 2);
    assert_string_equal(engine_label(c, "io.threadtide.min"), "1");
    assert_null(engine_label(c, "io.threadtide.max"));
    assert_false(c->inspected);
    assert_int_equal(c->pid, 0);
    assert_string_equal(c->limits.cgroup_parent, "");
    engine_containers_done(&found);
}

static void a_list_of_podman_is_read(void **state)
{
    struct engine_containers found;

    assert_int_equal(engine_parse_list(podman_list, strlen(podman_list), &found, NULL), 0);
    assert_int_equal(found.n, 2);
    assert_string_equal(found.list[0].name, "web");
    assert_int_equal(found.list[0].state, ENGINE_EXITED);
    assert_int_equal(found.list[0].pid, 9587);
    assert_int_equal(found.list[0].exit_code, 137);
    assert_int_equal(found.list[0].started_ns, 1795300269 * INT64_C(1000000000));
    assert_int_equal(found.list[0].n_labels, 0);
    assert_string_equal(found.list[1].name, "");
    assert_int_equal(found.list[1].state, ENGINE_CREATED);
    assert_int_equal(found.list[1].started_ns, 0);
    engine_containers_done(&found);
    assert_int_equal(engine_parse_list("[]", 2, &found, NULL), 0);
    assert_int_equal(found.n, 0);
    engine_containers_done(&found);
}

static void an_inspected_container_has_its_limits(void **state)
{
    struct engine_containers found;
    const struct engine_container *c;

    assert_int_equal(engine_parse_inspect(docker_inspect, strlen(docker_inspect), &found, NULL), 0);
    c = &found.list[0];
    assert_true(c->inspected);
    assert_string_equal(c->name, "web");
    assert_string_equal(c->image, "tide-skel:1");
    assert_int_equal(c->pid, 5004);
    assert_int_equal(c->started_ns, INT64_C(1795300137633167352));
    assert_int_equal(c->limits.shares, 512);
    assert_int_equal(c->limits.memory_bytes, 1 << 30);
    assert_int_equal(c->limits.quota.nano_cpus, 500000000);
    assert_int_equal(c->limits.quota.quota_us, -1);
    assert_int_equal(cpuset_count(&c->limits.cpus), 2);
    assert_string_equal(engine_label(c, "x"), "y");
    engine_containers_done(&found);
}

/* docker_inspect with one word exchanged for another. */
static int inspect_with(const char *word, const char *other, struct engine_containers *ret,
                        struct error *err)
{
    const char *at = strstr(docker_inspect, word);
    char text[4096];

    assert_non_null(at);
    snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - docker_inspect), docker_inspect, other,
             at + strlen(word));
    return engine_parse_inspect(text, strlen(text), ret, err);
}

static void times_are_read_to_the_nanosecond(void **state)
{
    static const struct {
        const char *text;
        int64_t ns;
    } times[] = {
        {"1970-01-01T00:00:01Z", INT64_C(1000000000)},
        {"1970-01-01T01:00:01.5+01:00", INT64_C(1500000000)},
        {"1969-12-31T23:30:02-00:30", INT64_C(2000000000)},
        {"1970-01-01T00:00:01.0000000019Z", INT64_C(1000000001)},
        {"0001-01-01T00:00:00Z", 0},
        {"9999-12-31T23:59:59Z", 0}, /* beyond 64 bits */
    };
    static const char *const bad[] = {"now",
                                      "2026-11-21",
                                      "2026-11-21T22:28:57",
                                      "1",
                                      "2026-11-21T22:28:57+1",
                                      "2026-11-21T22:28:57Zx",
                                      "2026-11-21T22:28:57+99:00"};
    struct engine_containers found;

    for (size_t i = 0; i < LEN(times); i++) {
        assert_int_equal(
            inspect_with("2026-11-21T22:28:57.633167352Z", times[i].text, &found, NULL), 0);
        assert_int_equal(found.list[0].started_ns, times[i].ns);
        engine_containers_done(&found);
    }
    for (size_t i = 0; i < LEN(bad); i++)
        assert_int_equal(inspect_with("2026-11-21T22:28:57.633167352Z", bad[i], &found, NULL),
                         -EBADMSG);
}

static void what_cannot_be_is_refused_with_its_place(void **state)
{
    static const struct {
        const char *word, *other, *place;
    } cases[] = {
        {"5004", "4194305", "Pid"},
        {"5004", "1.5", "Pid"},
        {"\"" ID "\"", "\"../../x\"", "Id"},
        {"\"" ID "\"", "\"\"", "Id"},
        {"\"" ID "\"", "7", "Id"},
        {"\"running\"", "\"odd\"", "odd"},
        {"\"0-1\"", "\"1-0\"", "CpusetCpus"},
        {"\"0-1\"", "\"0-4096\"", "CpusetCpus"},
        {"\"CpuShares\":512", "\"CpuShares\":-1", "CpuShares"},
        {"\"CpuQuota\":-1", "\"CpuQuota\":-2", "CpuQuota"},
        {"500000000", "99999999999999999999", "JSON"},
        {"\"x\":\"y\"", "\"x\":[]", "label"},
        {"\"x\":\"y\"", "\"io.threadtide.min\":\"2\"", "JSON"}, /* twice */
        {"\"HostConfig\"", "\"Other\"", "HostConfig"},
    };
    struct engine_containers found = {.n = 77};

    for (size_t i = 0; i < LEN(cases); i++) {
        struct error err = {0};

        assert_int_equal(inspect_with(cases[i].word, cases[i].other, &found, &err), -EBADMSG);
        assert_int_equal(err.code, -EBADMSG);
        assert_non_null(strstr(err.text, cases[i].place));
        assert_int_equal(found.n, 77);
    }
}

static int list_of(size_t n, struct engine_containers *ret)
{
    char *text = malloc(n * 64 + 8);
    size_t len = 0;
    int r;

    for (size_t i = 0; i < n; i++)
        len += (size_t)sprintf(text + len, "%c{\"Id\":\"c%zu\",\"State\":\"running\"}",
                               i ? ',' : '[', i);
    strcpy(text + len, "]");
    r = engine_parse_list(text, len + 1, ret, NULL);
    free(text);
    return r;
}

static void a_list_has_a_limit(void **state)
{
    struct engine_containers found;

    assert_int_equal(list_of(ENGINE_CONTAINERS_MAX + 1, &found), -EMSGSIZE);
    assert_int_equal(list_of(ENGINE_CONTAINERS_MAX, &found), 0);
    assert_int_equal(found.n, ENGINE_CONTAINERS_MAX);
    engine_containers_done(&found);
}

static void failures_have_the_engines_words(void **state)
{
    char message[ERROR_TEXT_MAX], cause[16];
    static const char failed[] = "{\"cause\":\"container state improper\",\"message\":\"\\\"web\\\""
                                 " is\\nalready paused\",\"response\":500}";

    engine_parse_failure(failed, strlen(failed), message, cause, sizeof(cause));
    assert_string_equal(message, "\"web\" is already paused");
    assert_string_equal(cause, "container state");
    engine_parse_failure("\0\x1bgone\xff \n", 9, message, NULL, 0);
    assert_string_equal(message, "  gone?");
    engine_parse_failure("", 0, message, cause, sizeof(cause));
    assert_string_equal(message, "no reason given");
    assert_string_equal(cause, "");
}

/* ---- the greeting ---- */

static void the_greeting_says_who_it_is(void **state)
{
    struct engine_greeting greeting;
    struct error err = {0};

    assert_int_equal(
        engine_parse_greeting("HTTP/1.1 200 OK\r\napi-version:  1.43\r\n\r\n", &greeting, NULL), 0);
    assert_int_equal(greeting.kind, ENGINE_DOCKER);
    assert_string_equal(greeting.prefix, "/v1.43");
    assert_int_equal(
        engine_parse_greeting("HTTP/1.1 200 OK\r\nApi-Version: 1.99\r\n\r\n", &greeting, NULL), 0);
    assert_int_equal(greeting.api, ENGINE_API_NEWEST);
    assert_int_equal(engine_parse_greeting("HTTP/1.1 200 OK\r\nApi-Version: 1.41\r\nLibpod-Api-"
                                           "Version: 4.3.1\r\n\r\n",
                                           &greeting, NULL),
                     0);
    assert_int_equal(greeting.kind, ENGINE_PODMAN);
    assert_string_equal(greeting.version, "podman 4.3.1");
    assert_string_equal(greeting.prefix, "/v4.0.0/libpod");
    assert_int_equal(
        engine_parse_greeting("HTTP/1.1 200 OK\r\nApi-Version: 1.40\r\n\r\n", &greeting, &err),
        -EOPNOTSUPP);
    assert_non_null(strstr(err.text, "1.40"));
    assert_non_null(strstr(err.text, "20.10"));
    assert_int_equal(
        engine_parse_greeting("HTTP/1.1 200 OK\r\nX-Api-Version: 1.41\r\n\r\n", &greeting, &err),
        -EPROTO);
}

/* ---- events ---- */

static void both_engines_events_are_the_same(void **state)
{
    struct engine_event_text event;

    assert_int_equal(engine_parse_event(docker_event, strlen(docker_event), &event, NULL), 1);
    assert_string_equal(event.event.id, ID);
    assert_string_equal(event.event.name, "web");
    assert_int_equal(event.event.action, ENGINE_DIE);
    assert_int_equal(event.event.exit_code, 137);
    assert_int_equal(event.event.time_ns, UINT64_C(1795300137419920746));
    engine_event_done(&event);
    assert_int_equal(engine_parse_event(podman_event, strlen(podman_event), &event, NULL), 1);
    assert_int_equal(event.event.action, ENGINE_DIE);
    assert_int_equal(event.event.exit_code, 3);
    engine_event_done(&event);
}

static void other_events_are_passed_over(void **state)
{
    static const char *const others[] = {
        "{\"Type\":\"container\",\"Action\":\"exec_create: /bin/sh\",\"Actor\":{\"ID\":\"x\"}}",
        "{\"Type\":\"network\",\"Action\":\"create\"}",
        "{}",
    };
    static const char *const bad[] = {"",
                                      "[]",
                                      "{\"Type\":1}",
                                      "{\"Type\":\"container\"",
                                      "null",
                                      "{\"Type\":\"container\",\"Action\":\"die\"}"};
    struct engine_event_text event;

    for (size_t i = 0; i < LEN(others); i++)
        assert_int_equal(engine_parse_event(others[i], strlen(others[i]), &event, NULL), 0);
    for (size_t i = 0; i < LEN(bad); i++)
        assert_int_equal(engine_parse_event(bad[i], strlen(bad[i]), &event, NULL), -EBADMSG);
}

static void the_filter_names_every_action(void **state)
{
    json_t *filter = json_loads(engine_event_filter, 0, NULL);
    json_t *names = json_object_get(filter, "event"), *name;
    size_t i;

    assert_non_null(filter);
    for (unsigned action = 0; action < ENGINE_ACTION_MAX; action++) {
        bool found = false;

        json_array_foreach (names, i, name)
            found |= strcmp(json_string_value(name), engine_action_name(action)) == 0;
        assert_true(found);
    }
    json_decref(filter);
}

/* ---- quotas and requests to engines ---- */

static void a_quota_in_thousandths(void **state)
{
    static const struct {
        struct engine_quota quota;
        uint32_t mcpu;
    } cases[] = {
        {{0, 0, 0}, 0},
        {{0, -1, 100000}, 0},
        {{500000000, -1, 0}, 500},
        {{0, 50000, 100000}, 500},
        {{0, 50000, 0}, 500},
        {{0, 25000, 50000}, 500},
        {{1, 0, 0}, 1},
        {{0, 1, 1000000}, 1},
        {{0, INT64_MAX, 1}, UINT32_MAX},
        {{UINT64_MAX, 0, 0}, UINT32_MAX},
    };

    for (size_t i = 0; i < LEN(cases); i++)
        assert_int_equal(engine_quota_mcpu(&cases[i].quota), cases[i].mcpu);
}

static void assert_quota(struct engine_quota now, uint32_t mcpu, uint64_t nano, int64_t quota_us,
                         uint64_t period_us)
{
    struct engine_quota made = engine_quota_make(&now, mcpu, 4);

    assert_int_equal(made.nano_cpus, nano);
    assert_int_equal(made.quota_us, quota_us);
    assert_int_equal(made.period_us, period_us);
}

static void a_new_quota_is_of_the_old_kind(void **state)
{
    assert_quota((struct engine_quota){0, 0, 0}, 1500, 0, 150000, 100000);
    assert_quota((struct engine_quota){0, 10000, 50000}, 1500, 0, 75000, 50000);
    assert_quota((struct engine_quota){0, 10000, UINT64_MAX}, 1500, 0, 150000, 100000);
    assert_quota((struct engine_quota){0, 10000, 50000}, 0, 0, -1, 0);
    assert_quota((struct engine_quota){500000000, -1, 0}, 1500, 1500000000, 0, 0);
    assert_quota((struct engine_quota){500000000, -1, 0}, 0, 4000000000, 0, 0);
    assert_quota((struct engine_quota){0, 0, 0}, 1, 0, 1000, 100000); /* the kernel's least */
}

static void assert_body(json_t *body, const char *expected)
{
    char *text = json_dumps(body, JSON_COMPACT | JSON_SORT_KEYS);

    assert_string_equal(text, expected);
    free(text);
    json_decref(body);
}

static void an_update_says_what_is_to_change_and_no_more(void **state)
{
    struct engine_quota quota = {0, 50000, 100000}, none = {0, 0, 0}, nano = {250000000, 0, 0};
    struct engine_update u = {.shares = 512};
    struct cpuset cpus;

    cpuset_parse("0,2-3", &cpus);
    assert_body(engine_docker.update(&u), "{\"CpuShares\":512}");
    assert_body(engine_podman.update(&u), "{\"cpu\":{\"shares\":512}}");
    u = (struct engine_update){.cpus = &cpus, .quota = &quota};
    assert_body(engine_docker.update(&u),
                "{\"CpuPeriod\":100000,\"CpuQuota\":50000,\"CpusetCpus\":\"0,2-3\"}");
    assert_body(engine_podman.update(&u),
                "{\"cpu\":{\"cpus\":\"0,2-3\",\"period\":100000,\"quota\":50000}}");
    u = (struct engine_update){.quota = &none}; /* as it was, when none was ever given */
    assert_body(engine_docker.update(&u), "{\"CpuQuota\":-1}");
    assert_body(engine_podman.update(&u), "{\"cpu\":{\"period\":100000,\"quota\":-1}}");
    u = (struct engine_update){.quota = &nano};
    assert_body(engine_docker.update(&u), "{\"NanoCpus\":250000000}");
    assert_body(engine_podman.update(&u), "{\"cpu\":{\"period\":100000,\"quota\":25000}}");
}

static void a_refused_quota_is_said_otherwise_once(void **state)
{
    static const char conflict[] = "Cannot update container x: Conflicting options: CPU Quota "
                                   "cannot be updated as NanoCPUs has already been set";
    struct engine_quota quota = {0, 30000, 50000}, nano = {250000000, 0, 0}, none = {0, -1, 0},
                        other;

    assert_true(engine_docker.other_quota(&quota, 409, conflict, &other));
    assert_int_equal(other.nano_cpus, 600000000);
    assert_true(engine_docker.other_quota(&nano, 409, conflict, &other));
    assert_int_equal(other.quota_us, 25000);
    assert_int_equal(other.nano_cpus, 0);
    assert_false(engine_docker.other_quota(&quota, 409, "is being removed", &other));
    assert_false(engine_docker.other_quota(&quota, 500, conflict, &other));
    assert_true(engine_podman.other_quota(&none, 500, "crun update failed", &other));
    assert_true(other.quota_us >= 100000);
    assert_false(engine_podman.other_quota(&quota, 500, "crun update failed", &other));
}

static void since_includes_the_last_event(void **state)
{
    char text[48];

    engine_docker.since(UINT64_C(1795300308000000002), text, sizeof(text));
    assert_string_equal(text, "1795300308.000000002");
    engine_podman.since(UINT64_C(1795300308022482322), text, sizeof(text));
    assert_string_equal(text, "2026-11-21T22:31:48.022482321Z");
    engine_podman.since(0, text, sizeof(text));
    assert_string_equal(text, "1970-01-01T00:00:00.000000000Z");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_of_docker_is_read),
        cmocka_unit_test(a_list_of_podman_is_read),
        cmocka_unit_test(an_inspected_container_has_its_limits),
        cmocka_unit_test(times_are_read_to_the_nanosecond),
        cmocka_unit_test(what_cannot_be_is_refused_with_its_place),
        cmocka_unit_test(a_list_has_a_limit),
        cmocka_unit_test(failures_have_the_engines_words),
        cmocka_unit_test(the_greeting_says_who_it_is),
        cmocka_unit_test(both_engines_events_are_the_same),
        cmocka_unit_test(other_events_are_passed_over),
        cmocka_unit_test(the_filter_names_every_action),
        cmocka_unit_test(a_quota_in_thousandths),
        cmocka_unit_test(a_new_quota_is_of_the_old_kind),
        cmocka_unit_test(an_update_says_what_is_to_change_and_no_more),
        cmocka_unit_test(a_refused_quota_is_said_otherwise_once),
        cmocka_unit_test(since_includes_the_last_event),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

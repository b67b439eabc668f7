/* SPDX-License-Identifier: Apache-2.0 */
/* tide-runc: command lines of engines, and the edit of real and of hostile bundles. */
#include "base/cleanup.h"
#include "base/wholefile.h"
#include "runc/arguments.h"
#include "runc/spec.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#define AGENT   "/usr/lib/threadtide"
#define CONTROL "/run/tide/containers/0a1b"

#define MOUNTS                                                                                     \
    "{\"destination\":\"/opt/threadtide\",\"type\":\"bind\",\"source\":\"" AGENT                   \
    "\",\"options\":[\"bind\",\"ro\",\"nosuid\",\"nodev\",\"rprivate\"]},"                         \
    "{\"destination\":\"/run/threadtide\",\"type\":\"bind\",\"source\":\"" CONTROL                 \
    "\",\"options\":[\"bind\",\"ro\",\"nosuid\",\"nodev\",\"noexec\",\"rprivate\"]}"
#define SOCKET  "\"TIDE_SOCKET=/run/threadtide/agent.sock\""
#define LIBRARY "/opt/threadtide/$LIB/libtide-agent.so"
#define PRELOAD "\"LD_PRELOAD=" LIBRARY "\""
#define WAITING "\"OMP_WAIT_POLICY=passive\",\"GOMP_SPINCOUNT=1000\",\"OPENBLAS_THREAD_TIMEOUT=15\""
#define UNSIZED WAITING ",\"TIDE_STARTUP=0:0:1c\""
#define CORES   8

/* ---- command lines ---- */

#define READ(...) arguments_read((char *[]){"tide-runc", __VA_ARGS__, NULL})

static void engines_command_lines_are_understood(void **state)
{
    /* Docker's shim, conmon with crun, by hand. */
    struct arguments docker =
        READ("--root", "/run/docker/runtime-tide/moby", "--log", "/b/log.json", "--log-format",
             "json", "--systemd-cgroup", "create", "--bundle", "/b", "--pid-file", "/b/init.pid",
             "--console-socket", "/tmp/pty", "0a1b");
    struct arguments podman = READ("--log-format=json", "--log=/u/oci-log", "create", "--bundle",
                                   "/u", "--no-pivot", "--pid-file", "/u/pidfile", "0a1b");
    struct arguments hand = READ("run", "-b", "/b", "-d", "mine");
    struct arguments here = READ("run", "mine");
    struct arguments exec =
        READ("--log", "/l", "exec", "--process", "/tmp/p", "--detach", "--pid-file", "/p", "0a1b");

    assert_int_equal(docker.verb, ARGUMENTS_CREATE);
    assert_string_equal(docker.bundle, "/b");
    assert_string_equal(docker.id, "0a1b");
    assert_string_equal(docker.log, "/b/log.json");
    assert_true(docker.log_json);
    assert_int_equal(podman.verb, ARGUMENTS_CREATE);
    assert_string_equal(podman.bundle, "/u");
    assert_string_equal(podman.id, "0a1b");
    assert_string_equal(podman.log, "/u/oci-log");
    assert_true(podman.log_json);
    assert_int_equal(hand.verb, ARGUMENTS_CREATE);
    assert_string_equal(hand.bundle, "/b");
    assert_string_equal(hand.id, "mine");
    assert_string_equal(here.bundle, ".");
    assert_int_equal(exec.verb, ARGUMENTS_EXEC);
    assert_string_equal(exec.process, "/tmp/p");
    assert_string_equal(exec.id, "0a1b");
    assert_false(exec.log_json);
}

static void other_command_lines_are_passed_on(void **state)
{
    assert_int_equal(READ("delete", "--force", "0a1b").verb, ARGUMENTS_OTHER);
    assert_int_equal(READ("--version").verb, ARGUMENTS_OTHER);
    assert_int_equal(READ("--root", "create").verb, ARGUMENTS_OTHER);
    assert_int_equal(READ("--root").verb, ARGUMENTS_OTHER);
    assert_int_equal(READ("create").verb, ARGUMENTS_OTHER);
    assert_int_equal(READ("create", "--bundle").verb, ARGUMENTS_OTHER);
    assert_int_equal(READ("--future", "value", "create", "0a1b").verb, ARGUMENTS_OTHER);
    assert_int_equal(READ("exec", "0a1b", "sh", "--process", "x").verb, ARGUMENTS_OTHER);
    assert_int_equal(arguments_read((char *[]){"tide-runc", NULL}).verb, ARGUMENTS_OTHER);
    assert_int_equal(arguments_read((char *[]){NULL}).verb, ARGUMENTS_OTHER);
}

/* ---- bundles ---- */

static struct jsontext make(const char *text)
{
    struct jsontext json = {strdup(text), strlen(text)};

    assert_non_null(json.text);
    return json;
}

static struct jsontext sample(const char *name)
{
    char path[512];
    struct jsontext json = {0};
    struct stat st;

    snprintf(path, sizeof(path), CORPUS "/%s", name);
    assert_int_equal(wholefile_read(path, 1 << 20, &json.text, &json.len, &st), 0);
    return json;
}

static int edit(struct jsontext *json)
{
    struct error err = {0};
    struct startup size;
    int r = spec_edit_config(json, AGENT, CONTROL, CORES, &size, &err);

    assert_true(r >= 0 || (err.code == r && *err.text));
    return r;
}

/* Takes @addition, which is there once, out of the text. */
static void take_out(struct jsontext *json, const char *addition)
{
    char *found = strstr(json->text, addition);

    assert_non_null(found);
    memmove(found, found + strlen(addition), strlen(found + strlen(addition)) + 1);
    assert_null(strstr(json->text, addition));
}

static void real_bundle_gets_mounts_and_environment_and_keeps_every_byte(void **state)
{
    static const char *const names[] = {"docker", "podman"};

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        _cleanup_jsontext_ struct jsontext json = sample(names[i]);
        _cleanup_free_ char *before = strdup(json.text);

        assert_int_equal(edit(&json), 1);
        assert_int_equal(strlen(json.text), json.len);
        take_out(&json, "," MOUNTS);
        take_out(&json, "," SOCKET "," PRELOAD "," UNSIZED);
        assert_string_equal(json.text, before);
        /* A JSON library would have changed this number. */
        assert_non_null(strstr(json.text, "\"hard\":18446744073709551615"));
    }
}

static void second_edit_changes_nothing(void **state)
{
    static const char *const names[] = {"docker", "podman", "bare", "nulls", "spaced", "escaped"};

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        _cleanup_jsontext_ struct jsontext json = sample(names[i]);
        _cleanup_free_ char *once = NULL;

        assert_int_equal(edit(&json), 1);
        once = strdup(json.text);
        assert_int_equal(edit(&json), 0);
        assert_string_equal(json.text, once);
    }
}

static void assert_edited(const char *before, const char *after)
{
    _cleanup_jsontext_ struct jsontext json = make(before);

    assert_int_equal(edit(&json), 1);
    assert_string_equal(json.text, after);
}

static void missing_members_are_made(void **state)
{
    assert_edited("{\"process\":{\"args\":null}}",
                  "{\"process\":{\"args\":null,\"env\":[" SOCKET "," PRELOAD "," UNSIZED "]},"
                  "\"mounts\":[" MOUNTS "]}");
    assert_edited("{\"mounts\":null,\"process\":{\"env\":null}}",
                  "{\"mounts\":[" MOUNTS "],\"process\":{\"env\":[" SOCKET "," PRELOAD "," UNSIZED
                  "]}}");
}

static void agent_comes_behind_what_is_preloaded(void **state)
{
    assert_edited(
        "{\"mounts\":[],\"process\":{\"env\":[\"LD_PRELOAD=a.so\",\"LD_PRELOAD=b\\u002eso\"]}}",
        "{\"mounts\":[" MOUNTS "],\"process\":{\"env\":[\"LD_PRELOAD=a.so\","
        "\"LD_PRELOAD=b\\u002eso:" LIBRARY "\"," SOCKET "," UNSIZED "]}}");
    assert_edited("{\"mounts\":[],\"process\":{\"env\":[\"LD_PRELOAD=\",\"TIDE_SOCKET=mine\"]}}",
                  "{\"mounts\":[" MOUNTS "],\"process\":{\"env\":[\"LD_PRELOAD=" LIBRARY
                  "\",\"TIDE_SOCKET=mine\"," UNSIZED "]}}");
}

static void list_that_would_be_too_long_for_a_program_stays_as_it_is(void **state)
{
    static char before[128 << 10], text[136 << 10], expected[136 << 10];

    memset(before, 'x', (127 << 10) - 32);
    snprintf(text, sizeof(text), "{\"mounts\":[],\"process\":{\"env\":[\"LD_PRELOAD=%s\"]}}",
             before);
    snprintf(expected, sizeof(expected),
             "{\"mounts\":[" MOUNTS "],\"process\":{\"env\":[\"LD_PRELOAD=%s\"," SOCKET "," UNSIZED
             "]}}",
             before);
    assert_edited(text, expected);
}

static void container_that_has_a_mount_of_ours_is_left_alone(void **state)
{
    static const char *const texts[] = {
        "{\"mounts\":[{\"destination\":\"/opt/threadtide\"}],\"process\":{}}",
        "{\"mounts\":[0,{\"destination\":\"\\/run\\/threadtide\"}],\"process\":{\"env\":[]}}",
    };

    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        _cleanup_jsontext_ struct jsontext json = make(texts[i]);

        assert_int_equal(edit(&json), 0);
        assert_string_equal(json.text, texts[i]);
    }
}

static void what_is_no_bundle_is_refused_and_untouched(void **state)
{
    static const struct {
        const char *text;
        int r;
    } cases[] = {
        {"", -EBADMSG},
        {"{\"process\":{},", -EBADMSG},
        {"[]", -EINVAL},
        {"{\"mounts\":[]}", -ENOENT},
        {"{\"process\":null,\"mounts\":[]}", -EINVAL},
        {"{\"process\":[],\"mounts\":[]}", -EINVAL},
        {"{\"process\":{},\"mounts\":{}}", -EINVAL},
        {"{\"process\":{\"env\":\"A=b\"}}", -EINVAL},
        {"{\"process\":{},\"mounts\":[],\"mounts\":[]}", -EEXIST},
        {"{\"process\":{},\"process\":{}}", -EEXIST},
        {"{\"process\":{\"env\":[],\"\\u0065nv\":[]}}", -EEXIST},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        _cleanup_jsontext_ struct jsontext json = make(cases[i].text);
        int r = edit(&json);

        if (r != cases[i].r)
            fail_msg("%s: %d", cases[i].text, r);
        assert_string_equal(json.text, cases[i].text);
        assert_int_equal(json.len, strlen(cases[i].text));
    }
}

static void directory_with_quotes_stays_a_string(void **state)
{
    static const char dir[] = "/a\"b\\c\nd";
    _cleanup_jsontext_ struct jsontext json = make("{\"mounts\":[],\"process\":{}}");
    struct startup size;
    struct error err;
    json_t *read;

    assert_int_equal(spec_edit_config(&json, dir, CONTROL, CORES, &size, &err), 1);
    read = json_loads(json.text, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(
                            json_array_get(json_object_get(read, "mounts"), 0), "source")),
                        dir);
    json_decref(read);
}

static void program_started_later_gets_the_environment(void **state)
{
    _cleanup_jsontext_ struct jsontext json = sample("process");
    struct startup size = {.size = 3};
    struct error err;

    assert_int_equal(spec_edit_process(&json, &size, &err), 1);
    assert_non_null(strstr(json.text, "[\"PATH=/bin\",\"LD_PRELOAD=" LIBRARY "\"," SOCKET
                                      ",\"OMP_NUM_THREADS=3\"," WAITING));
    assert_null(strstr(json.text, "destination"));
    assert_int_equal(spec_edit_process(&json, &size, &err), 0);
}

static void program_started_later_keeps_its_own_most(void **state)
{
    _cleanup_jsontext_ struct jsontext json = make("{\"env\":[\"PATH=/bin\",\"TIDE_MAX=2\"]}");
    struct startup size = {.size = 3, .most = 4};
    struct error err;

    assert_int_equal(spec_edit_process(&json, &size, &err), 1);
    assert_null(strstr(json.text, "TIDE_MAX=4"));
    assert_non_null(strstr(json.text, "OMP_NUM_THREADS=3"));
}

/* ---- sizes ---- */

/* Edits a bundle with the variables @env and the members @more; the caller frees the result. */
static json_t *sized(const char *env, const char *more, struct startup *ret)
{
    char text[1024];
    _cleanup_jsontext_ struct jsontext json = {0};
    struct error err;
    json_t *read;

    snprintf(text, sizeof(text), "{\"process\":{\"env\":[%s]},\"mounts\":[]%s}", env, more);
    json = make(text);
    assert_int_equal(spec_edit_config(&json, AGENT, CONTROL, CORES, ret, &err), 1);
    read = json_loads(json.text, JSON_DECODE_INT_AS_REAL, NULL);
    assert_non_null(read);
    return read;
}

/* The value that counts: the last one. */
static const char *variable(const json_t *bundle, const char *name)
{
    const json_t *one, *env = json_object_get(json_object_get(bundle, "process"), "env");
    const char *found = NULL;
    size_t i;

    json_array_foreach (env, i, one) {
        const char *text = json_string_value(one);

        if (strncmp(text, name, strlen(name)) == 0 && text[strlen(name)] == '=')
            found = text + strlen(name) + 1;
    }
    return found;
}

static void assert_size(const char *env, const char *more, const char *omp, const char *most)
{
    struct startup size;
    json_t *bundle = sized(env, more, &size);
    const char *seen[] = {variable(bundle, "OMP_NUM_THREADS"), variable(bundle, "TIDE_MAX")};
    const char *expected[] = {omp, most};

    for (size_t i = 0; i < ARRAY_LEN(seen); i++)
        if (!seen[i] != !expected[i] || (seen[i] && strcmp(seen[i], expected[i]) != 0))
            fail_msg("%s%s: %s", env, more, seen[i] ? seen[i] : "nothing");
    assert_int_equal(size.size, omp ? atoi(omp) : 0);
    json_decref(bundle);
}

#define ASKED(...)   ",\"annotations\":{" __VA_ARGS__ "}"
#define LIMITS(text) ",\"linux\":{\"resources\":{\"cpu\":{" text "}}}"

static void container_is_sized_by_what_it_asks_for_and_by_its_limit(void **state)
{
    assert_size("", "", NULL, NULL);
    assert_size("", ASKED("\"io.threadtide.max\":\"4\""), "4", "4");
    assert_size("", ASKED("\"io.threadtide.max\":\"4\",\"io.threadtide.request\":\"2\""), "2", "4");
    assert_size("", ASKED("\"io.threadtide.max\":\"64\""), NULL, "64");
    assert_size("", LIMITS("\"quota\":150000,\"period\":100000"), "2", NULL);
    assert_size("", LIMITS("\"quota\":150000"), "2", NULL);
    assert_size("", LIMITS("\"quota\":1000,\"period\":100000"), "1", NULL);
    assert_size("", LIMITS("\"quota\":-1,\"period\":100000"), NULL, NULL);
    assert_size("", LIMITS("\"quota\":800000"), NULL, NULL); /* all of the machine's */
    assert_size("", LIMITS("\"cpus\":\"0-1\""), NULL, NULL); /* runtimes count these */
    assert_size("", LIMITS("\"cpus\":\"0-1\",\"quota\":300000"), NULL, NULL);
    /* a limit bounds what is asked for, but no pool that the agent resizes */
    assert_size("", ASKED("\"io.threadtide.max\":\"6\"") LIMITS("\"quota\":300000"), "3", "6");
    assert_size("", ASKED("\"io.threadtide.min\":\"6\"") LIMITS("\"quota\":300000"), "3", NULL);
}

static void what_the_image_or_the_user_has_set_wins_in_a_container(void **state)
{
    static const char limit[] = LIMITS("\"quota\":300000");
    struct startup size;
    json_t *bundle = sized("\"OMP_NUM_THREADS=5\",\"OMP_WAIT_POLICY=active\","
                           "\"JDK_JAVA_OPTIONS=-Da=\\\"b\\\"\"",
                           limit, &size);

    assert_string_equal(variable(bundle, "OMP_NUM_THREADS"), "5");
    assert_string_equal(variable(bundle, "OMP_WAIT_POLICY"), "active");
    assert_null(variable(bundle, "GOMP_SPINCOUNT"));
    assert_string_equal(variable(bundle, "RAYON_NUM_THREADS"), "3");
    assert_string_equal(variable(bundle, "JDK_JAVA_OPTIONS"),
                        "-XX:ActiveProcessorCount=3 -Da=\"b\"");
    json_decref(bundle);
    bundle = sized("\"TIDE_SPIN=1\",\"TIDE_MAX=2\",\"OMP_NUM_THREADS=\"", limit, &size);
    assert_null(variable(bundle, "OMP_WAIT_POLICY"));
    assert_string_equal(variable(bundle, "TIDE_MAX"), "2");
    assert_string_equal(variable(bundle, "OMP_NUM_THREADS"), "2"); /* an empty value is none */
    json_decref(bundle);
}

static void limits_that_cannot_be_read_count_as_missing(void **state)
{
    static const char *const wrong[] = {
        ASKED("\"io.threadtide.max\":4"),
        ASKED("\"io.threadtide.max\":\"-4\""),
        ASKED("\"io.threadtide.max\":\"4x\""),
        ASKED("\"io.threadtide.max\":\"99999999999\""),
        ",\"annotations\":[]",
        ",\"linux\":null",
        ",\"linux\":{\"resources\":7}",
        LIMITS("\"quota\":\"150000\""),
        LIMITS("\"quota\":9223372036854775807,\"period\":9223372036854775807"),
        LIMITS("\"quota\":18446744073709551615,\"period\":1"),
        LIMITS("\"cpus\":7"),
        LIMITS("\"cpus\":\"7-1\""),
    };

    for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
        assert_size("", wrong[i], NULL, NULL);
}

/* ---- files ---- */

static void file_keeps_mode_and_owner_and_is_replaced_whole(void **state)
{
    char dir[] = "/tmp/tide-runc-XXXXXX";
    char path[64], link[64];
    struct stat before, after;
    char *text;
    size_t len;
    int fd;

    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/config.json", dir);
    snprintf(link, sizeof(link), "%s/link", dir);
    fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, "old", 3), 3);
    fchmod(fd, 0640);
    if (geteuid() == 0)
        assert_int_equal(fchown(fd, 1, 2), 0);
    close(fd);
    assert_int_equal(symlink(path, link), 0);

    assert_int_equal(wholefile_read(link, 100, &text, &len, &before), -ELOOP);
    assert_int_equal(wholefile_read(dir, 100, &text, &len, &before), -EINVAL);
    assert_int_equal(wholefile_read(path, 2, &text, &len, &before), -EFBIG);
    assert_int_equal(wholefile_read(path, 3, &text, &len, &before), 0);
    assert_string_equal(text, "old");
    free(text);
    assert_int_equal(wholefile_replace(path, "newer", 5, &before), 0);
    assert_int_equal(wholefile_read(path, 100, &text, &len, &after), 0);
    assert_string_equal(text, "newer");
    free(text);
    assert_int_not_equal(after.st_ino, before.st_ino);
    assert_int_equal(after.st_mode, before.st_mode);
    assert_int_equal(after.st_uid, before.st_uid);
    assert_int_equal(after.st_gid, before.st_gid);
    unlink(link);
    unlink(path);
    assert_int_equal(rmdir(dir), 0); /* nothing else was left in it */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(engines_command_lines_are_understood),
        cmocka_unit_test(other_command_lines_are_passed_on),
        cmocka_unit_test(real_bundle_gets_mounts_and_environment_and_keeps_every_byte),
        cmocka_unit_test(second_edit_changes_nothing),
        cmocka_unit_test(missing_members_are_made),
        cmocka_unit_test(agent_comes_behind_what_is_preloaded),
        cmocka_unit_test(list_that_would_be_too_long_for_a_program_stays_as_it_is),
        cmocka_unit_test(container_that_has_a_mount_of_ours_is_left_alone),
        cmocka_unit_test(what_is_no_bundle_is_refused_and_untouched),
        cmocka_unit_test(directory_with_quotes_stays_a_string),
        cmocka_unit_test(program_started_later_gets_the_environment),
        cmocka_unit_test(program_started_later_keeps_its_own_most),
        cmocka_unit_test(container_is_sized_by_what_it_asks_for_and_by_its_limit),
        cmocka_unit_test(what_the_image_or_the_user_has_set_wins_in_a_container),
        cmocka_unit_test(limits_that_cannot_be_read_count_as_missing),
        cmocka_unit_test(file_keeps_mode_and_owner_and_is_replaced_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

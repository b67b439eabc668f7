/* SPDX-License-Identifier: Apache-2.0 */
/* tide-tfnode without TensorFlow: its ServerDef, its options, its search for the wheel. */
#include "tfnode/locate.h"
#include "tfnode/options.h"
#include "tfnode/serverdef.h"

#include "tree.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>

#include <cmocka.h>

/* ---- ServerDef ---- */

static void assert_encoded(const struct serverdef *def, const char *hex)
{
    uint8_t data[SERVERDEF_MAX];
    size_t len;

    assert_int_equal(serverdef_encode(def, data, &len), 0);
    assert_int_equal(2 * len, strlen(hex));
    for (size_t i = 0; i < len; i++) {
        char byte[3];

        snprintf(byte, sizeof(byte), "%02x", data[i]);
        assert_memory_equal(byte, hex + 2 * i, 2);
    }
}

/*
 * From TensorFlow 2.21: ServerDef(job_name=…, task_index=…, protocol="grpc") with one job and one
 * task, SerializeToString(deterministic=True).hex().
 */
static void serverdef_is_the_bytes_that_tensorflow_writes(void **state)
{
    assert_encoded(&(struct serverdef){.job = "ps", .address = "localhost:2222"},
                   "0a1a0a180a02707312120800120e6c6f63616c686f73743a32323232120270732a0467727063");
    assert_encoded(
        &(struct serverdef){
            .job = "worker", .address = "10.0.0.7:40123", .index = 300, .intra = 2, .inter = 2},
        "0a1f0a1d0a06776f726b6572121308ac02120e31302e302e302e373a3430313233"
        "1206776f726b657218ac022204100228022a0467727063");
    assert_encoded(
        &(struct serverdef){
            .job = "worker", .address = "[fd00::7]:2222", .index = 3, .intra = 1, .inter = 200},
        "0a1e0a1c0a06776f726b657212120803120e5b666430303a3a375d3a32323232"
        "1206776f726b657218032205100128c8012a0467727063");
}

/* Lengths above 127 take two bytes, at each level. */
static void serverdef_with_a_long_address_is_the_same_bytes(void **state)
{
    static const char head[] = "0a8b010a88010a06776f726b6572127e0801127a";
    static const char tail[] = "3a311206776f726b657218012a0467727063";
    char address[123], hex[512];

    memset(address, 'h', 120);
    strcpy(address + 120, ":1");
    strcpy(hex, head);
    for (int i = 0; i < 120; i++)
        strcat(hex, "68");
    strcat(hex, tail);
    assert_encoded(&(struct serverdef){.job = "worker", .address = address, .index = 1}, hex);
}

static void serverdef_that_does_not_fit_is_refused(void **state)
{
    char address[SERVERDEF_MAX + 1];
    uint8_t data[SERVERDEF_MAX];
    size_t len = 7;

    memset(address, 'x', sizeof(address) - 1);
    address[sizeof(address) - 1] = '\0';
    assert_int_equal(
        serverdef_encode(&(struct serverdef){.job = "ps", .address = address}, data, &len),
        -EMSGSIZE);
    assert_int_equal(len, 7);
    address[SERVERDEF_MAX - 64] = '\0';
    assert_int_equal(
        serverdef_encode(&(struct serverdef){.job = "ps", .address = address}, data, &len), 0);
}

/* ---- options ---- */

static struct options options;
static struct error err;

static int parse(char **words)
{
    int argc = 0;

    while (words[argc])
        argc++;
    err = (struct error){0};
    return options_parse(argc, words, &options, &err);
}

#define PARSE(...) parse((char *[]){"tide-tfnode", __VA_ARGS__, NULL})

static int plain_environment(void **state)
{
    static const char *const names[] = {"TIDE_JOB",
                                        "TIDE_ROLE",
                                        "TIDE_INDEX",
                                        "TIDE_PORT",
                                        "TIDE_CONTROL_PORT",
                                        "TIDE_GRACE",
                                        "TIDE_BIND",
                                        "TIDE_TENSORFLOW",
                                        "VIRTUAL_ENV",
                                        "PYTHONPATH",
                                        "TIDE_THREADS",
                                        "POD_IP",
                                        "PATH",
                                        "HOME",
                                        "CONDA_PREFIX"};

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        unsetenv(names[i]);
    return 0;
}

static void only_the_role_must_be_given(void **state)
{
    assert_int_equal(PARSE("--role", "ps"), OPTIONS_RUN);
    assert_string_equal(options.role, "ps");
    assert_string_equal(options.host, "localhost");
    assert_int_equal(options.index, 0);
    assert_int_equal(options.port, 2222);
    assert_int_equal(options.control_port, 2223);
    assert_int_equal(options.grace_s, 25);
    assert_int_equal(options.threads, 0);
    assert_null(options.tensorflow);
    assert_false(options.lifeline);
    assert_int_equal(parse((char *[]){"tide-tfnode", NULL}), -EINVAL);
    assert_non_null(strstr(err.text, "TIDE_ROLE"));
}

static void pods_environment_is_read_and_flags_outrank_it(void **state)
{
    setenv("TIDE_JOB", "mnist", 1);
    setenv("TIDE_ROLE", "worker", 1);
    setenv("TIDE_INDEX", "17", 1);
    setenv("TIDE_CONTROL_PORT", "4000", 1);
    setenv("TIDE_GRACE", "", 1); /* as if it were not set */
    setenv("POD_IP", "fd00::7", 1);
    assert_int_equal(PARSE("--index=18", "--threads", "3"), OPTIONS_RUN);
    assert_string_equal(options.job, "mnist");
    assert_string_equal(options.role, "worker");
    assert_string_equal(options.host, "[fd00::7]");
    assert_int_equal(options.index, 18);
    assert_int_equal(options.control_port, 4000);
    assert_int_equal(options.threads, 3);
    assert_int_equal(options.grace_s, 25);
}

static void wrong_values_are_named_with_their_source(void **state)
{
    setenv("TIDE_PORT", "tcp://10.0.0.1:80", 1); /* what a Service called "tide" leaves */
    assert_int_equal(PARSE("--role", "ps"), -EINVAL);
    assert_non_null(strstr(err.text, "TIDE_PORT: 'tcp://10.0.0.1:80' is no number"));
    assert_int_equal(PARSE("--help"), OPTIONS_HELP);
    unsetenv("TIDE_PORT");
    assert_int_equal(PARSE("--role", "chief"), -EINVAL);
    assert_int_equal(PARSE("--role", "ps", "--port", "65536"), -EINVAL);
    assert_string_equal(err.text, "--port: 65536 is more than 65535");
    assert_int_equal(PARSE("--role", "ps", "--threads", "-1"), -EINVAL);
    assert_int_equal(PARSE("--role", "ps", "--threads", "4294967297"), -EINVAL);
    assert_int_equal(PARSE("--role", "ps", "--grace", ""), -EINVAL);
    assert_int_equal(PARSE("--role", "ps", "--job", "a\"b"), -EINVAL);
    assert_int_equal(PARSE("--role", "ps", "--job", ""), -EINVAL);
    assert_int_equal(PARSE("--role", "ps", "--port", "7", "--control-port", "7"), -EINVAL);
    assert_int_equal(PARSE("--role", "ps", "--port", "0", "--control-port", "0"), OPTIONS_RUN);
}

static void an_address_to_listen_at_is_of_either_kind(void **state)
{
    static const struct in6_addr loopback_4 = {
        .s6_addr = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}};

    assert_int_equal(PARSE("--role", "ps", "--bind", "127.0.0.1"), OPTIONS_RUN);
    assert_memory_equal(&options.bind, &loopback_4, sizeof(options.bind));
    setenv("TIDE_BIND", "::1", 1);
    assert_int_equal(PARSE("--role", "ps"), OPTIONS_RUN);
    assert_memory_equal(&options.bind, &in6addr_loopback, sizeof(options.bind));
    assert_int_equal(PARSE("--role", "ps", "--bind", "localhost"), -EINVAL);
    assert_non_null(strstr(err.text, "--bind: 'localhost' is no address"));
}

/* In a pod others have to reach it, and the pod's network is the fence. */
static void without_a_pod_it_listens_on_loopback_alone(void **state)
{
    static const struct in6_addr loopback_4 = {
        .s6_addr = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}};

    assert_int_equal(PARSE("--role", "ps"), OPTIONS_RUN);
    assert_memory_equal(&options.bind, &loopback_4, sizeof(options.bind));
    assert_int_equal(PARSE("--role", "ps", "--bind", "::"), OPTIONS_RUN);
    assert_memory_equal(&options.bind, &in6addr_any, sizeof(options.bind));
    setenv("POD_IP", "10.0.0.7", 1);
    assert_int_equal(PARSE("--role", "ps"), OPTIONS_RUN);
    assert_memory_equal(&options.bind, &in6addr_any, sizeof(options.bind));
    assert_int_equal(PARSE("--role", "ps", "--bind", "127.0.0.1"), OPTIONS_RUN);
    assert_memory_equal(&options.bind, &loopback_4, sizeof(options.bind));
}

static void unknown_flags_are_explained(void **state)
{
    assert_int_equal(PARSE("--rolle", "ps"), -EINVAL);
    assert_string_equal(err.text, "there is no option '--rolle'; did you mean '--role'?");
    assert_int_equal(PARSE("-x"), -EINVAL);
    assert_int_equal(PARSE("--role"), -EINVAL);
    assert_string_equal(err.text, "--role needs a value");
    assert_int_equal(PARSE("--lifeline=1"), -EINVAL);
    assert_string_equal(err.text, "--lifeline=1: this option takes no value");
    assert_int_equal(PARSE("--role", "ps", "more"), -EINVAL);
}

/* ---- the wheel ---- */

static struct tree root;

static int make_root(void **state)
{
    tree_init(&root, NULL, 0);
    return plain_environment(state);
}

static int remove_root(void **state)
{
    tree_done(&root);
    return 0;
}

static void install(const char *packages)
{
    char path[512];

    snprintf(path, sizeof(path), "%s/tensorflow/" LOCATE_LIBRARY, packages);
    tree_write(&root, path, "");
}

static void assert_found(const char *given, const char *expected)
{
    static struct located found;

    assert_int_equal(locate_tensorflow(given, root.path, &found), 0);
    assert_memory_equal(found.library, root.path, strlen(root.path));
    assert_string_equal(found.library + strlen(root.path), expected);
}

static void wheel_of_the_environment_goes_before_the_systems(void **state)
{
    install("usr/lib/python3/dist-packages");
    assert_found(NULL, "/usr/lib/python3/dist-packages/tensorflow/" LOCATE_LIBRARY);
    install("usr/local/lib/python3.9/site-packages");
    install("usr/local/lib/python3.10/site-packages");
    assert_found(NULL, "/usr/local/lib/python3.10/site-packages/tensorflow/" LOCATE_LIBRARY);
    install("home/me/.local/lib/python3.11/site-packages");
    setenv("HOME", "/home/me", 1);
    assert_found(NULL, "/home/me/.local/lib/python3.11/site-packages/tensorflow/" LOCATE_LIBRARY);
    install("opt/app/lib/python3.12/site-packages");
    tree_write(&root, "opt/app/bin/python3", "");
    setenv("PATH", "relative:/nowhere/bin:/opt/app/bin", 1);
    assert_found(NULL, "/home/me/.local/lib/python3.11/site-packages/tensorflow/" LOCATE_LIBRARY);
    assert_int_equal(fchmodat(root.fd, "opt/app/bin/python3", 0755, 0), 0);
    assert_found(NULL, "/opt/app/lib/python3.12/site-packages/tensorflow/" LOCATE_LIBRARY);
    install("srv/packages");
    setenv("PYTHONPATH", "/srv/none:/srv/packages", 1);
    assert_found(NULL, "/srv/packages/tensorflow/" LOCATE_LIBRARY);
    install("venv/lib64/python3.11/site-packages");
    setenv("VIRTUAL_ENV", "/venv", 1);
    assert_found(NULL, "/venv/lib64/python3.11/site-packages/tensorflow/" LOCATE_LIBRARY);
}

static void named_directory_is_the_only_place(void **state)
{
    static struct located found;

    install("usr/lib/python3/dist-packages");
    install("srv/packages");
    assert_found("/srv/packages", "/srv/packages/tensorflow/" LOCATE_LIBRARY);
    assert_found("/srv/packages/tensorflow", "/srv/packages/tensorflow/" LOCATE_LIBRARY);
    assert_int_equal(locate_tensorflow("/srv/none", root.path, &found), -ENOENT);
    assert_string_equal(found.looked, "  /srv/none\n  /srv/none/tensorflow\n");
}

static void places_without_a_wheel_are_listed(void **state)
{
    static struct located found;
    char long_path[3 * LOCATE_LOOKED_MAX];

    setenv("VIRTUAL_ENV", "/venv", 1);
    setenv("PYTHONPATH", "/a:/b", 1);
    assert_int_equal(locate_tensorflow(NULL, root.path, &found), -ENOENT);
    assert_non_null(strstr(found.looked, "  /venv/lib/python3.*/site-packages/tensorflow\n"));
    assert_non_null(strstr(found.looked, "  /a/tensorflow\n  /b/tensorflow\n"));
    assert_non_null(strstr(found.looked, "  /usr/lib/python3/dist-packages/tensorflow\n"));
    /* More of them than there is room for. */
    for (size_t i = 0; i + 2 < sizeof(long_path); i += 2)
        memcpy(long_path + i, ":/", 3);
    setenv("PYTHONPATH", long_path, 1);
    assert_int_equal(locate_tensorflow(NULL, root.path, &found), -ENOENT);
    assert_true(strlen(found.looked) < sizeof(found.looked));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(serverdef_is_the_bytes_that_tensorflow_writes),
        cmocka_unit_test(serverdef_with_a_long_address_is_the_same_bytes),
        cmocka_unit_test(serverdef_that_does_not_fit_is_refused),
        cmocka_unit_test_setup(only_the_role_must_be_given, plain_environment),
        cmocka_unit_test_setup(pods_environment_is_read_and_flags_outrank_it, plain_environment),
        cmocka_unit_test_setup(wrong_values_are_named_with_their_source, plain_environment),
        cmocka_unit_test_setup(an_address_to_listen_at_is_of_either_kind, plain_environment),
        cmocka_unit_test_setup(without_a_pod_it_listens_on_loopback_alone, plain_environment),
        cmocka_unit_test_setup(unknown_flags_are_explained, plain_environment),
        cmocka_unit_test_setup_teardown(wheel_of_the_environment_goes_before_the_systems, make_root,
                                        remove_root),
        cmocka_unit_test_setup_teardown(named_directory_is_the_only_place, make_root, remove_root),
        cmocka_unit_test_setup_teardown(places_without_a_wheel_are_listed, make_root, remove_root),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The runtime in daemon.json: added beside other entries, and removed again to the byte. */
#include "cli/docker/docker_config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define PROGRAM "/usr/bin/tide-runc"
#define TIDE    "\"tide\": {\"path\": \"" PROGRAM "\"}"

static struct jsontext make(const char *text)
{
    struct jsontext json = {strdup(text), strlen(text)};

    assert_non_null(json.text);
    return json;
}

static void assert_added(const char *before, int r, const char *after)
{
    _cleanup_jsontext_ struct jsontext config = make(before);
    struct error err;

    assert_int_equal(docker_config_add(&config, PROGRAM, &err), r);
    assert_string_equal(config.text, after);
    assert_int_equal(docker_config_add(&config, PROGRAM, &err), 0);
    assert_string_equal(config.text, after);
}

static void runtime_is_added_beside_what_is_there(void **state)
{
    assert_added("{}\n", 1, "{\"runtimes\": {" TIDE "}}\n");
    assert_added("{\n  \"debug\": true\n}\n", 1,
                 "{\n  \"debug\": true,\n  \"runtimes\": {" TIDE "}\n}\n");
    assert_added("{\"runtimes\": {\"gpu\": {\"path\": \"gpu\"}}, \"mtu\": 1e3}", 1,
                 "{\"runtimes\": {\"gpu\": {\"path\": \"gpu\"}," TIDE "}, \"mtu\": 1e3}");
    assert_added("{\"runtimes\": {\"tide\": {\"path\": \"/old\"}}}", 2,
                 "{\"runtimes\": {" TIDE "}}");
}

static void removing_what_was_added_gives_the_same_bytes(void **state)
{
    static const char *const texts[] = {
        "{}\n",
        "{\n    \"storage-driver\": \"overlay2\",\n    \"x\": [1, 2.50]\n}\n",
        "{ \"runtimes\": { \"gpu\": {} } }",
    };

    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        _cleanup_jsontext_ struct jsontext config = make(texts[i]);
        struct error err;
        bool empty;

        assert_int_equal(docker_config_add(&config, PROGRAM, &err), 1);
        assert_int_equal(docker_config_remove(&config, &err), 1);
        assert_non_null(strstr(config.text, "runtimes")); /* dockerd looks at it only then */
        assert_int_equal(docker_config_remove(&config, &err), 0);
        assert_int_equal(docker_config_tidy(&config, &empty, &err), 0);
        assert_string_equal(config.text, texts[i]);
        assert_int_equal(empty, i == 0);
    }
}

static void what_dockerd_would_not_take_is_left_alone(void **state)
{
    static const struct {
        const char *text;
        int add, remove;
    } cases[] = {
        {"{\"debug\": true,}", -EBADMSG, -EBADMSG},
        {"[]", -EINVAL, -EINVAL},
        {"{\"runtimes\": []}", -EINVAL, -EINVAL},
        {"{\"runtimes\": {}, \"runtimes\": {}}", -EEXIST, -EEXIST},
        {"{\"default-runtime\": \"tide\", \"runtimes\": {" TIDE "}}", 0, -EBUSY},
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        _cleanup_jsontext_ struct jsontext config = make(cases[i].text);
        struct error err = {0};

        assert_int_equal(docker_config_add(&config, PROGRAM, &err), cases[i].add);
        assert_int_equal(docker_config_remove(&config, &err), cases[i].remove);
        assert_int_equal(err.code, cases[i].remove);
        assert_string_not_equal(err.text, "");
        assert_string_equal(config.text, cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runtime_is_added_beside_what_is_there),
        cmocka_unit_test(removing_what_was_added_gives_the_same_bytes),
        cmocka_unit_test(what_dockerd_would_not_take_is_left_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

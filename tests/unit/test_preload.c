/* SPDX-License-Identifier: Apache-2.0 */
#include "base/preload.h"

#include "base/cleanup.h"

#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

static void assert_value(const char *present, const char *expected)
{
    char *value = NULL;

    assert_int_equal(preload_value(present, "/opt/agent", &value), 0);
    assert_string_equal(value, expected);
    free(value);
}

static void agent_comes_behind_what_is_preloaded(void **state)
{
    assert_value(NULL, "/opt/agent/$LIB/libtide-agent.so");
    assert_value("", "/opt/agent/$LIB/libtide-agent.so");
    assert_value("/usr/lib/libjemalloc.so",
                 "/usr/lib/libjemalloc.so:/opt/agent/$LIB/libtide-agent.so");
}

static void agent_is_not_added_twice(void **state)
{
    assert_value("/usr/lib/a.so:/opt/agent/$LIB/libtide-agent.so",
                 "/usr/lib/a.so:/opt/agent/$LIB/libtide-agent.so");
}

/* An agent directory @name below a fresh one, with an agent file in it. */
static void make_agent(const char *top, const char *name, char ret_dir[PATH_MAX])
{
    char path[PATH_MAX + 64];
    int fd;

    snprintf(ret_dir, PATH_MAX, "%s/%s", top, name);
    assert_int_equal(mkdir(ret_dir, 0700), 0);
    snprintf(path, sizeof(path), "%s/lib64", ret_dir);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/lib64/" PRELOAD_FILE, ret_dir);
    fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
}

static void remove_agent(const char *dir)
{
    char path[PATH_MAX + 64];

    snprintf(path, sizeof(path), "%s/lib64/" PRELOAD_FILE, dir);
    unlink(path);
    snprintf(path, sizeof(path), "%s/lib64", dir);
    rmdir(path);
    rmdir(dir);
}

static void directory_that_ld_preload_cannot_name_is_refused(void **state)
{
    static const char *const names[] = {"with blank", "with:colon", "with$dollar"};
    char top[] = "/tmp/tide-preload-XXXXXX";
    char dir[PATH_MAX];
    char found[PATH_MAX];
    struct error err;

    assert_non_null(mkdtemp(top));
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        make_agent(top, names[i], dir);
        setenv("TIDE_AGENT_DIR", dir, 1);
        assert_int_equal(preload_find(found, sizeof(found), &err), -EINVAL);
        assert_non_null(strstr(err.text, names[i]));
        remove_agent(dir);
    }
    make_agent(top, "plain", dir);
    setenv("TIDE_AGENT_DIR", dir, 1);
    assert_int_equal(preload_find(found, sizeof(found), &err), 0);
    assert_string_equal(found, dir);
    remove_agent(dir);
    assert_int_equal(preload_find(found, sizeof(found), &err), -ENOENT);
    unsetenv("TIDE_AGENT_DIR");
    rmdir(top);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agent_comes_behind_what_is_preloaded),
        cmocka_unit_test(agent_is_not_added_twice),
        cmocka_unit_test(directory_that_ld_preload_cannot_name_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* src/kube/api/kubeconfig.c and access.c: kubeconfig files, and files that change later. */
#include "kube/api/access.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define HEAD                                                                                       \
    "apiVersion: v1\n"                                                                             \
    "kind: Config\n"                                                                               \
    "current-context: one\n"                                                                       \
    "contexts:\n"                                                                                  \
    "- name: one\n"                                                                                \
    "  context: {cluster: c, user: u, namespace: team}\n"                                          \
    "- name: two\n"                                                                                \
    "  context: {cluster: c2, user: u}\n"

#define CLUSTERS                                                                                   \
    "clusters:\n"                                                                                  \
    "- {name: c, cluster: {server: \"https://10.0.0.1:6443/\", certificate-authority-data: "       \
    "Q0E=}}\n"                                                                                     \
    "- {name: c2, cluster: {server: https://two, insecure-skip-tls-verify: true}}\n"

#define USERS                                                                                      \
    "users:\n"                                                                                     \
    "- name: u\n"                                                                                  \
    "  user: {client-certificate: pki/u.crt, client-key: /abs/u.key}\n"

static int resolve(const char *text, const char *context, struct access *ret, struct error *err)
{
    const struct kubeconfig_file file = {"/dir/config", text, strlen(text)};

    return kubeconfig_resolve(&file, 1, context, ret, err);
}

static void the_current_context_is_resolved(void **state)
{
    struct access a;

    (void)state;
    assert_int_equal(resolve(HEAD CLUSTERS USERS, NULL, &a, NULL), 0);
    assert_string_equal(a.server, "https://10.0.0.1:6443");
    assert_string_equal(a.name_space, "team");
    assert_string_equal(a.ca.text, "CA");
    assert_string_equal(a.cert.file, "/dir/pki/u.crt");
    assert_string_equal(a.key.file, "/abs/u.key");
    assert_null(a.token.text);
    assert_false(a.insecure);
    access_done(&a);
}

static void another_context_can_be_named(void **state)
{
    struct access a;

    (void)state;
    assert_int_equal(resolve(HEAD CLUSTERS USERS, "two", &a, NULL), 0);
    assert_string_equal(a.server, "https://two");
    assert_string_equal(a.name_space, "default");
    assert_true(a.insecure);
    access_done(&a);
}

static void json_is_yaml(void **state)
{
    struct access a;

    (void)state;
    assert_int_equal(
        resolve("{\"current-context\":\"x\",\"contexts\":[{\"name\":\"x\",\"context\":{\"cluster\":"
                "\"c\",\"user\":\"u\"}}],\"clusters\":[{\"name\":\"c\",\"cluster\":{\"server\":"
                "\"https://h\"}}],\"users\":[{\"name\":\"u\",\"user\":{\"token\":\"t0\"}}]}",
                NULL, &a, NULL),
        0);
    assert_string_equal(a.token.text, "t0");
    access_done(&a);
}

static void the_first_file_that_has_it_wins(void **state)
{
    const char *other = "current-context: zzz\n" CLUSTERS "users:\n- {name: u, user: {token: t}}\n";
    const struct kubeconfig_file files[] = {{"/a", HEAD, strlen(HEAD)},
                                            {"/b", other, strlen(other)}};
    struct access a;

    (void)state;
    assert_int_equal(kubeconfig_resolve(files, 2, NULL, &a, NULL), 0);
    assert_string_equal(a.name_space, "team");
    assert_string_equal(a.token.text, "t");
    access_done(&a);
}

static void mistakes_are_named_with_file_and_line(void **state)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"a: [", "/dir/config:"},
        {"", "no current-context"},
        {"[]", "no current-context"},
        {"current-context: x\n", "there is no 'x' in contexts"},
        {HEAD USERS, "there is no 'c' in clusters"},
        {HEAD CLUSTERS, "there is no 'u' in users"},
        {HEAD CLUSTERS "users:\n- name: u\n", "/dir/config:13: 'u' in users has no 'user'"},
        {HEAD CLUSTERS "users:\n- name: u\n  user:\n    exec: {command: aws}\n",
         "/dir/config:15: 'exec' is not supported"},
        {HEAD CLUSTERS "users:\n- name: u\n  user: {client-key: x}\n", "need each other"},
        {HEAD USERS "clusters:\n- {name: c, cluster: {server: \"http://h\"}}\n",
         "/dir/config:13: 'server' has to begin with https://"},
        {HEAD USERS "clusters:\n- {name: c, cluster: {x: y}}\n", "no 'server'"},
        {HEAD USERS "clusters:\n- name: c\n  cluster:\n    server: https://h\n"
                    "    certificate-authority-data: '*'\n",
         "/dir/config:16: certificate-authority-data is no text in base64"},
    };
    struct access a = {0};

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct error err = {0};

        assert_true(resolve(cases[i].text, NULL, &a, &err) < 0);
        if (!strstr(err.text, cases[i].says))
            fail_msg("case %zu says: %s", i, err.text);
        assert_null(a.server);
    }
}

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static void a_pods_files_are_found_and_read_again(void **state)
{
    char dir[] = "/tmp/kube-access-XXXXXX", path[64];
    struct access a;
    struct error err = {0};

    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(chdir(dir), 0);
    unsetenv("KUBERNETES_SERVICE_HOST");
    assert_int_equal(access_in_cluster(dir, &a, &err), -ENOENT);
    setenv("KUBERNETES_SERVICE_HOST", "fd00::1", 1);
    setenv("KUBERNETES_SERVICE_PORT", "443", 1);
    write_file("ca.crt", "PEM\n");
    write_file("namespace", "tide\n");
    assert_int_equal(access_in_cluster(dir, &a, &err), -ENOENT);
    snprintf(path, sizeof(path), "%s/token", dir);
    assert_non_null(strstr(err.text, path));
    write_file("token", "first\n");
    assert_int_equal(access_in_cluster(dir, &a, &err), 0);
    assert_string_equal(a.server, "https://[fd00::1]:443");
    assert_string_equal(a.name_space, "tide");
    assert_string_equal(a.token.text, "first");
    assert_int_equal(access_refresh(&a, &err), 0);
    write_file("token", "second");
    assert_int_equal(access_refresh(&a, &err), 1);
    assert_string_equal(a.token.text, "second");
    unlink("token");
    assert_true(access_refresh(&a, &err) < 0);
    assert_string_equal(a.token.text, "second");
    write_file("token", "third\r\nX-Evil: 1");
    assert_int_equal(access_refresh(&a, &err), -EINVAL);
    assert_null(a.token.text);
    access_done(&a);
    unlink("token");
    unlink("ca.crt");
    unlink("namespace");
    assert_int_equal(chdir("/"), 0);
    rmdir(dir);
}

static void a_pod_without_its_accounts_files_is_told_of_them(void **state)
{
    struct access a;
    struct error err = {0};

    (void)state;
    setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1", 1);
    setenv("KUBERNETES_SERVICE_PORT", "443", 1);
    setenv("KUBECONFIG", "/nowhere/config", 1);
    assert_int_equal(access_find(NULL, NULL, &a, &err), -ENOENT);
    assert_non_null(strstr(err.text, ACCESS_SERVICE_FILES));
    unsetenv("KUBERNETES_SERVICE_HOST");
    assert_int_equal(access_find(NULL, NULL, &a, &err), -ENOENT);
    assert_non_null(strstr(err.text, "/nowhere/config"));
    unsetenv("KUBECONFIG");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_current_context_is_resolved),
        cmocka_unit_test(another_context_can_be_named),
        cmocka_unit_test(json_is_yaml),
        cmocka_unit_test(the_first_file_that_has_it_wins),
        cmocka_unit_test(mistakes_are_named_with_file_and_line),
        cmocka_unit_test(a_pods_files_are_found_and_read_again),
        cmocka_unit_test(a_pod_without_its_accounts_files_is_told_of_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

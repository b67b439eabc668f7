/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cleanup.h"
#include "hub/conf.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct conf conf;
static struct error err;

static int parse(const char *text)
{
    conf_init(&conf);
    memset(&err, 0, sizeof(err));
    return conf_parse(&conf, "hub.conf", text, &err);
}

static void every_key_is_read(void **state)
{
    assert_int_equal(parse("# a hub\n"
                           "[hub]\n"
                           "state = /srv/hub\n"
                           "  store = /srv/energy.db\n"
                           "policy = /srv/policy.yaml\n"
                           "broker = mqtt.unlp.edu.ar:8884\n"
                           "listen = [::1]:443\n"
                           "host = hub.unlp.edu.ar  10.1.2.3\n"
                           "certificate = /etc/ssl/hub.crt\n"
                           "key = /etc/ssl/hub.key\n"
                           "keep-1s = 1d\nkeep-1min = 2d\nkeep-15min = 3d\n"
                           "keep-users = 4d\nkeep-audit = 40d\n"
                           "session-idle = 30min\nsession-end = 8h\n"
                           "connections-per-address = 256\n"),
                     0);
    assert_string_equal(conf.state, "/srv/hub");
    assert_string_equal(conf.store, "/srv/energy.db");
    assert_string_equal(conf.policy, "/srv/policy.yaml");
    assert_string_equal(conf.broker, "mqtt.unlp.edu.ar");
    assert_int_equal(conf.broker_port, 8884);
    assert_string_equal(conf.listen, "[::1]:443");
    assert_int_equal(conf.hosts, 2);
    assert_string_equal(conf.host[1], "10.1.2.3");
    assert_string_equal(conf.key, "/etc/ssl/hub.key");
    assert_int_equal(conf.keep_second_ms, 86400000);
    assert_int_equal(conf.keep_users_ms, 4 * 86400000ll);
    assert_int_equal(conf.keep_audit_ms, 40 * 86400000ll);
    assert_int_equal(conf.session_idle_ms, 1800000);
    assert_int_equal(conf.per_address, 256);
    assert_int_equal(conf_check(&conf, &err), 0);
}

static void a_mistake_is_named_with_its_line(void **state)
{
    static const struct {
        const char *text, *told;
    } wrong[] = {
        {"state = /x\n", "hub.conf:1: keys need a section: write [hub] above"},
        {"[hub]\n\nlisen = :8443\n",
         "hub.conf:3: lisen: there is no such key: did you mean 'listen'?"},
        {"[tided]\nx = y\n", "hub.conf:2: there is no section [tided]: the hub's is [hub]"},
        {"[hub]\nlisten = 8443\n", "hub.conf:2: listen: '8443': use HOST:PORT, :PORT for every"},
        {"[hub]\nlisten = :70000\n", "hub.conf:2: listen: ':70000'"},
        {"[hub]\nbroker = host:0\n", "hub.conf:2: broker: 'host:0': use HOST or HOST:PORT"},
        {"[hub]\nkeep-1s = 7\n", "hub.conf:2: keep-1s: '7': use a time as 7d or 36h"},
        {"[hub]\nkeep-audit = 1d\n", "hub.conf:2: keep-audit: '1d': the least is 30 days"},
        {"[hub]\nconnections-per-address = 257\n",
         "hub.conf:2: connections-per-address: '257': use a number from 1 to 256"},
        {"[hub]\nconnections-per-address = 0\n", "hub.conf:2: connections-per-address: '0': use"},
        {"[hub]\nconnections-per-address = 5x\n", "hub.conf:2: connections-per-address: '5x'"},
        {"[hub]\nstate =\n", "hub.conf:2: state: it has no value"},
        {"[hub]\nnonsense\n", "hub.conf:2: neither [hub] nor KEY=VALUE nor # comment"},
        {"[hub]\nhost = a b c d e f g h i\n", "hub.conf:2: host: 'a b c d e f g h i': use up to 8"},
    };

    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        assert_int_equal(parse(wrong[i].text), -EINVAL);
        if (strncmp(err.text, wrong[i].told, strlen(wrong[i].told)) != 0)
            fail_msg("%s, not %s", err.text, wrong[i].told);
    }
}

static void keys_that_do_not_fit_together_are_refused(void **state)
{
    assert_int_equal(parse("[hub]\ncertificate = /etc/x.crt\n"), 0);
    assert_int_equal(conf_check(&conf, &err), -EINVAL);
    assert_int_equal(parse("[hub]\nsession-idle = 9d\n"), 0);
    assert_int_equal(conf_check(&conf, &err), -EINVAL);
    assert_int_equal(parse(""), 0);
    assert_int_equal(conf_check(&conf, &err), 0);
    assert_string_equal(conf.listen, ":8443");
    assert_int_equal(conf.per_address, 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_is_read),
        cmocka_unit_test(a_mistake_is_named_with_its_line),
        cmocka_unit_test(keys_that_do_not_fit_together_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

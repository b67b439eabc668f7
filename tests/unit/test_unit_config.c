/* SPDX-License-Identifier: Apache-2.0 */
/* tide-power's configuration, JSON paths, Modbus frames, and what a meter's readings become. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "power/cap/caps.h"
#include "unit/config.h"
#include "unit/device/device.h"
#include "unit/device/jsonpath.h"
#include "unit/device/modbus_frame.h"

static struct unit_config config;
static struct error err;

/* ---- configuration --------------------------------------------------------------------------- */

static const char whole[] = "# an area\n"
                            "[unit]\n"
                            "name = lab3\n"
                            "state-dir = /var/lib/x\n"
                            "\n"
                            "[local]\n"
                            "broker = 127.0.0.1\n"
                            "[uplink]\n"
                            "broker = hub.example.org\n"
                            "ca = /etc/tide/ca.pem\n"
                            "cert = /etc/tide/lab3.pem\n"
                            "key = /etc/tide/lab3.key\n"
                            "[meter main]\n"
                            "kind = modbus\n"
                            "address = [::1]:1502\n"
                            "modbus-unit = 7\n"
                            "covers = area\n"
                            "most = 2.5 kW\n"
                            "error = 0.5 %\n"
                            "period = 2s\n"
                            "[meter plug1]\n"
                            "kind = tasmota\n"
                            "topic = plug1\n"
                            "[meter solar]\n"
                            "kind = json\n"
                            "topic = a/b\n"
                            "energy-path = total[1].e\n"
                            "energy-unit = Wh\n"
                            "power-unit = mW\n"
                            "[unit]\n"
                            "cap = 1.2 kW\n"
                            "kind = budget\n"
                            "[child a]\n"
                            "floor = 40 W\n"
                            "most = 300 W\n"
                            "[limits]\n"
                            "outbox = 2M\n";

static void every_key_is_understood(void **state)
{
    if (unit_config_parse(whole, "x.conf", &config, &err) < 0)
        fail_msg("%s", err.text);
    assert_string_equal(config.name, "lab3");
    assert_string_equal(config.state_dir, "/var/lib/x");
    assert_int_equal(config.local.port, 1883);
    assert_int_equal(config.uplink.port, 8883);
    assert_string_equal(config.uplink.key, "/etc/tide/lab3.key");
    assert_int_equal(config.meters, 3);
    assert_string_equal(config.meter[0].host, "::1");
    assert_int_equal(config.meter[0].port, 1502);
    assert_int_equal(config.meter[0].modbus_unit, 7);
    assert_true(config.meter[0].covers_area);
    assert_int_equal(config.meter[0].most_uw, UINT64_C(2500000000));
    assert_int_equal(config.meter[0].error_permille, 5);
    assert_int_equal(config.meter[0].period_s, 2);
    assert_int_equal(config.meter[1].error_permille, 20);
    assert_int_equal(config.meter[2].energy_scale, UINT64_C(3600000000));
    assert_int_equal(config.meter[2].power_scale, 1000);
    assert_int_equal(config.outbox_bytes, 2 << 20);
    assert_int_equal(config.cap_uw, UINT64_C(1200000000));
    assert_int_equal(config.kind, CAP_BUDGET);
    assert_string_equal(config.child[0].name, "a");
    assert_int_equal(config.child[0].floor_uw, 40000000);
    assert_int_equal(config.child[0].most_uw, 300000000);
}

static void a_mistake_is_told_with_its_line(void **state)
{
    static const struct {
        const char *text, *reason;
    } wrong[] = {
        {"name = x", "x.conf:1: 'name' stands before the first [section]"},
        {"[unit]\nname = Lab 3", "x.conf:2: 'Lab 3' is no name"},
        {"[unit]\nnmae = lab", "x.conf:2: unknown key 'nmae'; did you mean 'name'?"},
        {"[unit]\nname =", "x.conf:2: 'name' has no value"},
        {"[unit]\nname", "x.conf:2: 'name' is neither"},
        {"[units]\n", "x.conf:1: unknown section [units]"},
        {"[unit\n", "x.conf:1: no ']'"},
        {"[unit x]\n", "x.conf:1: [unit] has no name"},
        {"[meter]\n", "x.conf:1: [meter] needs a name"},
        {"[meter a]\n[meter a]\n", "x.conf:2: meter 'a' stands in line 1 already"},
        {"[meter a]\nkind = tasmote", "x.conf:2: unknown kind 'tasmote'; did you mean tasmota"},
        {"[unit]\nname=x\n[meter a]\ntopic = t", "x.conf:3: meter 'a' needs kind="},
        {"[unit]\nname=x\n[meter a]\nkind = json\ntopic = t",
         "x.conf:3: meter 'a': kind=json needs energy-path="},
        {"[unit]\nname=x\n[meter a]\nkind = json\ntopic = t\npower-path = a..b",
         "x.conf:3: meter 'a': kind=json needs a path"},
        {"[unit]\nname=x\n[meter a]\nkind = tasmota\ntopic = t",
         "x.conf:3: meter 'a' comes by MQTT: [local] needs broker="},
        {"[meter a]\ntopic = a/+", "x.conf:2: 'a/+' has a wildcard"},
        {"[meter a]\nmost = 5 kWh", "x.conf:2: '5 kWh' is no power"},
        {"[meter a]\nerror = 5", "x.conf:2: '5' is no share"},
        {"[meter a]\nerror = 101 %", "x.conf:2: '101 %' is no share"},
        {"[meter a]\nperiod = 5", "x.conf:2: '5' is no duration"},
        {"[meter a]\nenergy-unit = W", "x.conf:2: 'W' is no unit of energy"},
        {"[meter a]\naddress = h:99999", "x.conf:2: '99999' is no number from 1 to 65535"},
        {"[meter a]\ncovers = all", "x.conf:2: 'all' is neither"},
        {"[unit]\nname = x\n[uplink]\nbroker = h\nca = /x",
         "[uplink] needs all of ca=, cert= and key="},
        {"[unit]\nname = x\n[uplink]\nca = /x", "[uplink] has certificates and no broker="},
        {"[uplink]\nca = x", "x.conf:2: 'x' is no path"},
        {"[limits]\noutbox = 5k", "x.conf:2: '5k' is no size"},
        {"", "[unit] needs name="},
        {"[unit]\nname=x\n[meter a]\nkind=modbus\naddress=h\ncovers=area\n[meter "
         "b]\nkind=modbus\naddress=h\ncovers=area\n",
         "x.conf:7: meter 'b': another one covers the area already"},
    };

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        memset(&config, 0x5a, sizeof(config));
        assert_int_equal(unit_config_parse(wrong[i].text, "x.conf", &config, &err), -EINVAL);
        if (!strstr(err.text, wrong[i].reason))
            fail_msg("'%s': '%s', not '%s'", wrong[i].text, err.text, wrong[i].reason);
        assert_int_equal(((unsigned char *)&config)[0], 0x5a); /* untouched */
    }
    assert_true(unit_config_load("/nonexistent.conf", &config, &err) < 0);
    assert_non_null(strstr(err.text, "/nonexistent.conf"));
}

/* ---- parsers --------------------------------------------------------------------------------- */

static int number(const char *text, const char *path, uint64_t scale, uint64_t *ret)
{
    return jsonpath_number(text, strlen(text), path, scale, ret);
}

static void numbers_are_found_by_their_path(void **state)
{
    static const char text[] =
        "{\"a\":{\"b\":[1,{\"c\":2.5}]},\"n\":-1,\"s\":\"5\",\"big\":1e300,\"i\":7}";
    uint64_t v = 99;

    assert_int_equal(number(text, "a.b[1].c", 1000, &v), 0);
    assert_int_equal(v, 2500);
    assert_int_equal(number(text, "a.b[0]", 3, &v), 0);
    assert_int_equal(v, 3);
    assert_int_equal(number("42.4", "x", 1, &v), -ENOENT);
    assert_int_equal(number(text, "i", 10, &v), 0);
    assert_int_equal(v, 70);
    assert_int_equal(number(text, "n", 1, &v), -ERANGE);
    assert_int_equal(number(text, "big", 1, &v), -ERANGE);
    assert_int_equal(number(text, "s", 1, &v), -EINVAL);
    assert_int_equal(number(text, "a.x", 1, &v), -ENOENT);
    assert_int_equal(number(text, "a.b[2]", 1, &v), -ENOENT);
    assert_int_equal(number(text, "a.b.c", 1, &v), -ENOENT);
    assert_int_equal(number("{\"x\":NaN}", "x", 1, &v), -EINVAL);
    assert_int_equal(v, 70); /* untouched by all of these */
    assert_int_equal(jsonpath_check("a.b[0][1].c"), 0);
    assert_int_equal(jsonpath_check(""), -EINVAL);
    assert_int_equal(jsonpath_check("a."), -EINVAL);
    assert_int_equal(jsonpath_check("a[b]"), -EINVAL);
    assert_int_equal(jsonpath_check("a[0]b"), -EINVAL);
    assert_int_equal(jsonpath_check("a.b.c.d.e.f.g.h.i"), -EINVAL);
}

static void answers_of_modbus_are_checked(void **state)
{
    uint8_t right[] = {0, 9, 0, 0, 0, 7, 1, 4, 4, 0x42, 0xf6, 0xe9, 0x79}; /* 123.456 */
    uint8_t refusal[] = {0, 9, 0, 0, 0, 3, 1, 0x84, 2};
    uint8_t request[MODBUS_REQUEST_BYTES];
    uint16_t registers[2];
    uint64_t v;

    modbus_request(9, 1, 0x0034, 2, request);
    assert_memory_equal(request, ((uint8_t[]){0, 9, 0, 0, 0, 6, 1, 4, 0, 0x34, 0, 2}), 12);
    for (size_t n = 0; n < sizeof(right); n++)
        assert_int_equal(modbus_answer(right, n, 9, 1, 2, registers), -EAGAIN);
    assert_int_equal(modbus_answer(right, sizeof(right), 9, 1, 2, registers), 0);
    assert_int_equal(modbus_float(registers, 1000, &v), 0);
    assert_int_equal(v, 123456);
    assert_int_equal(modbus_answer(right, sizeof(right), 8, 1, 2, registers), -EBADMSG);
    assert_int_equal(modbus_answer(right, sizeof(right), 9, 2, 2, registers), -EBADMSG);
    assert_int_equal(modbus_answer(right, sizeof(right), 9, 1, 1, registers), -EBADMSG);
    assert_int_equal(modbus_answer(refusal, sizeof(refusal), 9, 1, 2, registers), -EPROTO);
    assert_int_equal(registers[0], 2);
    assert_int_equal(modbus_float((uint16_t[]){0xc2f6, 0xe979}, 1, &v), -ERANGE); /* negative */
    assert_int_equal(modbus_float((uint16_t[]){0x7fc0, 0}, 1, &v), -ERANGE);      /* NaN */
    assert_int_equal(modbus_float((uint16_t[]){0x7f80, 0}, 1, &v), -ERANGE);      /* infinite */
}

/* ---- readings -------------------------------------------------------------------------------- */

static unsigned troubles;

static void trouble(void *arg, const struct device *d)
{
    troubles++;
}

static struct device device_of(struct meter_config *c)
{
    troubles = 0;
    return (struct device){.config = c, .counter.most_uw = c->most_uw, .trouble = trouble};
}

static void a_counters_energy_is_summed_and_its_resets_are_gaps(void **state)
{
    struct meter_config c = {.error_permille = 10, .most_uw = 1000 * UINT64_C(1000000)};
    struct device d = device_of(&c);
    uint64_t t = 100 * NS_PER_S;

    device_energy(&d, t, 5000000000);
    assert_int_equal(d.total.uj, 0); /* a lifetime's energy is not this area's */
    device_energy(&d, t += 10 * NS_PER_S, 5100000000);
    assert_int_equal(d.total.uj, 100000000);
    assert_int_equal(d.total.low_uj, 99000000);
    assert_int_equal(d.total.high_uj, 101000000);
    assert_int_equal(troubles, 0);
    device_energy(&d, t += 10 * NS_PER_S, 7000000); /* somebody reset it */
    assert_int_equal(d.total.uj, 100000000);
    assert_true(d.gap_ns >= 10 * NS_PER_S);
    assert_int_equal(troubles, 1);
    device_energy(&d, t += 10 * NS_PER_S, 9000000);
    assert_int_equal(d.total.uj, 102000000);
    device_energy(&d, t += NS_PER_S, 90000000000000); /* a spike */
    assert_int_equal(d.total.uj, 102000000);
    assert_non_null(strstr(d.problem, "more than"));
}

static void watts_are_summed_where_there_is_no_counter(void **state)
{
    struct meter_config c = {.period_s = 10};
    struct device d = device_of(&c);
    uint64_t t = 100 * NS_PER_S;

    device_watts(&d, t, 60000000);
    assert_int_equal(d.power.uw, 60000000);
    device_watts(&d, t += 10 * NS_PER_S, 40000000);
    assert_int_equal(d.total.uj, 500000000);
    device_watts(&d, t += 60 * NS_PER_S, 40000000); /* silent for too long */
    assert_int_equal(d.total.uj, 500000000);
    assert_int_equal(d.gap_ns, 60 * NS_PER_S);
    device_energy(&d, t += NS_PER_S, 1000); /* it has a counter after all: nothing counts twice */
    device_watts(&d, t += 5 * NS_PER_S, 40000000);
    assert_int_equal(d.total.uj, 500000000);
    device_lost(&d, "gone");
    assert_int_equal(d.power.basis, POWER_UNKNOWN);
}

static void a_counter_bridges_a_restart(void **state)
{
    struct meter_config c = {.most_uw = 1000 * UINT64_C(1000000)};
    struct device d = device_of(&c);

    d.total.uj = 500;
    d.stored_uj = 5000000000;
    d.stored_ms = clock_real_ms() - 10000;
    device_energy(&d, 100 * NS_PER_S, 7000000000); /* 200 W */
    assert_int_equal(d.total.uj, 2000000500);
    device_energy(&d, 101 * NS_PER_S, 7000000001);
    assert_int_equal(d.total.uj, 2000000501); /* once */
    d = device_of(&c);
    d.stored_uj = 5000000000;
    d.stored_ms = clock_real_ms() - 10000;
    device_energy(&d, 100 * NS_PER_S, 900000000000000); /* another meter's */
    assert_int_equal(d.total.uj, 0);
    d = device_of(&c);
    d.stored_uj = 5000000000;
    device_energy(&d, 100 * NS_PER_S, 4000000000); /* it was reset */
    assert_int_equal(d.total.uj, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_is_understood),
        cmocka_unit_test(a_mistake_is_told_with_its_line),
        cmocka_unit_test(numbers_are_found_by_their_path),
        cmocka_unit_test(answers_of_modbus_are_checked),
        cmocka_unit_test(a_counters_energy_is_summed_and_its_resets_are_gaps),
        cmocka_unit_test(a_counter_bridges_a_restart),
        cmocka_unit_test(watts_are_summed_where_there_is_no_counter),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

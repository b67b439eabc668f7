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
#include "unit/machine/kubernetes.h"

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
                            "[uplink]\n"
                            "seal = /etc/tide/hub-seal.pub\n"
                            "lease = no\n"
                            "[switch lights]\n"
                            "kind = shelly\n"
                            "topic = lights\n"
                            "channel = 2\n"
                            "command = yes\n"
                            "restore = yes\n"
                            "min-on = 5min\n"
                            "min-off = 10s\n"
                            "most-per-hour = 20\n"
                            "[switch fridge]\n"
                            "kind = modbus\n"
                            "device = /dev/ttyUSB0\n"
                            "baud = 19200\n"
                            "parity = even\n"
                            "coil = 0x10\n"
                            "always-on = yes\n"
                            "rules = no\n"
                            "[presence door]\n"
                            "kind = json\n"
                            "topic = zigbee/door\n"
                            "path = occupancy\n"
                            "[meter rail]\n"
                            "kind = modbus\n"
                            "device = /dev/ttyUSB0\n"
                            "baud = 19200\n"
                            "parity = even\n"
                            "power-register = 0x5b14\n"
                            "power-type = int32\n"
                            "power-unit = 0.01 W\n"
                            "energy-register = none\n"
                            "registers = holding\n"
                            "[unit]\n"
                            "metrics = 9105\n"
                            "[limits]\n"
                            "outbox = 2M\n";

static int parsed(const char *text)
{
    struct unit_config *made;
    int r = unit_config_parse(text, "x.conf", &made, &err);

    if (r == 0) {
        config = *made;
        free(made);
    }
    return r;
}

static void every_key_is_understood(void **state)
{
    if (parsed(whole) < 0)
        fail_msg("%s", err.text);
    assert_string_equal(config.name, "lab3");
    assert_string_equal(config.state_dir, "/var/lib/x");
    assert_int_equal(config.local.port, 1883);
    assert_int_equal(config.uplink.port, 8883);
    assert_string_equal(config.uplink.key, "/etc/tide/lab3.key");
    assert_int_equal(config.meters, 4);
    assert_string_equal(config.seal, "/etc/tide/hub-seal.pub");
    assert_false(config.lease);
    assert_int_equal(config.switches, 2);
    assert_int_equal(config.relay[0].channel, 2);
    assert_true(config.relay[0].command && config.relay[0].restore && config.relay[0].rules);
    assert_int_equal(config.relay[0].min_on_s, 300);
    assert_int_equal(config.relay[0].most_per_hour, 20);
    assert_true(config.relay[1].always_on);
    assert_false(config.relay[1].rules || config.relay[1].command);
    assert_int_equal(config.relay[1].coil, 16);
    assert_string_equal(config.sensor[0].path, "occupancy");
    assert_int_equal(config.meter[3].map.power, 0x5b14);
    assert_int_equal(config.meter[3].map.energy, MODBUS_NO_REGISTER);
    assert_int_equal(config.meter[3].power_scale, 10000);
    assert_int_equal(config.meter[3].bus.baud, 19200);
    assert_true(config.meter[3].map.holding);
    assert_int_equal(config.metrics_port, 9105);
    assert_string_equal(config.meter[0].bus.host, "::1");
    assert_int_equal(config.meter[0].bus.port, 1502);
    assert_int_equal(config.meter[0].bus.unit, 7);
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
    struct unit_config *none = NULL;
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
        {"[local]  # plugs\n", "x.conf:1: '  # plugs' stands behind the section's ']'; a comment"},
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
        {"[meter a]\ncovers = all", "x.conf:2: 'all' is none of area, part, other, machine"},
        {"[unit]\nname = x\n[uplink]\nbroker = h\nca = /x",
         "[uplink] needs all of ca=, cert= and key="},
        {"[unit]\nname = x\n[uplink]\nca = /x", "[uplink] has certificates and no broker="},
        {"[uplink]\nca = x", "x.conf:2: 'x' is no path"},
        {"[limits]\noutbox = 5k", "x.conf:2: '5k' is no size"},
        {"[switch a]\nkind = lamp", "x.conf:2: unknown kind 'lamp'"},
        {"[switch a]\nalways-on = maybe", "x.conf:2: 'maybe' is neither yes nor no"},
        {"[meter a]\ncovers = machine ../x", "x.conf:2: '../x' is no name of a machine"},
        {"[meter a]\nkind = ipmy", "did you mean ipmi"},
        {"[meter a]\ncipher = 18", "'18'"},
        {"[unit]\nname=x\n[meter a]\nkind=command\n", "meter 'a': kind=command needs command="},
        {"[unit]\nname=x\n[meter a]\nkind=ipmi\naddress=h\nuser=u\n", "password-file="},
        {"[unit]\nname=x\n[meter a]\nkind=redfish\nurl=http://h\n", "url=https://HOST"},
        {"[unit]\nname=x\n[meter a]\nkind=ipmi\ncovers=machine\n", "needs [tided] socket="},
        {"[unit]\nname=x\n[meter a]\nkind=ipmi\ncovers=machine m1\n", "[local] needs broker="},
        {"[unit]\nname=x\n[tided]\nsocket=/s\n[meter a]\nkind=ipmi\n",
         "beside [tided] a meter measures the machine"},
        {"[tided]\nusers = perhaps", "neither yes nor no"},
        {"[switch a]\ntopic = a/#", "x.conf:2: 'a/#' has a wildcard"},
        {"[switch a]\n[switch a]", "x.conf:2: switch 'a' stands in line 1 already"},
        {"[meter a]\nparity = strange", "x.conf:2: 'strange' is none of none, even, odd"},
        {"[meter a]\nbaud = 9601", "x.conf:2: '9601' is no rate"},
        {"[meter a]\npower-type = double", "x.conf:2: 'double' is no type"},
        {"[local]\nseal = /x", "x.conf:2: unknown key 'seal'"},
        {"[unit]\nname=x\n[switch a]\nkind=tasmota\ntopic=t\n",
         "x.conf:3: switch 'a' is switched by MQTT: [local] needs broker="},
        {"[unit]\nname=x\n[local]\nbroker=h\n[switch a]\nkind=tasmota\ntopic=t\n[switch "
         "b]\nkind=tasmota\ntopic=t\nchannel=1\nalways-on=yes\n",
         "x.conf:8: switch 'b' has the same relay as switch 'a'"},
        {"[unit]\nname=x\n[local]\nbroker=h\n[switch a]\nkind=tasmota\ntopic=t\nchannel=0\n",
         "x.conf:5: switch 'a': channels of kind = tasmota begin with 1"},
        {"[unit]\nname=x\n[presence a]\nkind=modbus\naddress=h\n",
         "x.conf:3: presence 'a' needs input="},
        {"[unit]\nname=x\n[meter a]\nkind=modbus\ndevice=/dev/x\naddress=h\n",
         "address= and device="},
        {"[unit]\nname=x\n[meter a]\nkind=modbus\ndevice=/dev/x\n[meter "
         "b]\nkind=modbus\ndevice=/dev/x\nbaud=1200\n",
         "x.conf:6: /dev/x has another baud="},
        {"[unit]\nname=x\n[switch a]\nkind=modbus\ndevice=/dev/x\ncoil=1\n[switch "
         "b]\nkind=modbus\ndevice=/dev/x\ncoil=2\nparity=even\n",
         "x.conf:7: /dev/x has another baud= or parity="},
        {"[unit]\nname=x\n[switch a]\nkind=modbus\ndevice=/dev/x\ncoil=1\n[presence "
         "b]\nkind=modbus\ndevice=/dev/x\ninput=1\nbaud=1200\n",
         "x.conf:7: /dev/x has another baud= or parity="},
        {"", "[unit] needs name="},
        {"[unit]\nname=x\n[meter a]\nkind=modbus\naddress=h\ncovers=area\n[meter "
         "b]\nkind=modbus\naddress=h\ncovers=area\n",
         "x.conf:7: meter 'b': another one covers the area already"},
    };

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(unit_config_parse(wrong[i].text, "x.conf", &none, &err), -EINVAL);
        if (!strstr(err.text, wrong[i].reason))
            fail_msg("'%s': '%s', not '%s'", wrong[i].text, err.text, wrong[i].reason);
        assert_null(none); /* untouched */
    }
    assert_true(unit_config_load("/nonexistent.conf", &none, &err) < 0);
    assert_null(none);
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

static const struct modbus_question power = {
    .unit = 1, .function = MODBUS_READ_INPUT_REGISTERS, .first = 0x34, .count = 2};

static void answers_of_modbus_are_checked(void **state)
{
    uint8_t right[] = {0, 9, 0, 0, 0, 7, 1, 4, 4, 0x42, 0xf6, 0xe9, 0x79}; /* 123.456 */
    uint8_t refusal[] = {0, 9, 0, 0, 0, 3, 1, 0x84, 2};
    struct modbus_question other = power;
    uint8_t request[MODBUS_REQUEST_MAX];
    uint16_t registers[2];
    uint64_t v;

    assert_int_equal(modbus_tcp_request(&power, 9, request), 12);
    assert_memory_equal(request, ((uint8_t[]){0, 9, 0, 0, 0, 6, 1, 4, 0, 0x34, 0, 2}), 12);
    for (size_t n = 0; n < sizeof(right); n++)
        assert_int_equal(modbus_tcp_answer(right, n, &power, 9, registers), -EAGAIN);
    assert_int_equal(modbus_tcp_answer(right, sizeof(right), &power, 9, registers), 0);
    assert_int_equal(modbus_number(registers, MODBUS_FLOAT, 1000, &v), 0);
    assert_int_equal(v, 123456);
    assert_int_equal(modbus_tcp_answer(right, sizeof(right), &power, 8, registers), -EBADMSG);
    other.unit = 2;
    assert_int_equal(modbus_tcp_answer(right, sizeof(right), &other, 9, registers), -EBADMSG);
    other = power;
    other.count = 1;
    assert_int_equal(modbus_tcp_answer(right, sizeof(right), &other, 9, registers), -EBADMSG);
    assert_int_equal(modbus_tcp_answer(refusal, sizeof(refusal), &power, 9, registers), -EPROTO);
    assert_int_equal(registers[0], 2);
}

/* The example of the specification's annex: unit 17, registers 107 to 109. */
static void frames_of_a_serial_line_have_their_checksum(void **state)
{
    struct modbus_question q = {
        .unit = 0x11, .function = MODBUS_READ_HOLDING, .first = 0x6b, .count = 3};
    uint8_t request[MODBUS_REQUEST_MAX];
    uint8_t answer[] = {0x11, 3, 6, 0xae, 0x41, 0x56, 0x52, 0x43, 0x40, 0x49, 0xad};
    uint16_t value[3];

    assert_int_equal(modbus_rtu_request(&q, request), 8);
    assert_memory_equal(request, ((uint8_t[]){0x11, 3, 0, 0x6b, 0, 3, 0x76, 0x87}), 8);
    for (size_t n = 0; n < sizeof(answer); n++)
        assert_int_equal(modbus_rtu_answer(answer, n, &q, value), -EAGAIN);
    assert_int_equal(modbus_rtu_answer(answer, sizeof(answer), &q, value), 0);
    assert_int_equal(value[2], 0x4340);
    for (size_t i = 0; i < sizeof(answer) - 2; i++) {
        answer[i] ^= 1;
        assert_true(modbus_rtu_answer(answer, sizeof(answer), &q, value) < 0);
        answer[i] ^= 1;
    }
}

static void coils_are_read_and_written(void **state)
{
    struct modbus_question read = {
        .unit = 1, .function = MODBUS_READ_COILS, .first = 19, .count = 10};
    struct modbus_question write = {
        .unit = 1, .function = MODBUS_WRITE_COIL, .first = 172, .count = 1};
    uint8_t bits[] = {0, 9, 0, 0, 0, 5, 1, 1, 2, 0xcd, 0x02}, request[MODBUS_REQUEST_MAX];
    uint8_t echo[] = {0, 9, 0, 0, 0, 6, 1, 5, 0, 0xac, 0xff, 0};
    uint16_t value[10];

    assert_int_equal(modbus_tcp_answer(bits, sizeof(bits), &read, 9, value), 0);
    assert_memory_equal(value, ((uint16_t[]){1, 0, 1, 1, 0, 0, 1, 1, 0, 1}), sizeof(value));
    assert_int_equal(modbus_tcp_request(&write, 9, request), 12);
    assert_memory_equal(request, echo, sizeof(echo));
    assert_int_equal(modbus_tcp_answer(echo, sizeof(echo), &write, 9, value), 0);
    echo[10] = 0; /* it says that it switched off */
    assert_int_equal(modbus_tcp_answer(echo, sizeof(echo), &write, 9, value), -EBADMSG);
}

static void numbers_of_every_type_are_read(void **state)
{
    static const struct {
        uint16_t registers[4];
        uint32_t type;
        uint64_t value;
    } right[] = {
        {{0x42f6, 0xe979}, MODBUS_FLOAT, 123456},
        {{0xe979, 0x42f6}, MODBUS_FLOAT_SWAPPED, 123456},
        {{42}, MODBUS_INT16, 42000},
        {{0xffff}, MODBUS_UINT16, 65535000},
        {{1, 2}, MODBUS_INT32, 65538000},
        {{2, 1}, MODBUS_INT32_SWAPPED, 65538000},
        {{0xffff, 0xffff}, MODBUS_UINT32, UINT64_C(4294967295000)},
        {{2, 1}, MODBUS_UINT32_SWAPPED, 65538000},
        {{0, 1, 0, 0}, MODBUS_UINT64, UINT64_C(4294967296000)},
    };
    static const struct {
        uint16_t registers[4];
        uint32_t type;
    } wrong[] = {
        {{0xc2f6, 0xe979}, MODBUS_FLOAT}, /* negative */
        {{0x7fc0, 0}, MODBUS_FLOAT},      /* NaN */
        {{0x7f80, 0}, MODBUS_FLOAT},      /* infinite */
        {{0xffff}, MODBUS_INT16},
        {{0xffff, 0xffff}, MODBUS_INT32},
        {{0xffff, 0xffff, 0xffff, 0xffff}, MODBUS_UINT64},
    };
    uint64_t v;

    for (size_t i = 0; i < sizeof(right) / sizeof(right[0]); i++) {
        assert_int_equal(modbus_number(right[i].registers, right[i].type, 1000, &v), 0);
        assert_int_equal(v, right[i].value);
    }
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_int_equal(modbus_number(wrong[i].registers, wrong[i].type, 1000, &v), -ERANGE);
}

static void states_are_found_by_their_path(void **state)
{
    static const char text[] = "{\"a\":true,\"b\":\"OFF\",\"c\":1,\"d\":2,\"e\":\"open\"}";
    bool on = false;

#define STATE(path) jsonpath_switch(text, strlen(text), path, &on)
    assert_int_equal(STATE("a"), 0);
    assert_true(on);
    assert_int_equal(STATE("b"), 0);
    assert_false(on);
    assert_int_equal(STATE("c"), 0);
    assert_true(on);
    assert_int_equal(STATE("d"), -EINVAL);
    assert_int_equal(STATE("e"), -EINVAL);
    assert_int_equal(STATE("f"), -ENOENT);
    assert_int_equal(jsonpath_switch("{", 1, "a", &on), -EINVAL);
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
    struct meter_config c = {.ops = &device_json, .period_s = 10};
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

/* A plug with Tasmota tells its power each 300 s, if nobody has changed that. */
static void a_meter_that_tells_seldom_is_silent_later(void **state)
{
    struct meter_config c = {.ops = &device_tasmota},
                        said = {.ops = &device_tasmota, .period_s = 300};
    struct device d = device_of(&c);
    uint64_t t = 100 * NS_PER_S;

    assert_true(device_silent(&d, t));
    device_watts(&d, t, 60000000);
    assert_false(device_silent(&d, t + 120 * NS_PER_S));
    assert_true(device_silent(&d, t + 121 * NS_PER_S));
    device_watts(&d, t += 300 * NS_PER_S, 60000000);
    assert_false(device_silent(&d, t + 600 * NS_PER_S));
    assert_true(device_silent(&d, t + 601 * NS_PER_S));
    device_watts(&d, t += 10 * NS_PER_S, 90000000); /* its power has changed */
    assert_false(device_silent(&d, t + 590 * NS_PER_S));
    assert_true(device_power_known(&d, t + 590 * NS_PER_S));
    device_energy(&d, t += 250 * NS_PER_S, 1000); /* it tells its counter alone now */
    assert_false(device_silent(&d, t + 500 * NS_PER_S));
    assert_false(device_power_known(&d, t + 500 * NS_PER_S));
    device_lost(&d, "gone");
    assert_true(device_silent(&d, t));
    device_watts(&d, t += 9000 * NS_PER_S, 60000000); /* it was away: that is no pause of its own */
    assert_true(device_silent(&d, t + 601 * NS_PER_S));
    device_watts(&d, t += 9000 * NS_PER_S, 60000000); /* nobody said that it was away */
    assert_false(device_silent(&d, t + 900 * NS_PER_S));
    assert_true(device_silent(&d, t + 901 * NS_PER_S));
    for (int i = 0; i < 800; i++)
        device_watts(&d, t += 10 * NS_PER_S, 60000000);
    assert_true(device_silent(&d, t + 121 * NS_PER_S)); /* somebody has set it to 10 s */
    d = device_of(&said);
    device_watts(&d, t, 60000000);
    assert_false(device_silent(&d, t + 600 * NS_PER_S));
    assert_true(device_silent(&d, t + 601 * NS_PER_S));
}

static void a_hole_is_what_no_counter_bridges(void **state)
{
    struct meter_config c = {.ops = &device_json, .most_uw = 1000 * UINT64_C(1000000)};
    struct device d = device_of(&c);
    uint64_t t = 100 * NS_PER_S;

    device_energy(&d, t, 5000000000);
    assert_true(d.hole); /* what it drew before */
    d.hole = false;
    device_energy(&d, t += 5000 * NS_PER_S, 9000000000);
    assert_false(d.hole);
    device_energy(&d, t += 10 * NS_PER_S, 7000000); /* somebody reset it */
    assert_true(d.hole);
    d = device_of(&c);
    d.stored_uj = 5000000000;
    d.stored_ms = clock_real_ms() - 10000;
    device_energy(&d, t, 7000000000); /* it bridges a restart */
    assert_false(d.hole);
    d = device_of(&c);
    device_watts(&d, t, 40000000);
    d.hole = false;
    device_watts(&d, t += 50 * NS_PER_S, 40000000);
    assert_false(d.hole);
    device_watts(&d, t += 70 * NS_PER_S, 40000000); /* no counter, and silent for too long */
    assert_true(d.hole);
}

/* ---- a machine's link ------------------------------------------------------------------------ */

static void a_node_of_a_cluster_needs_no_parent(void **state)
{
    static const char text[] = "[unit]\nname = m1\n[tided]\nsocket = /run/tide/api.sock\n%s";
    static const char *const wrong[][2] = {
        {"", "[uplink], [kubernetes] or a meter"},
        {"[kubernetes]\nnode = Node_1\n", "x.conf:6: 'Node_1' is no name of a node"},
        {"[kubernetes]\nnode = ../pods\n", "no name of a node"},
        {"[kubernetes]\nserver = http://10.0.0.1\n", "no https://HOST:PORT"},
        {"[kubernetes]\nserver = https://10.0.0.1/\n", "no https://HOST:PORT"},
        {"[kubernetes]\nvalid = 1s\n", "at least 2s"},
        {"[kubernetes]\ncredentials = token\n", "begins with /"},
        {"[kubernetes]\ncredential = /x\n", "did you mean 'credentials'?"},
    };
    char whole_text[512];

    (void)state;
    snprintf(whole_text, sizeof(whole_text), text,
             "[kubernetes]\nnode = ip-10-0-0-1.ec2.internal\nserver = https://10.0.0.1:6443\n"
             "credentials = /c\nvalid = 30s\n");
    assert_int_equal(parsed(whole_text), 0);
    assert_true(config.kubernetes.named && config.kubernetes.valid_s == 30);
    assert_string_equal(config.kubernetes.node, "ip-10-0-0-1.ec2.internal");
    assert_string_equal(config.kubernetes.server, "https://10.0.0.1:6443");
    assert_string_equal(config.kubernetes.credentials, "/c");
    assert_int_equal(parsed(strstr(whole_text, "[tided]")), 0);
    assert_string_equal(config.name, "ip-10-0-0-1-ec2-internal");
    snprintf(whole_text, sizeof(whole_text), text, "[kubernetes]\n");
    assert_int_equal(parsed(whole_text), 0);
    assert_true(config.kubernetes.named && !config.kubernetes.node[0]);
    assert_int_equal(config.kubernetes.valid_s, 120);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        snprintf(whole_text, sizeof(whole_text), text, wrong[i][0]);
        assert_int_equal(parsed(whole_text), -EINVAL);
        if (!strstr(err.text, wrong[i][1]))
            fail_msg("'%s', not '%s'", err.text, wrong[i][1]);
    }
    assert_int_equal(parsed("[unit]\nname = a\n[kubernetes]\n"), -EINVAL);
    assert_non_null(strstr(err.text, "needs [tided] socket="));
}

static void less_is_told_at_once_and_more_after_a_while(void **state)
{
    struct kubernetes_told untold = {.mcpu = KUBERNETES_UNTOLD};
    struct kubernetes_told none = {.mcpu = KUBERNETES_NO_CAP, .at_ns = 100 * NS_PER_S};
    struct kubernetes_told told = {.mcpu = 4000, .at_ns = 100 * NS_PER_S};
    uint64_t soon = 101 * NS_PER_S, later = 111 * NS_PER_S, half = 160 * NS_PER_S;

    (void)state;
    assert_true(kubernetes_due(&untold, KUBERNETES_NO_CAP, soon, 120)); /* what was left behind */
    assert_false(kubernetes_due(&none, KUBERNETES_NO_CAP, half, 120));
    assert_true(kubernetes_due(&none, 4000, soon, 120));
    assert_true(kubernetes_due(&told, KUBERNETES_NO_CAP, soon, 120));
    assert_true(kubernetes_due(&told, 3900, soon, 120));
    assert_false(kubernetes_due(&told, 4000, later, 120));
    assert_false(kubernetes_due(&told, 8000, soon, 120));
    assert_false(kubernetes_due(&told, 4100, later, 120)); /* not worth a request */
    assert_true(kubernetes_due(&told, 4300, later, 120));
    assert_false(kubernetes_due(&told, 4000, half - 1, 120));
    assert_true(kubernetes_due(&told, 4000, half, 120));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_is_understood),
        cmocka_unit_test(a_mistake_is_told_with_its_line),
        cmocka_unit_test(a_node_of_a_cluster_needs_no_parent),
        cmocka_unit_test(less_is_told_at_once_and_more_after_a_while),
        cmocka_unit_test(numbers_are_found_by_their_path),
        cmocka_unit_test(answers_of_modbus_are_checked),
        cmocka_unit_test(frames_of_a_serial_line_have_their_checksum),
        cmocka_unit_test(coils_are_read_and_written),
        cmocka_unit_test(numbers_of_every_type_are_read),
        cmocka_unit_test(states_are_found_by_their_path),
        cmocka_unit_test(a_counters_energy_is_summed_and_its_resets_are_gaps),
        cmocka_unit_test(a_counter_bridges_a_restart),
        cmocka_unit_test(a_meter_that_tells_seldom_is_silent_later),
        cmocka_unit_test(a_hole_is_what_no_counter_bridges),
        cmocka_unit_test(watts_are_summed_where_there_is_no_counter),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

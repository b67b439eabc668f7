/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/config_private.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/suggest.h"
#include "power/measure/amount.h"
#include "unit/device/kinds.h"
#include "unit/switch/kinds.h"

#define PORT_MODBUS  502
#define BAUD         9600
#define MICRO        UINT64_C(1000000)
#define KWH_UJ       UINT64_C(3600000000000)
#define CHANNEL_MAX  63
#define REGISTER_MAX 65535

static const struct modbus_address no_address = {
    .port = PORT_MODBUS, .baud = BAUD, .parity = 'N', .unit = 1};

/* ---- Modbus ---------------------------------------------------------------------------------- */

static int take_type(struct reader *r, const char *value, uint32_t *ret)
{
    static const char *const types[] = {
        [MODBUS_FLOAT] = "float",
        [MODBUS_FLOAT_SWAPPED] = "float-swapped",
        [MODBUS_INT16] = "int16",
        [MODBUS_UINT16] = "uint16",
        [MODBUS_INT32] = "int32",
        [MODBUS_UINT32] = "uint32",
        [MODBUS_INT32_SWAPPED] = "int32-swapped",
        [MODBUS_UINT32_SWAPPED] = "uint32-swapped",
        [MODBUS_UINT64] = "uint64",
    };

    for (uint32_t i = 0; i < MODBUS_TYPE_MAX; i++)
        if (strcmp(value, types[i]) == 0) {
            *ret = i;
            return 0;
        }
    return config_wrong(r,
                        "'%s' is no type of registers: float, int16, uint16, int32, uint32, "
                        "uint64, or float-swapped, int32-swapped, uint32-swapped",
                        value);
}

static int take_register(struct reader *r, const char *value, uint32_t *ret)
{
    uint64_t n;

    if (strcmp(value, "none") == 0) {
        *ret = MODBUS_NO_REGISTER;
        return 0;
    }
    if (config_take_number(r, value, 0, REGISTER_MAX, &n) < 0)
        return -EINVAL;
    *ret = (uint32_t)n;
    return 0;
}

static int take_parity(struct reader *r, const char *value, char *ret)
{
    *ret = strcmp(value, "none") == 0   ? 'N'
           : strcmp(value, "even") == 0 ? 'E'
           : strcmp(value, "odd") == 0  ? 'O'
                                        : '\0';
    return *ret ? 0 : config_wrong(r, "'%s' is none of none, even, odd", value);
}

static int take_baud(struct reader *r, const char *value, uint32_t *ret)
{
    static const uint32_t rates[] = {1200, 2400, 4800, 9600, 19200, 38400, 57600, 115200};
    uint64_t n;

    if (config_take_number(r, value, 1, 115200, &n) < 0)
        return -EINVAL;
    for (size_t i = 0; i < ARRAY_LEN(rates); i++)
        if (rates[i] == n) {
            *ret = rates[i];
            return 0;
        }
    return config_wrong(r, "'%s' is no rate of a serial line: 9600, 19200, 38400, ...", value);
}

/* The keys of an address. Returns 1: it is none of them. */
static int set_bus(struct reader *r, const char *key, const char *value, struct modbus_address *a)
{
    uint64_t n;

    if (strcmp(key, "address") == 0)
        return config_take_address(r, value, a->host, &a->port);
    if (strcmp(key, "device") == 0)
        return value[0] == '/' ? config_take_text(r, value, a->tty, sizeof(a->tty))
                               : config_wrong(r, "'%s' is no path like /dev/ttyUSB0", value);
    if (strcmp(key, "baud") == 0)
        return take_baud(r, value, &a->baud);
    if (strcmp(key, "parity") == 0)
        return take_parity(r, value, &a->parity);
    if (strcmp(key, "modbus-unit") != 0)
        return 1;
    if (config_take_number(r, value, 0, 255, &n) < 0)
        return -EINVAL;
    a->unit = (uint8_t)n;
    return 0;
}

/* The meters' addresses, then the switches', then the presence sensors'. */
static const struct modbus_address *bus(const struct unit_config *c, unsigned i)
{
    if (i < c->meters)
        return &c->meter[i].bus;
    i -= c->meters;
    return i < c->switches ? &c->relay[i].bus : &c->sensor[i - c->switches].bus;
}

/* All devices on one line speak at one rate. @a is compared with those before it, as bus() goes. */
static int check_bus(struct reader *r, const struct modbus_address *a)
{
    const struct modbus_address *other;

    if (a->host[0] && a->tty[0])
        return config_wrong(r, "address= and device= exclude each other: write one of them");
    for (unsigned i = 0; a->tty[0] && (other = bus(r->config, i)) != a; i++)
        if (strcmp(a->tty, other->tty) == 0 &&
            (a->baud != other->baud || a->parity != other->parity))
            return config_wrong(r, "%s has another baud= or parity= at another device", a->tty);
    return 0;
}

/* ---- meters ---------------------------------------------------------------------------------- */

static int set_kind(struct reader *r, const char *value)
{
    size_t n;
    const char *const *kinds = device_kinds(&n);
    const char *near;

    r->meter->ops = device_kind(value);
    if (r->meter->ops)
        return 0;
    near = suggest_nearest(value, kinds, n);
    return config_wrong(r, "unknown kind '%s'; %s%s", value, near ? "did you mean " : "there are ",
                        near ? near : "tasmota, shelly, json, modbus, command, ipmi, redfish");
}

/* Registers. Returns 1: it is no key of these. */
static int set_map(struct reader *r, const char *key, const char *value)
{
    struct modbus_map *m = &r->meter->map;

    if (strcmp(key, "power-register") == 0)
        return take_register(r, value, &m->power);
    if (strcmp(key, "energy-register") == 0)
        return take_register(r, value, &m->energy);
    if (strcmp(key, "power-type") == 0)
        return take_type(r, value, &m->power_type);
    if (strcmp(key, "energy-type") == 0)
        return take_type(r, value, &m->energy_type);
    if (strcmp(key, "registers") != 0)
        return 1;
    m->holding = strcmp(value, "holding") == 0;
    return m->holding || strcmp(value, "input") == 0
               ? 0
               : config_wrong(r, "'%s' is neither 'input' nor 'holding'", value);
}

/* Keys of programs and management controllers. Returns 1: it is no key of these. */
static int set_controller(struct reader *r, const char *key, const char *value)
{
    struct meter_config *m = r->meter;
    uint64_t n;

    if (strcmp(key, "command") == 0)
        return config_take_text(r, value, m->command, sizeof(m->command));
    if (strcmp(key, "sensor") == 0)
        return config_take_text(r, value, m->sensor, sizeof(m->sensor));
    if (strcmp(key, "url") == 0)
        return config_take_text(r, value, m->url, sizeof(m->url));
    if (strcmp(key, "user") == 0)
        return config_take_text(r, value, m->user, sizeof(m->user));
    if (strcmp(key, "password-file") == 0)
        return config_take_path(r, value, m->password_file);
    if (strcmp(key, "ca") == 0)
        return config_take_path(r, value, m->ca);
    if (strcmp(key, "cipher") != 0)
        return 1;
    if (config_take_number(r, value, 1, 17, &n) < 0)
        return -EINVAL;
    snprintf(m->cipher, sizeof(m->cipher), "%u", (unsigned)n);
    return 0;
}

/* "area", "part", "other", "machine", "machine NAME" */
static int take_covers(struct reader *r, const char *value)
{
    struct meter_config *m = r->meter;
    const char *name = value + strlen("machine");

    m->covers_area = strcmp(value, "area") == 0;
    m->covers_machine = strncmp(value, "machine", strlen("machine")) == 0 && strchr(" \t", *name);
    m->covers_other = strcmp(value, "other") == 0;
    if (m->covers_area || m->covers_other || strcmp(value, "part") == 0)
        return 0;
    if (!m->covers_machine)
        return config_wrong(r, "'%s' is none of area, part, other, machine, machine NAME", value);
    name += strspn(name, " \t");
    if (*name && !edge_name_valid(name))
        return config_wrong(r, "'%s' is no name of a machine", name);
    return config_take_text(r, name, m->machine, sizeof(m->machine));
}

int config_set_meter(struct reader *r, const char *key, const char *value)
{
    static const char *const keys[] = {
        "kind",       "topic",         "power-path",  "energy-path",
        "power-unit", "energy-unit",   "address",     "device",
        "baud",       "parity",        "modbus-unit", "power-register",
        "power-type", "energy-type",   "registers",   "energy-register",
        "error",      "most",          "period",      "covers",
        "command",    "sensor",        "cipher",      "url",
        "user",       "password-file", "ca"};
    struct meter_config *m = r->meter;
    int taken;

    if (strcmp(key, "kind") == 0)
        return set_kind(r, value);
    if (strcmp(key, "topic") == 0)
        return config_take_topic(r, value, m->topic, sizeof(m->topic));
    if (strcmp(key, "power-path") == 0)
        return config_take_text(r, value, m->power_path, sizeof(m->power_path));
    if (strcmp(key, "energy-path") == 0)
        return config_take_text(r, value, m->energy_path, sizeof(m->energy_path));
    if (strcmp(key, "power-unit") == 0)
        return config_take_scale(r, value, AMOUNT_POWER, &m->power_scale);
    if (strcmp(key, "energy-unit") == 0)
        return config_take_scale(r, value, AMOUNT_ENERGY, &m->energy_scale);
    if (strcmp(key, "error") == 0)
        return config_take_percent(r, value, &m->error_permille);
    if (strcmp(key, "most") == 0)
        return config_take_watts(r, value, &m->most_uw);
    if (strcmp(key, "period") == 0)
        return config_take_duration(r, value, &m->period_s);
    if (strcmp(key, "covers") == 0)
        return take_covers(r, value);
    taken = set_bus(r, key, value, &m->bus);
    if (taken == 1)
        taken = set_controller(r, key, value);
    if (taken == 1)
        taken = set_map(r, key, value);
    return taken == 1 ? config_unknown_key(r, key, keys, ARRAY_LEN(keys)) : taken;
}

/* @first: of a list of @count sections of @size bytes, each beginning with its line and name. */
static int check_name(struct reader *r, const char *name, const char *what, unsigned count,
                      unsigned most, const void *first, size_t size)
{
    const struct {
        unsigned line;
        char name[CONFIG_NAME_MAX];
    } * other;

    if (strlen(name) >= CONFIG_NAME_MAX || !edge_name_valid(name))
        return config_wrong(r, "'%s' is no name of a %s: a-z, 0-9 and dashes inside", name, what);
    for (unsigned i = 0; i < count; i++) {
        other = (const void *)((const char *)first + i * size);
        if (strcmp(other->name, name) == 0)
            return config_wrong(r, "%s '%s' stands in line %u already", what, name, other->line);
    }
    return count < most ? 0 : config_wrong(r, "more than %u of [%s NAME]", most, what);
}

int config_begin_meter(struct reader *r, const char *name)
{
    struct unit_config *c = r->config;

    if (check_name(r, name, "meter", c->meters, CONFIG_METERS_MAX, c->meter, sizeof(*c->meter)) < 0)
        return -EINVAL;
    r->meter = &c->meter[c->meters++];
    *r->meter = (struct meter_config){.line = r->line,
                                      .bus = no_address,
                                      .map = {.power = 0x34, .energy = 0x48},
                                      .power_scale = MICRO,
                                      .energy_scale = KWH_UJ,
                                      .error_permille = 20};
    return config_take_text(r, name, r->meter->name, sizeof(r->meter->name));
}

/* ---- switches -------------------------------------------------------------------------------- */

int config_begin_switch(struct reader *r, const char *name)
{
    struct unit_config *c = r->config;

    if (check_name(r, name, "switch", c->switches, CONFIG_SWITCHES_MAX, c->relay,
                   sizeof(*c->relay)) < 0)
        return -EINVAL;
    r->relay = &c->relay[c->switches++];
    *r->relay = (struct switch_config){.line = r->line,
                                       .channel = -1,
                                       .bus = no_address,
                                       .coil = MODBUS_NO_REGISTER,
                                       .rules = true};
    return config_take_text(r, name, r->relay->name, sizeof(r->relay->name));
}

static int take_channel(struct reader *r, const char *value, int32_t *ret)
{
    uint64_t n;

    if (config_take_number(r, value, 0, CHANNEL_MAX, &n) < 0)
        return -EINVAL;
    *ret = (int32_t)n;
    return 0;
}

static int set_relay_kind(struct reader *r, const char *value)
{
    r->relay->ops = relay_kind(value);
    return r->relay->ops
               ? 0
               : config_wrong(r, "unknown kind '%s'; there are tasmota, shelly, modbus", value);
}

int config_set_switch(struct reader *r, const char *key, const char *value)
{
    static const char *const keys[] = {
        "kind", "topic",     "channel", "address", "device",  "baud",   "parity",  "modbus-unit",
        "coil", "always-on", "command", "rules",   "restore", "min-on", "min-off", "most-per-hour"};
    struct switch_config *s = r->relay;
    uint64_t n;
    int taken;

    if (strcmp(key, "kind") == 0)
        return set_relay_kind(r, value);
    if (strcmp(key, "topic") == 0)
        return config_take_topic(r, value, s->topic, sizeof(s->topic));
    if (strcmp(key, "channel") == 0)
        return take_channel(r, value, &s->channel);
    if (strcmp(key, "coil") == 0)
        return take_register(r, value, &s->coil);
    if (strcmp(key, "always-on") == 0)
        return config_take_yes(r, value, &s->always_on);
    if (strcmp(key, "command") == 0)
        return config_take_yes(r, value, &s->command);
    if (strcmp(key, "rules") == 0)
        return config_take_yes(r, value, &s->rules);
    if (strcmp(key, "restore") == 0)
        return config_take_yes(r, value, &s->restore);
    if (strcmp(key, "min-on") == 0)
        return config_take_duration(r, value, &s->min_on_s);
    if (strcmp(key, "min-off") == 0)
        return config_take_duration(r, value, &s->min_off_s);
    if (strcmp(key, "most-per-hour") == 0) {
        if (config_take_number(r, value, 1, 3600, &n) < 0)
            return -EINVAL;
        s->most_per_hour = (uint32_t)n;
        return 0;
    }
    taken = set_bus(r, key, value, &s->bus);
    return taken == 1 ? config_unknown_key(r, key, keys, ARRAY_LEN(keys)) : taken;
}

/* ---- presence -------------------------------------------------------------------------------- */

int config_begin_presence(struct reader *r, const char *name)
{
    struct unit_config *c = r->config;

    if (check_name(r, name, "presence", c->sensors, CONFIG_SENSORS_MAX, c->sensor,
                   sizeof(*c->sensor)) < 0)
        return -EINVAL;
    r->sensor = &c->sensor[c->sensors++];
    *r->sensor = (struct presence_config){
        .line = r->line, .channel = -1, .bus = no_address, .input = MODBUS_NO_REGISTER};
    return config_take_text(r, name, r->sensor->name, sizeof(r->sensor->name));
}

int config_set_presence(struct reader *r, const char *key, const char *value)
{
    static const char *const keys[] = {"kind",   "topic", "path",   "channel",     "address",
                                       "device", "baud",  "parity", "modbus-unit", "input"};
    struct presence_config *s = r->sensor;
    int taken;

    if (strcmp(key, "kind") == 0) {
        s->ops = sensor_kind(value);
        return s->ops ? 0
                      : config_wrong(
                            r, "unknown kind '%s'; there are tasmota, shelly, json, modbus", value);
    }
    if (strcmp(key, "topic") == 0)
        return config_take_topic(r, value, s->topic, sizeof(s->topic));
    if (strcmp(key, "path") == 0)
        return config_take_text(r, value, s->path, sizeof(s->path));
    if (strcmp(key, "channel") == 0)
        return take_channel(r, value, &s->channel);
    if (strcmp(key, "input") == 0)
        return take_register(r, value, &s->input);
    taken = set_bus(r, key, value, &s->bus);
    return taken == 1 ? config_unknown_key(r, key, keys, ARRAY_LEN(keys)) : taken;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int check_covers(struct reader *r, const struct meter_config *m)
{
    const struct unit_config *c = r->config;
    bool own = m->covers_machine && !m->machine[0];

    if (own && !c->tided_socket[0])
        return config_wrong(
            r, "meter '%s': 'covers = machine' needs [tided] socket=, or the machine's name",
            m->name);
    if (!own && c->tided_socket[0])
        return config_wrong(r,
                            "meter '%s': beside [tided] a meter measures the machine: "
                            "write covers = machine",
                            m->name);
    if (m->machine[0] && !c->local.named)
        return config_wrong(r, "meter '%s': machines hear by MQTT: [local] needs broker=", m->name);
    return 0;
}

static int check_meters(struct reader *r)
{
    struct unit_config *c = r->config;
    unsigned covering = 0;

    for (unsigned i = 0; i < c->meters; i++) {
        struct meter_config *m = &c->meter[i];
        char why[ERROR_TEXT_MAX];

        r->line = m->line;
        if (!m->ops)
            return config_wrong(r, "meter '%s' needs kind=", m->name);
        if (device_config_check(m, why, sizeof(why)) < 0)
            return config_wrong(r, "meter '%s': %s", m->name, why);
        if (m->ops->broker && !c->local.named)
            return config_wrong(r, "meter '%s' comes by MQTT: [local] needs broker=", m->name);
        if (check_covers(r, m) < 0)
            return -EINVAL;
        if (m->covers_area && covering++)
            return config_wrong(r, "meter '%s': another one covers the area already", m->name);
        if (check_bus(r, &m->bus) < 0)
            return -EINVAL;
    }
    return 0;
}

static int check_switches(struct reader *r)
{
    struct unit_config *c = r->config;

    for (unsigned i = 0; i < c->switches; i++) {
        struct switch_config *s = &c->relay[i];
        const char *lacks = s->ops ? s->ops->lacks(s) : "kind=";

        r->line = s->line;
        if (lacks)
            return config_wrong(r, "switch '%s' needs %s", s->name, lacks);
        if (s->ops->broker && !c->local.named)
            return config_wrong(r,
                                "switch '%s' is switched by MQTT: [local] needs broker=", s->name);
        if (s->channel >= 0 && s->channel < s->ops->first_channel) /* POWER0 is all of a device's */
            return config_wrong(r, "switch '%s': channels of kind = %s begin with %d", s->name,
                                s->ops->kind, (int)s->ops->first_channel);
        if (s->always_on && s->restore)
            return config_wrong(r, "switch '%s' is always on: nothing is restored", s->name);
        for (unsigned k = 0; k < i; k++)
            if (relay_same(s, &c->relay[k]))
                return config_wrong(r, "switch '%s' has the same relay as switch '%s'", s->name,
                                    c->relay[k].name);
        if (check_bus(r, &s->bus) < 0)
            return -EINVAL;
    }
    return 0;
}

static int check_sensors(struct reader *r)
{
    struct unit_config *c = r->config;

    for (unsigned i = 0; i < c->sensors; i++) {
        struct presence_config *s = &c->sensor[i];
        const char *lacks = s->ops ? s->ops->lacks(s) : "kind=";

        r->line = s->line;
        if (lacks)
            return config_wrong(r, "presence '%s' needs %s", s->name, lacks);
        if (s->ops->broker && !c->local.named)
            return config_wrong(r, "presence '%s' comes by MQTT: [local] needs broker=", s->name);
        if (check_bus(r, &s->bus) < 0)
            return -EINVAL;
    }
    return 0;
}

int config_check_devices(struct reader *r)
{
    if (check_meters(r) < 0 || check_switches(r) < 0)
        return -EINVAL;
    return check_sensors(r);
}

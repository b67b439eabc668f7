/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/config.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/moment.h"
#include "base/muldiv.h"
#include "base/size.h"
#include "base/suggest.h"
#include "base/wholefile.h"
#include "power/cap/caps.h"
#include "power/measure/amount.h"
#include "unit/device/kinds.h"

#define OUTBOX_BYTES (UINT64_C(64) << 20)
#define PORT_PLAIN   1883
#define PORT_TLS     8883
#define PORT_MODBUS  502
#define MICRO        UINT64_C(1000000)
#define PERIOD_MAX_S 3600

enum section {
    SECTION_NONE,
    SECTION_UNIT,
    SECTION_LOCAL,
    SECTION_UPLINK,
    SECTION_METER,
    SECTION_CHILD,
    SECTION_TIDED,
    SECTION_LIMITS
};

static const struct {
    const char *word;
    enum section section;
    bool named; /* [meter NAME] */
} sections[] = {{"unit", SECTION_UNIT, false},     {"local", SECTION_LOCAL, false},
                {"uplink", SECTION_UPLINK, false}, {"meter", SECTION_METER, true},
                {"child", SECTION_CHILD, true},    {"tided", SECTION_TIDED, false},
                {"limits", SECTION_LIMITS, false}};

struct reader {
    const char *file;
    unsigned line;
    enum section section;
    struct unit_config *config;
    struct meter_config *meter; /* of the section */
    struct child_config *child;
    struct error *err;
};

static __attribute__((format(printf, 2, 3))) int wrong(struct reader *r, const char *fmt, ...)
{
    char text[ERROR_TEXT_MAX];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    return error_set(r->err, -EINVAL, "%.80s:%u: %.160s", r->file, r->line, text);
}

/* ---- values ---------------------------------------------------------------------------------- */

static int take_text(struct reader *r, const char *value, char *ret, size_t size)
{
    if ((size_t)snprintf(ret, size, "%s", value) >= size)
        return wrong(r, "longer than %zu characters", size - 1);
    return 0;
}

static int take_path(struct reader *r, const char *value, char *ret)
{
    if (value[0] != '/')
        return wrong(r, "'%s' is no path that begins with /", value);
    return take_text(r, value, ret, CONFIG_PATH_MAX);
}

static int take_number(struct reader *r, const char *value, uint64_t least, uint64_t most,
                       uint64_t *ret)
{
    char *end;
    unsigned long long n;

    errno = 0;
    n = strtoull(value, &end, 10);
    if (errno || *end || !isdigit((unsigned char)*value) || n < least || n > most)
        return wrong(r, "'%s' is no number from %llu to %llu", value, (unsigned long long)least,
                     (unsigned long long)most);
    *ret = n;
    return 0;
}

/* HOST, HOST:PORT, [ADDRESS]:PORT */
static int take_address(struct reader *r, const char *value, char *host, uint16_t *port)
{
    const char *end = value[0] == '[' ? strchr(value, ']') : NULL;
    const char *begin = end ? value + 1 : value, *colon = strchr(end ? end : value, ':');
    size_t len = (size_t)((end ? end : colon ? colon : value + strlen(value)) - begin);
    uint64_t n;

    if (len == 0 || len >= CONFIG_TEXT_MAX)
        return wrong(r, "'%s' is no HOST or HOST:PORT", value);
    if (colon) {
        if (take_number(r, colon + 1, 1, 65535, &n) < 0)
            return -EINVAL;
        *port = (uint16_t)n;
    }
    memcpy(host, begin, len);
    host[len] = '\0';
    return 0;
}

static int take_duration(struct reader *r, const char *value, uint32_t *ret_s)
{
    uint64_t ms;

    if (moment_duration(value, &ms) < 0 || ms % 1000 || ms > PERIOD_MAX_S * 1000)
        return wrong(r, "'%s' is no duration like '10s', at most 1h", value);
    *ret_s = (uint32_t)(ms / 1000);
    return 0;
}

static int take_watts(struct reader *r, const char *value, uint64_t *ret_uw)
{
    enum amount_kind kind;

    if (amount_parse(value, ret_uw, &kind) < 0 || kind != AMOUNT_POWER || !*ret_uw)
        return wrong(r, "'%s' is no power like '2.3 kW'", value);
    return 0;
}

/* "2 %" */
static int take_percent(struct reader *r, const char *value, uint32_t *ret_permille)
{
    char number[32];
    size_t n = strcspn(value, " %");
    enum amount_kind kind;
    uint64_t micro;

    snprintf(number, sizeof(number), "%.*s", (int)(n < 31 ? n : 31), value);
    if (strcmp(value + n + strspn(value + n, " "), "%") != 0 ||
        amount_parse(number, &micro, &kind) < 0 || kind != AMOUNT_PLAIN || micro > 100 * MICRO)
        return wrong(r, "'%s' is no share like '2 %%'", value);
    *ret_permille = (uint32_t)(micro / (MICRO / 10));
    return 0;
}

/* A unit as a factor: 1 kWh is 3.6e12 uJ. */
static int take_scale(struct reader *r, const char *value, enum amount_kind wanted, uint64_t *ret)
{
    char one[32];
    enum amount_kind kind;

    snprintf(one, sizeof(one), "1 %.20s", value);
    if (amount_parse(one, ret, &kind) < 0 || kind != wanted)
        return wrong(r, "'%s' is no unit of %s like '%s'", value,
                     wanted == AMOUNT_POWER ? "power" : "energy",
                     wanted == AMOUNT_POWER ? "W" : "kWh");
    return 0;
}

/* ---- keys ------------------------------------------------------------------------------------ */

static int unknown_key(struct reader *r, const char *key, const char *const *known, size_t n)
{
    const char *near = suggest_nearest(key, known, n);

    return near ? wrong(r, "unknown key '%s'; did you mean '%s'?", key, near)
                : wrong(r, "unknown key '%s' in this section", key);
}

static int take_cap_kind(struct reader *r, const char *value)
{
    for (uint32_t kind = 0; kind < CAP_KIND_MAX; kind++)
        if (strcmp(value, cap_kind_name((enum cap_kind)kind)) == 0) {
            r->config->kind = kind;
            return 0;
        }
    return wrong(r, "'%s' is none of breaker, budget, advice", value);
}

static int set_tided(struct reader *r, const char *key, const char *value)
{
    static const char *const keys[] = {"socket"};

    return strcmp(key, keys[0]) == 0 ? take_path(r, value, r->config->tided_socket)
                                     : unknown_key(r, key, keys, ARRAY_LEN(keys));
}

static int set_child(struct reader *r, const char *key, const char *value)
{
    static const char *const keys[] = {"floor", "most"};

    if (strcmp(key, "floor") == 0)
        return take_watts(r, value, &r->child->floor_uw);
    if (strcmp(key, "most") == 0)
        return take_watts(r, value, &r->child->most_uw);
    return unknown_key(r, key, keys, ARRAY_LEN(keys));
}

static int set_unit(struct reader *r, const char *key, const char *value)
{
    static const char *const keys[] = {"name", "state-dir", "cap", "kind"};

    if (strcmp(key, "name") == 0) {
        if (!edge_name_valid(value))
            return wrong(r, "'%s' is no name: a-z, 0-9 and dashes inside, at most %d", value,
                         EDGE_NAME_MAX - 1);
        return take_text(r, value, r->config->name, EDGE_NAME_MAX);
    }
    if (strcmp(key, "state-dir") == 0)
        return take_path(r, value, r->config->state_dir);
    if (strcmp(key, "cap") == 0)
        return take_watts(r, value, &r->config->cap_uw);
    if (strcmp(key, "kind") == 0)
        return take_cap_kind(r, value);
    return unknown_key(r, key, keys, ARRAY_LEN(keys));
}

static int set_broker(struct reader *r, const char *key, const char *value)
{
    static const char *const keys[] = {"broker", "ca", "cert", "key"};
    struct broker_config *b = r->section == SECTION_LOCAL ? &r->config->local : &r->config->uplink;

    if (strcmp(key, "broker") == 0) {
        b->named = true;
        return take_address(r, value, b->host, &b->port);
    }
    if (strcmp(key, "ca") == 0)
        return take_path(r, value, b->ca);
    if (strcmp(key, "cert") == 0)
        return take_path(r, value, b->cert);
    if (strcmp(key, "key") == 0)
        return take_path(r, value, b->key);
    return unknown_key(r, key, keys, ARRAY_LEN(keys));
}

static int set_kind(struct reader *r, const char *value)
{
    size_t n;
    const char *const *kinds = device_kinds(&n);
    const char *near;

    r->meter->ops = device_kind(value);
    if (r->meter->ops)
        return 0;
    near = suggest_nearest(value, kinds, n);
    return wrong(r, "unknown kind '%s'; %s%s", value, near ? "did you mean " : "there are ",
                 near ? near : "tasmota, shelly, json, modbus");
}

static int set_meter(struct reader *r, const char *key, const char *value)
{
    static const char *const keys[] = {"kind",       "topic",       "power-path", "energy-path",
                                       "power-unit", "energy-unit", "address",    "modbus-unit",
                                       "error",      "most",        "period",     "covers"};
    struct meter_config *m = r->meter;
    uint64_t n;

    if (strcmp(key, "kind") == 0)
        return set_kind(r, value);
    if (strcmp(key, "topic") == 0)
        return strpbrk(value, "+#") ? wrong(r, "'%s' has a wildcard: name one topic", value)
                                    : take_text(r, value, m->topic, sizeof(m->topic));
    if (strcmp(key, "power-path") == 0)
        return take_text(r, value, m->power_path, sizeof(m->power_path));
    if (strcmp(key, "energy-path") == 0)
        return take_text(r, value, m->energy_path, sizeof(m->energy_path));
    if (strcmp(key, "power-unit") == 0)
        return take_scale(r, value, AMOUNT_POWER, &m->power_scale);
    if (strcmp(key, "energy-unit") == 0)
        return take_scale(r, value, AMOUNT_ENERGY, &m->energy_scale);
    if (strcmp(key, "address") == 0)
        return take_address(r, value, m->host, &m->port);
    if (strcmp(key, "modbus-unit") == 0) {
        if (take_number(r, value, 0, 255, &n) < 0)
            return -EINVAL;
        m->modbus_unit = (uint8_t)n;
        return 0;
    }
    if (strcmp(key, "error") == 0)
        return take_percent(r, value, &m->error_permille);
    if (strcmp(key, "most") == 0)
        return take_watts(r, value, &m->most_uw);
    if (strcmp(key, "period") == 0)
        return take_duration(r, value, &m->period_s);
    if (strcmp(key, "covers") == 0) {
        m->covers_area = strcmp(value, "area") == 0;
        return m->covers_area || strcmp(value, "part") == 0
                   ? 0
                   : wrong(r, "'%s' is neither 'area' nor 'part'", value);
    }
    return unknown_key(r, key, keys, ARRAY_LEN(keys));
}

static int set_limit(struct reader *r, const char *key, const char *value)
{
    static const char *const keys[] = {"outbox"};

    if (strcmp(key, "outbox") != 0)
        return unknown_key(r, key, keys, ARRAY_LEN(keys));
    if (size_parse(value, &r->config->outbox_bytes) < 0 || r->config->outbox_bytes < (1 << 20))
        return wrong(r, "'%s' is no size of at least 1M", value);
    return 0;
}

static int set(struct reader *r, const char *key, const char *value)
{
    switch (r->section) {
    case SECTION_UNIT:
        return set_unit(r, key, value);
    case SECTION_LOCAL:
    case SECTION_UPLINK:
        return set_broker(r, key, value);
    case SECTION_METER:
        return set_meter(r, key, value);
    case SECTION_TIDED:
        return set_tided(r, key, value);
    case SECTION_CHILD:
        return set_child(r, key, value);
    case SECTION_LIMITS:
        return set_limit(r, key, value);
    default:
        return wrong(r, "'%s' stands before the first [section]", key);
    }
}

/* ---- sections -------------------------------------------------------------------------------- */

static int begin_meter(struct reader *r, const char *name)
{
    struct unit_config *c = r->config;

    if (!name[0] || strlen(name) >= sizeof(c->meter[0].name) || !edge_name_valid(name))
        return wrong(r, "'%s' is no name of a meter: a-z, 0-9 and dashes inside", name);
    for (unsigned i = 0; i < c->meters; i++)
        if (strcmp(c->meter[i].name, name) == 0)
            return wrong(r, "meter '%s' stands in line %u already", name, c->meter[i].line);
    if (c->meters == CONFIG_METERS_MAX)
        return wrong(r, "more than %d meters", CONFIG_METERS_MAX);
    r->meter = &c->meter[c->meters++];
    *r->meter = (struct meter_config){.line = r->line,
                                      .port = PORT_MODBUS,
                                      .modbus_unit = 1,
                                      .power_scale = MICRO,
                                      .energy_scale = UINT64_C(3600000000000),
                                      .error_permille = 20};
    return take_text(r, name, r->meter->name, sizeof(r->meter->name));
}

static int begin_child(struct reader *r, const char *name)
{
    struct unit_config *c = r->config;

    if (!edge_name_valid(name))
        return wrong(r, "'%s' is no name of a child: a-z, 0-9 and dashes inside", name);
    for (unsigned i = 0; i < c->children; i++)
        if (strcmp(c->child[i].name, name) == 0)
            return wrong(r, "child '%s' stands in line %u already", name, c->child[i].line);
    if (c->children == CONFIG_CHILDREN_MAX)
        return wrong(r, "more than %d children", CONFIG_CHILDREN_MAX);
    r->child = &c->child[c->children++];
    *r->child = (struct child_config){.line = r->line};
    return take_text(r, name, r->child->name, sizeof(r->child->name));
}

static int begin_section(struct reader *r, char *text)
{
    char *end = strchr(text, ']'), *name = strchr(text, ' ');

    if (!end || end[1])
        return wrong(r, "no ']' at the end of the section");
    *end = '\0';
    if (name)
        *name++ = '\0';
    for (size_t i = 0; i < ARRAY_LEN(sections); i++) {
        if (strcmp(text, sections[i].word) != 0)
            continue;
        if (sections[i].named != (name != NULL))
            return wrong(r, sections[i].named ? "[%s] needs a name: [%s NAME]" : "[%s] has no name",
                         text, text);
        r->section = sections[i].section;
        return r->section == SECTION_METER   ? begin_meter(r, name)
               : r->section == SECTION_CHILD ? begin_child(r, name)
                                             : 0;
    }
    return wrong(r,
                 "unknown section [%s]; there are unit, local, uplink, meter NAME, child NAME, "
                 "tided, limits",
                 text);
}

static char *trim(char *text)
{
    size_t len;

    while (isspace((unsigned char)*text))
        text++;
    for (len = strlen(text); len && isspace((unsigned char)text[len - 1]);)
        text[--len] = '\0';
    return text;
}

static int read_line(struct reader *r, char *line)
{
    char *text = trim(line), *equal;

    if (*text == '\0' || *text == '#' || *text == ';')
        return 0;
    if (*text == '[')
        return begin_section(r, text + 1);
    equal = strchr(text, '=');
    if (!equal || equal == text)
        return wrong(r, "'%s' is neither [section] nor key = value", text);
    *equal = '\0';
    text = trim(text);
    equal = trim(equal + 1);
    return *equal ? set(r, text, equal) : wrong(r, "'%s' has no value", text);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int check_broker(struct reader *r, const char *name, struct broker_config *b)
{
    bool tls = b->ca[0];

    if (!b->named)
        return tls ? wrong(r, "[%s] has certificates and no broker=", name) : 0;
    if (tls != (b->cert[0] != 0) || tls != (b->key[0] != 0))
        return wrong(r, "[%s] needs all of ca=, cert= and key=, or none", name);
    if (!b->port)
        b->port = tls ? PORT_TLS : PORT_PLAIN;
    return 0;
}

/* Floors are what children fall to: together they have to fit. */
static int check_children(struct reader *r)
{
    const struct unit_config *c = r->config;
    uint64_t floors = 0;

    if (c->children && !c->local.named)
        return wrong(r, "children speak by MQTT: [local] needs broker=");
    if (!c->children != !c->cap_uw)
        return wrong(r, c->cap_uw ? "[unit] has a cap and no [child NAME] to divide it among"
                                  : "children need [unit] cap=");
    for (unsigned i = 0; i < c->children; i++) {
        const struct child_config *k = &c->child[i];

        r->line = k->line;
        if (k->most_uw && k->most_uw < k->floor_uw)
            return wrong(r, "child '%s': most= is less than floor=", k->name);
        floors = add_sat(floors, k->floor_uw);
    }
    r->line = 0;
    return floors <= c->cap_uw ? 0 : wrong(r, "the floors of all children exceed cap=");
}

static int check(struct reader *r)
{
    struct unit_config *c = r->config;
    unsigned covering = 0;

    r->line = 0;
    if (!c->name[0])
        return wrong(r, "[unit] needs name=");
    if (check_broker(r, "local", &c->local) < 0 || check_broker(r, "uplink", &c->uplink) < 0)
        return -EINVAL;
    if (check_children(r) < 0)
        return -EINVAL;
    if (c->tided_socket[0] && (c->meters || c->children || !c->uplink.named))
        return wrong(r,
                     "[tided] links a machine to its area: it needs [uplink], no meter, no child");
    for (unsigned i = 0; i < c->meters; i++) {
        struct meter_config *m = &c->meter[i];
        char why[ERROR_TEXT_MAX];

        r->line = m->line;
        if (!m->ops)
            return wrong(r, "meter '%s' needs kind=", m->name);
        if (device_config_check(m, why, sizeof(why)) < 0)
            return wrong(r, "meter '%s': %s", m->name, why);
        if (m->ops->broker && !c->local.named)
            return wrong(r, "meter '%s' comes by MQTT: [local] needs broker=", m->name);
        if (m->covers_area && covering++)
            return wrong(r, "meter '%s': another one covers the area already", m->name);
    }
    return 0;
}

int unit_config_parse(const char *text, const char *file, struct unit_config *ret,
                      struct error *err)
{
    _cleanup_free_ struct unit_config *c = calloc(1, sizeof(*c));
    _cleanup_free_ char *copy = strdup(text);
    struct reader r = {.file = file, .config = c, .err = err};
    char *next = copy;
    int error = 0;

    if (!c || !copy)
        return error_set(err, -ENOMEM, "no memory for %s", file);
    c->outbox_bytes = OUTBOX_BYTES;
    snprintf(c->state_dir, sizeof(c->state_dir), "/var/lib/tide-power");
    while (error == 0 && next) {
        char *line = strsep(&next, "\n");

        r.line++;
        error = read_line(&r, line);
    }
    error = error ? error : check(&r);
    if (error == 0)
        *ret = *c;
    return error;
}

int unit_config_load(const char *file, struct unit_config *ret, struct error *err)
{
    _cleanup_free_ char *text = NULL;
    struct stat status;
    size_t len;
    int r = wholefile_read(file, CONFIG_BYTES_MAX, &text, &len, &status);

    if (r < 0)
        return error_set(err, r, "cannot read the configuration %s: %s", file, strerror(-r));
    if (strlen(text) != len)
        return error_set(err, -EINVAL, "%s: holds a NUL byte", file);
    return unit_config_parse(text, file, ret, err);
}

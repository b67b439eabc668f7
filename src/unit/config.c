/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/config_private.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/muldiv.h"
#include "base/size.h"
#include "base/wholefile.h"
#include "power/cap/caps.h"

#define ERROR_WORD "config-error"

#define OUTBOX_BYTES    (UINT64_C(64) << 20)
#define PORT_PLAIN      1883
#define PORT_TLS        8883
#define VALID_S         120
#define SERVICE_ACCOUNT "/var/run/secrets/kubernetes.io/serviceaccount"

static const struct {
    const char *word;
    enum section section;
    bool named; /* [meter NAME] */
} sections[] = {{"unit", SECTION_UNIT, false},
                {"local", SECTION_LOCAL, false},
                {"uplink", SECTION_UPLINK, false},
                {"meter", SECTION_METER, true},
                {"child", SECTION_CHILD, true},
                {"switch", SECTION_SWITCH, true},
                {"presence", SECTION_PRESENCE, true},
                {"tided", SECTION_TIDED, false},
                {"kubernetes", SECTION_KUBERNETES, false},
                {"limits", SECTION_LIMITS, false}};

/* ---- keys ------------------------------------------------------------------------------------ */

static int take_cap_kind(struct reader *r, const char *value)
{
    for (uint32_t kind = 0; kind < CAP_KIND_MAX; kind++)
        if (strcmp(value, cap_kind_name((enum cap_kind)kind)) == 0) {
            r->config->kind = kind;
            return 0;
        }
    return config_wrong(r, "'%s' is none of breaker, budget, advice", value);
}

static int set_tided(struct reader *r, const char *key, const char *value)
{
    static const char *const keys[] = {"socket", "users"};

    if (strcmp(key, "socket") == 0)
        return config_take_path(r, value, r->config->tided_socket);
    if (strcmp(key, "users") == 0)
        return config_take_yes(r, value, &r->config->tells_users);
    return config_unknown_key(r, key, keys, ARRAY_LEN(keys));
}

bool kubernetes_node_valid(const char *name)
{
    size_t len = strlen(name);

    return len > 0 && len < KUBERNETES_NODE_MAX && isalnum((unsigned char)name[0]) &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789.-") == len;
}

static int set_kubernetes(struct reader *r, const char *key, const char *value)
{
    static const char *const keys[] = {"node", "server", "credentials", "valid"};
    struct kubernetes_config *k = &r->config->kubernetes;

    if (strcmp(key, "node") == 0)
        return kubernetes_node_valid(value) ? config_take_text(r, value, k->node, sizeof(k->node))
                                            : config_wrong(r, "'%s' is no name of a node", value);
    if (strcmp(key, "server") == 0)
        return strncmp(value, "https://", 8) == 0 && value[strlen(value) - 1] != '/'
                   ? config_take_text(r, value, k->server, sizeof(k->server))
                   : config_wrong(r, "'%s' is no https://HOST:PORT", value);
    if (strcmp(key, "credentials") == 0)
        return config_take_path(r, value, k->credentials);
    if (strcmp(key, "valid") == 0)
        return config_take_duration(r, value, &k->valid_s) < 0 ? -EINVAL
               : k->valid_s < 2 ? config_wrong(r, "valid= is at least 2s")
                                : 0;
    return config_unknown_key(r, key, keys, ARRAY_LEN(keys));
}

static int set_child(struct reader *r, const char *key, const char *value)
{
    static const char *const keys[] = {"floor", "most"};

    if (strcmp(key, "floor") == 0)
        return config_take_watts(r, value, &r->child->floor_uw);
    if (strcmp(key, "most") == 0)
        return config_take_watts(r, value, &r->child->most_uw);
    return config_unknown_key(r, key, keys, ARRAY_LEN(keys));
}

static int set_unit(struct reader *r, const char *key, const char *value)
{
    static const char *const keys[] = {"name", "state-dir", "cap", "kind", "metrics"};

    if (strcmp(key, "name") == 0) {
        if (!edge_name_valid(value))
            return config_wrong(r, "'%s' is no name: a-z, 0-9 and dashes inside, at most %d", value,
                                EDGE_NAME_MAX - 1);
        return config_take_text(r, value, r->config->name, EDGE_NAME_MAX);
    }
    if (strcmp(key, "state-dir") == 0)
        return config_take_path(r, value, r->config->state_dir);
    if (strcmp(key, "cap") == 0)
        return config_take_watts(r, value, &r->config->cap_uw);
    if (strcmp(key, "kind") == 0)
        return take_cap_kind(r, value);
    if (strcmp(key, "metrics") == 0) {
        uint64_t port;

        if (config_take_number(r, value, 0, 65535, &port) < 0)
            return -EINVAL;
        r->config->metrics_port = (uint16_t)port;
        r->config->metrics = true;
        return 0;
    }
    return config_unknown_key(r, key, keys, ARRAY_LEN(keys));
}

static int set_broker(struct reader *r, const char *key, const char *value)
{
    static const char *const keys[] = {"broker", "ca", "cert", "key", "seal", "lease"};
    bool local = r->section == SECTION_LOCAL;
    struct broker_config *b = local ? &r->config->local : &r->config->uplink;

    if (strcmp(key, "broker") == 0) {
        b->named = true;
        return config_take_address(r, value, b->host, &b->port);
    }
    if (strcmp(key, "ca") == 0)
        return config_take_path(r, value, b->ca);
    if (strcmp(key, "cert") == 0)
        return config_take_path(r, value, b->cert);
    if (strcmp(key, "key") == 0)
        return config_take_path(r, value, b->key);
    if (!local && strcmp(key, "seal") == 0)
        return config_take_path(r, value, r->config->seal);
    if (!local && strcmp(key, "lease") == 0)
        return config_take_yes(r, value, &r->config->lease);
    return config_unknown_key(r, key, keys, ARRAY_LEN(keys) - (local ? 2 : 0));
}

static int set_limit(struct reader *r, const char *key, const char *value)
{
    static const char *const keys[] = {"outbox"};

    if (strcmp(key, "outbox") != 0)
        return config_unknown_key(r, key, keys, ARRAY_LEN(keys));
    if (size_parse(value, &r->config->outbox_bytes) < 0 || r->config->outbox_bytes < (1 << 20))
        return config_wrong(r, "'%s' is no size of at least 1M", value);
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
        return config_set_meter(r, key, value);
    case SECTION_SWITCH:
        return config_set_switch(r, key, value);
    case SECTION_PRESENCE:
        return config_set_presence(r, key, value);
    case SECTION_TIDED:
        return set_tided(r, key, value);
    case SECTION_KUBERNETES:
        return set_kubernetes(r, key, value);
    case SECTION_CHILD:
        return set_child(r, key, value);
    case SECTION_LIMITS:
        return set_limit(r, key, value);
    default:
        return config_wrong(r, "'%s' stands before the first [section]", key);
    }
}

/* ---- sections -------------------------------------------------------------------------------- */

static int begin_child(struct reader *r, const char *name)
{
    struct unit_config *c = r->config;

    if (!edge_name_valid(name))
        return config_wrong(r, "'%s' is no name of a child: a-z, 0-9 and dashes inside", name);
    for (unsigned i = 0; i < c->children; i++)
        if (strcmp(c->child[i].name, name) == 0)
            return config_wrong(r, "child '%s' stands in line %u already", name, c->child[i].line);
    if (c->children == CONFIG_CHILDREN_MAX)
        return config_wrong(r, "more than %d children", CONFIG_CHILDREN_MAX);
    r->child = &c->child[c->children++];
    *r->child = (struct child_config){.line = r->line};
    return config_take_text(r, name, r->child->name, sizeof(r->child->name));
}

static int begin_section(struct reader *r, char *text)
{
    char *end = strchr(text, ']'), *name = strchr(text, ' ');

    if (!end)
        return config_wrong(r, "no ']' at the end of the section");
    if (end[1])
        return config_wrong(
            r, "'%s' stands behind the section's ']'; a comment has a line of its own", end + 1);
    *end = '\0';
    if (name)
        *name++ = '\0';
    for (size_t i = 0; i < ARRAY_LEN(sections); i++) {
        if (strcmp(text, sections[i].word) != 0)
            continue;
        if (sections[i].named != (name != NULL))
            return config_wrong(
                r, sections[i].named ? "[%s] needs a name: [%s NAME]" : "[%s] has no name", text,
                text);
        r->section = sections[i].section;
        r->config->kubernetes.named |= r->section == SECTION_KUBERNETES;
        return r->section == SECTION_METER      ? config_begin_meter(r, name)
               : r->section == SECTION_CHILD    ? begin_child(r, name)
               : r->section == SECTION_SWITCH   ? config_begin_switch(r, name)
               : r->section == SECTION_PRESENCE ? config_begin_presence(r, name)
                                                : 0;
    }
    return config_wrong(
        r,
        "unknown section [%s]; there are unit, local, uplink, meter NAME, child NAME, "
        "switch NAME, presence NAME, tided, kubernetes, limits",
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
        return config_wrong(r, "'%s' is neither [section] nor key = value", text);
    *equal = '\0';
    text = trim(text);
    equal = trim(equal + 1);
    return *equal ? set(r, text, equal) : config_wrong(r, "'%s' has no value", text);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int check_broker(struct reader *r, const char *name, struct broker_config *b)
{
    bool tls = b->ca[0];

    if (!b->named)
        return tls ? config_wrong(r, "[%s] has certificates and no broker=", name) : 0;
    if (tls != (b->cert[0] != 0) || tls != (b->key[0] != 0))
        return config_wrong(r, "[%s] needs all of ca=, cert= and key=, or none", name);
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
        return config_wrong(r, "children speak by MQTT: [local] needs broker=");
    if (c->cap_uw && !c->children)
        return config_wrong(r, "[unit] has a cap and no [child NAME] to divide it among");
    if (c->children && !c->cap_uw && !c->uplink.named)
        return config_wrong(r, "children need [unit] cap=, or [uplink] to a hub that caps them");
    for (unsigned i = 0; i < c->children; i++) {
        const struct child_config *k = &c->child[i];

        r->line = k->line;
        if (k->most_uw && k->most_uw < k->floor_uw)
            return config_wrong(r, "child '%s': most= is less than floor=", k->name);
        floors = add_sat(floors, k->floor_uw);
    }
    r->line = 0;
    return !c->cap_uw || floors <= c->cap_uw
               ? 0
               : config_wrong(r, "the floors of all children exceed cap=");
}

/* One configuration for all nodes of a cluster: a unit's name is its node's, with dashes for dots.
 */
static void name_by_node(struct unit_config *c)
{
    const char *node = c->kubernetes.node[0] ? c->kubernetes.node : getenv(KUBERNETES_NODE_ENV);
    char name[EDGE_NAME_MAX];

    if (!c->kubernetes.named || !node || strlen(node) >= sizeof(name))
        return;
    for (size_t i = 0; i <= strlen(node); i++)
        name[i] = node[i] == '.' ? '-' : node[i];
    if (edge_name_valid(name))
        snprintf(c->name, sizeof(c->name), "%s", name);
}

static int check(struct reader *r)
{
    struct unit_config *c = r->config;

    r->line = 0;
    if (!c->name[0])
        name_by_node(c);
    if (!c->name[0])
        return config_wrong(r, "[unit] needs name=");
    if (check_broker(r, "local", &c->local) < 0 || check_broker(r, "uplink", &c->uplink) < 0)
        return -EINVAL;
    if (check_children(r) < 0)
        return -EINVAL;
    if (c->seal[0] && !c->uplink.named)
        return config_wrong(r, "[uplink] has seal= and no broker= that brings what is sealed");
    if (c->tided_socket[0] && (c->children || c->switches || c->sensors))
        return config_wrong(r, "[tided] links a machine to its area: no child, switch or "
                               "presence may stand beside it");
    if (c->tided_socket[0] && !c->uplink.named && !c->kubernetes.named && !c->meters)
        return config_wrong(r, "[tided] links a machine: it needs [uplink], [kubernetes] or a "
                               "meter");
    if (c->kubernetes.named && !c->tided_socket[0])
        return config_wrong(r, "[kubernetes] tells of tided's cap: it needs [tided] socket=");
    return config_check_devices(r);
}

int unit_config_parse(const char *text, const char *file, struct unit_config **ret,
                      struct error *err)
{
    _cleanup_free_ struct unit_config *c = calloc(1, sizeof(*c));
    _cleanup_free_ char *copy = strdup(text);
    struct reader r = {.file = file, .config = c, .err = err};
    char *next = copy;
    int error = 0;

    if (!c || !copy)
        return error_set(err, -ENOMEM, "out of memory: %s cannot be read", file);
    c->outbox_bytes = OUTBOX_BYTES;
    c->lease = true;
    snprintf(c->state_dir, sizeof(c->state_dir), "/var/lib/tide-power");
    snprintf(c->kubernetes.credentials, CONFIG_PATH_MAX, "%s", SERVICE_ACCOUNT);
    c->kubernetes.valid_s = VALID_S;
    while (error == 0 && next) {
        char *line = strsep(&next, "\n");

        r.line++;
        error = read_line(&r, line);
    }
    error = error ? error : check(&r);
    if (error == 0)
        *ret = TAKE_PTR(c);
    return error;
}

int unit_config_load(const char *file, struct unit_config **ret, struct error *err)
{
    _cleanup_free_ char *real = realpath(file, NULL); /* in a pod it is a link */
    _cleanup_free_ char *text = NULL;
    struct stat status;
    size_t len;
    int r = real ? wholefile_read(real, CONFIG_BYTES_MAX, &text, &len, &status) : -errno;

    if (r < 0)
        return error_set(err, r, "cannot read the configuration %s: %s", file, strerror(-r));
    if (strlen(text) != len)
        return error_set(err, -EINVAL, "%s: holds a NUL byte", file);
    return unit_config_parse(text, file, ret, err);
}

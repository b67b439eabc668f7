/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/area/children.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "edge/lending.h"
#include "edge/shrunk.h"
#include "edge/topic.h"
#include "unit/area/broker.h"
#include "unit/log.h"

#define ERROR_WORD "broker-refused"

#define REQUEST_MAX 16384
#define REQUEST_NS  (30 * NS_PER_S) /* from a machine one request for a certificate in so long */
#define COMPLAIN_NS (60 * NS_PER_S) /* about names that are not ours */

struct children {
    struct mqtt *broker;              /* borrowed */
    const struct unit_config *config; /* borrowed */
    struct lending *lending;
    uint32_t kind;
    uint64_t complained_ns;
    uint64_t *asked_ns; /* of each child: its last request for a certificate; 0: none yet */
    struct shrunk_sum shrunk;
    children_send send;
    void *arg;
};

static int send_lease(void *arg, const char *child, const char *text)
{
    struct children *c = arg;
    char topic[TOPIC_MAX];
    int id;

    return mqtt_publish(c->broker, topic_make(child, TOPIC_LEASE, topic), text, strlen(text), 1,
                        false, LENDING_LEASE_S, &id);
}

static void say(void *arg, const char *child, const char *text)
{
    unit_log("%s%s%s", child ? child : "", child ? ": " : "", text);
}

/* When a child last asked for a certificate; NULL: it is not ours. */
static uint64_t *asked_by(struct children *c, const char *name)
{
    for (uint32_t i = 0; i < c->config->children; i++)
        if (strcmp(c->config->child[i].name, name) == 0)
            return &c->asked_ns[i];
    return NULL;
}

static bool is_ours(struct children *c, const char *name)
{
    return asked_by(c, name);
}

static void take_shrunk(struct children *c, const char *name, const struct mqtt_message *m)
{
    struct payload_shrunk *told = calloc(1, sizeof(*told));
    struct error err = {0};

    if (told && is_ours(c, name)) {
        if (payload_shrunk_read(m->bytes, m->len, told, &err) < 0)
            say(c, name, error_said(&err));
        else
            shrunk_take(&c->shrunk, name, told, clock_boot_ns());
    }
    free(told);
}

/*
 * A machine whose certificate ends asks for another one. Its name goes before the request: the
 * area's broker has proved it by the certificate that the machine still has.
 */
static void take_request(struct children *c, const char *name, const struct mqtt_message *m)
{
    uint64_t now = clock_now_ns(), *asked = asked_by(c, name);
    char *text;

    if (m->retained || m->len > REQUEST_MAX || !asked || !c->config->local.cert[0] ||
        !broker_is_there(c->config->state_dir) || (*asked && now - *asked < REQUEST_NS))
        return;
    *asked = now;
    if (asprintf(&text, "%s\n%.*s", name, (int)m->len, (const char *)m->bytes) < 0)
        return;
    if (c->send(c->arg, TOPIC_REQUEST, text) < 0)
        say(c, name, "its request for a certificate has to wait: the parent is away" ERROR_WHY);
}

bool children_certificate(struct children *c, const struct mqtt_message *m)
{
    const char *end = m->len ? memchr(m->bytes, '\n', m->len) : NULL;
    char name[EDGE_NAME_MAX], topic[TOPIC_MAX];
    size_t len = end ? (size_t)(end - (const char *)m->bytes) : 0;
    int id;

    if (len == 0 || len >= sizeof(name) || *(const char *)m->bytes == '-' || m->retained)
        return false;
    snprintf(name, sizeof(name), "%.*s", (int)len, (const char *)m->bytes);
    if (is_ours(c, name))
        mqtt_publish(c->broker, topic_make(name, TOPIC_CERTIFICATE, topic), end + 1,
                     m->len - len - 1, 1, false, 0, &id);
    return true;
}

void children_got(struct children *c, const struct mqtt_message *m)
{
    uint64_t now = clock_now_ns();
    char name[EDGE_NAME_MAX];
    enum topic_leaf leaf;

    if (topic_read(m->topic, name, &leaf) < 0)
        return;
    if (leaf == TOPIC_SHRUNK)
        take_shrunk(c, name, m);
    if (leaf == TOPIC_REQUEST)
        take_request(c, name, m);
    if (leaf != TOPIC_ASK && leaf != TOPIC_ACK && leaf != TOPIC_DEMAND)
        return;
    if (lending_got(c->lending, name, leaf, m->bytes, m->len)) {
        lending_tick(c->lending);
        return;
    }
    if (c->complained_ns && now - c->complained_ns <= COMPLAIN_NS)
        return;
    unit_log("'%s' asks for a lease of power, and this unit has no section [child %s] for it (tide "
             "why config-error)",
             name, name);
    c->complained_ns = now;
}

void children_tick(struct children *c)
{
    lending_tick(c->lending);
    shrunk_age(&c->shrunk, clock_boot_ns());
}

const struct payload_shrunk *children_shrunk(const struct children *c)
{
    return &c->shrunk.all;
}

static int set(struct children *c, uint64_t cap_uw, uint32_t kind)
{
    const struct unit_config *config = c->config;
    const struct divide_group all = {DIVIDE_NO_GROUP, cap_uw, 0};
    struct lending_child *child = calloc(config->children + 1, sizeof(*child));
    int r;

    if (!child)
        return -ENOMEM;
    for (uint32_t i = 0; i < config->children; i++) {
        child[i] = (struct lending_child){.floor_uw = config->child[i].floor_uw,
                                          .most_uw = config->child[i].most_uw,
                                          .kind = kind};
        strcpy(child[i].name, config->child[i].name);
    }
    r = lending_set(c->lending, &all, 1, child, config->children);
    if (r == 0)
        c->kind = kind;
    free(child);
    return r;
}

void children_cap(struct children *c, uint64_t cap_uw, uint32_t kind)
{
    lending_cap(c->lending, cap_uw);
    if (kind != c->kind && set(c, cap_uw, kind) < 0)
        unit_log("out of memory: children are not told what follows their leases (tide why "
                 "out-of-memory)");
}

uint64_t children_sum(const struct children *c)
{
    return lending_sum(c->lending);
}

void children_demand(const struct children *c, struct demand *ret, uint64_t *ret_floor_uw)
{
    *ret = *lending_demand(c->lending);
    *ret_floor_uw = lending_floor(c->lending);
}

uint64_t children_floor(const struct children *c)
{
    return lending_floor(c->lending);
}

int children_new(const struct unit_config *config, struct mqtt *broker, children_send send,
                 void *arg, struct children **ret, struct error *err)
{
    struct children *c = calloc(1, sizeof(*c));
    char path[CONFIG_PATH_MAX + 16];
    const struct lending_options options = {path, send_lease, say, c};
    int r;

    snprintf(path, sizeof(path), "%s/leases", config->state_dir);
    if (c) {
        c->config = config;
        c->asked_ns = calloc(config->children + 1, sizeof(*c->asked_ns));
    }
    if (!c || !c->asked_ns || lending_new(&options, &c->lending) < 0 ||
        set(c, config->cap_uw, config->kind) < 0) {
        children_free(c);
        return error_set(err, -ENOMEM, "out of memory: children get no leases");
    }
    c->broker = broker;
    c->send = send;
    c->arg = arg;
    r = mqtt_subscribe(broker, "tide/1/+/up/ask", 1);
    r = r ? r : mqtt_subscribe(broker, "tide/1/+/up/ack", 1);
    r = r ? r : mqtt_subscribe(broker, "tide/1/+/up/demand", 0);
    r = r ? r : mqtt_subscribe(broker, "tide/1/+/up/shrunk", 1);
    r = r ? r : mqtt_subscribe(broker, "tide/1/+/up/request", 1);
    if (r < 0) {
        children_free(c);
        return error_set(err, r, "cannot listen to the children: %s", strerror(-r));
    }
    *ret = c;
    return 0;
}

struct children *children_free(struct children *c)
{
    if (!c)
        return NULL;
    lending_free(c->lending);
    free(c->asked_ns);
    free(c);
    return NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "edge/mqtt.h"

#include <arpa/inet.h>
#include <errno.h>
#include <mosquitto.h>
#include <mqtt_protocol.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"

#define ERROR_WORD "broker-refused"

#define KEEPALIVE_S 15
#define PATIENCE_NS (10 * NS_PER_S) /* from the first byte to CONNACK */
#define TICK_US     1000000
#define PROBLEM_MAX 160

struct subscription {
    char *filter;
    int qos;
};

struct flight {
    int id; /* 0: free */
    bool used;
};

struct mqtt {
    struct mqtt_options options; /* its texts are ours */
    struct mosquitto *client;    /* NULL: between two tries */
    sd_event *event;
    sd_event_source *io, *tick;
    bool connected;
    unsigned tries; /* since the last connection */
    uint64_t begun_ns, retry_ns;
    uint32_t events; /* that io waits for */
    struct flight flight[MQTT_FLIGHT_MAX];
    struct subscription subscription[MQTT_SUBSCRIPTIONS_MAX];
    size_t subscriptions;
    char problem[2 * PROBLEM_MAX]; /* last told */
    char refusal[PROBLEM_MAX];     /* of the broker, until the connection is dropped */
};

/* ---- losing a connection --------------------------------------------------------------------- */

/* 1, 2, 4 … 60 s, a half more or less: a broker that comes back is not met by all at once. */
static uint64_t backoff_ns(unsigned tries)
{
    uint64_t ns = (tries < 6 ? UINT64_C(1) << tries : MQTT_BACKOFF_MAX_S) * NS_PER_S;
    uint32_t chance = 0;

    if (getrandom(&chance, sizeof(chance), GRND_NONBLOCK) < 0)
        chance = (uint32_t)clock_now_ns();
    return ns / 2 + ns / 1000 * (chance % 1000);
}

static void tell(struct mqtt *m, const char *problem)
{
    char text[sizeof(m->problem)];

    snprintf(text, sizeof(text), "%.100s:%u: %.159s", m->options.host, m->options.port, problem);
    if (strcmp(text, m->problem) == 0)
        return;
    memcpy(m->problem, text, sizeof(text));
    m->options.up(m->options.arg, m->problem);
}

/* The client goes; never called from inside one of its own callbacks. */
static void drop(struct mqtt *m, const char *problem)
{
    m->io = sd_event_source_disable_unref(m->io);
    mosquitto_destroy(m->client);
    m->client = NULL;
    m->connected = false;
    m->retry_ns = clock_now_ns() + backoff_ns(m->tries++);
    memset(m->flight, 0, sizeof(m->flight));
    tell(m, m->refusal[0] ? m->refusal : problem);
    m->refusal[0] = '\0';
}

static const char *text_of(int rc)
{
    return rc == MOSQ_ERR_ERRNO ? strerror(errno)
           : rc == MOSQ_ERR_EAI ? "the host's name has no address"
                                : mosquitto_strerror(rc);
}

/* ---- callbacks of libmosquitto ----------------------------------------------------------------
 */

static void on_connect(struct mosquitto *client, void *arg, int code, int flags,
                       const mosquitto_property *properties)
{
    struct mqtt *m = arg;

    if (code != 0) {
        snprintf(m->refusal, sizeof(m->refusal), "the broker refuses: %s",
                 mosquitto_reason_string(code));
        return;
    }
    m->connected = true;
    m->tries = 0;
    m->problem[0] = '\0';
    for (size_t i = 0; i < m->subscriptions; i++)
        mosquitto_subscribe(client, NULL, m->subscription[i].filter, m->subscription[i].qos);
    m->options.up(m->options.arg, NULL);
}

static void on_disconnect(struct mosquitto *client, void *arg, int code,
                          const mosquitto_property *properties)
{
    struct mqtt *m = arg;

    if (code > 0 &&
        !m->refusal[0]) /* a reason of MQTT 5; libmosquitto's own are not distinguished */
        snprintf(m->refusal, sizeof(m->refusal), "the broker hangs up: %s",
                 code >= 0x80 ? mosquitto_reason_string(code) : mosquitto_strerror(code));
}

static void on_message(struct mosquitto *client, void *arg, const struct mosquitto_message *message,
                       const mosquitto_property *properties)
{
    struct mqtt *m = arg;
    struct mqtt_message copy = {message->topic, message->payload, (size_t)message->payloadlen,
                                message->retain};

    m->options.got(m->options.arg, &copy);
}

static void on_publish(struct mosquitto *client, void *arg, int id, int code,
                       const mosquitto_property *properties)
{
    struct mqtt *m = arg;

    for (int i = 0; i < MQTT_FLIGHT_MAX; i++)
        if (m->flight[i].used && m->flight[i].id == id) {
            m->flight[i].used = false;
            if (m->options.stored)
                m->options.stored(m->options.arg, id, code != MQTT_RC_NO_MATCHING_SUBSCRIBERS);
            return;
        }
}

/* ---- the socket ------------------------------------------------------------------------------ */

/*
 * Until CONNACK edges of both directions count: TLS is waiting for either, and a socket that may be
 * written all the time must not wake us all the time.
 */
static uint32_t wanted_events(const struct mqtt *m)
{
    if (!m->connected)
        return EPOLLIN | EPOLLOUT | EPOLLET;
    return EPOLLIN | (mosquitto_want_write(m->client) ? EPOLLOUT : 0);
}

static void watch(struct mqtt *m)
{
    uint32_t events;

    if (!m->io)
        return;
    events = wanted_events(m);
    if (events != m->events && sd_event_source_set_io_events(m->io, events) >= 0)
        m->events = events;
}

/* While TLS is set up, libmosquitto goes on in its reading function alone, after a write too. */
static void drive(struct mqtt *m, uint32_t revents)
{
    int rc = MOSQ_ERR_SUCCESS;

    if (!m->connected || revents & (EPOLLIN | EPOLLHUP | EPOLLERR))
        rc = mosquitto_loop_read(m->client, 1);
    if (rc == MOSQ_ERR_SUCCESS && (!m->connected || mosquitto_want_write(m->client)))
        rc = mosquitto_loop_write(m->client, 1);
    if (rc != MOSQ_ERR_SUCCESS || mosquitto_socket(m->client) < 0 || m->refusal[0])
        drop(m, rc == MOSQ_ERR_SUCCESS ? "the connection is lost" : text_of(rc));
    else
        watch(m);
}

static int on_io(sd_event_source *source, int fd, uint32_t revents, void *arg)
{
    drive(arg, revents);
    return 0;
}

static struct mosquitto *new_client(struct mqtt *m, int *ret_code)
{
    const struct mqtt_options *o = &m->options;
    struct mosquitto *c = mosquitto_new(o->name, true, m);

    if (!c) {
        *ret_code = MOSQ_ERR_NOMEM;
        return NULL;
    }
    mosquitto_int_option(c, MOSQ_OPT_PROTOCOL_VERSION, MQTT_PROTOCOL_V5);
    mosquitto_int_option(c, MOSQ_OPT_TCP_NODELAY, 1);
    mosquitto_connect_v5_callback_set(c, on_connect);
    mosquitto_disconnect_v5_callback_set(c, on_disconnect);
    mosquitto_message_v5_callback_set(c, on_message);
    mosquitto_publish_v5_callback_set(c, on_publish);
    *ret_code = MOSQ_ERR_SUCCESS;
    if (o->will_topic)
        *ret_code = mosquitto_will_set(c, o->will_topic, (int)strlen(o->will), o->will, 1, true);
    if (*ret_code == MOSQ_ERR_SUCCESS && o->ca) {
        *ret_code = mosquitto_tls_set(c, o->ca, NULL, o->cert, o->key, NULL);
        if (*ret_code == MOSQ_ERR_SUCCESS)
            *ret_code = mosquitto_tls_opts_set(c, 1, "tlsv1.3", NULL);
    }
    return c;
}

static void try_to_connect(struct mqtt *m)
{
    int rc, r;

    m->begun_ns = clock_now_ns();
    m->client = new_client(m, &rc);
    if (rc == MOSQ_ERR_SUCCESS)
        rc = mosquitto_connect_async(m->client, m->options.host, m->options.port,
                                     (int)m->options.keepalive_s);
    if (rc != MOSQ_ERR_SUCCESS || mosquitto_socket(m->client) < 0) {
        drop(m, text_of(rc));
        return;
    }
    m->events = wanted_events(m);
    r = sd_event_add_io(m->event, &m->io, mosquitto_socket(m->client), m->events, on_io, m);
    if (r < 0)
        drop(m, strerror(-r));
}

static int on_tick(sd_event_source *source, uint64_t usec, void *arg)
{
    struct mqtt *m = arg;
    uint64_t now = clock_now_ns();
    int rc;

    sd_event_source_set_time_relative(source, TICK_US);
    sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
    if (!m->client) {
        if (now >= m->retry_ns)
            try_to_connect(m);
        return 0;
    }
    rc = mosquitto_loop_misc(m->client); /* pings, and a broker that no longer answers them */
    if (rc != MOSQ_ERR_SUCCESS)
        drop(m, text_of(rc));
    else if (!m->connected && now - m->begun_ns > PATIENCE_NS)
        drop(m, "no answer to the connection within 10 s");
    else
        drive(m, EPOLLIN);
    return 0;
}

/* ---- begin and end --------------------------------------------------------------------------- */

/* A name like 127.example.org is not this machine's. */
static bool on_this_machine(const char *host)
{
    struct in_addr address;

    if (strcmp(host, "localhost") == 0 || strcmp(host, "::1") == 0)
        return true;
    return inet_pton(AF_INET, host, &address) == 1 && ntohl(address.s_addr) >> 24 == IN_LOOPBACKNET;
}

static int check(const struct mqtt_options *o, struct error *err)
{
    const char *const files[] = {o->ca, o->cert, o->key};

    if (!o->ca && !on_this_machine(o->host))
        return error_set(
            err, -EINVAL,
            "the broker %s is not on this machine, so it needs TLS: name ca=, cert= and key=",
            o->host);
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        if (files[i] && access(files[i], R_OK) < 0)
            return error_set(err, -errno, "cannot read %s: %s", files[i], strerror(errno));
    return 0;
}

static bool copy_options(struct mqtt *m, const struct mqtt_options *o)
{
    const char **const texts[] = {&m->options.host, &m->options.ca,   &m->options.cert,
                                  &m->options.key,  &m->options.name, &m->options.will_topic,
                                  &m->options.will};
    const char *const given[] = {o->host, o->ca, o->cert, o->key, o->name, o->will_topic, o->will};
    bool all = true;

    m->options = *o;
    m->options.keepalive_s = o->keepalive_s ? o->keepalive_s : KEEPALIVE_S;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        *texts[i] = given[i] ? strdup(given[i]) : NULL;
        all &= !given[i] || *texts[i];
    }
    return all;
}

int mqtt_new(sd_event *event, const struct mqtt_options *o, struct mqtt **ret, struct error *err)
{
    struct mqtt *m;
    int r = check(o, err);

    if (r < 0)
        return r;
    setenv("RES_OPTIONS", "timeout:1 attempts:1", 0);
    mosquitto_lib_init(); /* counts its calls */
    m = calloc(1, sizeof(*m));
    if (!m || !copy_options(m, o)) {
        mqtt_free(m);
        return error_set(err, -ENOMEM, "out of memory: no connection to %s", o->host);
    }
    m->event = sd_event_ref(event);
    r = sd_event_add_time_relative(event, &m->tick, CLOCK_MONOTONIC, 0, TICK_US / 10, on_tick, m);
    if (r < 0) {
        mqtt_free(m);
        return error_set(err, r, "cannot make a timer: %s", strerror(-r));
    }
    *ret = m;
    return 0;
}

struct mqtt *mqtt_free(struct mqtt *m)
{
    const char *texts[7];

    if (!m)
        return NULL;
    if (m->client && m->connected)
        /* The will tells that we are away, also when we leave in order. */
        mosquitto_disconnect_v5(m->client, m->options.will ? MQTT_RC_DISCONNECT_WITH_WILL_MSG : 0,
                                NULL);
    sd_event_source_disable_unref(m->io);
    sd_event_source_disable_unref(m->tick);
    mosquitto_destroy(m->client);
    sd_event_unref(m->event);
    memcpy(texts,
           (const char *[]){m->options.host, m->options.ca, m->options.cert, m->options.key,
                            m->options.name, m->options.will_topic, m->options.will},
           sizeof(texts));
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        free((char *)texts[i]);
    for (size_t i = 0; i < m->subscriptions; i++)
        free(m->subscription[i].filter);
    free(m);
    mosquitto_lib_cleanup();
    return NULL;
}

bool mqtt_connected(const struct mqtt *m)
{
    return m->connected;
}

/* ---- messages -------------------------------------------------------------------------------- */

int mqtt_subscribe(struct mqtt *m, const char *filter, int qos)
{
    char *copy;

    if (mosquitto_sub_topic_check(filter) != MOSQ_ERR_SUCCESS)
        return -EINVAL;
    for (size_t i = 0; i < m->subscriptions; i++)
        if (strcmp(m->subscription[i].filter, filter) == 0)
            return 0;
    if (m->subscriptions == MQTT_SUBSCRIPTIONS_MAX)
        return -ENOSPC;
    copy = strdup(filter);
    if (!copy)
        return -ENOMEM;
    m->subscription[m->subscriptions++] = (struct subscription){copy, qos};
    if (m->connected) {
        mosquitto_subscribe(m->client, NULL, filter, qos);
        watch(m);
    }
    return 0;
}

static int errno_of(int rc)
{
    switch (rc) {
    case MOSQ_ERR_SUCCESS:
        return 0;
    case MOSQ_ERR_NOMEM:
        return -ENOMEM;
    case MOSQ_ERR_NO_CONN:
    case MOSQ_ERR_CONN_LOST:
        return -ENOTCONN;
    default:
        return -EINVAL;
    }
}

int mqtt_publish(struct mqtt *m, const char *topic, const void *bytes, size_t len, int qos,
                 bool retain, uint32_t expiry_s, int *ret_id)
{
    mosquitto_property *properties = NULL;
    struct flight *f = m->flight;
    int rc = MOSQ_ERR_SUCCESS;

    if (!m->connected)
        return -ENOTCONN;
    while (f < m->flight + MQTT_FLIGHT_MAX && f->used)
        f++;
    if (f == m->flight + MQTT_FLIGHT_MAX)
        return -EAGAIN;
    if (expiry_s)
        rc = mosquitto_property_add_int32(&properties, MQTT_PROP_MESSAGE_EXPIRY_INTERVAL, expiry_s);
    *f = (struct flight){.used = true}; /* on_publish() may come before the call returns */
    if (rc == MOSQ_ERR_SUCCESS)
        rc = mosquitto_publish_v5(m->client, &f->id, topic, (int)len, bytes, qos, retain,
                                  properties);
    mosquitto_property_free_all(&properties);
    if (rc != MOSQ_ERR_SUCCESS) {
        f->used = false;
        return errno_of(rc);
    }
    *ret_id = f->id;
    watch(m);
    return 0;
}

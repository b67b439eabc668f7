/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drives the container engine client for tests/component/test_engine.py.
 *   engine_probe SOCKET
 * Standard input has a JSON object a line, what to do: {"do": "update", "id": "web", "cpus": "0"};
 * standard output tells results and news in the same way. Ends with its input.
 */
#include "base/cleanup.h"
#include "base/clock.h"
#include "host/engine/engine.h"

#include <jansson.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE_MAX_BYTES 65536

static struct engine *engine;
static struct engine_quota last_quota; /* as inspected last */
static int64_t last_ticket;
static uint64_t longest_ns, turns;

static void say(json_t *object)
{
    char *text = json_dumps(object, JSON_COMPACT);

    puts(text ? text : "{\"broken\":true}");
    fflush(stdout);
    free(text);
    json_decref(object);
}

static json_t *container_json(const struct engine_container *c)
{
    json_t *labels = json_object(), *json;
    char cpus[CPUSET_TEXT_MAX];

    for (size_t i = 0; i < c->n_labels; i++)
        json_object_set_new(labels, c->labels[i].key, json_string(c->labels[i].value));
    cpuset_format(&c->limits.cpus, cpus, sizeof(cpus));
    json = json_pack("{s:s,s:s,s:s,s:o,s:s,s:i,s:I,s:i,s:b}", "id", c->id, "name", c->name, "image",
                     c->image, "labels", labels, "state", engine_state_name(c->state), "pid",
                     (int)c->pid, "started_ns", (json_int_t)c->started_ns, "exit_code",
                     c->exit_code, "inspected", c->inspected);
    json_object_update_new(json, json_pack("{s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:s}", "cpus", cpus,
                                           "shares", (json_int_t)c->limits.shares, "nano_cpus",
                                           (json_int_t)c->limits.quota.nano_cpus, "quota_us",
                                           (json_int_t)c->limits.quota.quota_us, "period_us",
                                           (json_int_t)c->limits.quota.period_us, "memory_bytes",
                                           (json_int_t)c->limits.memory_bytes, "swap_bytes",
                                           (json_int_t)c->limits.swap_bytes, "cgroup_parent",
                                           c->limits.cgroup_parent));
    return json;
}

static void on_done(void *arg, const struct engine_result *result)
{
    json_t *list = json_array();

    for (size_t i = 0; i < result->n_containers; i++) {
        json_array_append_new(list, container_json(&result->containers[i]));
        last_quota = result->containers[i].limits.quota;
    }
    say(json_pack("{s:s,s:i,s:i,s:s,s:s,s:I,s:o}", "done", (const char *)arg, "code", result->code,
                  "status", result->status, "target", result->target, "text", result->text,
                  "took_us", (json_int_t)(result->took_ns / NS_PER_US), "containers", list));
}

static void on_news(void *arg, const struct engine_news *news)
{
    static const char *const kinds[] = {"lost", "back", "resync", "event"};
    const struct engine_event *event = news->event;
    json_t *json = json_pack("{s:s}", "news", kinds[news->kind]);

    if (news->kind == ENGINE_LOST)
        json_object_set_new(json, "text", json_string(news->text));
    else
        json_object_set_new(json, "version", json_string(engine_version(engine)));
    if (event)
        json_object_update_new(json, json_pack("{s:s,s:s,s:s,s:i,s:I}", "action",
                                               engine_action_name(event->action), "id", event->id,
                                               "name", event->name, "exit_code", event->exit_code,
                                               "time_ns", (json_int_t)event->time_ns));
    say(json);
}

/* ---- what to do ---- */

static const char *text_of(const json_t *order, const char *key)
{
    return json_string_value(json_object_get(order, key));
}

static int64_t number_of(const json_t *order, const char *key)
{
    return json_integer_value(json_object_get(order, key));
}

static struct engine_quota quota_of(const json_t *order)
{
    if (json_object_get(order, "mcpu"))
        return engine_quota_make(&last_quota, (uint32_t)number_of(order, "mcpu"),
                                 (unsigned)sysconf(_SC_NPROCESSORS_ONLN));
    return (struct engine_quota){.nano_cpus = (uint64_t)number_of(order, "nano_cpus"),
                                 .quota_us = number_of(order, "quota_us"),
                                 .period_us = (uint64_t)number_of(order, "period_us")};
}

static bool has_quota(const json_t *order)
{
    return json_object_get(order, "mcpu") || json_object_get(order, "nano_cpus") ||
           json_object_get(order, "quota_us");
}

static int64_t update(const json_t *order, const char *id, struct engine_then then)
{
    struct engine_quota quota = quota_of(order);
    struct engine_update what = {.shares = (uint32_t)number_of(order, "shares"),
                                 .memory_bytes = (uint64_t)number_of(order, "memory"),
                                 .swap_bytes = number_of(order, "swap")};
    struct cpuset cpus;

    if (text_of(order, "cpus")) {
        cpuset_parse(text_of(order, "cpus"), &cpus);
        what.cpus = &cpus;
    }
    if (has_quota(order))
        what.quota = &quota;
    return engine_update(engine, id, &what, then);
}

static int64_t list(const json_t *order, const char *id, struct engine_then then)
{
    return engine_list(engine, text_of(order, "label"), then);
}

static int64_t inspect(const json_t *order, const char *id, struct engine_then then)
{
    return engine_inspect(engine, id, then);
}

static int64_t pause_(const json_t *order, const char *id, struct engine_then then)
{
    return engine_pause(engine, id, then);
}

static int64_t unpause(const json_t *order, const char *id, struct engine_then then)
{
    return engine_unpause(engine, id, then);
}

static int64_t stop(const json_t *order, const char *id, struct engine_then then)
{
    return engine_stop(engine, id, (unsigned)number_of(order, "grace"), then);
}

static const struct {
    const char *name;
    int64_t (*begin)(const json_t *order, const char *id, struct engine_then then);
} verbs[] = {
    {"list", list},    {"inspect", inspect}, {"update", update},
    {"pause", pause_}, {"unpause", unpause}, {"stop", stop},
};

static void tell_stats(void)
{
    say(json_pack("{s:s,s:I,s:I}", "done", "stats", "longest_us",
                  (json_int_t)(longest_ns / NS_PER_US), "turns", (json_int_t)turns));
    longest_ns = 0;
}

static void obey(const char *line)
{
    json_t *order = json_loads(line, 0, NULL);
    const char *verb = text_of(order, "do"), *id = text_of(order, "id");
    struct engine_then then = {.done = on_done,
                               .timeout_ms = (unsigned)number_of(order, "timeout_ms")};
    size_t i = 0;

    while (i < ARRAY_LEN(verbs) && (!verb || strcmp(verb, verbs[i].name) != 0))
        i++;
    if (i < ARRAY_LEN(verbs)) {
        then.arg = (char *)verbs[i].name;
        last_ticket = verbs[i].begin(order, id ? id : "", then);
        if (last_ticket < 0)
            say(json_pack("{s:s,s:i}", "refused", verb, "code", (int)last_ticket));
    } else if (verb && strcmp(verb, "cancel") == 0) {
        engine_cancel(engine, last_ticket);
    } else if (verb && strcmp(verb, "stats") == 0) {
        tell_stats();
    } else {
        say(json_pack("{s:s}", "nonsense", line));
    }
    json_decref(order);
}

/* False: the end. */
static bool read_orders(void)
{
    static char buf[LINE_MAX_BYTES + 1];
    static size_t len;
    ssize_t n = read(STDIN_FILENO, buf + len, LINE_MAX_BYTES - len);
    char *lf;

    if (n <= 0)
        return false;
    len += (size_t)n;
    buf[len] = '\0';
    while ((lf = memchr(buf, '\n', len))) {
        size_t used = (size_t)(lf - buf) + 1;

        *lf = '\0';
        obey(buf);
        len -= used;
        memmove(buf, buf + used, len + 1);
    }
    return len < LINE_MAX_BYTES;
}

int main(int argc, char **argv)
{
    struct error err = {0};

    if (argc != 2 || engine_new(argv[1], on_news, NULL, &engine, &err) < 0) {
        fprintf(stderr, "engine_probe: %s\n", argc == 2 ? err.text : "usage: engine_probe SOCKET");
        return 1;
    }
    for (;;) {
        struct pollfd p[2] = {{.fd = STDIN_FILENO, .events = POLLIN},
                              {.fd = engine_fd(engine), .events = POLLIN}};

        if (poll(p, 2, -1) < 0)
            continue;
        if (p[1].revents) {
            uint64_t before_ns = clock_now_ns(), took_ns;

            engine_dispatch(engine);
            took_ns = clock_now_ns() - before_ns;
            longest_ns = took_ns > longest_ns ? took_ns : longest_ns;
            turns++;
        }
        if (p[0].revents && !read_orders())
            break;
    }
    engine_free(engine);
    return 0;
}

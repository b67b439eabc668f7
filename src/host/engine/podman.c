/* SPDX-License-Identifier: Apache-2.0 */
#include "host/engine/engine_dialect.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S      UINT64_C(1000000000)
#define PERIOD_US     100000
#define FILES_MAX     1048576 /* what podman itself would give … */
#define PROCESSES_MAX 32768   /* … and what its service has left */
#define HTTP_FAILED   500

/* --cpus is not kept as such here: {"quota","period"} is all that there is. */
static void add_quota(bool *ok, json_t *cpu, const struct engine_quota *quota)
{
    int64_t quota_us = quota->quota_us ? quota->quota_us : -1;
    uint64_t period_us = quota->period_us ? quota->period_us : PERIOD_US;

    if (quota->nano_cpus > 0) {
        quota_us = (int64_t)(quota->nano_cpus / (NS_PER_S / PERIOD_US));
        period_us = PERIOD_US;
    }
    body_add(ok, cpu, "quota", json_integer(quota_us));
    body_add(ok, cpu, "period", json_integer((json_int_t)period_us));
}

static json_t *cpu_body(const struct engine_update *u)
{
    json_t *cpu = json_object();
    bool ok = cpu != NULL;

    if (u->cpus)
        body_add(&ok, cpu, "cpus", body_cpus(u->cpus));
    if (u->shares > 0)
        body_add(&ok, cpu, "shares", json_integer(u->shares));
    if (u->quota)
        add_quota(&ok, cpu, u->quota);
    return body_finish(ok, cpu);
}

static json_t *update(const struct engine_update *u)
{
    json_t *body = json_object();
    bool ok = body != NULL;

    body_add(&ok, body, "cpu", cpu_body(u));
    return body_finish(ok, body);
}

/* "SOURCE:TARGET:OPTION,OPTION" */
static json_t *mount_of(const char *bind)
{
    size_t source = strcspn(bind, ":"), target;
    const char *at = bind + source + (bind[source] == ':'), *option;
    json_t *options = json_array(), *mount;

    target = strcspn(at, ":");
    option = at + target + (at[target] == ':');
    while (*option) {
        size_t len = strcspn(option, ",");

        json_array_append_new(options, json_stringn(option, len));
        option += len + (option[len] == ',');
    }
    json_array_append_new(options, json_string("rbind"));
    mount = json_pack("{s:s,s:s%,s:s%,s:o}", "type", "bind", "source", bind, source, "destination",
                      at, target, "options", options);
    return mount;
}

static json_t *mounts(const char *const *binds)
{
    json_t *list = json_array();

    for (; *binds; binds++) {
        if (json_array_append_new(list, mount_of(*binds)) < 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

/* {"KEY":"VALUE"}, not "KEY=VALUE" as in Docker */
static json_t *environment(const char *const *env)
{
    json_t *object = json_object();
    bool ok = object != NULL;

    for (; ok && *env; env++) {
        size_t len = strcspn(*env, "=");
        char key[256];

        if (len == 0 || len >= sizeof(key))
            continue;
        memcpy(key, *env, len);
        key[len] = '\0';
        body_add(&ok, object, key, json_string((*env)[len] ? *env + len + 1 : ""));
    }
    return body_finish(ok, object);
}

static json_int_t at_most(int resource, json_int_t max)
{
    struct rlimit limit;

    return getrlimit(resource, &limit) == 0 && limit.rlim_max < (rlim_t)max
               ? (json_int_t)limit.rlim_max
               : max;
}

/* podman asks for 1048576 of each, and the start fails where the service may not have so many. */
static json_t *resource_limits(void)
{
    json_int_t files = at_most(RLIMIT_NOFILE, FILES_MAX);
    json_int_t processes = at_most(RLIMIT_NPROC, PROCESSES_MAX);

    return json_pack("[{s:s,s:I,s:I},{s:s,s:I,s:I}]", "type", "nofile", "soft", files, "hard",
                     files, "type", "nproc", "soft", processes, "hard", processes);
}

static json_t *resources(const struct engine_limits *limits)
{
    struct engine_update u = {
        .cpus = cpuset_count(&limits->cpus) > 0 ? &limits->cpus : NULL,
        .quota = limits->quota.nano_cpus > 0 || limits->quota.quota_us > 0 ? &limits->quota : NULL,
        .shares = limits->shares,
    };
    json_t *body = update(&u);
    bool ok = body != NULL;

    if (limits->memory_bytes > 0)
        body_add(&ok, body, "memory",
                 json_pack("{s:I}", "limit", (json_int_t)limits->memory_bytes));
    return body_finish(ok, body);
}

static json_t *create(const struct engine_create *c)
{
    json_t *body = json_object();
    bool ok = body != NULL;

    body_add(&ok, body, "image", json_string(c->image));
    if (c->name)
        body_add(&ok, body, "name", json_string(c->name));
    if (c->argv)
        body_add(&ok, body, "command", body_texts(c->argv));
    if (c->env)
        body_add(&ok, body, "env", environment(c->env));
    if (c->binds)
        body_add(&ok, body, "mounts", mounts(c->binds));
    if (c->host_network)
        body_add(&ok, body, "netns", json_pack("{s:s}", "nsmode", "host"));
    if (c->limits.cgroup_parent && *c->limits.cgroup_parent)
        body_add(&ok, body, "cgroup_parent", json_string(c->limits.cgroup_parent));
    body_add(&ok, body, "labels", body_labels(c->labels, c->n_labels));
    body_add(&ok, body, "r_limits", resource_limits());
    body_add(&ok, body, "resource_limits", resources(&c->limits));
    return body_finish(ok, body);
}

/* crun writes a quota of -1 as an unsigned number, which cgroup v1 refuses: all CPUs then. */
static bool other_quota(const struct engine_quota *quota, int status, const char *message,
                        struct engine_quota *ret)
{
    uint64_t period_us = quota->period_us ? quota->period_us : PERIOD_US;

    if (status != HTTP_FAILED || quota->nano_cpus > 0 || quota->quota_us > 0)
        return false;
    *ret = (struct engine_quota){.quota_us = (int64_t)period_us * sysconf(_SC_NPROCESSORS_ONLN),
                                 .period_us = period_us};
    return true;
}

/* The only form that podman 4.3 reads to the nanosecond; exclusive, so it is one earlier. */
static void since(uint64_t time_ns, char *buf, size_t size)
{
    uint64_t before = time_ns > 0 ? time_ns - 1 : 0;
    time_t seconds = (time_t)(before / NS_PER_S);
    struct tm tm;
    size_t n;

    gmtime_r(&seconds, &tm);
    n = strftime(buf, size, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(buf + n, size - n, ".%09" PRIu64 "Z", before % NS_PER_S);
}

const struct engine_dialect engine_podman = {
    .grace = "timeout",
    .remove_query = "?force=true&timeout=0",
    .create_query = NULL,
    .events_query = "stream=true&",
    .update = update,
    .create = create,
    .other_quota = other_quota,
    .since = since,
};

/* SPDX-License-Identifier: Apache-2.0 */
#include "host/engine/engine_dialect.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S    UINT64_C(1000000000)
#define PERIOD_US   100000
#define HTTP_FAILED 500

/* Podman does not keep --cpus as such: it has only {"quota","period"}. */
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

static json_t *memory_body(const struct engine_update *u)
{
    json_t *memory = json_object();
    bool ok = memory != NULL;

    body_add(&ok, memory, "limit", json_integer((json_int_t)u->memory_bytes));
    body_add(&ok, memory, "swap", body_swap(u));
    return body_finish(ok, memory);
}

static json_t *update(const struct engine_update *u)
{
    json_t *body = json_object();
    bool ok = body != NULL;

    body_add(&ok, body, "cpu", cpu_body(u));
    if (u->memory_bytes != 0)
        body_add(&ok, body, "memory", memory_body(u));
    return body_finish(ok, body);
}

/* crun writes -1 as an unsigned number, which cgroup v1 refuses: lifts the limit as all CPUs. */
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

/* Podman 4.3 reads only this form to the nanosecond; it is exclusive, hence one less. */
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
    .events_query = "stream=true&",
    .update = update,
    .other_quota = other_quota,
    .since = since,
};

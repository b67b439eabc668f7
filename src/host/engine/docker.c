/* SPDX-License-Identifier: Apache-2.0 */
#include "host/engine/engine_dialect.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NS_PER_S      UINT64_C(1000000000)
#define NANO_PER_US   10000 /* of a quota in the period of --cpus, 100 ms */
#define HTTP_CONFLICT 409

static void add_quota(bool *ok, json_t *body, const struct engine_quota *quota)
{
    if (quota->nano_cpus > 0) {
        body_add(ok, body, "NanoCpus", json_integer((json_int_t)quota->nano_cpus));
        return;
    }
    /* Docker reads 0 as "not mentioned". */
    body_add(ok, body, "CpuQuota", json_integer(quota->quota_us ? quota->quota_us : -1));
    if (quota->period_us > 0)
        body_add(ok, body, "CpuPeriod", json_integer((json_int_t)quota->period_us));
}

static json_t *update(const struct engine_update *u)
{
    json_t *body = json_object();
    bool ok = body != NULL;

    if (u->cpus)
        body_add(&ok, body, "CpusetCpus", body_cpus(u->cpus));
    if (u->shares > 0)
        body_add(&ok, body, "CpuShares", json_integer(u->shares));
    if (u->quota)
        add_quota(&ok, body, u->quota);
    if (u->memory_bytes != 0) {
        body_add(&ok, body, "Memory", json_integer((json_int_t)u->memory_bytes));
        body_add(&ok, body, "MemorySwap", body_swap(u));
    }
    return body_finish(ok, body);
}

/* "Conflicting options: CPU Quota cannot be updated as NanoCPUs has already been set" and reverse
 */
static bool other_quota(const struct engine_quota *quota, int status, const char *message,
                        struct engine_quota *ret)
{
    if (status != HTTP_CONFLICT || !strstr(message, "Conflicting options"))
        return false;
    if (quota->nano_cpus > 0) {
        *ret = (struct engine_quota){.quota_us = (int64_t)(quota->nano_cpus / NANO_PER_US),
                                     .period_us = 100000};
        return true;
    }
    if (quota->quota_us <= 0) /* lifting a limit is no conflict */
        return false;
    *ret = (struct engine_quota){.nano_cpus = (uint64_t)quota->quota_us * NS_PER_S /
                                              (quota->period_us > 0 ? quota->period_us : 100000)};
    return true;
}

/* Writes seconds and nanoseconds; Docker includes that moment. */
static void since(uint64_t time_ns, char *buf, size_t size)
{
    snprintf(buf, size, "%" PRIu64 ".%09" PRIu64, time_ns / NS_PER_S, time_ns % NS_PER_S);
}

const struct engine_dialect engine_docker = {
    .grace = "t",
    .events_query = "",
    .update = update,
    .other_quota = other_quota,
    .since = since,
};

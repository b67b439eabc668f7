/* SPDX-License-Identifier: Apache-2.0 */
#include "host/engine/engine_dialect.h"

#define PERIOD_US     100000 /* the kernel's default … */
#define PERIOD_MIN_US 1000   /* … and its minimum */
#define PERIOD_MAX_US 1000000
#define QUOTA_MIN_US  1000

void body_add(bool *ok, json_t *object, const char *key, json_t *value)
{
    if (json_object_set_new(object, key, value) < 0)
        *ok = false;
}

json_t *body_finish(bool ok, json_t *body)
{
    if (ok)
        return body;
    json_decref(body);
    return NULL;
}

json_t *body_cpus(const struct cpuset *cpus)
{
    char text[CPUSET_TEXT_MAX];

    return cpuset_format(cpus, text, sizeof(text)) < 0 ? NULL : json_string(text);
}

json_t *body_swap(const struct engine_update *u)
{
    bool limited = u->memory_bytes != ENGINE_NO_MEMORY_LIMIT && u->swap_bytes >= 0;

    return json_integer(limited ? (json_int_t)u->memory_bytes + u->swap_bytes : -1);
}

uint32_t engine_quota_mcpu(const struct engine_quota *quota)
{
    uint64_t period_us = quota->period_us ? quota->period_us : PERIOD_US, mcpu;

    if (quota->nano_cpus > 0)
        mcpu = quota->nano_cpus / 1000000;
    else if (quota->quota_us <= 0)
        return 0;
    else if (quota->quota_us > INT64_MAX / 1000)
        mcpu = UINT32_MAX;
    else
        mcpu = (uint64_t)quota->quota_us * 1000 / period_us;
    return mcpu == 0 ? 1 : mcpu > UINT32_MAX ? UINT32_MAX : (uint32_t)mcpu;
}

struct engine_quota engine_quota_make(const struct engine_quota *now, uint32_t mcpu,
                                      unsigned n_cpus)
{
    uint64_t period_us = now->period_us;
    struct engine_quota quota = {0};

    if (now->nano_cpus > 0) {
        quota.nano_cpus = mcpu > 0 ? mcpu * 1000000ull : n_cpus * 1000000000ull;
        return quota;
    }
    if (mcpu == 0) {
        quota.quota_us = -1;
        return quota;
    }
    if (period_us < PERIOD_MIN_US || period_us > PERIOD_MAX_US)
        period_us = PERIOD_US;
    quota.period_us = period_us;
    quota.quota_us = (int64_t)(mcpu * period_us / 1000);
    if (quota.quota_us < QUOTA_MIN_US)
        quota.quota_us = QUOTA_MIN_US;
    return quota;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/top/top_model.h"

#include "cli/api.h"

#include "base/cpuset.h"
#include "proto/proto.h"

#include <string.h>

int top_model_init(struct top_model *m, unsigned cpus)
{
    unsigned per_cpu = cpus < TOP_SLOTS ? TOP_SLOTS / cpus : 1;
    uint16_t *owner = calloc((size_t)TOP_SAMPLES * cpus * per_cpu, sizeof(*owner));

    if (!owner)
        return -ENOMEM;
    *m = (struct top_model){.cpus = cpus, .per_cpu = per_cpu, .owner = owner};
    return 0;
}

unsigned top_slots(const struct top_model *m)
{
    return m->cpus * m->per_cpu;
}

void top_model_done(struct top_model *m)
{
    free(m->owner);
    m->owner = NULL;
}

uint16_t top_job_number(const json_t *job)
{
    const char *id = member_text(job, "id");

    return id[0] == 'j' ? (uint16_t)strtoul(id + 1, NULL, 10) : 0;
}

static bool exclusive(const json_t *job)
{
    return strcmp(member_text(job, "placement"), "exclusive") == 0;
}

static void own_fenced(const struct top_model *m, const json_t *job, uint16_t *owner)
{
    struct cpuset set;

    if (cpuset_parse(member_text(job, "cores"), &set) < 0)
        return;
    for (unsigned slot = 0; slot < top_slots(m); slot++)
        if (cpuset_has(&set, slot / m->per_cpu))
            owner[slot] = top_job_number(job);
}

/* Returns the next @n slots from *slot on that no job has. */
static void own_next(const struct top_model *m, uint16_t number, unsigned long n, unsigned *slot,
                     uint16_t *owner)
{
    for (; n > 0 && *slot < top_slots(m); ++*slot) {
        if (owner[*slot])
            continue;
        owner[*slot] = number;
        n--;
    }
}

static unsigned long wanted_slots(const struct top_model *m, const json_t *job)
{
    long target = exclusive(job) ? 0 : member_long(job, "target");

    if (target > PROTO_THREADS_MAX)
        target = PROTO_THREADS_MAX;
    return target > 0 ? (unsigned long)target * m->per_cpu : 0;
}

void top_owners(const struct top_model *m, const json_t *jobs, uint16_t *ret_owner)
{
    unsigned long wanted = 0;
    unsigned long before = 0;
    unsigned long left = 0;
    unsigned slot = 0;
    const json_t *job;
    size_t i;

    memset(ret_owner, 0, top_slots(m) * sizeof(*ret_owner));
    json_array_foreach (jobs, i, job) {
        wanted += wanted_slots(m, job);
        if (exclusive(job))
            own_fenced(m, job, ret_owner);
    }
    for (unsigned s = 0; s < top_slots(m); s++)
        left += !ret_owner[s];
    if (wanted < left)
        left = wanted;
    if (wanted == 0)
        return;
    json_array_foreach (jobs, i, job) {
        unsigned long upto = before + wanted_slots(m, job);

        own_next(m, top_job_number(job), upto * left / wanted - before * left / wanted, &slot,
                 ret_owner);
        before = upto;
    }
}

void top_model_add(struct top_model *m, const json_t *jobs)
{
    top_owners(m, jobs, m->owner + (size_t)(m->n % TOP_SAMPLES) * top_slots(m));
    m->n++;
}

int top_model_owner(const struct top_model *m, unsigned age, unsigned slot)
{
    if (age >= m->n || age >= TOP_SAMPLES || slot >= top_slots(m))
        return -1;
    return m->owner[(size_t)((m->n - 1 - age) % TOP_SAMPLES) * top_slots(m) + slot];
}

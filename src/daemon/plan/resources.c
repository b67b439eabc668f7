/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/plan/resources.h"

#include "daemon/daemon.h"
#include "daemon/job/devices.h"
#include "daemon/job/job.h"

static int64_t counted(const struct job *j, int resource)
{
    if (resource == POLICY_MEMORY)
        return (int64_t)usage_memory(j);
    return devices_counted(j, (enum device_kind)(resource - POLICY_DEVICE));
}

void resources_of_job(const struct job *j, struct policy_job *ret)
{
    for (int r = 0; r < POLICY_RESOURCE_MAX; r++)
        if (policy_stays(r))
            ret->min.of[r] = ret->request.of[r] = counted(j, r);
}

void resources_of_machine(const struct daemon *d, bool (*counts)(const struct job *, uint64_t),
                          uint64_t now, struct policy_domain *root)
{
    for (int kind = 0; kind < DEVICE_KINDS; kind++)
        root->capacity.of[POLICY_DEVICE + kind] = devices_of(d->devices.machine, kind);
    for (int r = 0; r < POLICY_RESOURCE_MAX; r++) {
        int64_t *capacity = &root->capacity.of[r], held = 0;

        if (!policy_stays(r) || *capacity == POLICY_UNLIMITED)
            continue;
        for (const struct job *j = d->jobs->first; j; j = j->next)
            held += counts(j, now) ? 0 : counted(j, r);
        *capacity = held < *capacity ? *capacity - held : 0;
    }
}

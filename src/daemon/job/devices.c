/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/job/devices.h"

#include "base/clock.h"
#include "daemon/daemon.h"
#include "daemon/job/job.h"

#include <string.h>

#define COUNT_NS         (60 * NS_PER_S) /* a driver may be loaded while tided runs */
#define PROCESSES_A_LOOK 16              /* so that 50 jobs cost no more than a few */

bool devices_count(struct daemon *d, uint64_t now)
{
    int64_t before = d->devices.machine;

    d->devices.counted_ns = now;
    d->devices.machine = d->config.devices == CONFIG_DEVICES_MACHINE ? proc_count_devices(d->root)
                                                                     : d->config.devices;
    return d->devices.machine != before;
}

/* True if the job holds others than before. */
static bool look_at(struct job *j)
{
    const struct usage *u = &j->observed.usage;
    struct device_set held = {0};

    for (unsigned i = 0; j->daemon->devices.machine && i < u->n_pids && i < USAGE_PIDS_MAX; i++)
        proc_read_devices(j->daemon->root, u->pids[i], &held); /* one that is gone holds none */
    if (memcmp(&held, &j->observed.devices, sizeof(held)) == 0)
        return false;
    j->observed.devices = held;
    return true;
}

bool devices_look(struct daemon *d, uint64_t now)
{
    struct job *j = d->jobs->first;
    bool changed = false;

    if (now - d->devices.counted_ns >= COUNT_NS)
        changed = devices_count(d, now);
    if (d->devices.machine == 0 && !changed)
        return false;
    while (j && j->number < d->devices.next)
        j = j->next;
    for (unsigned looks = 0; j && looks < PROCESSES_A_LOOK; j = j->next) {
        changed |= look_at(j);
        looks += 1 + j->observed.usage.n_pids;
    }
    d->devices.next = j ? j->number : 0;
    return changed;
}

unsigned devices_counted(const struct job *j, enum device_kind kind)
{
    unsigned asked = devices_of(j->asked.attributes.devices, kind), held = 0;
    struct device_set older = {0};

    if (j->observed.devices.n == 0)
        return asked;
    for (const struct job *k = j->daemon->jobs->first; k != j; k = k->next)
        for (unsigned i = 0; i < k->observed.devices.n; i++)
            device_set_add(&older, k->observed.devices.of[i]);
    held = device_set_count(&j->observed.devices, kind, &older);
    return held > asked ? held : asked;
}

uint32_t devices_cores(const struct job *j)
{
    uint32_t cores = j->observed.devices.n * j->daemon->config.device_cores;
    uint32_t most = cpuset_count(&j->daemon->cpus), allowed = j->observed.allowed_mcpu / 1000;

    if (j->asked.attributes.max && j->asked.attributes.max < most)
        most = (uint32_t)j->asked.attributes.max;
    if (allowed && allowed < most)
        most = allowed;
    return cores < most ? cores : most;
}

uint32_t devices_least(const struct job *j)
{
    uint32_t least = j->asked.attributes.min ? (uint32_t)j->asked.attributes.min : 1;
    uint32_t feed = devices_cores(j);

    return feed > least ? feed : least;
}

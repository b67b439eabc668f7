/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/plan/speeds.h"

#include "daemon/daemon.h"
#include "daemon/job/job.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static_assert(POLICY_SPEEDS_MAX == CORES_SPEEDS, "a group for each speed");
static_assert(POLICY_FASTEST == TOPOLOGY_FASTEST, "one unit of speed");
static_assert(POLICY_FASTEST == CORES_SPEED_MAX, "one unit of speed");

static uint16_t speed_of(const struct daemon *d, unsigned cpu)
{
    return cpuset_has(&d->topology.online, cpu) ? d->topology.speed[cpu] : CORES_SPEED_MAX;
}

/*
 * Finds the speeds of the usable CPUs, the fastest first. Where there are more than fit, the last
 * group has all slower ones, too, with the speed of its fastest.
 */
static uint32_t find_speeds(const struct daemon *d, uint16_t ret[CORES_SPEEDS])
{
    uint32_t count = 0;

    for (unsigned below = UINT16_MAX; count < CORES_SPEEDS; count++) {
        uint16_t next = 0;

        for (int c = cpuset_next(&d->usable, 0); c >= 0;
             c = cpuset_next(&d->usable, (unsigned)c + 1)) {
            uint16_t speed = speed_of(d, (unsigned)c);

            next = speed < below && speed > next ? speed : next;
        }
        if (next == 0)
            break;
        ret[count] = next;
        below = next;
    }
    return count;
}

static uint8_t group_of(uint16_t speed, const uint16_t *speeds, uint32_t count)
{
    uint32_t i = 0;

    while (i + 1 < count && speed < speeds[i])
        i++;
    return (uint8_t)i;
}

void speeds_of_cpus(const struct daemon *d, struct cores_machine *ret)
{
    uint16_t speeds[CORES_SPEEDS];
    uint32_t count = find_speeds(d, speeds);

    *ret = (struct cores_machine){.cpus = d->cpus, .usable = d->usable};
    for (unsigned c = 0; c < CPUSET_MAX_CPUS; c++) {
        int node = topology_node_of(&d->topology, c);
        bool online = cpuset_has(&d->topology.online, c);

        if (!cpuset_has(&d->cpus, c))
            continue;
        ret->core[c] = online ? d->topology.core[c] : (uint16_t)c;
        ret->node[c] = node > 0 ? (uint16_t)node : 0;
        ret->speed[c] = speed_of(d, c);
        ret->group[c] = group_of(ret->speed[c], speeds, count);
    }
}

uint32_t speeds_of_machine(const struct daemon *d, struct policy_speed ret[POLICY_SPEEDS_MAX])
{
    uint16_t speeds[CORES_SPEEDS];
    uint32_t count = find_speeds(d, speeds);

    for (uint32_t i = 0; i < count; i++)
        ret[i] = (struct policy_speed){0, (uint32_t)speeds[i] * POLICY_FASTEST / speeds[0]};
    for (int c = cpuset_next(&d->usable, 0); c >= 0; c = cpuset_next(&d->usable, (unsigned)c + 1))
        ret[group_of(speed_of(d, (unsigned)c), speeds, count)].cores++;
    return count;
}

void speeds_explain(struct job *j)
{
    size_t len = strlen(j->wanted.reason);
    uint32_t slow = 0;

    for (uint32_t i = 1; i < POLICY_SPEEDS_MAX; i++)
        slow += j->wanted.of_speed[i];
    if (slow)
        snprintf(j->wanted.reason + len, sizeof(j->wanted.reason) - len,
                 "; %" PRIu32 " of its cores %s slow", slow, slow == 1 ? "is" : "are");
}

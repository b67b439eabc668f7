/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds limits of a container that another program has changed: through the engine, which reports
 * that, or directly in the files of its control group, which are therefore read at each tick. A
 * changed limit is written again through the engine. If that happens again and again, the repairs
 * get rarer and the job gets a note.
 */
#include "base/clock.h"
#include "daemon/containers/container_state.h"
#include "daemon/daemon.h"

#include <errno.h>

#define DRIFT_FREE         4               /* repairs in a row without a pause; … */
#define DRIFT_CALM_NS      (60 * NS_PER_S) /* … a row ends after so long without a change; … */
#define DRIFT_REST_NS      (2 * NS_PER_S) /* … and is slowed down by this, doubled each time, … */
#define DRIFT_REST_DOUBLED 4              /* … at most so often */

/* The group does not move while it exists: it is looked up once in a run. */
static bool find_group(struct container *c)
{
    const struct process *first = c->job ? container_first(c->job) : NULL;
    const struct daemon *d = container_daemon(c);

    return d->cgroup && first &&
           (*c->place.cpu || *c->place.cpuset ||
            cgroup_find(d->cgroup, first->pid, c->id, &c->place) == 0);
}

const char *container_group(const struct job *j)
{
    struct container *c = j->container;

    return c && find_group(c) && *c->place.cpu ? c->place.cpu : NULL;
}

static int read_kernel(struct container *c, struct cgroup_settings *ret)
{
    const struct daemon *d = container_daemon(c);
    int r;

    if (!find_group(c))
        return -ESRCH;
    r = cgroup_read_place(d->cgroup, &c->place, ret);
    if (r == -ENOENT)
        c->place = (struct cgroup_place){0};
    if (r == 0 && cpuset_count(&ret->cpus) == 0) /* v2: inherited from the group above */
        ret->cpus = d->topology.online;
    return r;
}

void drift_settled(struct container *c)
{
    c->drift.known = read_kernel(c, &c->drift.held) == 0;
}

/*
 * Takes the written values as known: a value that is read could be another program's already. The
 * weight on v2 is read, as container runtimes convert shares to it in several ways.
 */
void drift_written(struct container *c, unsigned what)
{
    bool v1 = c->set->daemon->cgroup && cgroup_version_cpu(c->set->daemon->cgroup) == CGROUP_V1;
    bool known = c->drift.known;
    struct cgroup_settings *held = &c->drift.held, before = *held;
    uint32_t mcpu = engine_quota_mcpu(&c->sent.quota);

    drift_settled(c);
    if (known && !(what & CONTAINER_CPUS))
        held->cpus = before.cpus;
    if (known && !(what & CONTAINER_QUOTA))
        held->quota_mcpu = before.quota_mcpu;
    if (known && !(what & CONTAINER_SHARES))
        held->units = before.units;
    if (what & CONTAINER_CPUS)
        held->cpus = c->sent.cpus;
    if (what & CONTAINER_QUOTA)
        held->quota_mcpu = mcpu ? mcpu : CGROUP_NO_QUOTA;
    if ((what & CONTAINER_SHARES) && v1)
        held->units = c->sent.shares;
}

static unsigned differences(const struct cgroup_settings *a, const struct cgroup_settings *b)
{
    /* Engine and kernel round a quota differently if it is no whole number of thousandths. */
    bool quota = a->quota_mcpu > b->quota_mcpu ? a->quota_mcpu - b->quota_mcpu > 1
                                               : b->quota_mcpu - a->quota_mcpu > 1;

    return (cpuset_equal(&a->cpus, &b->cpus) ? 0 : CONTAINER_CPUS) | (quota ? CONTAINER_QUOTA : 0) |
           (a->units == b->units ? 0 : CONTAINER_SHARES);
}

bool drift_resting(const struct container *c)
{
    return clock_now_ns() < c->drift.rest_ns;
}

bool drift_repair(struct container *c)
{
    struct drift *d = &c->drift;
    uint64_t now = clock_now_ns();
    unsigned doubled;

    if (drift_resting(c))
        return false;
    if (now - d->repaired_ns > DRIFT_CALM_NS)
        d->n = 0;
    d->n++;
    d->repaired_ns = now;
    if (d->n <= DRIFT_FREE)
        daemon_log_as(
            "limits-changed",
            "job %s (%s): another program changed its container's limits; tided restores them%s",
            c->job->id, c->job->name, d->n == DRIFT_FREE ? ", less often from now on" : "");
    if (d->n < DRIFT_FREE)
        return true;
    doubled = d->n - DRIFT_FREE < DRIFT_REST_DOUBLED ? d->n - DRIFT_FREE : DRIFT_REST_DOUBLED;
    d->rest_ns = now + (DRIFT_REST_NS << doubled);
    return true;
}

void drift_look(struct container *c)
{
    struct cgroup_settings now;
    unsigned other;

    if (!container_sure(&c->state) || !c->job)
        return;
    if (!c->drift.known) {
        drift_settled(c);
        return;
    }
    if (read_kernel(c, &now) < 0)
        return;
    other = differences(&now, &c->drift.held) & ~c->again;
    if (other && container_only_cpus(c) &&
        (other != CONTAINER_CPUS || cpuset_equal(&now.cpus, &c->placed.cpus))) {
        c->drift.held = now; /* the kubelet's, see take_room() */
        if (other != CONTAINER_CPUS)
            container_happens(c, CONTAINER_NEWS);
        return;
    }
    if (other && c->job->asked.kept)
        c->drift.held = now; /* accepted, like a change through the engine */
    else if (other && drift_repair(c))
        c->again |= other;
}

bool container_contested(const struct job *j, uint64_t now_ns)
{
    const struct container *c = j->container;

    return c && c->drift.n >= DRIFT_FREE && now_ns - c->drift.repaired_ns <= DRIFT_CALM_NS;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/job/census.h"

#include "base/cleanup.h"
#include "daemon/daemon.h"
#include "daemon/job/job.h"
#include "host/proc/proc.h"

#include <errno.h>
#include <stdlib.h>

#define ANCESTORS_MAX 64 /* longest way up the parents of a process */

static struct census_entry *find(const struct census *c, pid_t pid)
{
    size_t low = 0, high = c->n;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (c->entry[middle].pid < pid)
            low = middle + 1;
        else
            high = middle;
    }
    return low < c->n && c->entry[low].pid == pid ? &c->entry[low] : NULL;
}

static void mark_known(const struct daemon *d, struct census *c)
{
    for (struct job *j = d->jobs->first; j; j = j->next)
        for (const struct process *p = j->processes; p; p = p->next) {
            struct census_entry *e = find(c, p->pid);

            if (e)
                e->job = j;
        }
}

/* The result holds for all processes on the way up: each is visited once. */
static void mark_by_ancestors(struct census *c)
{
    for (size_t i = 0; i < c->n; i++) {
        struct census_entry *way[ANCESTORS_MAX], *e = &c->entry[i];
        size_t depth = 0;

        while (e && !e->job && depth < ANCESTORS_MAX) {
            way[depth++] = e;
            e = e->parent > 1 ? find(c, e->parent) : NULL;
        }
        if (e && e->job)
            while (depth > 0)
                way[--depth]->job = e->job;
    }
}

static void mark_orphans(struct census *c)
{
    for (size_t i = 0; i < c->n; i++) {
        const struct census_entry *leader = c->entry[i].job ? NULL : find(c, c->entry[i].session);

        if (leader && leader->job && leader->job->admission.submitted)
            c->entry[i].job = leader->job;
    }
}

int census_take(const struct daemon *d, struct census *ret)
{
    _cleanup_free_ pid_t *pids = NULL;
    struct census c = {0};
    size_t count;
    int r = proc_list(d->root, &pids, &count);

    if (r < 0)
        return r;
    c.entry = calloc(count ? count : 1, sizeof(*c.entry));
    if (!c.entry)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        struct proc_stat stat;

        if (proc_read_stat(d->root, pids[i], &stat) == 0)
            c.entry[c.n++] = (struct census_entry){.pid = stat.pid,
                                                   .parent = stat.parent,
                                                   .session = stat.session,
                                                   .start = stat.start,
                                                   .cpu_ns = stat.cpu_ns + stat.ended_ns};
    }
    mark_known(d, &c);
    mark_by_ancestors(&c);
    mark_orphans(&c);
    *ret = c;
    return 0;
}

static int by_job(const void *a, const void *b)
{
    const struct job *x = ((const struct census_entry *)a)->job;
    const struct job *y = ((const struct census_entry *)b)->job;

    if (!x || !y)
        return (x == NULL) - (y == NULL);
    return (x->number > y->number) - (x->number < y->number);
}

void census_by_job(struct census *c)
{
    qsort(c->entry, c->n, sizeof(*c->entry), by_job);
}

void census_done(struct census *c)
{
    free(c->entry);
    *c = (struct census){0};
}

bool census_has(const struct daemon *d, const struct job *j, pid_t pid)
{
    const struct census_entry *e;
    struct census c;
    bool has;

    if (census_take(d, &c) < 0)
        return false;
    e = find(&c, pid);
    has = e && e->job == j;
    census_done(&c);
    return has;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/confine/balance.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/name_map.h"
#include "daemon/confine/tree_weights.h"
#include "daemon/daemon.h"
#include "daemon/job/confine.h"
#include "daemon/job/job.h"
#include "host/cgroup/cgroup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_WORD "no-control-groups"

#define BALANCE_MAX     4096              /* control groups looked at; further ones are ignored */
#define DEPTH_MAX       16                /* depth of a job's group */
#define LOOK_NS         (200 * NS_PER_MS) /* processor time over a shorter period is no measure */
#define ACTIVE_PERMILLE 10                /* of one CPU; a group that uses less counts as waiting */
#define WRITE_PERMILLE  20                /* a smaller correction of a weight is not written */
#define OFF_PERMILLE    100 /* a person is told when a job misses its part by this … */
#define OFF_LOOKS       3   /* … so often in a row: during a resize it may */

struct entry {
    char *path;
    struct job *job; /* borrowed, for one look */
    uint64_t cpu_ns, at_ns;
};

/* The groups found, parents before children. `group` is an array of its own, for tree_weights.h. */
struct look {
    struct entry *entry;
    struct tree_group *group;
    struct name_map by_path; /* index into both arrays */
    uint32_t n, room;
};

struct balance {
    struct daemon *d;
    struct look now, before;
    uint32_t own_units; /* our group's weight before the first comparison; 0: none yet */
    unsigned off;       /* looks in a row in which a job missed its part */
    char note[2 * ERROR_TEXT_MAX];
};

/* ---- the table ---- */

static int reserve(struct look *l)
{
    uint32_t room = l->room ? 2 * l->room : 32;
    struct tree_group *group;
    struct entry *entry;

    if (l->n < l->room)
        return 0;
    if (l->n >= BALANCE_MAX)
        return -ENOSPC;
    entry = realloc(l->entry, room * sizeof(*entry));
    if (!entry)
        return -ENOMEM;
    l->entry = entry;
    group = realloc(l->group, room * sizeof(*group));
    if (!group)
        return -ENOMEM;
    l->group = group;
    if (name_map_reserve(&l->by_path, room) < 0)
        return -ENOMEM;
    l->room = room;
    return 0;
}

/* Adds a group and its ancestors, those first. Returns 0 or -errno; *ret is its index. */
static int add(struct look *l, const char *path, unsigned depth, uint32_t *ret)
{
    const char *slash = strrchr(path, '/');
    uint32_t parent = TREE_ROOT, found = name_map_get(&l->by_path, path);
    int r = depth < DEPTH_MAX ? 0 : -ENAMETOOLONG;

    if (found != NAME_MAP_NONE) {
        *ret = found;
        return 0;
    }
    if (r == 0 && slash > path) {
        _cleanup_free_ char *above = strndup(path, (size_t)(slash - path));

        r = above ? add(l, above, depth + 1, &parent) : -ENOMEM;
    }
    if (r == 0)
        r = reserve(l);
    if (r < 0)
        return r;
    l->entry[l->n] = (struct entry){.path = strdup(path)};
    l->group[l->n] = (struct tree_group){.parent = parent};
    if (!l->entry[l->n].path)
        return -ENOMEM;
    name_map_put(&l->by_path, l->entry[l->n].path, l->n);
    *ret = l->n++;
    return 0;
}

static void empty(struct look *l)
{
    while (l->n > 0)
        free(l->entry[--l->n].path);
    name_map_clear(&l->by_path);
}

/* ---- which groups ---- */

static void add_jobs(struct balance *g)
{
    struct look *l = &g->now;
    char path[CGROUP_PATH_MAX];
    uint32_t i;

    for (struct job *j = g->d->jobs->first; j; j = j->next) {
        if (j->placed.weight == 0 || j->confine->group(j, path) < 0 || !path[1] ||
            add(l, path, 0, &i) < 0)
            continue;
        l->entry[i].job = j;
        l->group[i].wanted = j->wanted.weight;
    }
    snprintf(path, sizeof(path), "/%s", g->d->group);
    i = name_map_get(&l->by_path, path);
    if (i != NAME_MAP_NONE)
        l->group[i].ours = true;
}

/* The kernel itself compares jobs below the same parent. */
static bool apart(const struct look *l)
{
    uint32_t parent = TREE_ROOT;
    bool any = false;

    for (uint32_t i = 0; i < l->n; i++) {
        if (!l->entry[i].job)
            continue;
        if (any && l->group[i].parent != parent)
            return true;
        any = true;
        parent = l->group[i].parent;
    }
    return false;
}

static int add_beside(void *arg, const char *path)
{
    uint32_t i;
    int r = add(arg, path, 0, &i);

    return r == -ENAMETOOLONG ? 0 : r;
}

/* Siblings directly below the root matter to nobody: they take the same from all the others. */
static void add_siblings(struct balance *g)
{
    struct look *l = &g->now;

    for (uint32_t i = 0, n = l->n; i < n; i++)
        if (!l->entry[i].job && !l->group[i].ours)
            cgroup_list(g->d->cgroup, l->entry[i].path, add_beside, l);
}

/* ---- what they are ---- */

/*
 * A group competes if it used processor time since the last look. A new group has no such measure:
 * jobs count at once, other groups only later. A hundred idle groups that counted at once would
 * shrink our weight until our jobs starve; a starving job looks idle, so that would last.
 */
static bool is_active(const struct look *before, struct entry *e, const struct cgroup_load *load,
                      uint64_t now)
{
    uint32_t i = name_map_get(&before->by_path, e->path);
    const struct entry *old = i == NAME_MAP_NONE ? NULL : &before->entry[i];

    e->cpu_ns = load->cpu_ns;
    e->at_ns = now;
    if (!old)
        return e->job;
    if (!load->have_cpu || load->cpu_ns < old->cpu_ns)
        return true;
    if (now - old->at_ns < LOOK_NS) {
        e->cpu_ns = old->cpu_ns;
        e->at_ns = old->at_ns;
        return before->group[i].active;
    }
    return (load->cpu_ns - old->cpu_ns) * 1000 >= (now - old->at_ns) * ACTIVE_PERMILLE;
}

static void read_all(struct balance *g, uint64_t now)
{
    struct look *l = &g->now;

    for (uint32_t i = 0; i < l->n; i++) {
        struct tree_group *group = &l->group[i];
        struct cgroup_load load;

        if (cgroup_read_load(g->d->cgroup, l->entry[i].path, &load) < 0)
            continue; /* the group has just been removed */
        group->weight = load.units;
        group->active = is_active(&g->before, &l->entry[i], &load, now);
        if (l->entry[i].job)
            l->entry[i].job->confine->weighs(l->entry[i].job, load.units);
    }
}

/* ---- our own ---- */

static uint32_t find_ours(const struct look *l)
{
    uint32_t i = 0;

    while (i < l->n && !l->group[i].ours)
        i++;
    return i < l->n ? i : TREE_ROOT;
}

static void write_own(struct balance *g, uint32_t own, uint32_t units)
{
    struct error err = {0};

    if (cgroup_set_units(g->d->cgroup, g->d->group, units, &err) < 0)
        daemon_log_as(error_why(&err), "cannot set the weight of tided's control group: %s",
                      err.text);
    else
        g->now.group[own].weight = units;
}

static void place_own(struct balance *g)
{
    struct look *l = &g->now;
    struct cgroup_units range = cgroup_units(g->d->cgroup);
    uint32_t own = find_ours(l), have = own == TREE_ROOT ? 0 : l->group[own].weight;
    double wanted = have ? tree_our_weight(l->group, l->n) : 0;
    uint32_t units = wanted < range.min   ? range.min
                     : wanted > range.max ? range.max
                                          : (uint32_t)(wanted + 0.5);

    if (wanted <= 0)
        return;
    if (g->own_units == 0)
        g->own_units = have;
    if ((units > have ? units - have : have - units) * 1000ull > WRITE_PERMILLE * (uint64_t)have)
        write_own(g, own, units);
}

/* No job elsewhere is left to compare with. */
static void let_go_of_own(struct balance *g)
{
    uint32_t own = find_ours(&g->now);

    if (own == TREE_ROOT || g->own_units == 0)
        return; /* there is no such group now, or its weight is unchanged */
    write_own(g, own, g->own_units);
    g->own_units = 0;
}

/* ---- whether it came out ---- */

static void write_note(struct balance *g, uint32_t i, uint32_t permille)
{
    const struct entry *e = &g->now.entry[i];
    bool told = g->note[0];

    snprintf(g->note, sizeof(g->note),
             "job %s (%.60s) gets %u %% of the processor time that its weight stands for, against "
             "jobs in "
             "other control groups; its group is %.100s",
             e->job->id, e->job->name, permille / 10, e->path);
    if (!told)
        daemon_err("%s", g->note);
}

static void verify(struct balance *g)
{
    const struct look *l = &g->now;
    uint32_t worst = 0, at = 0, permille = 1000;

    tree_parts(l->group, l->n);
    for (uint32_t i = 0; i < l->n; i++) {
        uint32_t p, off;

        if (!l->entry[i].job || !l->group[i].active ||
            l->entry[i].job->confine->is_busy(l->entry[i].job))
            continue;
        p = tree_permille(l->group, l->n, i);
        off = p > 1000 ? p - 1000 : 1000 - p;
        if (off > worst) {
            worst = off;
            at = i;
            permille = p;
        }
    }
    g->off = worst > OFF_PERMILLE ? g->off + 1 : 0;
    if (g->off >= OFF_LOOKS)
        write_note(g, at, permille);
    else if (g->off == 0)
        g->note[0] = '\0';
}

/* ---- the whole ---- */

void balance_look(struct balance *g, uint64_t now_ns)
{
    struct look swap;

    if (!g->d->weights)
        return;
    swap = g->before;
    g->before = g->now;
    g->now = swap;
    empty(&g->now);
    add_jobs(g);
    if (!apart(&g->now)) {
        if (cgroup_version_cpu(g->d->cgroup) == CGROUP_V2)
            read_all(g, now_ns); /* container_weighs() learns how runtimes convert shares */
        let_go_of_own(g);
        g->off = 0;
        g->note[0] = '\0';
        return;
    }
    add_siblings(g);
    read_all(g, now_ns);
    tree_parts(g->now.group, g->now.n);
    place_own(g);
    verify(g);
}

const char *balance_note(const struct balance *g)
{
    return g->note;
}

int balance_new(struct daemon *d, struct balance **ret, struct error *err)
{
    struct balance *g = calloc(1, sizeof(*g));

    if (!g)
        return error_set(err, -ENOMEM, "out of memory");
    g->d = d;
    *ret = g;
    return 0;
}

static void look_done(struct look *l)
{
    empty(l);
    free(l->entry);
    free(l->group);
    free(l->by_path.slot);
}

struct balance *balance_free(struct balance *g)
{
    if (!g)
        return NULL;
    look_done(&g->now);
    look_done(&g->before);
    free(g);
    return NULL;
}

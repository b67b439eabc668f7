/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cleanup.h"
#include "daemon/containers/container_state.h"
#include "daemon/daemon.h"
#include "host/proc/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct engine *container_engine(const struct container *c)
{
    return c->set->up ? c->set->engine : NULL;
}

struct daemon *container_daemon(const struct container *c)
{
    return c->set->daemon;
}

bool container_only_cpus(const struct container *c)
{
    return engine_only_cpus(c->set->engine);
}

const char *container_engine_path(const struct container *c)
{
    return c->set->path;
}

const struct process *container_first(const struct job *j)
{
    const struct process *first = j->processes;

    while (first && first->outside)
        first = first->next;
    return first;
}

static char *read_groups(const struct daemon *d, pid_t pid)
{
    char *text, path[32];
    size_t len;

    snprintf(path, sizeof(path), "proc/%d/cgroup", (int)pid);
    return file_read_all(d->root, path, &text, &len) == 0 ? text : NULL;
}

/*
 * Compares the whole path of the container's group: a container that may make groups below its own
 * can give them any name. The engine reports its first process.
 */
bool container_holds(const struct container *c, pid_t pid)
{
    const struct process *first = c->job ? container_first(c->job) : NULL;
    _cleanup_free_ char *theirs = read_groups(c->set->daemon, pid);
    _cleanup_free_ char *own = first ? read_groups(c->set->daemon, first->pid) : NULL;
    char *group = own ? strstr(own, c->id) : NULL;
    const char *at;
    size_t len;

    if (!theirs || !group)
        return theirs && !first && strstr(theirs, c->id);
    group[strcspn(group, "/\n")] = '\0';
    group = strrchr(own, '\n') ? strrchr(own, '\n') + 1 : own;
    len = strlen(group);
    at = strstr(theirs, group);
    return at && (at == theirs || at[-1] == '\n') && (at[len] == '/' || at[len] == '\n');
}

struct container *container_find(const struct containers *set, const char *id)
{
    for (struct container *c = set->first; c; c = c->next)
        if (strcmp(c->id, id) == 0)
            return c;
    return NULL;
}

struct container *container_add(struct containers *set, const char *id, const char *key)
{
    struct container *c = container_find(set, id);

    if (c)
        return c;
    if (strlen(id) >= sizeof(c->id))
        return NULL;
    c = calloc(1, sizeof(*c));
    if (!c)
        return NULL;
    c->set = set;
    snprintf(c->id, sizeof(c->id), "%s", id);
    snprintf(c->key, sizeof(c->key), "%s", key ? key : id);
    c->heard = set->lists;
    c->pause_call.answered_ms = UINT64_MAX;
    c->next = set->first;
    set->first = c;
    return c;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to cgroup*.c: the hierarchies that were found, and the table of functions that hides how
 * cgroup v1 and v2 differ.
 */
#pragma once

#include "host/cgroup/cgroup.h"

#include <dirent.h>
#include <errno.h>

/* Every function takes the group as a directory @dir relative to @root. */
struct cgroup_ops {
    const char *effective_cpus; /* file names … */
    const char *memory_limit, *memory_events, *memory_current, *memory_peak;
    const char *file_pages[2]; /* … and keys of memory.stat: what a file holds, too, … */
    const char *unwritten[2];  /* … and what of that it does not hold yet */
    const char *units_file;
    struct cgroup_units units;
    int (*get_weight)(int root, const char *dir, uint32_t *ret);
    int (*set_weight)(int root, const char *dir, uint32_t weight);
    int (*get_quota)(int root, const char *dir, uint32_t *ret_mcpu);
    int (*set_quota)(int root, const char *dir, uint32_t mcpu);
    int (*get_frost)(int root, const char *dir, enum cgroup_frost *ret);
    int (*set_frozen)(int root, const char *dir, bool frozen);
    /* Called before a child is made in @dir, and after @child was made in it. */
    int (*enable)(int root, const char *dir, unsigned controllers);
    int (*populate)(int root, const char *dir, const char *child, unsigned controllers);
};

struct cgroup_hierarchy {
    enum cgroup_version version;
    const struct cgroup_ops *ops;
    const char *key;             /* its name in /proc/PID/cgroup */
    char point[CGROUP_PATH_MAX]; /* mount point */
    char top[CGROUP_PATH_MAX];   /* the group that is mounted there, "/" for the hierarchy's root */
};

struct cgroup {
    int root;
    struct cgroup_hierarchy cpu, cpuset, freezer;
    struct cgroup_hierarchy cpuacct; /* v1 only: counts groups' CPU time */
    struct cgroup_hierarchy memory;  /* only read */
};

extern const struct cgroup_ops cgroup_ops_v1, cgroup_ops_v2;

/*
 * Tells where @pid's group lies below the mount point: "/" or "/a/b". A group outside of the
 * mounted part counts as "/", the nearest visible group. Returns 0 or -errno.
 */
int cgroup_path_of(const struct cgroup *cg, const struct cgroup_hierarchy *h, pid_t pid,
                   char ret_path[CGROUP_PATH_MAX]);

/* True for the kernel's errors for a group that is gone, or goes while one of its files is open. */
static inline bool cgroup_is_gone(int r)
{
    return r == -ENOENT || r == -ENODEV;
}

/* Opens a group's directory without following links; the caller closes it. 0 or -errno. */
int cgroup_open_dir(const struct cgroup *cg, const char *path, DIR **ret);

/* Returns 0 or -errno; a missing file is -ENOENT. */
int cgroup_read_cpus(int root, const char *dir, const char *file, struct cpuset *ret);

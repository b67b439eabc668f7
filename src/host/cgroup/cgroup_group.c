/* SPDX-License-Identifier: Apache-2.0 */
/* The writing side of host/cgroup/cgroup.h: our own groups. */
#include "base/cleanup.h"
#include "base/minmax.h"
#include "host/cgroup/cgroup_ops.h"
#include "host/proc/file.h"
#include "host/proc/proc.h"

#include <dirent.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define ERROR_WORD "no-control-groups"

#define LEAVE_PASSES    8    /* searches of a group whose processes fork while it is emptied */
#define MEMORY_TEXT_MAX 8192 /* of memory.stat */
#define NO_LIMIT_V1     (UINT64_C(1) << 62) /* and more: where v2 has "max" */

#define ALL (CGROUP_CPU | CGROUP_CPUSET | CGROUP_FREEZER)

/* The hierarchies of @controllers, each with those of them that it has. */
struct places {
    size_t n;
    struct {
        const struct cgroup_hierarchy *h;
        unsigned controllers;
    } place[3];
};

static struct places places_of(const struct cgroup *cg, unsigned controllers)
{
    const struct {
        unsigned controller;
        const struct cgroup_hierarchy *h;
    } all[] = {
        {CGROUP_CPU, &cg->cpu}, {CGROUP_CPUSET, &cg->cpuset}, {CGROUP_FREEZER, &cg->freezer}};
    struct places places = {0};

    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        size_t k = 0;

        if (!(controllers & all[i].controller) || all[i].h->version == CGROUP_NONE)
            continue;
        while (k < places.n && strcmp(places.place[k].h->point, all[i].h->point) != 0)
            k++;
        places.place[k].h = all[i].h;
        places.place[k].controllers |= all[i].controller;
        places.n += k == places.n;
    }
    return places;
}

/* Length of the "tide-<uid>-<epoch>" that @text begins with, or 0. */
static size_t daemon_name_length(const char *text)
{
    size_t at = strlen(CGROUP_PREFIX);
    const char *p = text + at;
    uint64_t number;

    if (strncmp(text, CGROUP_PREFIX, at) != 0 || text_scan_u64(&p, &number) < 0 || *p++ != '-' ||
        text_scan_u64(&p, &number) < 0 || (*p != '\0' && *p != '/'))
        return 0;
    return (size_t)(p - text);
}

static bool name_ok(const char *name)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_./";

    return strlen(name) < CGROUP_NAME_MAX && daemon_name_length(name) > 0 &&
           name[strspn(name, plain)] == '\0' && !strstr(name, "..") && !strstr(name, "//") &&
           name[strlen(name) - 1] != '/';
}

bool cgroup_path_is_ours(const char *path)
{
    return path[0] == '/' && daemon_name_length(path + 1) > 0;
}

static int explain(struct error *err, int r, const char *what, const char *dir)
{
    if (r == -EROFS)
        return error_set(err, r, "cannot %s %s: the cgroup file system is mounted read-only", what,
                         dir);
    if (r == -EACCES || r == -EPERM)
        return error_set(err, -EPERM,
                         "cannot %s %s: not permitted (needs root or a delegated group)", what,
                         dir);
    return error_set(err, r, "cannot %s %s: %s", what, dir, strerror(-r));
}

void cgroup_daemon_name(uid_t uid, uint64_t epoch, char ret_name[CGROUP_NAME_MAX])
{
    snprintf(ret_name, CGROUP_NAME_MAX, CGROUP_PREFIX "%u-%llu", (unsigned)uid,
             (unsigned long long)epoch);
}

static int place_writable(const struct cgroup *cg, const struct cgroup_hierarchy *h,
                          const char *controller, struct error *err)
{
    const char *dir = h->point + strspn(h->point, "/");

    if (h->version == CGROUP_NONE)
        return error_set(err, -ENOTSUP, "the %s controller is mounted nowhere", controller);
    if (strcmp(h->top, "/") != 0)
        return error_set(err, -EPERM,
                         "only group %s of the %s hierarchy is mounted: tide makes no groups there",
                         h->top, controller);
    if (faccessat(cg->root, dir, W_OK, AT_EACCESS) < 0)
        return explain(err, -errno, "write", h->point);
    return 0;
}

bool cgroup_writable(const struct cgroup *cg, bool *ret_cpu, bool *ret_cpuset, struct error *err)
{
    bool cpuset = place_writable(cg, &cg->cpuset, "cpuset", err) == 0;
    bool cpu = place_writable(cg, &cg->cpu, "cpu", err) == 0; /* its reason matters more */

    if (ret_cpu)
        *ret_cpu = cpu;
    if (ret_cpuset)
        *ret_cpuset = cpuset;
    return cpu && cpuset;
}

bool cgroup_freezable(const struct cgroup *cg, struct error *err)
{
    return place_writable(cg, &cg->freezer, "freezer", err) == 0;
}

/* ---- making ---- */

/* It competes with single processes of the root group, each as heavy as a default group. */
static uint32_t daemon_weight(void)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t weight = CGROUP_WEIGHT_STD * (uint64_t)(cpus > 0 ? cpus : 1);

    return weight < CGROUP_WEIGHT_MAX ? (uint32_t)weight : CGROUP_WEIGHT_MAX;
}

static int make_one(const struct cgroup *cg, const struct cgroup_hierarchy *h, unsigned controllers,
                    const char *dir, const char *child, bool is_daemons)
{
    int r = h->ops->enable(cg->root, dir, controllers);
    const char *path = child + strspn(child, "/");
    bool made;

    if (r < 0)
        return r;
    made = mkdirat(cg->root, path, 0755) == 0;
    if (!made && errno != EEXIST)
        return -errno;
    if (made && fchmodat(cg->root, path, 0755, 0) < 0) /* users may look, whatever the umask is */
        return -errno;
    if (made && is_daemons && (controllers & CGROUP_CPU))
        r = h->ops->set_weight(cg->root, child, daemon_weight());
    return r < 0 ? r : h->ops->populate(cg->root, dir, child, controllers);
}

/* Makes the path component by component. */
static int make_path(const struct cgroup *cg, const struct cgroup_hierarchy *h,
                     unsigned controllers, const char *name)
{
    char dir[FILE_PATH_MAX], child[FILE_PATH_MAX];
    size_t at = 0;

    snprintf(dir, sizeof(dir), "%s", h->point);
    do {
        int r;

        at += strcspn(name + at, "/");
        r = file_path(child, sizeof(child), "%s/%.*s", h->point, (int)at, name);
        if (r == 0)
            r = make_one(cg, h, controllers, dir, child, at == daemon_name_length(name));
        if (r < 0)
            return r;
        snprintf(dir, sizeof(dir), "%s", child);
    } while (name[at++]);
    return 0;
}

int cgroup_create(const struct cgroup *cg, const char *name, unsigned controllers,
                  struct error *err)
{
    struct places places = places_of(cg, controllers);

    if (!name_ok(name))
        return error_set(err, -EINVAL, "'%s' is not a valid group name", name);
    if (places.n == 0)
        return error_set(err, -ENOTSUP,
                         "none of the cgroup controllers that this needs is mounted");
    for (size_t i = 0; i < places.n; i++) {
        int r = place_writable(cg, places.place[i].h, places.place[i].h->key, err);

        if (r < 0)
            return r;
        r = make_path(cg, places.place[i].h, places.place[i].controllers, name);
        if (r < 0)
            return explain(err, r, "make control group", name);
    }
    return 0;
}

/* ---- moving ---- */

static int write_procs(const struct cgroup *cg, const struct cgroup_hierarchy *h, const char *name,
                       pid_t pid)
{
    char path[FILE_PATH_MAX], text[16];
    int r = file_path(path, sizeof(path), "%s%s%s/cgroup.procs", h->point, *name ? "/" : "", name);

    snprintf(text, sizeof(text), "%d", (int)pid);
    return r < 0 ? r : file_write(cg->root, path, text);
}

/* Returns 0 if the process may be moved; *ret_path gets its present group. */
static int check_movable(const struct cgroup *cg, const struct cgroup_hierarchy *h, pid_t pid,
                         char ret_path[CGROUP_PATH_MAX], struct error *err)
{
    char whole[CGROUP_PATH_MAX];
    int r = proc_read_cgroup(cg->root, pid, h->key, whole, sizeof(whole));

    if (r == 0)
        r = cgroup_path_of(cg, h, pid, ret_path);
    if (r < 0)
        return error_set(err, r, "cannot read the control group of process %d: %s", (int)pid,
                         strerror(-r));
    /* Reads the whole path: the "/" of cgroup_path_of may be a group that we cannot see. */
    if (strcmp(h->top, "/") != 0 || (strcmp(whole, "/") != 0 && !cgroup_path_is_ours(whole)))
        return error_set(err, -EPERM,
                         "process %d stays in its group %.150s, which another program manages "
                         "(systemd, Slurm, a container engine)",
                         (int)pid, whole);
    return 0;
}

int cgroup_move(const struct cgroup *cg, const char *name, unsigned controllers, pid_t pid,
                struct error *err)
{
    struct places places = places_of(cg, controllers);
    char path[CGROUP_PATH_MAX];

    if (!name_ok(name))
        return error_set(err, -EINVAL, "'%s' is not a valid group name", name);
    if (places.n == 0)
        return error_set(err, -ENOTSUP,
                         "none of the cgroup controllers that this needs is mounted");
    for (size_t i = 0; i < places.n; i++) { /* asks all hierarchies before it changes the first */
        int r = check_movable(cg, places.place[i].h, pid, path, err);

        if (r < 0)
            return r;
    }
    for (size_t i = 0; i < places.n; i++) {
        int r = write_procs(cg, places.place[i].h, name, pid);

        if (r < 0)
            return explain(err, r, "move a process into", name);
    }
    return 0;
}

int cgroup_move_home(const struct cgroup *cg, unsigned controllers, pid_t pid, struct error *err)
{
    struct places places = places_of(cg, controllers);

    for (size_t i = 0; i < places.n; i++) {
        char path[CGROUP_PATH_MAX];
        int r = cgroup_path_of(cg, places.place[i].h, pid, path);

        if (r == 0 && cgroup_path_is_ours(path))
            r = write_procs(cg, places.place[i].h, "", pid);
        if (r < 0)
            return error_set(err, r, "cannot move process %d back: %s", (int)pid, strerror(-r));
    }
    return 0;
}

/* ---- removing ---- */

/* Moves every process of the group to the root. Returns 0 when the group is empty, else -EBUSY. */
static int empty_group(const struct cgroup *cg, const struct cgroup_hierarchy *h, const char *name)
{
    char path[FILE_PATH_MAX];
    int r = file_path(path, sizeof(path), "%s/%s/cgroup.procs", h->point, name);

    if (r < 0)
        return r;
    for (int pass = 0; pass < LEAVE_PASSES; pass++) {
        _cleanup_free_ char *text = NULL;
        size_t len;
        uint64_t pid;

        r = file_read_all(cg->root, path, &text, &len);
        if (r < 0)
            return r;
        if (len == 0)
            return 0;
        for (const char *p = text; text_scan_u64(&p, &pid) == 0; p += *p == '\n') {
            r = write_procs(cg, h, "", (pid_t)pid);
            if (r < 0 && r != -ESRCH)
                return r;
        }
    }
    return -EBUSY;
}

typedef int (*group_fn)(const struct cgroup *cg, const struct cgroup_hierarchy *h,
                        const char *name);

/* Calls @fn for all groups directly below @name. Returns the first error. */
static int each_child(const struct cgroup *cg, const struct cgroup_hierarchy *h, const char *name,
                      group_fn fn)
{
    char path[FILE_PATH_MAX];
    int r = file_path(path, sizeof(path), "%s/%s", h->point, name);
    DIR *dir;

    if (r == 0)
        r = cgroup_open_dir(cg, path, &dir);
    if (r < 0)
        return r;
    for (const struct dirent *entry; (entry = readdir(dir));) {
        char child[CGROUP_NAME_MAX];
        int one;

        if (entry->d_type != DT_DIR || entry->d_name[0] == '.')
            continue;
        one = file_path(child, sizeof(child), "%s/%s", name, entry->d_name);
        if (one == 0)
            one = fn(cg, h, child);
        r = r < 0 ? r : one;
    }
    closedir(dir);
    return r;
}

/* Thaws the other groups even if one fails. */
static int thaw_below(const struct cgroup *cg, const struct cgroup_hierarchy *h, const char *name)
{
    char path[FILE_PATH_MAX];

    if (file_path(path, sizeof(path), "%s/%s", h->point, name) == 0)
        h->ops->set_frozen(cg->root, path, false);
    each_child(cg, h, name, thaw_below);
    return 0;
}

/* CGROUP_NAME_MAX bounds the depth. A group that stays does not hold back the others' processes. */
static int remove_below(const struct cgroup *cg, const struct cgroup_hierarchy *h, const char *name)
{
    char path[FILE_PATH_MAX];
    int below = each_child(cg, h, name, remove_below);
    int r = empty_group(cg, h, name);

    if (r == 0)
        r = below;
    if (r == 0)
        r = file_path(path, sizeof(path), "%s/%s", h->point + strspn(h->point, "/"), name);
    /* EBUSY: the kernel counts an exiting process that it no longer lists. */
    if (r == 0 && unlinkat(cg->root, path, AT_REMOVEDIR) < 0)
        r = -errno;
    return cgroup_is_gone(r) ? 0 : r;
}

int cgroup_remove(const struct cgroup *cg, const char *name, struct error *err)
{
    struct places places = places_of(cg, ALL);
    int result = 0;

    if (!name_ok(name))
        return error_set(err, -EINVAL, "'%s' is not a valid group name", name);
    if (cg->freezer.version != CGROUP_NONE)
        thaw_below(cg, &cg->freezer, name);
    for (size_t i = 0; i < places.n; i++) { /* one that fails does not hold back the others */
        int r = remove_below(cg, places.place[i].h, name);

        if (r < 0)
            result = explain(err, r, "remove control group", name);
    }
    return result;
}

int cgroup_each_freezable(const struct cgroup *cg, const char *name,
                          int (*fn)(void *arg, pid_t pid), void *arg)
{
    _cleanup_free_ char *text = NULL;
    char path[FILE_PATH_MAX];
    uint64_t pid;
    size_t len;
    int r = cg->freezer.version == CGROUP_NONE ? -ENOTSUP : 0;

    if (r == 0)
        r = file_path(path, sizeof(path), "%s/%s/cgroup.procs", cg->freezer.point, name);
    if (r == 0)
        r = file_read_all(cg->root, path, &text, &len);
    for (const char *p = text; r == 0 && text_scan_u64(&p, &pid) == 0; p += *p == '\n')
        r = fn(arg, (pid_t)pid);
    return r;
}

/* ---- settings ---- */

static int group_dir(const struct cgroup_hierarchy *h, const char *name, char *ret, size_t size,
                     struct error *err)
{
    if (h->version == CGROUP_NONE)
        return error_set(err, -ENOTSUP, "the cgroup controller that this needs is not mounted");
    if (!name_ok(name))
        return error_set(err, -EINVAL, "'%s' is not a valid group name", name);
    return file_path(ret, size, "%s/%s", h->point, name);
}

int cgroup_set_weight(const struct cgroup *cg, const char *name, uint32_t weight, struct error *err)
{
    char dir[FILE_PATH_MAX];
    uint32_t held;
    int r = group_dir(&cg->cpu, name, dir, sizeof(dir), err);

    if (r < 0)
        return r;
    if (weight < CGROUP_WEIGHT_MIN || weight > CGROUP_WEIGHT_MAX)
        return error_set(err, -ERANGE, "weight %u is not within %u … %u", weight, CGROUP_WEIGHT_MIN,
                         CGROUP_WEIGHT_MAX);
    r = cg->cpu.ops->set_weight(cg->root, dir, weight);
    if (r == 0)
        r = cg->cpu.ops->get_weight(cg->root, dir, &held);
    if (r == 0 && held != weight)
        r = -EIO;
    return r < 0 ? explain(err, r, "set the weight of", dir) : 0;
}

int cgroup_set_idle(const struct cgroup *cg, const char *name, bool idle, struct error *err)
{
    char dir[FILE_PATH_MAX], path[FILE_PATH_MAX];
    int r = group_dir(&cg->cpu, name, dir, sizeof(dir), err);

    if (r < 0)
        return r;
    r = file_path(path, sizeof(path), "%s/cpu.idle", dir);
    if (r == 0)
        r = file_write(cg->root, path, idle ? "1" : "0");
    if (r == -ENOENT)
        r = -ENOTSUP;
    return r < 0 ? explain(err, r, idle ? "give others precedence over" : "end the idling of", dir)
                 : 0;
}

int cgroup_set_units(const struct cgroup *cg, const char *name, uint32_t units, struct error *err)
{
    char dir[FILE_PATH_MAX], path[FILE_PATH_MAX], text[16];
    uint64_t held;
    int r = group_dir(&cg->cpu, name, dir, sizeof(dir), err);

    if (r < 0)
        return r;
    r = file_path(path, sizeof(path), "%s/%s", dir, cg->cpu.ops->units_file);
    snprintf(text, sizeof(text), "%u", units);
    if (r == 0)
        r = file_write(cg->root, path, text);
    if (r == 0)
        r = file_read_u64(cg->root, path, &held);
    if (r == 0 && held != units)
        r = -EIO;
    return r < 0 ? explain(err, r, "set the weight of", dir) : 0;
}

int cgroup_set_cpus(const struct cgroup *cg, const char *name, const struct cpuset *cpus,
                    struct error *err)
{
    char dir[FILE_PATH_MAX], path[FILE_PATH_MAX], text[CPUSET_TEXT_MAX];
    struct cpuset held;
    int r = group_dir(&cg->cpuset, name, dir, sizeof(dir), err);

    if (r < 0)
        return r;
    if (cpuset_count(cpus) == 0)
        return error_set(err, -ERANGE, "the set of CPUs for %s is empty", name);
    r = cpuset_format(cpus, text, sizeof(text));
    if (r >= 0)
        r = file_path(path, sizeof(path), "%s/cpuset.cpus", dir);
    if (r == 0)
        r = file_write(cg->root, path, text);
    if (r == 0)
        r = cgroup_read_cpus(cg->root, dir, "cpuset.cpus", &held);
    if (r == 0 && !cpuset_equal(&held, cpus))
        r = -EIO;
    return r < 0 ? explain(err, r, "set the CPUs of", dir) : 0;
}

int cgroup_set_quota(const struct cgroup *cg, const char *name, uint32_t quota_mcpu,
                     struct error *err)
{
    char dir[FILE_PATH_MAX];
    uint32_t held;
    int r = group_dir(&cg->cpu, name, dir, sizeof(dir), err);

    if (r < 0)
        return r;
    if (quota_mcpu < CGROUP_QUOTA_MIN)
        return error_set(err, -ERANGE, "a quota of %u mcpu is too small: the minimum is %u",
                         quota_mcpu, CGROUP_QUOTA_MIN);
    r = cg->cpu.ops->set_quota(cg->root, dir, quota_mcpu);
    if (r == 0)
        r = cg->cpu.ops->get_quota(cg->root, dir, &held);
    if (r == 0 && held != quota_mcpu)
        r = -EIO;
    return r < 0 ? explain(err, r, "set the quota of", dir) : 0;
}

int cgroup_freeze(const struct cgroup *cg, const char *name, bool frozen, struct error *err)
{
    char dir[FILE_PATH_MAX];
    int r = group_dir(&cg->freezer, name, dir, sizeof(dir), err);

    if (r < 0)
        return r;
    r = cg->freezer.ops->set_frozen(cg->root, dir, frozen);
    return r < 0 ? explain(err, r, frozen ? "freeze" : "thaw", dir) : 0;
}

int cgroup_read_frost(const struct cgroup *cg, const char *name, enum cgroup_frost *ret)
{
    char dir[FILE_PATH_MAX];
    int r = group_dir(&cg->freezer, name, dir, sizeof(dir), NULL);

    return r < 0 ? r : cg->freezer.ops->get_frost(cg->root, dir, ret);
}

static int read_cpu(const struct cgroup *cg, const char *dir, struct cgroup_settings *ret)
{
    char path[FILE_PATH_MAX];
    uint64_t units;
    int r = file_path(path, sizeof(path), "%s/%s", dir, cg->cpu.ops->units_file);

    if (r == 0)
        r = file_read_u64(cg->root, path, &units);
    if (r < 0)
        return r;
    ret->units = (uint32_t)units;
    r = cg->cpu.ops->get_weight(cg->root, dir, &ret->weight);
    return r < 0 ? r : cg->cpu.ops->get_quota(cg->root, dir, &ret->quota_mcpu);
}

/* @cpu and @cpuset are directories; a missing one yields the values of "none". */
static int read_both(const struct cgroup *cg, int cpu_found, const char *cpu, int cpuset_found,
                     const char *cpuset, struct cgroup_settings *ret)
{
    struct cgroup_settings settings = {.quota_mcpu = CGROUP_NO_QUOTA};
    int a = cpu_found < 0 ? cpu_found : read_cpu(cg, cpu, &settings);
    int b = cpuset_found < 0 ? cpuset_found
                             : cgroup_read_cpus(cg->root, cpuset, "cpuset.cpus", &settings.cpus);

    if (a < 0 && a != -ENOENT && a != -ENOTSUP)
        return a;
    if (b < 0 && b != -ENOENT && b != -ENOTSUP)
        return b;
    if (a < 0 && b < 0)
        return -ENOENT;
    *ret = settings;
    return 0;
}

int cgroup_read_settings(const struct cgroup *cg, const char *name, struct cgroup_settings *ret)
{
    char cpu[FILE_PATH_MAX], cpuset[FILE_PATH_MAX];
    int a = group_dir(&cg->cpu, name, cpu, sizeof(cpu), NULL);
    int b = group_dir(&cg->cpuset, name, cpuset, sizeof(cpuset), NULL);

    return read_both(cg, a, cpu, b, cpuset, ret);
}

/* Whether a scope is followed by crun's own group: "….scope/container" or below that. */
static bool has_inner(const char *end)
{
    size_t len = strlen(CGROUP_INNER);

    return strncmp(end - strlen(".scope"), ".scope", strlen(".scope")) == 0 &&
           strncmp(end, CGROUP_INNER, len) == 0 && (end[len] == '\0' || end[len] == '/');
}

static int find_named(const struct cgroup *cg, const struct cgroup_hierarchy *h, pid_t pid,
                      const char *part, char ret_path[CGROUP_PATH_MAX], bool *ret_inner)
{
    char path[CGROUP_PATH_MAX], *found;
    int r = h->version == CGROUP_NONE ? -ENOTSUP : cgroup_path_of(cg, h, pid, path);

    if (r < 0)
        return r;
    found = strstr(path, part);
    if (!found)
        return -ENOENT;
    found += strcspn(found, "/");
    *ret_inner =
        h->version == CGROUP_V2 && found - path > (ptrdiff_t)strlen(".scope") && has_inner(found);
    *found = '\0';
    strcpy(ret_path, path);
    return 0;
}

int cgroup_find(const struct cgroup *cg, pid_t pid, const char *part, struct cgroup_place *ret)
{
    struct cgroup_place place = {0};
    int a = find_named(cg, &cg->cpu, pid, part, place.cpu, &place.inner);
    int b = find_named(cg, &cg->cpuset, pid, part, place.cpuset, &place.inner);

    if (a < 0 && b < 0)
        return a == -ENOTSUP ? b : a;
    *ret = place;
    return 0;
}

static int read_part(const struct cgroup *cg, const struct cgroup_place *place, const char *below,
                     struct cgroup_settings *ret)
{
    char cpu[FILE_PATH_MAX], cpuset[FILE_PATH_MAX];
    int a = -ENOENT, b = -ENOENT;

    if (*place->cpu)
        a = file_path(cpu, sizeof(cpu), "%s%s%s", cg->cpu.point, place->cpu, below);
    if (*place->cpuset)
        b = file_path(cpuset, sizeof(cpuset), "%s%s%s", cg->cpuset.point, place->cpuset, below);
    return read_both(cg, a, cpu, b, cpuset, ret);
}

int cgroup_read_place(const struct cgroup *cg, const struct cgroup_place *place,
                      struct cgroup_settings *ret)
{
    struct cgroup_settings inner;
    int r = read_part(cg, place, "", ret);

    if (r < 0 || !place->inner || read_part(cg, place, CGROUP_INNER, &inner) < 0)
        return r;
    if (inner.quota_mcpu < ret->quota_mcpu)
        ret->quota_mcpu = inner.quota_mcpu;
    if (cpuset_count(&inner.cpus) > 0)
        ret->cpus = inner.cpus;
    return 0;
}

/* The path of a file of the memory controller. Returns 0 or -errno. */
static int memory_file(const struct cgroup *cg, const struct cgroup_place *place, const char *name,
                       char ret[FILE_PATH_MAX])
{
    if (cg->memory.version == CGROUP_NONE || !*place->cpu)
        return -ENOTSUP;
    return file_path(ret, FILE_PATH_MAX, "%s%s/%s", cg->memory.point, place->cpu, name);
}

/* The number behind @key, a whole word at the beginning of a line. Returns 0 or -ENOTSUP. */
static int number_of(const char *text, const char *key, uint64_t *ret)
{
    size_t len = strlen(key);

    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, len) == 0 && line[len] == ' ') {
            line += len + 1;
            return text_scan_u64(&line, ret);
        }
    }
    return -ENOTSUP;
}

int cgroup_read_oom_kills(const struct cgroup *cg, const struct cgroup_place *place, uint64_t *ret)
{
    const struct cgroup_ops *ops = cg->memory.ops;
    char file[FILE_PATH_MAX], text[MEMORY_TEXT_MAX];
    int r = ops ? memory_file(cg, place, ops->memory_events, file) : -ENOTSUP;

    if (r == 0)
        r = file_read(cg->root, file, text, sizeof(text));
    return r < 0 ? r : number_of(text, "oom_kill", ret);
}

/* A whole number; "max", and v1's largest, are UINT64_MAX. */
static int read_bytes(const struct cgroup *cg, const struct cgroup_place *place, const char *name,
                      uint64_t *ret)
{
    char file[FILE_PATH_MAX];
    int r = memory_file(cg, place, name, file);

    if (r == 0)
        r = file_read_u64(cg->root, file, ret);
    if (r == -EINVAL || (r == 0 && *ret >= NO_LIMIT_V1)) {
        *ret = UINT64_MAX;
        return 0;
    }
    return r;
}

int cgroup_read_memory(const struct cgroup *cg, const struct cgroup_place *place,
                       struct cgroup_memory *ret)
{
    const struct cgroup_ops *ops = cg->memory.ops;
    struct cgroup_memory memory = {0};
    char file[FILE_PATH_MAX], text[MEMORY_TEXT_MAX], inner[64];
    uint64_t files = 0, unwritten = 0, bytes = 0;
    int r = ops ? read_bytes(cg, place, ops->memory_limit, &memory.limit) : -ENOTSUP;

    if (r == 0 && place->inner) {
        snprintf(inner, sizeof(inner), "%s/%s", &CGROUP_INNER[1], ops->memory_limit);
        if (read_bytes(cg, place, inner, &bytes) == 0)
            memory.limit = smaller_u64(memory.limit, bytes);
    }
    if (r == 0)
        r = read_bytes(cg, place, ops->memory_current, &memory.firm);
    if (r == 0)
        r = memory_file(cg, place, "memory.stat", file);
    if (r == 0)
        r = file_read(cg->root, file, text, sizeof(text));
    for (unsigned i = 0; r >= 0 && i < 2; i++) {
        r = number_of(text, ops->file_pages[i], &bytes);
        files += bytes;
        if (r == 0 && number_of(text, ops->unwritten[i], &bytes) == 0)
            unwritten += bytes;
    }
    if (r < 0)
        return r;
    files -= smaller_u64(files, unwritten);
    memory.firm -= smaller_u64(memory.firm, files);
    if (read_bytes(cg, place, ops->memory_peak, &memory.peak) < 0)
        memory.peak = 0;
    *ret = memory;
    return 0;
}

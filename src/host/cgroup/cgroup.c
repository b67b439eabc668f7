/* SPDX-License-Identifier: Apache-2.0 */
#include "host/cgroup/cgroup.h"

#include "base/cleanup.h"
#include "host/cgroup/cgroup_ops.h"
#include "host/proc/file.h"
#include "host/proc/proc.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

/* ---- finding the hierarchies ---- */

/* Copies the @len bytes of a mountinfo field, undoing its octal escapes ("\040"). */
static int unescape(const char *field, size_t len, char ret[CGROUP_PATH_MAX])
{
    size_t n = 0;

    for (size_t i = 0; i < len; i++) {
        char c = field[i];

        if (c == '\\') {
            unsigned value = 0;

            if (len - i < 4)
                return -EINVAL;
            for (size_t k = 1; k <= 3; k++) {
                if (field[i + k] < '0' || field[i + k] > '7')
                    return -EINVAL;
                value = value * 8 + (unsigned)(field[i + k] - '0');
            }
            if (value == 0 || value > 0xff)
                return -EINVAL;
            c = (char)value;
            i += 3;
        }
        if (n + 1 >= CGROUP_PATH_MAX)
            return -EINVAL;
        ret[n++] = c;
    }
    ret[n] = '\0';
    return n > 0 && ret[0] == '/' ? 0 : -EINVAL;
}

/* Field @index (from 0) of a line separated by single blanks; NULL if there are fewer. */
static const char *field_at(const char *line, unsigned index, size_t *ret_len)
{
    for (; index > 0; index--) {
        line += strcspn(line, " \n");
        if (*line != ' ')
            return NULL;
        line++;
    }
    *ret_len = strcspn(line, " \n");
    return *ret_len > 0 ? line : NULL;
}

static bool field_is(const char *field, size_t len, const char *word)
{
    return field && len == strlen(word) && memcmp(field, word, len) == 0;
}

/* True if the comma-separated options of @len bytes contain @word. */
static bool has_option(const char *options, size_t len, const char *word)
{
    const char *end = options + len;

    while (options < end) {
        const char *comma = memchr(options, ',', (size_t)(end - options));
        size_t n = (size_t)((comma ? comma : end) - options);

        if (field_is(options, n, word))
            return true;
        options += n + 1;
    }
    return false;
}

int cgroup_parse_mountinfo_line(const char *line, struct cgroup_mount *ret)
{
    struct cgroup_mount mount = {.version = CGROUP_NONE};
    size_t len = 0, root_len = 0, point_len = 0;
    const char *root = field_at(line, 3, &root_len), *point = field_at(line, 4, &point_len);
    const char *tail = strstr(line, " - "); /* ends the optional fields */
    const char *type = tail ? field_at(tail, 2, &len) : NULL;
    bool v1 = field_is(type, len, "cgroup"), v2 = field_is(type, len, "cgroup2");

    if (!root || !point || !type || unescape(point, point_len, mount.point) < 0)
        return -EINVAL;
    if (v1 || v2) {
        const char *options = field_at(tail, 4, &len);

        if (!options || unescape(root, root_len, mount.root) < 0)
            return -EINVAL;
        mount.version = v1 ? CGROUP_V1 : CGROUP_V2;
        mount.cpu = v1 && has_option(options, len, "cpu");
        mount.cpuset = v1 && has_option(options, len, "cpuset");
        mount.memory = v1 && has_option(options, len, "memory");
        mount.freezer = v1 && has_option(options, len, "freezer");
        mount.cpuacct = v1 && has_option(options, len, "cpuacct");
    }
    *ret = mount;
    return 0;
}

static void set_hierarchy(struct cgroup_hierarchy *h, const struct cgroup_mount *mount,
                          const char *controller)
{
    if (h->version != CGROUP_NONE) /* the first mount counts: later ones are bind mounts */
        return;
    h->version = mount->version;
    h->ops = mount->version == CGROUP_V1 ? &cgroup_ops_v1 : &cgroup_ops_v2;
    h->key = mount->version == CGROUP_V1 ? controller : "";
    snprintf(h->point, sizeof(h->point), "%s", mount->point);
    snprintf(h->top, sizeof(h->top), "%s", mount->root);
}

/* Adds the controllers of v2; one that a v1 hierarchy has is not offered there. */
static void set_from_v2(struct cgroup *cg, const struct cgroup_mount *mount)
{
    char path[FILE_PATH_MAX], text[512];

    set_hierarchy(&cg->freezer, mount, "freezer");
    if (file_path(path, sizeof(path), "%s/cgroup.controllers", mount->point) < 0 ||
        file_read(cg->root, path, text, sizeof(text)) < 0)
        return;
    for (const char *word = text; *word; word += strspn(word, " \n")) {
        size_t len = strcspn(word, " \n");

        if (field_is(word, len, "cpu"))
            set_hierarchy(&cg->cpu, mount, "cpu");
        if (field_is(word, len, "cpuset"))
            set_hierarchy(&cg->cpuset, mount, "cpuset");
        if (field_is(word, len, "memory"))
            set_hierarchy(&cg->memory, mount, "memory");
        word += len;
    }
}

static void discover(struct cgroup *cg, const char *mountinfo)
{
    for (int pass = 0; pass < 2; pass++) { /* v1 mounts first: they take controllers from v2 */
        for (const char *line = mountinfo; *line;) {
            struct cgroup_mount mount;

            if (cgroup_parse_mountinfo_line(line, &mount) == 0) {
                if (pass == 0 && mount.cpu)
                    set_hierarchy(&cg->cpu, &mount, "cpu");
                if (pass == 0 && mount.cpuset)
                    set_hierarchy(&cg->cpuset, &mount, "cpuset");
                if (pass == 0 && mount.memory)
                    set_hierarchy(&cg->memory, &mount, "memory");
                if (pass == 0 && mount.freezer)
                    set_hierarchy(&cg->freezer, &mount, "freezer");
                if (pass == 0 && mount.cpuacct)
                    set_hierarchy(&cg->cpuacct, &mount, "cpuacct");
                if (pass == 1 && mount.version == CGROUP_V2)
                    set_from_v2(cg, &mount);
            }
            line += strcspn(line, "\n");
            line += *line == '\n';
        }
    }
}

int cgroup_new(int root, struct cgroup **ret)
{
    _cleanup_free_ char *mountinfo = NULL;
    struct cgroup *cg;
    size_t len;
    int r = file_read_all(root, "proc/self/mountinfo", &mountinfo, &len);

    if (r < 0)
        return r;
    cg = calloc(1, sizeof(*cg));
    if (!cg)
        return -ENOMEM;
    cg->root = fcntl(root, F_DUPFD_CLOEXEC, 3);
    if (cg->root < 0) {
        r = -errno;
        free(cg);
        return r;
    }
    discover(cg, mountinfo);
    *ret = cg;
    return 0;
}

struct cgroup *cgroup_free(struct cgroup *cg)
{
    if (cg) {
        close_fd(cg->root);
        free(cg);
    }
    return NULL;
}

enum cgroup_version cgroup_version_cpu(const struct cgroup *cg)
{
    return cg->cpu.version;
}

enum cgroup_version cgroup_version_cpuset(const struct cgroup *cg)
{
    return cg->cpuset.version;
}

const char *cgroup_version_name(enum cgroup_version version)
{
    static const char *const names[] = {
        [CGROUP_NONE] = "none", [CGROUP_V1] = "v1", [CGROUP_V2] = "v2"};

    static_assert(ARRAY_LEN(names) == CGROUP_VERSION_MAX, "a version without a name");
    return names[version];
}

/* ---- limits of a process ---- */

int cgroup_path_of(const struct cgroup *cg, const struct cgroup_hierarchy *h, pid_t pid,
                   char ret_path[CGROUP_PATH_MAX])
{
    char path[CGROUP_PATH_MAX];
    const char *below = path;
    size_t top = strcmp(h->top, "/") == 0 ? 0 : strlen(h->top);
    int r = proc_read_cgroup(cg->root, pid, h->key, path, sizeof(path));

    if (r < 0)
        return r;
    if (strncmp(path, h->top, top) == 0 && (path[top] == '/' || path[top] == '\0'))
        below = path[top] ? path + top : "/";
    else
        below = "/";
    if (strncmp(below, "/..", 3) == 0) /* the group lies outside of our cgroup namespace */
        below = "/";
    snprintf(ret_path, CGROUP_PATH_MAX, "%s", below);
    return 0;
}

/* Called for each group from the process's own up to the top; @path as cgroup_path_of has it.
 * A positive return ends the walk with success. */
typedef int (*level_fn)(const struct cgroup *cg, const struct cgroup_hierarchy *h, const char *dir,
                        const char *path, void *arg);

static int walk_up(const struct cgroup *cg, const struct cgroup_hierarchy *h, pid_t pid,
                   level_fn fn, void *arg)
{
    char path[CGROUP_PATH_MAX], dir[FILE_PATH_MAX];
    int r = cgroup_path_of(cg, h, pid, path);

    if (r < 0)
        return r;
    for (;;) {
        char *slash = strrchr(path, '/');

        r = file_path(dir, sizeof(dir), "%s%s", h->point, path);
        if (r == 0)
            r = fn(cg, h, dir, path, arg);
        if (r < 0 && !cgroup_is_gone(r)) /* a root without limits looks gone, too */
            return r;
        if (r > 0 || strcmp(path, "/") == 0)
            return 0;
        slash[slash == path] = '\0';
    }
}

static int level_quota(const struct cgroup *cg, const struct cgroup_hierarchy *h, const char *dir,
                       const char *path, void *arg)
{
    struct cgroup_limits *limits = arg;
    uint32_t mcpu;
    int r = h->ops->get_quota(cg->root, dir, &mcpu);

    if (r == 0 && mcpu < limits->quota_mcpu) {
        limits->quota_mcpu = mcpu;
        snprintf(limits->quota_path, sizeof(limits->quota_path), "%s", path);
    }
    return r;
}

/* Stops at the lowest group that has the file: the kernel has put the ancestors' limits into it. */
static int level_cpus(const struct cgroup *cg, const struct cgroup_hierarchy *h, const char *dir,
                      const char *path, void *arg)
{
    struct cgroup_limits *limits = arg;
    int r = cgroup_read_cpus(cg->root, dir, h->ops->effective_cpus, &limits->cpus);

    if (r == -ENOENT && h->version == CGROUP_V1) /* before Linux 3.17 */
        r = cgroup_read_cpus(cg->root, dir, "cpuset.cpus", &limits->cpus);
    limits->have_cpus = r == 0;
    return r == 0 ? 1 : r;
}

int cgroup_read_limits(const struct cgroup *cg, pid_t pid, struct cgroup_limits *ret)
{
    struct cgroup_limits limits = {.quota_mcpu = CGROUP_NO_QUOTA};
    int r = 0;

    if (cg->cpu.version != CGROUP_NONE)
        r = walk_up(cg, &cg->cpu, pid, level_quota, &limits);
    if (r == 0 && cg->cpuset.version != CGROUP_NONE)
        r = walk_up(cg, &cg->cpuset, pid, level_cpus, &limits);
    if (r < 0)
        return r;
    *ret = limits;
    return 0;
}

static int level_memory(const struct cgroup *cg, const struct cgroup_hierarchy *h, const char *dir,
                        const char *path, void *arg)
{
    uint64_t *least = arg, bytes;
    char file[FILE_PATH_MAX];
    int r = file_path(file, sizeof(file), "%s/%s", dir, h->ops->memory_limit);

    if (r == 0)
        r = file_read_u64(cg->root, file, &bytes);
    if (r == 0 && bytes < *least)
        *least = bytes;
    return r == -EINVAL ? 0 : r; /* "max" */
}

int cgroup_read_memory_limit(const struct cgroup *cg, pid_t pid, uint64_t *ret_bytes)
{
    uint64_t least = UINT64_MAX;
    int r = 0;

    if (cg->memory.version != CGROUP_NONE)
        r = walk_up(cg, &cg->memory, pid, level_memory, &least);
    if (r < 0)
        return r;
    *ret_bytes = least;
    return 0;
}

int cgroup_parse_cpu_stat(const char *text, struct cgroup_throttle *ret)
{
    struct cgroup_throttle throttle = {0};

    while (*text) {
        size_t key = strcspn(text, " \n");
        const char *p = text + key + (text[key] == ' ');
        uint64_t value;

        if (text[key] != ' ' || text_scan_u64(&p, &value) < 0 || (*p && *p != '\n'))
            return -EINVAL;
        if (field_is(text, key, "nr_periods"))
            throttle.periods = value;
        else if (field_is(text, key, "nr_throttled"))
            throttle.throttled = value;
        else if (field_is(text, key, "throttled_time")) /* v1 */
            throttle.throttled_ns = value;
        else if (field_is(text, key, "throttled_usec") && /* v2 */
                 __builtin_mul_overflow(value, 1000, &throttle.throttled_ns))
            return -EINVAL;
        text = p + (*p == '\n');
    }
    *ret = throttle;
    return 0;
}

static int level_throttle(const struct cgroup *cg, const struct cgroup_hierarchy *h,
                          const char *dir, const char *path, void *arg)
{
    struct cgroup_throttle *sum = arg, one;
    char file[FILE_PATH_MAX], text[4096];
    int r = file_path(file, sizeof(file), "%s/cpu.stat", dir);

    if (r == 0)
        r = file_read(cg->root, file, text, sizeof(text));
    if (r >= 0)
        r = cgroup_parse_cpu_stat(text, &one);
    if (r < 0)
        return r;
    sum->periods += one.periods;
    sum->throttled += one.throttled;
    sum->throttled_ns += one.throttled_ns;
    return 0;
}

int cgroup_read_throttle(const struct cgroup *cg, pid_t pid, struct cgroup_throttle *ret)
{
    struct cgroup_throttle sum = {0};
    int r = 0;

    if (cg->cpu.version != CGROUP_NONE)
        r = walk_up(cg, &cg->cpu, pid, level_throttle, &sum);
    if (r < 0)
        return r;
    *ret = sum;
    return 0;
}

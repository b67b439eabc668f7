/* SPDX-License-Identifier: Apache-2.0 */
/* Reads any group of the machine, for host/cgroup/cgroup.h: its weight and its CPU time. */
#include "base/cleanup.h"
#include "host/cgroup/cgroup_ops.h"
#include "host/proc/file.h"
#include "host/proc/proc.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define SHARES_MIN 2
#define SHARES_MAX 262144

struct cgroup_units cgroup_units(const struct cgroup *cg)
{
    return cg->cpu.version == CGROUP_NONE ? (struct cgroup_units){0} : cg->cpu.ops->units;
}

/* ---- CPU time ---- */

/* v2 counts in the group itself, in microseconds. */
static int usage_v2(const struct cgroup *cg, const char *path, uint64_t *ret_ns)
{
    static const char key[] = "usage_usec ";
    char file[FILE_PATH_MAX], text[1024];
    const char *at;
    int r = file_path(file, sizeof(file), "%s%s/cpu.stat", cg->cpu.point, path);

    if (r == 0)
        r = file_read(cg->root, file, text, sizeof(text));
    if (r < 0)
        return r;
    at = strstr(text, key);
    if (!at)
        return -EINVAL;
    at += strlen(key);
    r = text_scan_u64(&at, ret_ns);
    return r < 0 || __builtin_mul_overflow(*ret_ns, 1000, ret_ns) ? -EINVAL : 0;
}

static int usage_cpuacct(const struct cgroup *cg, const char *path, uint64_t *ret_ns)
{
    char file[FILE_PATH_MAX];
    int r = cg->cpuacct.version == CGROUP_NONE ? -ENOENT : 0;

    if (r == 0)
        r = file_path(file, sizeof(file), "%s%s/cpuacct.usage", cg->cpuacct.point, path);
    return r < 0 ? r : file_read_u64(cg->root, file, ret_ns);
}

/* On v1, where cpuacct is mounted apart, our own groups do not exist in it. */
static int usage_processes(const struct cgroup *cg, const char *path, uint64_t *ret_ns)
{
    _cleanup_free_ char *text = NULL;
    char file[FILE_PATH_MAX];
    uint64_t pid, sum = 0;
    size_t len;
    int r = file_path(file, sizeof(file), "%s%s/cgroup.procs", cg->cpu.point, path);

    if (r == 0)
        r = file_read_all(cg->root, file, &text, &len);
    if (r < 0)
        return r;
    for (const char *p = text; text_scan_u64(&p, &pid) == 0; p += *p == '\n') {
        struct proc_stat stat;

        if (proc_read_stat(cg->root, (pid_t)pid, &stat) == 0)
            sum += stat.cpu_ns;
    }
    *ret_ns = sum;
    return 0;
}

int cgroup_read_time(const struct cgroup *cg, const char *path, uint64_t *ret_ns)
{
    int r;

    if (cg->cpu.version == CGROUP_V2)
        r = usage_v2(cg, path, ret_ns);
    else if (cg->cpu.version == CGROUP_V1 && strcmp(cg->cpu.point, cg->cpuacct.point) == 0)
        r = usage_cpuacct(cg, path, ret_ns);
    else
        return -ENOTSUP;
    return r < 0 && cgroup_is_gone(r) ? -ENOENT : r;
}

int cgroup_read_load(const struct cgroup *cg, const char *path, struct cgroup_load *ret)
{
    struct cgroup_load load = {0};
    char file[FILE_PATH_MAX];
    uint64_t units;
    int r;

    if (cg->cpu.version == CGROUP_NONE)
        return -ENOTSUP;
    r = file_path(file, sizeof(file), "%s%s/%s", cg->cpu.point, path, cg->cpu.ops->units_file);
    if (r == 0)
        r = file_read_u64(cg->root, file, &units);
    if (r < 0)
        return cgroup_is_gone(r) ? -ENOENT : r;
    load.units = units < UINT32_MAX ? (uint32_t)units : UINT32_MAX;
    if (cg->cpu.version == CGROUP_V2)
        load.have_cpu = usage_v2(cg, path, &load.cpu_ns) == 0;
    else
        load.have_cpu = usage_cpuacct(cg, path, &load.cpu_ns) == 0 ||
                        usage_processes(cg, path, &load.cpu_ns) == 0;
    *ret = load;
    return 0;
}

int cgroup_open_dir(const struct cgroup *cg, const char *path, DIR **ret)
{
    _cleanup_fd_ int fd = file_open(cg->root, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);

    if (!dir)
        return fd < 0 ? fd : -ENOMEM;
    TAKE_FD(fd); /* closedir closes it */
    *ret = dir;
    return 0;
}

int cgroup_list(const struct cgroup *cg, const char *path, int (*fn)(void *arg, const char *path),
                void *arg)
{
    char dir_path[FILE_PATH_MAX], child[CGROUP_PATH_MAX];
    DIR *dir;
    int r;

    if (cg->cpu.version == CGROUP_NONE)
        return -ENOTSUP;
    r = file_path(dir_path, sizeof(dir_path), "%s%s", cg->cpu.point, path);
    if (r == 0)
        r = cgroup_open_dir(cg, dir_path, &dir);
    if (r < 0)
        return r;
    for (struct dirent *entry; r == 0 && (entry = readdir(dir));) {
        if (entry->d_type != DT_DIR || entry->d_name[0] == '.')
            continue;
        r = file_path(child, sizeof(child), "%s/%s", path[1] ? path : "", entry->d_name);
        r = r < 0 ? 0 : fn(arg, child); /* no group that we weigh has a longer path */
    }
    closedir(dir);
    return r;
}

/* ---- shares ---- */

static uint32_t to_linear(uint32_t shares)
{
    return (uint32_t)(1 + (uint64_t)(shares - SHARES_MIN) * (CGROUP_WEIGHT_MAX - 1) /
                              (SHARES_MAX - SHARES_MIN));
}

/* github.com/opencontainers/cgroups: a quadratic through minimum, default and maximum. */
static uint32_t to_log(uint32_t shares)
{
    double l = log2(shares), exponent = (l * l + 125 * l) / 612 - 7.0 / 34;
    double units = ceil(pow(10, exponent) - 1e-9); /* 1024 shares are 100 on every libm */

    return units < 1 ? 1 : units > CGROUP_WEIGHT_MAX ? CGROUP_WEIGHT_MAX : (uint32_t)units;
}

uint32_t cgroup_shares_to_units(enum cgroup_shares how, uint32_t shares)
{
    shares = shares < SHARES_MIN ? SHARES_MIN : shares > SHARES_MAX ? SHARES_MAX : shares;
    return how == CGROUP_SHARES_V1       ? shares
           : how == CGROUP_SHARES_LINEAR ? to_linear(shares)
                                         : to_log(shares);
}

uint32_t cgroup_units_to_shares(enum cgroup_shares how, uint32_t units)
{
    uint32_t low = SHARES_MIN, high = SHARES_MAX;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (cgroup_shares_to_units(how, middle) >= units)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

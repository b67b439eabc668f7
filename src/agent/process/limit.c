/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/process/limit.h"

#include "base/cleanup.h"
#include "base/cpuset.h"

#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIMIT_PATH_MAX 512

/* Reads at most @size - 1 bytes of a file; terminates. Returns the length or -1. */
static ssize_t read_text(const char *path, char *buf, size_t size)
{
    _cleanup_fd_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t used = 0;

    if (fd < 0)
        return -1;
    while (used < size - 1) {
        ssize_t n = read(fd, buf + used, size - 1 - used);

        if (n <= 0)
            break;
        used += (size_t)n;
    }
    buf[used] = '\0';
    return (ssize_t)used;
}

static long long read_number(const char *dir, const char *file)
{
    char path[LIMIT_PATH_MAX + 32];
    char text[64];

    snprintf(path, sizeof(path), "%s/%s", dir, file);
    return read_text(path, text, sizeof(text)) > 0 ? strtoll(text, NULL, 10) : -1;
}

ssize_t limit_read_text(const char *root, const char *path, char *buf, size_t size)
{
    char whole[LIMIT_PATH_MAX + 32];

    snprintf(whole, sizeof(whole), "%s%s", root, path);
    return read_text(whole, buf, size);
}

static uint32_t quota_mcpu(long long quota_us, long long period_us)
{
    long long mcpu;

    if (quota_us <= 0 || quota_us > INT64_MAX / 1000 || period_us <= 0)
        return 0;
    mcpu = quota_us * 1000 / period_us;
    return mcpu < 1 ? 1 : mcpu > 4096000 ? 0 : (uint32_t)mcpu;
}

static uint32_t group_mcpu_v1(const char *dir)
{
    long long quota_us = read_number(dir, "cpu.cfs_quota_us");

    return quota_us > 0 ? quota_mcpu(quota_us, read_number(dir, "cpu.cfs_period_us")) : 0;
}

static uint32_t group_mcpu_v2(const char *dir)
{
    char path[LIMIT_PATH_MAX + 32];
    char text[64];
    char *end;
    long long quota_us;

    snprintf(path, sizeof(path), "%s/cpu.max", dir);
    if (read_text(path, text, sizeof(text)) <= 0 || text[0] == 'm')
        return 0;
    quota_us = strtoll(text, &end, 10);
    return quota_mcpu(quota_us, strtoll(end, NULL, 10));
}

/* One more than what is left below pids.max, which is the same file in v1 and v2. */
static uint32_t group_pids_left(const char *dir)
{
    char path[LIMIT_PATH_MAX + 32];
    char text[64];
    long long max, current;

    snprintf(path, sizeof(path), "%s/pids.max", dir);
    if (read_text(path, text, sizeof(text)) <= 0 || text[0] < '0' || text[0] > '9')
        return 0;
    max = strtoll(text, NULL, 10);
    current = read_number(dir, "pids.current");
    if (max - current >= UINT32_MAX - 1)
        return 0;
    return max > current ? (uint32_t)(max - current) + 1 : 1;
}

/* A figure of control groups, of which the smallest on the way counts; 0: none. */
struct figure {
    const char *controller;
    const char *mounts_v1[3];
    uint32_t (*group_v1)(const char *dir);
    uint32_t (*group_v2)(const char *dir);
};

/*
 * The smallest figure from the group @dir up to the mount point, whose path has @mount_len bytes.
 * A group above may be tighter than the process's own.
 */
static uint32_t path_tightest(char *dir, size_t mount_len, uint32_t (*of_group)(const char *))
{
    uint32_t tightest = 0;

    for (;;) {
        uint32_t figure = of_group(dir);
        char *slash;

        if (figure > 0 && (tightest == 0 || figure < tightest))
            tightest = figure;
        slash = strrchr(dir, '/');
        if (!slash || (size_t)(slash - dir) < mount_len)
            return tightest;
        *slash = '\0';
    }
}

/* Is @name in a list like "cpu,cpuacct"? */
static bool is_listed(const char *list, const char *name)
{
    size_t n = strlen(name);

    for (;; list++) {
        if (strncmp(list, name, n) == 0 && (list[n] == ',' || list[n] == '\0'))
            return true;
        list = strchr(list, ',');
        if (!list)
            return false;
    }
}

/* Reads the figure behind a line of /proc/self/cgroup: "4:cpu,cpuacct:/path" or "0::/path" (v2). */
static uint32_t line_tightest(const char *root, char *line, const struct figure *f)
{
    char *controllers = strchr(line, ':');
    char *path = controllers ? strchr(controllers + 1, ':') : NULL;
    char dir[LIMIT_PATH_MAX];

    if (!path)
        return 0;
    *path++ = '\0';
    controllers++;
    if (strcmp(path, "/") == 0)
        path = "";
    if (*controllers == '\0') {
        static const char *const mounts_v2[] = {"", "/unified"};

        for (size_t i = 0; i < ARRAY_LEN(mounts_v2); i++) {
            int mount = snprintf(dir, sizeof(dir), "%ssys/fs/cgroup%s", root, mounts_v2[i]);
            int n = snprintf(dir + mount, sizeof(dir) - (size_t)mount, "%s", path);
            uint32_t found;

            if ((size_t)mount + (size_t)n >= sizeof(dir))
                return 0;
            found = path_tightest(dir, (size_t)mount, f->group_v2);
            if (found)
                return found;
        }
        return 0;
    }
    if (!is_listed(controllers, f->controller))
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(f->mounts_v1) && f->mounts_v1[i]; i++) {
        int mount = snprintf(dir, sizeof(dir), "%ssys/fs/cgroup/%s", root, f->mounts_v1[i]);

        if (access(dir, F_OK) != 0)
            continue;
        /* In a container the container's own group is the mount's root, so try both. */
        if ((size_t)mount + strlen(path) < sizeof(dir)) {
            memcpy(dir + mount, path, strlen(path) + 1);
            if (access(dir, F_OK) != 0)
                dir[mount] = '\0';
        }
        return path_tightest(dir, (size_t)mount, f->group_v1);
    }
    return 0;
}

static uint32_t tightest_of(const char *root, const struct figure *f)
{
    char text[LIMIT_FILE_MAX];
    uint32_t tightest = 0;
    char *save = NULL;

    if (limit_read_text(root, "proc/self/cgroup", text, sizeof(text)) <= 0)
        return 0;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        uint32_t found = line_tightest(root, line, f);

        if (found > 0 && (tightest == 0 || found < tightest))
            tightest = found;
    }
    return tightest;
}

uint32_t limit_quota_mcpu(const char *root)
{
    static const struct figure quota = {
        "cpu", {"cpu", "cpu,cpuacct", "cpuacct,cpu"}, group_mcpu_v1, group_mcpu_v2};

    return tightest_of(root, &quota);
}

uint32_t limit_pids_left(const char *root)
{
    static const struct figure pids = {"pids", {"pids"}, group_pids_left, group_pids_left};
    uint32_t left = tightest_of(root, &pids);

    return left ? left - 1 : UINT32_MAX;
}

uint32_t limit_machine_cpus(const char *root)
{
    char path[LIMIT_PATH_MAX];
    char text[CPUSET_TEXT_MAX];
    struct cpuset set;

    snprintf(path, sizeof(path), "%ssys/devices/system/cpu/online", root);
    if (read_text(path, text, sizeof(text)) > 0 && cpuset_parse(text, &set) == 0 &&
        cpuset_count(&set) > 0)
        return cpuset_count(&set);
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (uint32_t)n : 1;
}

uint32_t limit_affinity_cpus(void)
{
    struct cpuset set;

    /* Asks for the main thread, because the program may have pinned the calling control thread. */
    cpuset_zero(&set);
    if (sched_getaffinity(getpid(), sizeof(set), (cpu_set_t *)&set) != 0)
        return 0;
    return cpuset_count(&set);
}

uint32_t limit_read_mcpu(const char *root)
{
    uint32_t quota = limit_quota_mcpu(root);
    uint32_t cpus = limit_affinity_cpus();
    uint32_t mcpu = (cpus ? cpus : limit_machine_cpus(root)) * 1000;

    return quota > 0 && quota < mcpu ? quota : mcpu;
}

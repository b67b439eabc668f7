/* SPDX-License-Identifier: Apache-2.0 */
/* Load: idle time of CPUs, and the scheduler's account of a process's threads. */
#include "host/proc/proc.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "host/proc/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STAT_BYTES (160 * (CPUSET_MAX_CPUS + 1)) /* of the lines "cpuN …", which come first */
#define IDLE       3
#define IOWAIT     4

/* "cpuN user nice system idle iowait …", in ticks. 1: a line of a CPU, 0: of something else. */
static int idle_line(const char *line, uint64_t *ret_cpu, uint64_t *ret_ticks)
{
    uint64_t value, ticks = 0;

    if (strncmp(line, "cpu", 3) != 0)
        return 0;
    line += 3;
    if (text_scan_u64(&line, ret_cpu) < 0)
        return -EINVAL;
    for (int field = 0; field <= IOWAIT; field++) {
        line += strspn(line, " ");
        if (text_scan_u64(&line, &value) < 0)
            return -EINVAL;
        if (field >= IDLE)
            ticks += value;
    }
    *ret_ticks = ticks;
    return 1;
}

int proc_parse_idle(const char *text, const struct cpuset *cpus, uint64_t *ret_idle_ns)
{
    uint64_t sum = 0, cpu, ticks, tick_ns = NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK);
    unsigned found = 0;

    if (strncmp(text, "cpu ", 4) != 0)
        return -EINVAL;
    for (const char *line = strchr(text, '\n'); line; line = strchr(line, '\n')) {
        int r = idle_line(++line, &cpu, &ticks);

        if (r < 0)
            return r;
        if (r == 0)
            break;
        if (cpu >= CPUSET_MAX_CPUS || !cpuset_has(cpus, (unsigned)cpu))
            continue;
        sum += ticks;
        found++;
    }
    if (found == 0)
        return -EINVAL;
    *ret_idle_ns = sum * tick_ns;
    return 0;
}

int proc_read_idle(int root, const struct cpuset *cpus, uint64_t *ret_idle_ns)
{
    _cleanup_free_ char *text = malloc(STAT_BYTES);
    int r;

    if (!text)
        return -ENOMEM;
    r = file_read(root, "proc/stat", text, STAT_BYTES);
    return r < 0 ? r : proc_parse_idle(text, cpus, ret_idle_ns);
}

int proc_read_load(int root, pid_t pid, unsigned max, struct proc_load *ret)
{
    struct proc_load load = {0};
    char path[96], text[128];
    const struct dirent *e;
    DIR *dir;
    int fd;

    snprintf(path, sizeof(path), "proc/%d/task", (int)pid);
    fd = file_open(root, path, O_RDONLY | O_DIRECTORY);
    if (fd < 0)
        return fd == -ENOENT ? -ESRCH : fd;
    dir = fdopendir(fd);
    if (!dir) {
        close(fd);
        return -ENOMEM;
    }
    while ((e = readdir(dir)) && load.threads <= max) {
        uint64_t cpu_ns, wait_ns;

        if (e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "%.20s/schedstat", e->d_name);
        if (file_read(fd, path, text, sizeof(text)) <= 0)
            continue; /* it ended */
        if (proc_parse_schedstat(text, &cpu_ns, &wait_ns) < 0)
            continue;
        load.cpu_ns += cpu_ns;
        load.wait_ns += wait_ns;
        load.threads++;
    }
    closedir(dir);
    if (load.threads > max)
        return -E2BIG;
    if (load.threads == 0)
        return -ESRCH;
    *ret = load;
    return 0;
}

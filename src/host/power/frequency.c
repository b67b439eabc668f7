/* SPDX-License-Identifier: Apache-2.0 */
#include "host/power/frequency.h"

#include "base/cleanup.h"
#include "host/proc/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#define CPU_DIRECTORY   "sys/devices/system/cpu/cpu%u/cpufreq/%s"
#define READS_MAX       16 /* in one call */
#define PERMILLE_MAX    8000
#define FREQUENCY_BYTES 24

struct cpu_frequency {
    unsigned cpu;
    int fd; /* scaling_cur_freq */
    uint64_t base_khz;
    uint32_t permille;
};

struct frequency {
    size_t n, next;
    uint32_t permille[CPUSET_MAX_CPUS];
    struct cpu_frequency of[];
};

static int read_khz(int root, unsigned cpu, const char *file, uint64_t *ret)
{
    char path[96];
    int r = file_path(path, sizeof(path), CPU_DIRECTORY, cpu, file);

    return r < 0 ? r : file_read_u64(root, path, ret);
}

/* intel_pstate tells the base; of other drivers the highest one without a boost is the best known.
 */
static int open_cpu(int root, unsigned cpu, struct cpu_frequency *ret)
{
    char path[96];
    int r = file_path(path, sizeof(path), CPU_DIRECTORY, cpu, "scaling_cur_freq");

    *ret = (struct cpu_frequency){.cpu = cpu, .permille = FREQUENCY_BASE};
    if (r < 0 ||
        ((read_khz(root, cpu, "base_frequency", &ret->base_khz) < 0 || ret->base_khz == 0) &&
         (read_khz(root, cpu, "cpuinfo_max_freq", &ret->base_khz) < 0 || ret->base_khz == 0)))
        return -ENOENT;
    ret->fd = file_open(root, path, O_RDONLY);
    return ret->fd < 0 ? ret->fd : 0;
}

int frequency_new(int root, const struct cpuset *cpus, struct frequency **ret)
{
    unsigned count = cpuset_count(cpus);
    struct frequency *f = calloc(1, sizeof(*f) + count * sizeof(f->of[0]));

    if (!f)
        return -ENOMEM;
    for (unsigned i = 0; i < CPUSET_MAX_CPUS; i++)
        f->permille[i] = FREQUENCY_BASE;
    for (int cpu = cpuset_next(cpus, 0); cpu >= 0; cpu = cpuset_next(cpus, (unsigned)cpu + 1))
        if (open_cpu(root, (unsigned)cpu, &f->of[f->n]) == 0)
            f->n++;
    if (f->n == 0) {
        free(f);
        return -ENOENT;
    }
    for (size_t i = 0; i < f->n; i += READS_MAX)
        frequency_read(f);
    *ret = f;
    return 0;
}

struct frequency *frequency_free(struct frequency *f)
{
    if (!f)
        return NULL;
    for (size_t i = 0; i < f->n; i++)
        close_fd(f->of[i].fd);
    free(f);
    return NULL;
}

void frequency_read(struct frequency *f)
{
    for (size_t i = 0; i < READS_MAX && i < f->n; i++) {
        const struct cpu_frequency *c = &f->of[f->next];
        char text[FREQUENCY_BYTES];
        const char *p = text;
        uint64_t khz, permille;
        ssize_t n = pread(c->fd, text, sizeof(text) - 1, 0);

        f->next = (f->next + 1) % f->n;
        if (n <= 0)
            continue; /* the CPU is offline: its last value stays, and nothing runs on it */
        text[n] = '\0';
        if (text_scan_u64(&p, &khz) < 0 || khz > UINT64_MAX / 1000)
            continue;
        permille = khz * 1000 / c->base_khz;
        f->permille[c->cpu] = permille == 0             ? 1
                              : permille > PERMILLE_MAX ? PERMILLE_MAX
                                                        : (uint32_t)permille;
    }
}

uint32_t frequency_mean(const struct frequency *f, const struct cpuset *cpus)
{
    uint64_t sum = 0;
    unsigned n = 0;

    if (!f)
        return FREQUENCY_BASE;
    for (int cpu = cpuset_next(cpus, 0); cpu >= 0; cpu = cpuset_next(cpus, (unsigned)cpu + 1), n++)
        sum += f->permille[cpu];
    return n ? (uint32_t)(sum / n) : FREQUENCY_BASE;
}

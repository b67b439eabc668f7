/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/doctor/spin.h"

#include "base/cleanup.h"
#include "host/proc/file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define DATA_PAGES   4 /* 1024 samples */
#define MAPPINGS_MAX 64

/* Code of OpenMP libraries in the address space. */
struct mapping {
    uint64_t start, end;
};

struct spin {
    size_t n;
    struct {
        int fd;
        struct perf_event_mmap_page *page;
    } event[SPIN_THREADS_MAX];
};

struct sample {
    struct perf_event_header header;
    uint64_t ip;
};

static size_t area_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE) * (1 + DATA_PAGES);
}

static int watch(struct spin *spin, pid_t tid)
{
    struct perf_event_attr attr = {
        .type = PERF_TYPE_SOFTWARE,
        .size = sizeof(attr),
        .config = PERF_COUNT_SW_CPU_CLOCK,
        .sample_freq = SPIN_HZ,
        .freq = 1,
        .sample_type = PERF_SAMPLE_IP,
        .exclude_kernel = 1,
        .exclude_hv = 1,
    };
    _cleanup_fd_ int fd =
        (int)syscall(SYS_perf_event_open, &attr, tid, -1, -1, PERF_FLAG_FD_CLOEXEC);
    void *area;

    if (fd < 0)
        return -errno;
    area = mmap(NULL, area_size(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (area == MAP_FAILED)
        return -errno;
    spin->event[spin->n].page = area;
    spin->event[spin->n++].fd = TAKE_FD(fd);
    return 0;
}

static void spin_free(struct spin *spin)
{
    for (size_t i = 0; i < spin->n; i++) {
        munmap(spin->event[i].page, area_size());
        close(spin->event[i].fd);
    }
    free(spin);
}

int spin_begin(const struct proc_threads *threads, struct spin **ret)
{
    struct spin *spin = calloc(1, sizeof(*spin));
    int r = -ESRCH;

    if (!spin)
        return -ENOMEM;
    for (int running = 1; running >= 0; running--) {
        for (size_t i = 0; i < threads->n && spin->n < SPIN_THREADS_MAX; i++) {
            int watched;

            if ((threads->thread[i].state == 'R') != running)
                continue;
            watched = watch(spin, threads->thread[i].tid);
            if (watched < 0 && watched != -ESRCH)
                r = watched; /* one that has ended is left out */
        }
    }
    if (spin->n == 0) {
        spin_free(spin);
        return r;
    }
    *ret = spin;
    return 0;
}

/* Reads where OpenMP's code is mapped: "start-end r-xp …". */
static size_t read_mappings(int root, pid_t pid, struct mapping ret[MAPPINGS_MAX])
{
    _cleanup_file_ FILE *file = NULL;
    _cleanup_free_ char *line = NULL;
    size_t size = 0, n = 0;
    char name[64];
    int fd;

    snprintf(name, sizeof(name), "proc/%d/maps", (int)pid);
    fd = file_open(root, name, O_RDONLY);
    file = fd < 0 ? NULL : fdopen(fd, "r");
    if (fd >= 0 && !file)
        close_fd(fd);
    while (file && n < MAPPINGS_MAX && getline(&line, &size, file) > 0) {
        const char *path;
        char *rest;
        int runtime;

        line[strcspn(line, "\n")] = '\0';
        runtime = proc_parse_maps_line(line, &path);
        if (runtime != PROC_RUNTIME_GOMP && runtime != PROC_RUNTIME_LLVM_OMP)
            continue;
        ret[n].start = strtoull(line, &rest, 16);
        ret[n].end = *rest == '-' ? strtoull(rest + 1, &rest, 16) : 0;
        n += strncmp(rest, " r-x", 4) == 0;
    }
    return n;
}

static bool is_within(uint64_t ip, const struct mapping *mapping, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (ip >= mapping[i].start && ip < mapping[i].end)
            return true;
    return false;
}

/* The ring has not wrapped: nobody has read from it, and a full one drops samples. */
static void count(const struct perf_event_mmap_page *page, const struct mapping *mapping, size_t n,
                  struct spin_result *ret)
{
    const char *data = (const char *)page + sysconf(_SC_PAGESIZE);
    uint64_t head = __atomic_load_n(&page->data_head, __ATOMIC_ACQUIRE);
    struct sample sample;

    for (uint64_t at = 0; at + sizeof(sample.header) <= head; at += sample.header.size) {
        memcpy(&sample.header, data + at, sizeof(sample.header));
        if (sample.header.size < sizeof(sample.header) || at + sample.header.size > head)
            break;
        if (sample.header.type != PERF_RECORD_SAMPLE || sample.header.size < sizeof(sample))
            continue;
        memcpy(&sample, data + at, sizeof(sample));
        ret->samples++;
        ret->waiting += is_within(sample.ip, mapping, n);
    }
}

void spin_end(struct spin *spin, int root, pid_t pid, struct spin_result *ret)
{
    struct mapping mapping[MAPPINGS_MAX];
    size_t n;

    *ret = (struct spin_result){0};
    if (!spin)
        return;
    n = read_mappings(root, pid, mapping);
    for (size_t i = 0; i < spin->n; i++)
        count(spin->event[i].page, mapping, n, ret);
    spin_free(spin);
}

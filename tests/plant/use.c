// SPDX-License-Identifier: Apache-2.0
#include "use.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PERCPU      "/sys/fs/cgroup/cpuacct/cpuacct.usage_percpu"
#define NO_JOB      UINT32_MAX
#define SCAN_LOOKS  10 /* descendants are looked for once a second */
#define THREAD_ROWS 65536

struct process {
    pid_t pid, parent;
    uint32_t job;
    bool root, old; /* named by somebody; seen before: its new threads began since */
};

struct thread {
    pid_t tid;
    uint64_t ns;
};

struct use {
    uint32_t cpus, jobs, looks;
    bool begun;
    uint64_t busy[USE_CPUS_MAX];
    uint64_t over[USE_JOBS_MAX];
    char *name[USE_JOBS_MAX];
    struct process *process;
    size_t processes;
    struct thread thread[THREAD_ROWS]; /* by tid, open addressing; tids that are gone stay */
};

static ssize_t slurp(const char *path, char *ret, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t used = 0;
    ssize_t n = 0;

    if (fd < 0)
        return -errno;
    while (used < size - 1 && (n = read(fd, ret + used, size - 1 - used)) > 0)
        used += (size_t)n;
    if (n < 0)
        n = -errno;
    close(fd);
    ret[used] = '\0';
    return n < 0 ? n : (ssize_t)used;
}

/* Nanoseconds of each CPU since boot, from cgroup v1. Returns how many CPUs there are; 0: no such
 * file. */
static uint32_t read_cpuacct(uint64_t *ret)
{
    char text[USE_CPUS_MAX * 24], *at = text, *end;
    uint32_t n = 0;

    if (slurp(PERCPU, text, sizeof text) <= 0)
        return 0;
    for (;; at = end) {
        uint64_t ns = strtoull(at, &end, 10);

        if (end == at)
            return n;
        if (n < USE_CPUS_MAX)
            ret[n] = ns;
        n++;
    }
}

/* User, nice, system, irq and softirq of each CPU, in ticks. */
static int read_stat(uint64_t *ret, uint32_t *ret_cpus)
{
    FILE *file = fopen("/proc/stat", "re");
    uint64_t tick = 1000000000ULL / (uint64_t)sysconf(_SC_CLK_TCK);
    char line[512];

    if (!file)
        return -errno;
    *ret_cpus = 0;
    while (fgets(line, sizeof line, file)) {
        unsigned long long v[7] = {0};

        if (strncmp(line, "cpu", 3) != 0 || !isdigit((unsigned char)line[3]))
            continue;
        sscanf(line, "cpu%*u %llu %llu %llu %llu %llu %llu %llu", &v[0], &v[1], &v[2], &v[3], &v[4],
               &v[5], &v[6]);
        if (*ret_cpus < USE_CPUS_MAX)
            ret[*ret_cpus] = (v[0] + v[1] + v[2] + v[5] + v[6]) * tick;
        ++*ret_cpus;
    }
    fclose(file);
    return 0;
}

static int read_busy(uint64_t *ret, uint32_t *ret_cpus)
{
    *ret_cpus = read_cpuacct(ret);
    return *ret_cpus > 0 ? 0 : read_stat(ret, ret_cpus);
}

/* Parent and last CPU of a process or thread. The name in parentheses may hold anything. */
static int read_where(const char *path, pid_t *ret_parent, uint32_t *ret_cpu)
{
    char text[1024], *after;
    unsigned cpu = 0;
    int parent = 0;
    ssize_t n = slurp(path, text, sizeof text);

    if (n < 0)
        return (int)n;
    after = strrchr(text, ')');
    if (!after || sscanf(after + 1,
                         " %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d "
                         "%*d %*u %*u %*d %*u %*u %*u %*u %*u %*u %*u %*u %*u %*u %*u %*u %*u %*d "
                         "%u",
                         &parent, &cpu) != 2)
        return -EIO;
    *ret_parent = parent;
    *ret_cpu = cpu;
    return 0;
}

static struct process *find(const struct use *u, pid_t pid)
{
    for (size_t i = 0; i < u->processes; i++)
        if (u->process[i].pid == pid)
            return &u->process[i];
    return NULL;
}

static int append(struct use *u, struct process p)
{
    struct process *more =
        reallocarray(u->process, u->processes + 1, sizeof *more); /* few, once a second */

    if (!more)
        return -ENOMEM;
    u->process = more;
    u->process[u->processes++] = p;
    return 0;
}

/* Drops who is gone, adds whose parent belongs to a job; again until nothing comes, as a child may
 * be listed first. */
static int scan(struct use *u)
{
    bool more = true;
    size_t kept = 0;

    for (size_t i = 0; i < u->processes; i++) {
        char path[64];

        snprintf(path, sizeof path, "/proc/%d", u->process[i].pid);
        if (access(path, F_OK) == 0)
            u->process[kept++] = u->process[i];
    }
    u->processes = kept;
    while (more) {
        DIR *proc = opendir("/proc");
        struct dirent *entry;

        if (!proc)
            return -errno;
        more = false;
        while ((entry = readdir(proc))) {
            pid_t pid = atoi(entry->d_name), parent;
            const struct process *of;
            char path[300];
            uint32_t cpu;

            if (pid <= 0 || find(u, pid))
                continue;
            snprintf(path, sizeof path, "/proc/%s/stat", entry->d_name);
            if (read_where(path, &parent, &cpu) < 0 || !(of = find(u, parent)))
                continue;
            if (append(u, (struct process){pid, parent, of->job, false, of->old}) == 0)
                more = true;
        }
        closedir(proc);
    }
    return 0;
}

static struct thread *row_of(struct use *u, pid_t tid)
{
    for (size_t i = 0; i < THREAD_ROWS; i++) {
        struct thread *row = &u->thread[((size_t)tid + i) % THREAD_ROWS];

        if (row->tid == tid || row->tid == 0)
            return row;
    }
    return NULL;
}

/* Adds what one thread ran since it was last seen. */
static void look_at_thread(struct use *u, const struct process *p, const char *tid, uint64_t *ret)
{
    char path[320], text[96];
    struct thread *row = row_of(u, atoi(tid));
    uint64_t ns, ran;
    pid_t parent;
    uint32_t cpu;

    snprintf(path, sizeof path, "/proc/%d/task/%s/schedstat", p->pid, tid);
    if (!row || slurp(path, text, sizeof text) <= 0)
        return;
    ns = strtoull(text, NULL, 10);
    ran = row->tid != 0 && ns >= row->ns ? ns - row->ns : ns;
    *row = (struct thread){atoi(tid), ns};
    snprintf(path, sizeof path, "/proc/%d/task/%s/stat", p->pid, tid);
    if (!p->old || ran == 0 || read_where(path, &parent, &cpu) < 0 || cpu >= u->cpus)
        return;
    ret[p->job * u->cpus + cpu] += ran;
}

static void look_at_jobs(struct use *u, bool only_new, uint64_t *ret)
{
    for (size_t i = 0; i < u->processes; i++) {
        struct dirent *entry;
        char path[64];
        DIR *tasks;

        if (only_new && u->process[i].old)
            continue;
        snprintf(path, sizeof path, "/proc/%d/task", u->process[i].pid);
        tasks = opendir(path);
        while (tasks && (entry = readdir(tasks)))
            if (isdigit((unsigned char)entry->d_name[0]))
                look_at_thread(u, &u->process[i], entry->d_name, ret);
        if (tasks)
            closedir(tasks);
        u->process[i].old = true;
    }
}

void use_fit(uint64_t *job, uint32_t jobs, uint32_t cpus, const uint64_t *busy, uint64_t *over)
{
    uint64_t room[USE_CPUS_MAX];

    for (uint32_t c = 0; c < cpus; c++) {
        room[c] = busy[c];
        for (uint32_t j = 0; j < jobs; j++) {
            uint64_t *own = &job[j * cpus + c], fits = *own < room[c] ? *own : room[c];

            over[j] += *own - fits;
            room[c] -= fits;
            *own = fits;
        }
    }
    for (uint32_t j = 0; j < jobs; j++)
        for (uint32_t c = 0; c < cpus && over[j] > 0; c++) {
            uint64_t fits = over[j] < room[c] ? over[j] : room[c];

            job[j * cpus + c] += fits;
            room[c] -= fits;
            over[j] -= fits;
        }
}

int use_new(struct use **ret)
{
    struct use *u = calloc(1, sizeof *u);
    int r;

    if (!u)
        return -ENOMEM;
    r = read_busy(u->busy, &u->cpus);
    if (r == 0 && (u->cpus == 0 || u->cpus > USE_CPUS_MAX))
        r = -E2BIG;
    if (r < 0) {
        use_free(u);
        return r;
    }
    *ret = u;
    return 0;
}

struct use *use_free(struct use *u)
{
    if (u)
        for (uint32_t j = 0; j < u->jobs; j++)
            free(u->name[j]);
    if (u)
        free(u->process);
    free(u);
    return NULL;
}

uint32_t use_cpus(const struct use *u)
{
    return u->cpus;
}

uint32_t use_jobs(const struct use *u)
{
    return u->jobs;
}

const char *use_job_name(const struct use *u, uint32_t job)
{
    return u->name[job];
}

int use_add(struct use *u, const char *name, pid_t pid, uint32_t *ret_job)
{
    uint32_t job = 0;
    char path[64];
    int r;

    snprintf(path, sizeof path, "/proc/%d", pid);
    if (access(path, F_OK) < 0)
        return -ESRCH;
    while (job < u->jobs && strcmp(u->name[job], name) != 0)
        job++;
    if (job == USE_JOBS_MAX)
        return -E2BIG;
    if (job == u->jobs) {
        u->name[job] = strdup(name);
        if (!u->name[job])
            return -ENOMEM;
        u->jobs++;
    }
    *ret_job = job;
    if (find(u, pid))
        return 0;
    r = append(u, (struct process){pid, 0, job, true, false});
    if (r == 0)
        r = scan(u);
    if (r == 0)
        /* The process's earlier CPU time counts for nobody. */
        look_at_jobs(u, true, NULL);
    return r;
}

int use_look(struct use *u, uint64_t *ret_busy, uint64_t *ret_job)
{
    uint64_t busy[USE_CPUS_MAX];
    uint32_t cpus;
    int r = 0;

    if (u->looks++ % SCAN_LOOKS == 0)
        r = scan(u);
    if (r == 0)
        r = read_busy(busy, &cpus);
    if (r < 0 || cpus != u->cpus)
        return r < 0 ? r : -EIO;
    memset(ret_job, 0, sizeof *ret_job * USE_JOBS_MAX * cpus);
    look_at_jobs(u, false, ret_job);
    for (uint32_t c = 0; c < cpus; c++) {
        ret_busy[c] = u->begun && busy[c] > u->busy[c] ? busy[c] - u->busy[c] : 0;
        u->busy[c] = busy[c];
    }
    u->begun = true;
    use_fit(ret_job, u->jobs, cpus, ret_busy, u->over);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Simulates the kernel for fuzz_agent_socket.c: processes with users, parents and affinities in the
 * daemon's own /proc, the process at the other end of a socket, and the time. The linker's --wrap
 * replaces the real functions.
 */
#pragma once

#include "base/clock.h"
#include "daemon.h"
#include "host/proc/proc.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

#define PROCESSES   6
#define CALLERS_MAX 6
#define PID_BASE    5000000 /* above every real pid */
#define ADMINS      50      /* a group */
#define ADMIN       1002    /* a user in it */
#define SMALL       2304    /* bytes of a socket's buffer: two messages */

static struct world_process {
    pid_t pid, parent;
    uid_t uid, effective;
    uint64_t start;
    struct cpuset affinity;
    int end; /* an eventfd, readable when the process has ended */
    bool alive;
} processes[PROCESSES];

static uint64_t now_ns = 1000000 * NS_PER_S;
static unsigned caller_of_next[CALLERS_MAX], n_callers; /* the processes that connect, in order */

int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *len);
int __real_getsockopt(int fd, int level, int name, void *value, socklen_t *len);
int __wrap_proc_pidfd_open(pid_t pid);
int __real_proc_pidfd_open(pid_t pid);
int __wrap_proc_get_affinity(pid_t pid, struct cpuset *ret);
int __wrap_proc_set_affinity(int root, pid_t pid, const struct cpuset *set, unsigned *ret);

/* Replaces libsystemd's clock, too, so that its timers follow the simulated time. */
int clock_gettime(clockid_t id, struct timespec *ts)
{
    if (id != CLOCK_MONOTONIC && id != CLOCK_BOOTTIME)
        return (int)syscall(SYS_clock_gettime, id, ts);
    ts->tv_sec = (time_t)(now_ns / NS_PER_S);
    ts->tv_nsec = (long)(now_ns % NS_PER_S);
    return 0;
}

static struct world_process *process_of(pid_t pid)
{
    for (unsigned i = 0; i < PROCESSES; i++)
        if (processes[i].pid == pid && processes[i].alive)
            return &processes[i];
    return NULL;
}

int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *len)
{
    static unsigned caller; /* the process at the other end of the socket */
    struct ucred *cred = value;
    int small = SMALL;

    if (level != SOL_SOCKET ||
        (name != SO_PEERCRED && name != SO_PEERPIDFD && name != SO_PEERGROUPS))
        return __real_getsockopt(fd, level, name, value, len);
    if (name == SO_PEERGROUPS) {
        *len = 0;
        return 0;
    }
    if (name == SO_PEERPIDFD) {
        *(int *)value = dup(processes[caller].end);
        return 0;
    }
    CHECK(n_callers > 0);
    caller = caller_of_next[0];
    memmove(caller_of_next, caller_of_next + 1, --n_callers * sizeof(caller_of_next[0]));
    cred->pid = processes[caller].pid;
    cred->uid = processes[caller].uid;
    cred->gid = processes[caller].uid == ADMIN ? ADMINS : processes[caller].uid;
    return setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
}

int __wrap_proc_pidfd_open(pid_t pid)
{
    const struct world_process *p = process_of(pid);

    if (pid <= PID_BASE)
        return __real_proc_pidfd_open(pid); /* the guardian is real */
    return p ? fcntl(p->end, F_DUPFD_CLOEXEC, 0) : -ESRCH;
}

int __wrap_proc_get_affinity(pid_t pid, struct cpuset *ret)
{
    const struct world_process *p = process_of(pid);

    if (p)
        *ret = p->affinity;
    return p ? 0 : -ESRCH;
}

int __wrap_proc_set_affinity(int root, pid_t pid, const struct cpuset *set, unsigned *ret)
{
    struct world_process *p = process_of(pid);

    if (!p)
        return -ESRCH;
    CHECK(cpuset_count(set) > 0);
    p->affinity = *set;
    return 0;
}

static void write_file(const struct world_process *p, const char *name, const char *text)
{
    char path[96];
    FILE *f;

    snprintf(path, sizeof(path), "%s/proc/%d/%s", directory, (int)p->pid, name);
    f = fopen(path, "we");
    CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

static void show(const struct world_process *p)
{
    char text[512];

    snprintf(
        text, sizeof(text),
        "%d (program) S %d %d %d 0 -1 0 0 0 0 0 1 1 0 0 20 0 1 0 %llu 0 0 0 0 0 0 0 0 0 0 0 0 0 "
        "0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n",
        (int)p->pid, (int)p->parent, (int)p->pid, (int)p->pid, (unsigned long long)p->start);
    write_file(p, "stat", text);
    snprintf(text, sizeof(text),
             "Name:\tprogram\nTgid:\t%d\nUid:\t%u\t%u\t%u\t%u\nThreads:\t1\n"
             "ShdPnd:\t0\nSigBlk:\t0\nSigIgn:\t0\nSigCgt:\t0\nCpus_allowed_list:\t0-7\n",
             (int)p->pid, (unsigned)p->uid, (unsigned)p->effective, (unsigned)p->effective,
             (unsigned)p->effective);
    write_file(p, "status", text);
}

static void begin_process(unsigned i, uid_t uid)
{
    static uint64_t start = 1000;
    struct world_process *p = &processes[i];
    char path[64];

    p->uid = p->effective = uid;
    p->start = start++;
    p->affinity = the_daemon.cpus;
    p->end = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    p->alive = true;
    snprintf(path, sizeof(path), "%s/proc/%d", directory, (int)p->pid);
    CHECK(p->end >= 0 && (mkdir(path, 0700) == 0 || errno == EEXIST));
    show(p);
}

static void end_process(unsigned i)
{
    struct world_process *p = &processes[i];
    uint64_t one = 1;

    if (!p->alive)
        return;
    p->alive = false;
    CHECK(write(p->end, &one, sizeof(one)) == sizeof(one));
    close(p->end);
    p->affinity = the_daemon.cpus;
    for (unsigned k = 0; k < 2; k++) {
        char path[96];

        snprintf(path, sizeof(path), "%s/proc/%d/%s", directory, (int)p->pid,
                 k ? "stat" : "status");
        CHECK(unlink(path) == 0);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads processes from /proc; reads and sets thread affinity; holds on to processes.
 *
 * @root is a directory descriptor of "/" or of a recorded tree (see host/proc/file.h). Every
 * proc_read_* returns 0 or -errno, with -ESRCH when the process is gone (the kernel's ENOENT and
 * ESRCH alike) and -EACCES for another user's. The proc_parse_* are pure and take hostile
 * text. Any thread, no state; called by the daemon, the CLI and tests.
 */
#pragma once

#include "base/cpuset.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PROC_COMM_MAX      64    /* the kernel's own limit is 16, for kernel threads 64 */
#define PROC_TASK_COMM_MAX 16    /* of a thread of a program */
#define PROC_THREADS_MAX   32768 /* in one process; above, -E2BIG */
#define PROC_PIDS_MAX      65536 /* on one machine; above, -E2BIG */
#define PROC_CMDLINE_MAX   65536 /* bytes; the rest is cut */
#define PROC_VERSION_MAX   32

/* ---- /proc/PID/stat, /proc/PID/task/TID/stat ---- */

struct proc_stat {
    pid_t pid; /* or thread id */
    pid_t parent;
    pid_t group; /* of processes */
    pid_t session;
    char comm[PROC_COMM_MAX];
    char state;        /* 'R', 'S', 'D', 'T', 'Z', … */
    uint64_t cpu_ns;   /* user and system time; the kernel's resolution is one tick, 10 ms */
    uint64_t ended_ns; /* the same for its children that have ended, and theirs */
    uint32_t threads;  /* of the whole process */
    uint64_t start;    /* clock ticks after boot; with the pid it identifies a process for ever */
    uint32_t last_cpu; /* the CPU where it ran last */
};

int proc_parse_stat(const char *text, size_t len, struct proc_stat *ret);
int proc_read_stat(int root, pid_t pid, struct proc_stat *ret);

/* ---- /proc/PID/status ---- */

struct proc_status {
    pid_t tgid; /* the process's pid, when the id was a thread's */
    uid_t uid;  /* effective */
    uid_t real_uid, saved_uid;
    uint32_t threads;
    struct cpuset allowed; /* Cpus_allowed_list of the main thread */
    uint64_t sig_caught;   /* bit n-1: signal n has a handler */
    uint64_t sig_ignored;
    uint64_t sig_blocked;
    uint64_t sig_pending; /* sent to the process, but not delivered yet */
};

int proc_parse_status(const char *text, size_t len, struct proc_status *ret);
int proc_read_status(int root, pid_t pid, struct proc_status *ret);

/*
 * True if real, effective and saved user are all @uid. They differ in a setuid program, or in a
 * server that acts for a user for a moment.
 */
bool proc_all_of(const struct proc_status *status, uid_t uid);

/*
 * Checks that the process of @pidfd, whose pid is @pid, runs with @uid's rights alone. Returns 0,
 * -EPERM, or -ESRCH: it has ended.
 */
int proc_check_owner(int root, int pidfd, pid_t pid, uid_t uid);

/*
 * Reads how the process of @pidfd has ended (@pidfd is readable then): its status, or 128 plus the
 * number of the signal. @start is its start time. Before its parent has waited for it, root may
 * read that, and its user unless it ran with another user's rights. Afterwards any holder of @pidfd
 * may, since Linux 6.15. Returns 0 or -ENODATA.
 */
int proc_exit_status(int root, int pidfd, pid_t pid, uint64_t start, int *ret_status);

/* True if the process runs no program: a kernel thread, or a process that has ended. */
bool proc_is_kernel(int root, pid_t pid);

/*
 * Reads the start time of the process at the other end of a Unix socket: @pid of @uid, according to
 * SO_PEERCRED. Call it as soon as the connection is accepted. Before Linux 6.5 a socket gives no
 * pidfd, so the pid may have been recycled, but only for another process of @uid.
 * Returns 0, -EPERM (the process also has another user's rights) or -ESRCH (it has ended).
 */
int proc_identify_peer(int root, int socket, pid_t pid, uid_t uid, uint64_t *ret_start);

/* True if the process has a handler of its own for @signal (1 … 64). */
bool proc_has_handler(const struct proc_status *status, int signal);

/*
 * Reads the resident memory that neither a file backs nor other processes share on purpose: the
 * second number of /proc/PID/statm less the third. Cheap; counts pages twice that a fork shares.
 */
int proc_parse_statm(const char *text, uint64_t *ret_pages); /* 0 or -EINVAL */
int proc_read_own_memory(int root, pid_t pid, uint64_t *ret_bytes);

/* ---- processes and threads ---- */

struct proc_thread {
    pid_t tid;
    char comm[PROC_TASK_COMM_MAX];
    char state;
    uint32_t last_cpu;
    uint64_t cpu_ns;  /* time on a CPU: from schedstat, else the ticks of stat */
    uint64_t wait_ns; /* time runnable but waiting for a CPU; 0 without schedstat */
};

struct proc_threads {
    struct proc_thread *thread; /* sorted by tid */
    size_t n;
};

/* Returns thread ids, ascending; the caller frees *ret. -E2BIG above PROC_THREADS_MAX. */
int proc_list_threads(int root, pid_t pid, pid_t **ret, size_t *ret_n);

/* Fills *ret, which the caller hands to proc_threads_done. -E2BIG above PROC_THREADS_MAX. */
int proc_read_threads(int root, pid_t pid, struct proc_threads *ret);
void proc_threads_done(struct proc_threads *threads);

struct proc_switches {
    uint64_t voluntary;   /* the thread slept */
    uint64_t involuntary; /* it was preempted, or gave way by sched_yield() */
};

/* Reads the switches of one thread. Parsing returns 0 or -EINVAL. */
int proc_parse_switches(const char *text, struct proc_switches *ret);
int proc_read_switches(int root, pid_t pid, pid_t tid, struct proc_switches *ret);

struct proc_load {
    uint64_t cpu_ns, wait_ns; /* sums over its present threads: on a CPU, runnable without one */
    unsigned threads;
};

/*
 * Sums up the schedstat of the threads of @pid. -E2BIG above @max threads, -ESRCH: it is gone, or
 * the kernel keeps no schedstat.
 */
int proc_read_load(int root, pid_t pid, unsigned max, struct proc_load *ret);

/* Parses "cpu_ns wait_ns slices". Returns 0 or -EINVAL. */
int proc_parse_schedstat(const char *text, uint64_t *ret_cpu_ns, uint64_t *ret_wait_ns);

/* Returns all process ids, ascending; the caller frees *ret. */
int proc_list(int root, pid_t **ret, size_t *ret_n);

/* Returns the arguments, each ended by a NUL, as the kernel gives them; the caller frees. */
int proc_read_cmdline(int root, pid_t pid, char **ret, size_t *ret_len);

/* One variable of the environment at its start; the caller frees. -ENODATA: unset. */
int proc_read_environ(int root, pid_t pid, const char *name, char **ret);

/* ---- descriptors of processes: proc_pidfd.c ---- */

/*
 * Returns a descriptor (CLOEXEC) that refers to process @pid, however often its pid is recycled
 * after its end: a pidfd. Before Linux 5.3, and where a container's filter refuses the call, it is
 * the process' directory in /proc, which the kernel never gives to another process either.
 * A pidfd becomes readable when the process ends; such a directory is looked at instead, by
 * proc_pidfd_wait() or exit_watch.h. Returns -errno, -ESRCH: there is no such process.
 */
int proc_pidfd_open(pid_t pid);

/* True: @pidfd is a pidfd, whose readers are woken; false: a directory. */
bool proc_pidfd_wakes(int pidfd);

/* True if the process of @pidfd has ended, whether or not its parent has waited for it. */
bool proc_pidfd_ended(int pidfd);

/* Waits until it has ended or @ms are over; returns the former. -1 as @pidfd waits for nothing. */
bool proc_pidfd_wait(int pidfd, int ms);

/*
 * Sends @signal to the process of @pidfd. 0, -ESRCH (it has ended, and its parent has waited for
 * it), -EPERM. Before Linux 5.1 this is kill(2) right after a look at the directory.
 */
int proc_pidfd_signal(int pidfd, int signal);

/* The same with a value, as sigqueue(3). */
int proc_pidfd_queue(int pidfd, int signal, int value);

/* ---- the machine ---- */

/* Reads how long all CPUs together were busy since boot; time that a virtual machine's host took
 * (steal) counts, too. 0, -EINVAL or -errno. */
int proc_parse_busy(const char *text, uint64_t *ret_busy_ns);
int proc_read_busy(int root, uint64_t *ret_busy_ns);

/* Reads how long @cpus together were idle, or waited for a disk, since boot. 0, -EINVAL or -errno.
 */
int proc_parse_idle(const char *text, const struct cpuset *cpus, uint64_t *ret_idle_ns);
int proc_read_idle(int root, const struct cpuset *cpus, uint64_t *ret_idle_ns);

/* Reads MemTotal of /proc/meminfo. 0, -EINVAL or -errno. */
int proc_read_memory_total(int root, uint64_t *ret_bytes);

/* ---- affinity ---- */

/*
 * Sets the affinity of every thread of @pid. A thread may be born meanwhile with its parent's old
 * mask, so the function repeats until a pass finds no new thread. A thread that dies meanwhile is
 * no failure.
 * Returns 0, -ESRCH, -EPERM, -EINVAL (no CPU of @set is in the process's cpuset) or -EAGAIN (still
 * new threads after many passes). *ret_threads (may be NULL): threads set.
 */
int proc_set_affinity(int root, pid_t pid, const struct cpuset *set, unsigned *ret_threads);

/* Reads the affinity of one thread (for a pid: the main thread), through the system call. */
int proc_get_affinity(pid_t tid, struct cpuset *ret);

/* Reads the union over all threads, and whether all are the same. Through the system call. */
int proc_get_affinity_all(int root, pid_t pid, struct cpuset *ret, bool *ret_uniform);

/* ---- cgroup membership ---- */

/*
 * Reads a process's group in the hierarchy of @controller ("cpu", "cpuset"; "" for cgroup v2's) as
 * /proc/PID/cgroup has it, e.g. "/docker/4f2…". -ENOENT: no such hierarchy. -ENAMETOOLONG.
 */
int proc_parse_cgroup(const char *text, const char *controller, char *ret_path, size_t size);
int proc_read_cgroup(int root, pid_t pid, const char *controller, char *ret_path, size_t size);

/* ---- runtimes ---- */

enum proc_runtime {
    PROC_RUNTIME_AGENT, /* our own library */
    PROC_RUNTIME_TENSORFLOW,
    PROC_RUNTIME_TORCH,
    PROC_RUNTIME_ONNXRUNTIME,
    PROC_RUNTIME_JAX,
    PROC_RUNTIME_GOMP,     /* GNU OpenMP */
    PROC_RUNTIME_LLVM_OMP, /* LLVM's and Intel's OpenMP */
    PROC_RUNTIME_OPENBLAS,
    PROC_RUNTIME_MKL,
    PROC_RUNTIME_ONEDNN, /* as a separate library; TensorFlow and torch contain oneDNN */
    PROC_RUNTIME_BLIS,
    PROC_RUNTIME_TBB,
    PROC_RUNTIME_GGML,   /* llama.cpp, Ollama */
    PROC_RUNTIME_LITERT, /* TensorFlow Lite; TensorFlow brings one that it seldom uses: not told */
    PROC_RUNTIME_EXECUTORCH,
    PROC_RUNTIME_XNNPACK, /* as a separate library, with pthreadpool; the two above contain it */
    PROC_RUNTIME_XGBOOST,
    PROC_RUNTIME_LIGHTGBM,
    PROC_RUNTIME_OPENCV,
    PROC_RUNTIME_NUMBA,
    PROC_RUNTIME_POLARS,
    PROC_RUNTIME_RAYON,
    PROC_RUNTIME_JVM,
    PROC_RUNTIME_GO,
    PROC_RUNTIME_JULIA,
    PROC_RUNTIME_R,
    PROC_RUNTIME_MAX
};

struct proc_runtimes {
    struct {
        bool loaded;
        uint32_t copies;                /* files that contain it: wheels bring their own */
        char version[PROC_VERSION_MAX]; /* of the first; empty: unknown */
    } r[PROC_RUNTIME_MAX];
    bool is_static; /* the program has no dynamic linker: no agent can be loaded */
};

/* "tensorflow", "openblas", … */
const char *proc_runtime_name(enum proc_runtime runtime);

/*
 * Looks at one line of /proc/PID/maps (no newline). Returns the runtime whose library it maps, with
 * *ret_path pointing at the path inside @line, or -ENOENT.
 */
int proc_parse_maps_line(const char *line, const char **ret_path);

/* Version in a library's file name ("libgomp.so.1.0.0" → "1.0.0"). Returns 0 or -ENOENT. */
int proc_library_version(const char *path, char ret_version[PROC_VERSION_MAX]);

/*
 * Finds all runtimes that the process has mapped. The version is that of the library's Python
 * package (NAME-VERSION.dist-info beside it), as with TensorFlow or torch, else of its file name.
 */
int proc_read_runtimes(int root, pid_t pid, struct proc_runtimes *ret);

/*
 * Adds to *ret what the executable contains itself: Go (since 1.18, with its version), Rayon,
 * and in static programs with symbols OpenMP and OpenBLAS. proc_parse_program() reads any file.
 * Returns 0, -ENOEXEC (no 64-bit ELF file), or -errno.
 */
int proc_read_program(int root, pid_t pid, struct proc_runtimes *ret);
int proc_parse_program(int fd, struct proc_runtimes *ret);

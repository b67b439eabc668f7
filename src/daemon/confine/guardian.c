/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/confine/guardian.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/older.h"
#include "daemon/confine/journal.h"
#include "daemon/daemon.h"
#include "host/proc/exit_watch.h"
#include "host/proc/file.h"
#include "host/proc/proc.h"

#include <assert.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define ERROR_WORD "guardian-failed"

#define LOCK_WAIT_NS       (5 * NS_PER_S)
#define AGAIN_US           1000000 /* between two attempts to start it */
#define RESTORE_WAIT_MAX_S 60
#define LOCK_PAUSE_US      5000
#define REMOVE_TRIES       500 /* by the guardian, or by a daemon that starts or ends */
#define OWN_TRIES          20
#define REMOVE_PAUSE_US    10000
#define TABLE_BYTES        sizeof(struct table)

struct entry {
    atomic_uint used; /* set last, so that no one acts on a half-written entry */
    int32_t pid;
    uint64_t start;
    struct cpuset original;
};

/* A file with one number that the daemon has changed. */
struct knob {
    atomic_uint used; /* as above */
    char path[GUARDIAN_KNOB_PATH_MAX], original[GUARDIAN_KNOB_TEXT_MAX];
};

struct table {
    struct entry entry[GUARDIAN_ENTRIES_MAX];
    struct knob knob[GUARDIAN_KNOBS_MAX];
};

static_assert(sizeof(((struct table *)0)->knob) == GUARDIAN_KNOBS_BYTES, "what the header says");
static_assert(sizeof(struct table) == sizeof(((struct table *)0)->entry) + GUARDIAN_KNOBS_BYTES,
              "no padding: entries first");

struct guardian {
    sd_event *event;
    sd_event_source *exit_source, *again;
    struct table *table;     /* shared with the guardian, and in a file, with the next daemon */
    struct journal *journal; /* the originals of containers */
    unsigned top;            /* number of entries ever used */
    int dir_fd;              /* borrowed */
    int pipe_fd; /* closed when the daemon ends, which the guardian sees at the other end */
    int pidfd;
    pid_t pid;
    char group[CGROUP_NAME_MAX];
};

/* ---- the table ---- */

static struct entry *entry_find(struct guardian *g, pid_t pid, uint64_t start)
{
    for (unsigned i = 0; i < g->top; i++)
        if (atomic_load(&g->table->entry[i].used) && g->table->entry[i].pid == pid &&
            g->table->entry[i].start == start)
            return &g->table->entry[i];
    return NULL;
}

int guardian_note(struct guardian *g, pid_t pid, uint64_t start, const struct cpuset *original)
{
    struct entry *e = entry_find(g, pid, start);

    if (e)
        return 0;
    for (e = g->table->entry; e < g->table->entry + GUARDIAN_ENTRIES_MAX && atomic_load(&e->used);)
        e++;
    if (e == g->table->entry + GUARDIAN_ENTRIES_MAX)
        return -ENOSPC;
    e->pid = pid;
    e->start = start;
    e->original = *original;
    atomic_store(&e->used, 1);
    if (g->top <= (unsigned)(e - g->table->entry))
        g->top = (unsigned)(e - g->table->entry) + 1;
    failpoint(FAILPOINT_GUARDIAN_NOTED);
    return 0;
}

void guardian_forget(struct guardian *g, pid_t pid, uint64_t start)
{
    struct entry *e = entry_find(g, pid, start);

    if (e)
        atomic_store(&e->used, 0);
}

static struct knob *knob_find(struct guardian *g, const char *path)
{
    for (struct knob *k = g->table->knob; k < g->table->knob + GUARDIAN_KNOBS_MAX; k++)
        if (atomic_load(&k->used) && strcmp(k->path, path) == 0)
            return k;
    return NULL;
}

int guardian_note_knob(struct guardian *g, const char *path, const char *original)
{
    struct knob *k = g->table->knob;

    if (strlen(path) >= sizeof(k->path) || strlen(original) >= sizeof(k->original))
        return -ENAMETOOLONG;
    if (knob_find(g, path))
        return 0;
    while (k < g->table->knob + GUARDIAN_KNOBS_MAX && atomic_load(&k->used))
        k++;
    if (k == g->table->knob + GUARDIAN_KNOBS_MAX)
        return -ENOSPC;
    memcpy(k->path, path, strlen(path) + 1);
    memcpy(k->original, original, strlen(original) + 1);
    atomic_store(&k->used, 1);
    return 0;
}

void guardian_forget_knob(struct guardian *g, const char *path)
{
    struct knob *k = knob_find(g, path);

    if (k)
        atomic_store(&k->used, 0);
}

/* Whether it is one of ours: the table is a file, which a crash or another version has left. */
static bool knob_good(const struct knob *k)
{
    static const char name[] = "/constraint_0_power_limit_uw";
    const char *end = memchr(k->path, '\0', sizeof(k->path));
    size_t digits;

    if (!end || !memchr(k->original, '\0', sizeof(k->original)) || k->path[0] != '/' ||
        (size_t)(end - k->path) < sizeof(name) || strcmp(end - (sizeof(name) - 1), name) != 0)
        return false;
    digits = strspn(k->original, "0123456789");
    return digits > 0 && strcmp(k->original + digits, "\n") == 0;
}

/* A limit that cannot be restored stays noted: the next daemon tries again. */
static void restore_knobs(struct table *table)
{
    for (struct knob *k = table->knob; k < table->knob + GUARDIAN_KNOBS_MAX; k++) {
        _cleanup_fd_ int fd = -1;

        if (!atomic_load(&k->used))
            continue;
        if (knob_good(k)) {
            fd = open(k->path, O_WRONLY | O_TRUNC | O_NOFOLLOW | O_CLOEXEC);
            if (fd < 0 ? errno != ENOENT : write(fd, k->original, strlen(k->original)) < 0)
                continue;
        }
        atomic_store(&k->used, 0);
    }
}

/* A large process that is exiting stays in its group for some 100 ms. */
static void remove_group(const struct cgroup *cg, const char *group, unsigned tries)
{
    for (unsigned i = 0; i < tries && cgroup_remove(cg, group, NULL) == -EBUSY; i++)
        usleep(REMOVE_PAUSE_US);
}

static unsigned restore(struct table *table, int root, const struct cgroup *cg, const char *group)
{
    unsigned n = 0;
    struct proc_stat stat;

    /* Moves processes out of the groups first: a cpuset would cut a wider affinity. */
    if (cg)
        cgroup_remove(cg, group, NULL);
    for (struct entry *e = table->entry; e < table->entry + GUARDIAN_ENTRIES_MAX; e++) {
        if (!atomic_load(&e->used))
            continue;
        if (e->pid > 0 && proc_read_stat(root, e->pid, &stat) == 0 && stat.start == e->start &&
            proc_set_affinity(root, e->pid, &e->original, NULL) == 0)
            n++;
        atomic_store(&e->used, 0);
    }
    restore_knobs(table); /* last: no limit keeps processes from their cores */
    return n;
}

pid_t guardian_pid(const struct guardian *g)
{
    return g->pipe_fd < 0 ? 0 : g->pid;
}

struct journal *guardian_journal(struct guardian *g)
{
    return g->journal;
}

unsigned guardian_restore(struct guardian *g, int root, const struct cgroup *cg)
{
    unsigned n = restore(g->table, root, cg, g->group);

    if (cg)
        remove_group(cg, g->group, OWN_TRIES);
    return n;
}

/* ---- the child ---- */

/* Closes everything but stderr, the pipe's reading end and the lock: the rest is the daemon's. */
static void close_others(int pipe_fd, int lock_fd)
{
    int low = pipe_fd < lock_fd ? pipe_fd : lock_fd, high = pipe_fd < lock_fd ? lock_fd : pipe_fd;
    unsigned from = STDERR_FILENO + 1;

    if (low > STDERR_FILENO) {
        older_close_range(from, (unsigned)low - 1);
        from = (unsigned)low + 1;
    }
    if (high > (int)from)
        older_close_range(from, (unsigned)high - 1);
    older_close_range((unsigned)high + 1, ~0u);
}

/*
 * Containers' engines are slow. A new daemon that waits takes over between two rounds: it finds the
 * remaining containers in journal.h's file.
 */
static void restore_containers(struct journal *k, int lock_fd)
{
    unsigned before = UINT_MAX, left = journal_restore(k);

    while (left > 0 && left < before) {
        if (lock_fd >= 0) {
            flock(lock_fd, LOCK_UN);
            usleep(4 * LOCK_PAUSE_US);
            if (flock(lock_fd, LOCK_EX | LOCK_NB) < 0)
                return;
        }
        before = left;
        left = journal_restore(k);
    }
}

_Noreturn static void guard(const struct guardian *g, int pipe_fd, int lock_fd)
{
    struct cgroup *cg = NULL;
    sigset_t all;
    char byte;
    int root;

    failpoint_disarm();
    setsid();
    prctl(PR_SET_NAME, "tided-guardian");
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    close_others(pipe_fd, lock_fd);
    while (read(pipe_fd, &byte, 1) < 0 && errno == EINTR)
        ;
    root = file_open_root();
    if (root >= 0) {
        if (cgroup_new(root, &cg) < 0)
            cg = NULL;
        restore(g->table, root, cg, g->group);
    }
    restore_containers(g->journal, lock_fd);
    close_fd(lock_fd); /* a waiting daemon may start: its group has another name */
    if (cg)
        remove_group(cg, g->group, REMOVE_TRIES);
    _exit(0);
}

/*
 * The lock belongs to the open file, which the guardian inherits: it is free once no guardian of
 * this directory is at work. Without a lock (full disk) a new daemon could meet an old guardian.
 */
static int lock_guardian(int dir_fd, uint64_t wait_ns)
{
    _cleanup_fd_ int fd =
        openat(dir_fd, GUARDIAN_LOCK, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    uint64_t deadline = clock_now_ns() + wait_ns;

    if (fd < 0)
        return -errno;
    while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK || clock_now_ns() >= deadline)
            return -errno;
        usleep(LOCK_PAUSE_US);
    }
    return TAKE_FD(fd);
}

static int on_child(sd_event_source *s, int fd, uint32_t events, void *arg);

static int start(struct guardian *g, int lock_fd)
{
    int ends[2], r;

    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    g->pid = fork();
    if (g->pid == 0) {
        close(ends[1]);
        guard(g, ends[0], lock_fd);
    }
    close(ends[0]);
    g->pipe_fd = ends[1];
    if (g->pid < 0)
        return -errno;
    g->pidfd = proc_pidfd_open(g->pid);
    r = g->pidfd < 0 ? g->pidfd : exit_watch_add(g->event, &g->exit_source, g->pidfd, on_child, g);
    if (r < 0) /* running on: without its pipe it would begin to restore */
        daemon_err("cannot watch the guardian process: %s; if it dies, nothing replaces it",
                   strerror(-r));
    return 0;
}

static void stop(struct guardian *g)
{
    g->again = sd_event_source_disable_unref(g->again);
    g->exit_source = sd_event_source_disable_unref(g->exit_source);
    g->pidfd = close_fd(g->pidfd);
    g->pipe_fd = close_fd(g->pipe_fd);
}

static int on_again(sd_event_source *s, uint64_t usec, void *arg);

static void start_again(struct guardian *g, const char *why)
{
    _cleanup_fd_ int lock_fd = -1;
    int r;

    stop(g);
    lock_fd = lock_guardian(g->dir_fd, 0); /* free: the guardian is dead; the loop cannot wait */
    r = start(g, lock_fd);
    if (r == 0) {
        daemon_log("%sa new guardian was started", why);
        return;
    }
    stop(g);
    if (*why)
        daemon_err("%sno new one can be started yet: %s", why, strerror(-r));
    sd_event_add_time_relative(g->event, &g->again, CLOCK_MONOTONIC, AGAIN_US, 0, on_again, g);
}

static int on_again(sd_event_source *s, uint64_t usec, void *arg)
{
    start_again(arg, "");
    return 0;
}

static int on_child(sd_event_source *s, int fd, uint32_t events, void *arg)
{
    struct guardian *g = arg;

    if (!exit_watch_ended(fd, g->pidfd))
        return 0;
    waitpid(g->pid, NULL, WNOHANG);
    start_again(g, "the guardian was killed; ");
    return 0;
}

/* Only ours, of the right size and with its blocks allocated: a hole could raise SIGBUS later. */
static int open_table(int dir_fd)
{
    _cleanup_fd_ int fd = openat(dir_fd, GUARDIAN_TABLE,
                                 O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    struct stat st;
    int r;

    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid())
        return -EPERM;
    /* Written by another version, or empty: not readable. */
    if (st.st_size != (off_t)TABLE_BYTES && ftruncate(fd, 0) < 0)
        return -errno;
    r = posix_fallocate(fd, 0, (off_t)TABLE_BYTES);
    return r ? -r : TAKE_FD(fd);
}

/* Restores processes that were left because the last daemon and its guardian were both killed. */
static void restore_left(struct guardian *g)
{
    _cleanup_fd_ int root = file_open_root();
    unsigned n = root < 0 ? 0 : restore(g->table, root, NULL, g->group);

    if (n > 0)
        daemon_log(
            "an earlier tided and its guardian died: restored the CPU affinity of %u processes", n);
}

/* Only the holder of the lock uses the file. Without it the table dies with both processes. */
static int table_new(struct guardian *g, bool locked)
{
    _cleanup_fd_ int fd = locked ? open_table(g->dir_fd) : -EAGAIN;
    void *table;

    if (locked && fd < 0)
        daemon_err("cannot make the file of original CPU affinities: %s; if guardian and tided "
                   "are both killed, processes keep the cores that tided gave them",
                   strerror(-fd));
    table = mmap(NULL, TABLE_BYTES, PROT_READ | PROT_WRITE,
                 MAP_SHARED | (fd < 0 ? MAP_ANONYMOUS : 0), fd < 0 ? -1 : fd, 0);
    if (table == MAP_FAILED)
        return -errno;
    g->table = table;
    if (fd >= 0) {
        restore_left(g);
        madvise(table, TABLE_BYTES, MADV_DONTNEED); /* read from the file, where it stays */
    }
    return 0;
}

int guardian_new(sd_event *event, int dir_fd, const char *state_dir, const char *group,
                 const struct cgroup *cg, const char *earlier, struct guardian **ret,
                 struct error *err)
{
    struct guardian *g = calloc(1, sizeof(*g));
    _cleanup_fd_ int lock_fd = -1;
    int r;

    if (!g)
        return error_set(err, -ENOMEM, "out of memory");
    *g = (struct guardian){.event = event, .dir_fd = dir_fd, .pipe_fd = -1, .pidfd = -1};
    snprintf(g->group, sizeof(g->group), "%s", group);
    lock_fd = lock_guardian(dir_fd, LOCK_WAIT_NS);
    if (lock_fd < 0)
        daemon_err("cannot lock the guardian's file: %s; if guardian and tided are both killed, "
                   "what tided changed stays",
                   strerror(-lock_fd));
    if (cg && *earlier) /* else its cpusets would cut or reset the restored affinities */
        remove_group(cg, earlier, OWN_TRIES);
    r = table_new(g, lock_fd >= 0);
    if (r == 0)
        r = journal_new(lock_fd < 0 ? NULL : state_dir, &g->journal);
    if (r == 0)
        r = start(g, lock_fd);
    if (r < 0) {
        guardian_free(g);
        return error_set(err, r, "cannot start the guardian: %s", strerror(-r));
    }
    *ret = g;
    return 0;
}

/* Where a container has no process namespace of its own, the runtime kills the guardian with us. */
static void await_restored(int pidfd)
{
    const char *text = getenv("TIDE_RESTORE_WAIT");
    unsigned long seconds = text ? strtoul(text, NULL, 10) : 0;

    if (pidfd >= 0 && seconds > 0)
        proc_pidfd_wait(
            pidfd, (int)(1000 * (seconds < RESTORE_WAIT_MAX_S ? seconds : RESTORE_WAIT_MAX_S)));
}

struct guardian *guardian_free(struct guardian *g)
{
    _cleanup_fd_ int pidfd = -1;

    if (!g)
        return NULL;
    pidfd = TAKE_FD(g->pidfd);
    stop(g);
    await_restored(pidfd);
    if (g->table)
        munmap(g->table, TABLE_BYTES);
    journal_free(g->journal);
    free(g);
    return NULL;
}

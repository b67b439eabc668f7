/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/plan/machine_share.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "daemon/daemon.h"
#include "host/proc/proc.h"
#include "proto/proto.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/random.h>
#include <sys/stat.h>

#define ERROR_WORD "run-directory"

#define CLAIM_TEXT_MAX (CPUSET_TEXT_MAX + 96)
#define CLAIM_NAME_MAX 40
#define ENTRIES_MAX    1024                   /* entries of the directory that one look reads */
#define PAUSE_NS       (NS_PER_S / 20)        /* shortest time between two looks */
#define WATCH_PRIORITY SD_EVENT_PRIORITY_IDLE /* a flood of file changes delays nothing else */

struct machine_share {
    struct daemon *daemon;
    int dir_fd;
    int own_fd; /* our file; this descriptor holds its lock */
    sd_event_source *watch, *look;
    uint64_t looked_ns;
    struct share_claim own;
    char name[CLAIM_NAME_MAX];
    bool complained;
    char text[CLAIM_TEXT_MAX]; /* our file's text */
    struct share_claim other[MACHINE_SHARE_MAX];
    size_t n;
};

/* ---- pure ---- */

int machine_share_parse(const char *text, struct share_claim *ret)
{
    unsigned version, jobs, used;
    int pid, end = 0;
    struct cpuset cores;

    if (sscanf(text, "%u %d %u %u %n", &version, &pid, &jobs, &used, &end) != 4 || end == 0 ||
        version != 2 || pid <= 0)
        return -EINVAL;
    if (cpuset_parse(text + end, &cores) < 0)
        return -EINVAL;
    *ret = (struct share_claim){.pid = pid,
                                .jobs = jobs > PROTO_JOBS_MAX ? PROTO_JOBS_MAX : jobs,
                                .used = used > CPUSET_MAX_CPUS ? CPUSET_MAX_CPUS : used,
                                .cores = cores};
    return 0;
}

/* The order in which remainders are given out and conflicts settled. */
static bool before(const struct share_claim *a, const struct share_claim *b)
{
    return a->uid != b->uid ? a->uid < b->uid : a->pid < b->pid;
}

static bool is_first_of_uid(const struct share_claim *all, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (all[k].uid == all[i].uid)
            return false;
    return true;
}

/* The cores of all daemons of @uid, which has at least one file. */
static unsigned user_share(const struct share_claim *all, size_t n, uid_t uid, unsigned cpus)
{
    unsigned users = 0, ahead = 0, left, share;
    uint64_t roots = 0;

    if (uid == 0)
        return cpus;
    for (size_t i = 0; i < n; i++) {
        if (all[i].uid == 0) {
            roots += all[i].used;
        } else if (is_first_of_uid(all, i)) {
            users++;
            ahead += all[i].uid < uid;
        }
    }
    left = roots < cpus ? cpus - (unsigned)roots : 0;
    share = users ? left / users + (ahead < left % users) : left;
    return share ? share : 1;
}

unsigned machine_share_divide(const struct share_claim *all, size_t n,
                              const struct share_claim *self, unsigned cpus)
{
    uint64_t jobs = 0, given = 0, own_rest, ahead = 0, cores;
    unsigned share;

    for (size_t i = 0; i < n; i++)
        jobs += all[i].uid == self->uid ? all[i].jobs : 0;
    if (self->jobs == 0 || jobs == 0)
        return cpus;
    cores = user_share(all, n, self->uid, cpus);
    own_rest = self->jobs * cores % jobs;
    for (size_t i = 0; i < n; i++) {
        uint64_t rest = all[i].jobs * cores % jobs;

        if (all[i].uid != self->uid)
            continue;
        given += all[i].jobs * cores / jobs;
        ahead += rest > own_rest || (rest == own_rest && before(&all[i], self));
    }
    share = (unsigned)(self->jobs * cores / jobs);
    if (own_rest > 0 && ahead < cores - given)
        share++;
    return share ? share : 1;
}

/* Cores of @uid's daemons except @self. If two hold one core, the later gives it up. */
static struct cpuset held_by(const struct share_claim *all, size_t n, uid_t uid,
                             const struct share_claim *self)
{
    struct cpuset held;

    cpuset_zero(&held);
    for (size_t i = 0; i < n; i++) {
        bool earlier = before(&all[i], self), later = before(self, &all[i]);

        if (all[i].uid != uid || (!earlier && !later))
            continue;
        for (unsigned w = 0; w < CPUSET_WORDS; w++)
            held.word[w] |= all[i].cores.word[w] & ~(later ? self->cores.word[w] : 0);
    }
    return held;
}

void machine_share_usable(const struct share_claim *all, size_t n, const struct share_claim *self,
                          const struct cpuset *machine, struct cpuset *ret)
{
    unsigned cpus = cpuset_count(machine);

    *ret = *machine;
    for (size_t i = 0; i < n; i++) {
        struct cpuset held;

        if (!is_first_of_uid(all, i) || (self->uid == 0 && all[i].uid != 0))
            continue;
        held = held_by(all, n, all[i].uid, self);
        cpuset_and(&held, &held, machine);
        cpuset_cut(&held, user_share(all, n, all[i].uid, cpus));
        for (unsigned w = 0; w < CPUSET_WORDS; w++)
            ret->word[w] &= ~held.word[w];
    }
    if (cpuset_count(ret) == 0)
        *ret = *machine;
}

/* ---- reading ---- */

/* Only the owner can write the file, and only a writer can lock it. */
static bool is_locked(int fd)
{
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};

    return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_WRLCK;
}

static int read_claim(const struct machine_share *s, const char *name, struct share_claim *ret)
{
    _cleanup_fd_ int fd = openat(s->dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    const struct daemon *d = s->daemon;
    char text[CLAIM_TEXT_MAX];
    struct proc_status status;
    struct share_claim claim = {0};
    struct stat st;
    ssize_t len;
    int r;

    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode) || (st.st_mode & (S_IWGRP | S_IWOTH)))
        return -EINVAL;
    if (d->uid == 0 && st.st_uid != 0) /* root's daemon ignores users' files */
        return -EPERM;
    if (!is_locked(fd)) {
        if (st.st_uid == d->uid)
            unlinkat(s->dir_fd, name, 0); /* left by a daemon of ours that was killed */
        return -ESRCH;
    }
    len = read(fd, text, sizeof(text) - 1);
    if (len < 0)
        return -errno;
    text[len] = '\0';
    r = machine_share_parse(text, &claim);
    if (r == 0)
        r = proc_read_status(d->root, claim.pid, &status);
    if (r == 0 && !proc_all_of(&status, st.st_uid))
        r = -EPERM;
    if (r < 0)
        return r;
    claim.uid = st.st_uid;
    *ret = claim;
    return 0;
}

static bool too_many_of(const struct machine_share *s, uid_t uid)
{
    unsigned n = 0;

    for (size_t i = 0; i < s->n; i++)
        n += s->other[i].uid == uid;
    return n >= MACHINE_SHARE_UID_MAX;
}

bool machine_share_refresh(struct machine_share *s)
{
    struct share_claim old[MACHINE_SHARE_MAX];
    unsigned looked = 0;
    size_t n_old;
    DIR *dir;
    int fd;

    if (!s)
        return false;
    s->looked_ns = clock_now_ns();
    n_old = s->n;
    memcpy(old, s->other, n_old * sizeof(old[0]));
    s->n = 0;
    fd = openat(s->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        close_fd(fd);
        return n_old > 0;
    }
    memset(s->other, 0, sizeof(s->other)); /* compared as bytes below */
    for (const struct dirent *e;
         s->n < MACHINE_SHARE_MAX && looked < ENTRIES_MAX && (e = readdir(dir)); looked++) {
        struct share_claim claim;

        memset(&claim, 0, sizeof(claim));
        if (e->d_name[0] == '.' || strcmp(e->d_name, s->name) == 0 ||
            read_claim(s, e->d_name, &claim) < 0 || claim.jobs == 0 || too_many_of(s, claim.uid))
            continue;
        s->other[s->n++] = claim;
    }
    closedir(dir);
    return n_old != s->n || memcmp(old, s->other, n_old * sizeof(old[0])) != 0;
}

unsigned machine_share_take(struct machine_share *s, uint32_t jobs, const struct cpuset *machine,
                            struct cpuset *ret_usable)
{
    struct share_claim all[MACHINE_SHARE_MAX + 1];
    unsigned cpus = cpuset_count(machine);

    *ret_usable = *machine;
    if (!s || s->n == 0)
        return cpus;
    s->own.jobs = jobs;
    memcpy(all, s->other, s->n * sizeof(all[0]));
    all[s->n] = s->own;
    machine_share_usable(all, s->n + 1, &s->own, machine, ret_usable);
    return machine_share_divide(all, s->n + 1, &s->own, cpus);
}

bool machine_share_shared(const struct machine_share *s)
{
    return s && s->n > 0;
}

/* ---- writing ---- */

static void withdraw(struct machine_share *s)
{
    if (s->own_fd >= 0)
        unlinkat(s->dir_fd, s->name, 0);
    s->own_fd = close_fd(s->own_fd);
}

/* Locks the file before anybody else can open it. */
static int write_claim(struct machine_share *s)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    char temp[CLAIM_NAME_MAX + 4];
    _cleanup_fd_ int fd = -1;
    size_t len = strlen(s->text);

    snprintf(temp, sizeof(temp), ".%s", s->name);
    unlinkat(s->dir_fd, temp, 0);
    fd = openat(s->dir_fd, temp, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    errno = 0;
    if (fcntl(fd, F_OFD_SETLK, &lock) < 0 || write(fd, s->text, len) != (ssize_t)len ||
        fchmod(fd, 0644) < 0 || renameat(s->dir_fd, temp, s->dir_fd, s->name) < 0) {
        int r = errno ? -errno : -ENOSPC;

        unlinkat(s->dir_fd, temp, 0);
        return r;
    }
    close_fd(s->own_fd);
    s->own_fd = TAKE_FD(fd);
    return 0;
}

void machine_share_publish(struct machine_share *s, uint32_t jobs, uint32_t used,
                           const struct cpuset *cores)
{
    char list[CPUSET_TEXT_MAX], text[CLAIM_TEXT_MAX];
    int r;

    if (!s)
        return;
    s->own.jobs = jobs;
    s->own.cores = *cores;
    if (jobs == 0) {
        withdraw(s);
        return;
    }
    cpuset_format(cores, list, sizeof(list));
    snprintf(text, sizeof(text), "2 %d %u %u %s\n", (int)s->own.pid, jobs, used, list);
    if (s->own_fd >= 0 && strcmp(text, s->text) == 0)
        return;
    memcpy(s->text, text, sizeof(text));
    r = write_claim(s);
    if (r < 0) {
        withdraw(s); /* an outdated file would mislead others */
        if (!s->complained)
            daemon_err("cannot tell other users' daemons of this one's jobs, whose cores they may "
                       "use, too: %s",
                       strerror(-r));
    }
    s->complained = r < 0;
}

/* ---- life ---- */

static int on_look(sd_event_source *source, uint64_t usec, void *arg)
{
    struct machine_share *s = arg;

    if (machine_share_refresh(s))
        daemon_changed(s->daemon);
    return 0;
}

static int on_watch(sd_event_source *source, const struct inotify_event *event, void *arg)
{
    struct machine_share *s = arg;

    if (event->len && (event->name[0] == '.' || strcmp(event->name, s->name) == 0))
        return 0;
    sd_event_source_set_time(s->look, (s->looked_ns + PAUSE_NS) / NS_PER_US);
    sd_event_source_set_enabled(s->look, SD_EVENT_ONESHOT);
    return 0;
}

/*
 * The machine's first daemon makes the directory for all users, with the rights of /tmp. Its owner
 * could remove any file, so root takes it over from a user.
 */
static int open_directory(const char *path)
{
    _cleanup_fd_ int fd = -1;
    struct stat st;
    bool ours = mkdir(path, 0700) == 0;

    if (!ours && errno != EEXIST)
        return -errno;
    fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (geteuid() == 0 && st.st_uid != 0)
        ours = fchown(fd, 0, 0) == 0;
    if (ours && fchmod(fd, 01777) < 0)
        return -errno;
    if (fstat(fd, &st) < 0)
        return -errno;
    /* All users may write here: the sticky bit keeps them from replacing our file. */
    if ((st.st_mode & (S_IWGRP | S_IWOTH)) && !(st.st_mode & S_ISVTX))
        return -EPERM;
    return TAKE_FD(fd);
}

static int add_sources(struct machine_share *s, const char *path)
{
    sd_event *e = s->daemon->event;
    int r = sd_event_add_time(e, &s->look, CLOCK_MONOTONIC, 0, 1000, on_look, s);

    if (r >= 0)
        r = sd_event_source_set_enabled(s->look, SD_EVENT_OFF);
    if (r >= 0)
        r = sd_event_source_set_priority(s->look, WATCH_PRIORITY);
    if (r >= 0)
        r = sd_event_add_inotify(e, &s->watch, path, IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE,
                                 on_watch, s);
    return r < 0 ? r : sd_event_source_set_priority(s->watch, WATCH_PRIORITY);
}

int machine_share_new(struct daemon *d, struct machine_share **ret, struct error *err)
{
    const char *path = getenv("TIDE_CLAIMS_DIR");
    struct machine_share *s = calloc(1, sizeof(*s));
    unsigned chance = 0; /* random: nobody can guess the name and take it first */
    int r;

    path = path && *path ? path : MACHINE_SHARE_DIR;
    if (!s)
        return error_set(err, -ENOMEM, "out of memory");
    s->daemon = d;
    s->own_fd = -1;
    s->own = (struct share_claim){.uid = d->uid, .pid = getpid()};
    if (getrandom(&chance, sizeof(chance), GRND_NONBLOCK) < 0)
        chance = (unsigned)clock_now_ns();
    snprintf(s->name, sizeof(s->name), "%u-%d-%08x", (unsigned)d->uid, (int)getpid(), chance);
    s->dir_fd = r = open_directory(path);
    if (r >= 0)
        r = add_sources(s, path);
    if (r < 0) {
        machine_share_free(s);
        return error_set(err, r, "cannot share the machine with other users' daemons: %s: %s", path,
                         strerror(-r));
    }
    machine_share_refresh(s);
    *ret = s;
    return 0;
}

struct machine_share *machine_share_free(struct machine_share *s)
{
    if (!s)
        return NULL;
    withdraw(s);
    sd_event_source_disable_unref(s->watch);
    sd_event_source_disable_unref(s->look);
    close_fd(s->dir_fd);
    free(s);
    return NULL;
}

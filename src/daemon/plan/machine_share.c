/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/plan/machine_share.h"

#include "base/cleanup.h"
#include "daemon/daemon.h"
#include "host/proc/proc.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>

#define CLAIM_TEXT_MAX (CPUSET_TEXT_MAX + 96)
#define CLAIM_NAME_MAX 32

struct machine_share {
    struct daemon *daemon;
    int dir_fd;
    sd_event_source *watch;
    struct share_claim own;
    char name[CLAIM_NAME_MAX];
    bool written, complained;
    char text[CLAIM_TEXT_MAX]; /* what our file holds */
    struct share_claim other[MACHINE_SHARE_MAX];
    size_t n;
};

/* ---- pure ---- */

int machine_share_parse(const char *text, struct share_claim *ret)
{
    unsigned version, uid, jobs;
    int pid, end = 0;
    uint64_t start;
    struct cpuset cores;

    if (sscanf(text, "%u %u %d %" SCNu64 " %u %n", &version, &uid, &pid, &start, &jobs, &end) !=
            5 ||
        end == 0 || version != 1 || pid <= 0)
        return -EINVAL;
    if (cpuset_parse(text + end, &cores) < 0)
        return -EINVAL;
    *ret =
        (struct share_claim){uid, pid, start, jobs > PROTO_JOBS_MAX ? PROTO_JOBS_MAX : jobs, cores};
    return 0;
}

/* The order in which remainders are given out and conflicts are settled. */
static bool before(const struct share_claim *a, const struct share_claim *b)
{
    return a->uid != b->uid ? a->uid < b->uid : a->pid < b->pid;
}

unsigned machine_share_divide(const struct share_claim *all, size_t n,
                              const struct share_claim *self, unsigned cpus)
{
    uint64_t jobs = 0, given = 0, own_rest, ahead = 0;
    unsigned share;

    for (size_t i = 0; i < n; i++)
        jobs += all[i].jobs;
    if (jobs == 0 || self->jobs == 0)
        return cpus;
    for (size_t i = 0; i < n; i++)
        given += all[i].jobs * (uint64_t)cpus / jobs;
    share = (unsigned)(self->jobs * (uint64_t)cpus / jobs);
    own_rest = self->jobs * (uint64_t)cpus % jobs;
    for (size_t i = 0; i < n; i++) {
        uint64_t rest = all[i].jobs * (uint64_t)cpus % jobs;

        ahead += rest > own_rest || (rest == own_rest && before(&all[i], self));
    }
    if (own_rest > 0 && ahead < cpus - given)
        share++;
    return share ? share : 1;
}

void machine_share_usable(const struct share_claim *others, size_t n,
                          const struct share_claim *self, const struct cpuset *machine,
                          struct cpuset *ret)
{
    *ret = *machine;
    for (size_t i = 0; i < n; i++)
        for (unsigned w = 0; w < CPUSET_WORDS; w++) {
            uint64_t taken = others[i].cores.word[w];

            if (before(self, &others[i]))
                taken &= ~self->cores.word[w];
            ret->word[w] &= ~taken;
        }
    if (cpuset_count(ret) == 0)
        *ret = *machine;
}

/* ---- reading ---- */

static int read_claim(const struct machine_share *c, const char *name, struct share_claim *ret)
{
    _cleanup_fd_ int fd = openat(c->dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    char text[CLAIM_TEXT_MAX];
    struct proc_stat stat;
    struct share_claim claim;
    struct stat st;
    ssize_t len;
    bool dead;
    int r;

    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EINVAL;
    len = read(fd, text, sizeof(text) - 1);
    if (len < 0)
        return -errno;
    text[len] = '\0';
    r = machine_share_parse(text, &claim);
    if (r < 0)
        return r;
    if (claim.uid != st.st_uid)
        return -EPERM;
    r = proc_read_stat(c->daemon->root, claim.pid, &stat);
    /* A container's first process may never wait for it: the dead one then stays a zombie. */
    dead = r == -ESRCH || (r == 0 && (stat.start != claim.start || stat.state == 'Z'));
    if (dead) {
        if (claim.uid == c->daemon->uid)
            unlinkat(c->dir_fd, name, 0); /* left by one of ours that was killed */
        return -ESRCH;
    }
    *ret = claim;
    return 0;
}

static bool too_many_of(const struct machine_share *c, uid_t uid)
{
    unsigned n = 0;

    for (size_t i = 0; i < c->n; i++)
        n += c->other[i].uid == uid;
    return n >= MACHINE_SHARE_UID_MAX;
}

bool machine_share_refresh(struct machine_share *c)
{
    struct share_claim old[MACHINE_SHARE_MAX];
    size_t n_old;
    DIR *dir;
    int fd;

    if (!c)
        return false;
    n_old = c->n;
    memcpy(old, c->other, n_old * sizeof(old[0]));
    c->n = 0;
    fd = openat(c->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        close_fd(fd);
        return n_old > 0;
    }
    memset(c->other, 0, sizeof(c->other)); /* compared as bytes below */
    for (const struct dirent *e; c->n < MACHINE_SHARE_MAX && (e = readdir(dir));) {
        struct share_claim claim;

        memset(&claim, 0, sizeof(claim));
        if (e->d_name[0] == '.' || strcmp(e->d_name, c->name) == 0 ||
            read_claim(c, e->d_name, &claim) < 0 || claim.jobs == 0 || too_many_of(c, claim.uid))
            continue;
        c->other[c->n++] = claim;
    }
    closedir(dir);
    return n_old != c->n || memcmp(old, c->other, n_old * sizeof(old[0])) != 0;
}

unsigned machine_share_share(struct machine_share *c, uint32_t jobs, const struct cpuset *machine,
                             struct cpuset *ret_usable)
{
    struct share_claim all[MACHINE_SHARE_MAX + 1];
    unsigned cpus = cpuset_count(machine);

    *ret_usable = *machine;
    if (!c || c->n == 0)
        return cpus;
    c->own.jobs = jobs;
    memcpy(all, c->other, c->n * sizeof(all[0]));
    all[c->n] = c->own;
    machine_share_usable(c->other, c->n, &c->own, machine, ret_usable);
    return machine_share_divide(all, c->n + 1, &c->own, cpus);
}

bool machine_share_shared(const struct machine_share *c)
{
    return c && c->n > 0;
}

/* ---- writing ---- */

static int write_claim(struct machine_share *c)
{
    char temp[CLAIM_NAME_MAX + 4];
    _cleanup_fd_ int fd = -1;
    size_t len = strlen(c->text);

    snprintf(temp, sizeof(temp), ".%s", c->name);
    unlinkat(c->dir_fd, temp, 0);
    fd = openat(c->dir_fd, temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0)
        return -errno;
    if (fchmod(fd, 0644) < 0) /* others must read it whatever our umask */
        return -errno;
    if (write(fd, c->text, len) != (ssize_t)len ||
        renameat(c->dir_fd, temp, c->dir_fd, c->name) < 0) {
        int r = errno ? -errno : -ENOSPC;

        unlinkat(c->dir_fd, temp, 0);
        return r;
    }
    return 0;
}

void machine_share_publish(struct machine_share *c, uint32_t jobs, const struct cpuset *cores)
{
    char list[CPUSET_TEXT_MAX], text[CLAIM_TEXT_MAX];
    int r;

    if (!c)
        return;
    c->own.jobs = jobs;
    c->own.cores = *cores;
    if (jobs == 0) {
        if (c->written)
            unlinkat(c->dir_fd, c->name, 0);
        c->written = false;
        return;
    }
    cpuset_format(cores, list, sizeof(list));
    snprintf(text, sizeof(text), "1 %u %d %" PRIu64 " %u %s\n", (unsigned)c->own.uid,
             (int)c->own.pid, c->own.start, jobs, list);
    if (c->written && strcmp(text, c->text) == 0)
        return;
    memcpy(c->text, text, sizeof(text));
    r = write_claim(c);
    c->written = r == 0;
    if (r < 0 && !c->complained)
        daemon_log("cannot write a claim to the machine's cores: %s", strerror(-r));
    c->complained = r < 0;
}

/* ---- life ---- */

static int on_watch(sd_event_source *s, const struct inotify_event *event, void *arg)
{
    struct machine_share *c = arg;

    if (event->len && (event->name[0] == '.' || strcmp(event->name, c->name) == 0))
        return 0;
    if (machine_share_refresh(c))
        daemon_changed(c->daemon);
    return 0;
}

/* The first daemon of the machine makes it, for all users, as /tmp is made. */
static int open_directory(const char *path)
{
    _cleanup_fd_ int fd = -1;
    struct stat st;
    int made = mkdir(path, 0700) == 0;

    if (!made && errno != EEXIST)
        return -errno;
    fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (made && fchmod(fd, 01777) < 0)
        return -errno;
    if (fstat(fd, &st) < 0)
        return -errno;
    /* Others may write into it: the sticky bit keeps them from replacing our file. */
    if ((st.st_mode & (S_IWGRP | S_IWOTH)) && !(st.st_mode & S_ISVTX))
        return -EPERM;
    return TAKE_FD(fd);
}

int machine_share_new(struct daemon *d, struct machine_share **ret, struct error *err)
{
    const char *path = getenv("TIDE_CLAIMS_DIR");
    struct proc_stat stat;
    struct machine_share *c;
    int r = proc_read_stat(d->root, getpid(), &stat);

    path = path && *path ? path : MACHINE_SHARE_DIR;
    if (r < 0)
        return error_set(err, r, "cannot read /proc: %s", strerror(-r));
    c = calloc(1, sizeof(*c));
    if (!c)
        return error_set(err, -ENOMEM, "out of memory");
    c->daemon = d;
    c->own = (struct share_claim){.uid = d->uid, .pid = getpid(), .start = stat.start};
    snprintf(c->name, sizeof(c->name), "%u-%d", (unsigned)d->uid, (int)getpid());
    c->dir_fd = r = open_directory(path);
    if (r >= 0)
        r = sd_event_add_inotify(d->event, &c->watch, path, IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE,
                                 on_watch, c);
    if (r < 0) {
        machine_share_free(c);
        return error_set(err, r, "other users' daemons are not seen: %s: %s", path, strerror(-r));
    }
    machine_share_refresh(c);
    *ret = c;
    return 0;
}

struct machine_share *machine_share_free(struct machine_share *c)
{
    if (!c)
        return NULL;
    if (c->written)
        unlinkat(c->dir_fd, c->name, 0);
    sd_event_source_disable_unref(c->watch);
    close_fd(c->dir_fd);
    free(c);
    return NULL;
}

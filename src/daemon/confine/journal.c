/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/confine/journal.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/failpoint.h"
#include "base/fnv.h"
#include "daemon/daemon.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define ERROR_WORD "state-unusable"

#define MAGIC        0x7065656b65646974ull /* "tidekeep" */
#define VERSION      1
#define SLOT_BYTES   512 /* no record crosses a page or sector: written whole or not at all */
#define ASIDE        32  /* updates outstanding at a time in journal_restore */
#define FAILURES_MAX 3   /* after so many errors in a row an engine is given up */
#define OVERTAKEN_MS 300 /* a dead daemon's last call may be carried out so much later */

/* A record in the file, little-endian; an empty slot is all zeros. */
struct record {
    uint64_t sum; /* checksum of all that follows */
    struct cpuset cpus;
    struct engine_quota quota;
    uint32_t shares;
    uint32_t paused;
    char path[108];
    char id[68];
};

struct header {
    uint64_t magic;
    uint32_t version, slots;
};

static_assert(sizeof(struct record) <= SLOT_BYTES, "a record fits into its slot");

enum state { FREE, KEPT, LEFT, ASKED };

struct entry {
    atomic_uint state; /* set last, so that no one acts on a half-written entry */
    atomic_bool called;
    bool unsynced; /* written, but perhaps not on disk */
    unsigned failures;
    struct record record;
};

struct journal {
    unsigned top; /* number of entries ever used */
    int fd;       /* this process's own; -1: none */
    bool on_disk;
    bool failed;    /* logged already */
    bool inherited; /* the file had entries of an earlier daemon */
    char path[PATH_MAX];
    struct entry entry[JOURNAL_CONTAINERS_MAX];
};

/* ---- the file ---- */

/* Detects torn and flipped bits, no malice: a writer of the file may do anything else, too. */
static uint64_t sum_of(const struct record *r)
{
    return fnv_bytes(FNV_START, (const char *)r + sizeof(r->sum), sizeof(*r) - sizeof(r->sum));
}

static bool valid(const struct record *r)
{
    return r->sum == sum_of(r) && r->path[0] == '/' && memchr(r->path, '\0', sizeof(r->path)) &&
           r->id[0] && memchr(r->id, '\0', sizeof(r->id)) && cpuset_count(&r->cpus) > 0;
}

static void complain(struct journal *k, int code)
{
    if (!k->failed)
        daemon_err(
            "cannot use %s: %s; after a power failure containers keep the limits that tided set",
            k->path, strerror(code));
    k->failed = true;
}

static off_t place_of(const struct journal *k, const struct entry *e)
{
    return (off_t)SLOT_BYTES * (1 + (e - k->entry));
}

static void write_record(struct journal *k, const struct entry *e)
{
    static const struct record none;
    const struct record *r = atomic_load(&e->state) == FREE ? &none : &e->record;

    if (k->fd >= 0 && pwrite(k->fd, r, sizeof(*r), place_of(k, e)) != (ssize_t)sizeof(*r))
        complain(k, errno);
}

static int open_file(const char *path)
{
    _cleanup_fd_ int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 0022))
        return -EPERM;
    return TAKE_FD(fd);
}

/* Damaged records are ignored: those containers keep their present limits. */
static void read_records(struct journal *k)
{
    unsigned left = 0, bad = 0;
    struct record none = {0};

    for (unsigned i = 0; i < JOURNAL_CONTAINERS_MAX; i++) {
        struct entry *e = &k->entry[i];
        struct record r;
        ssize_t len = pread(k->fd, &r, sizeof(r), place_of(k, e));

        if (len == 0)
            break;
        if (len == (ssize_t)sizeof(r) && memcmp(&r, &none, sizeof(r)) == 0)
            continue;
        if (len != (ssize_t)sizeof(r) || !valid(&r)) {
            bad++;
            write_record(k, e);
            continue;
        }
        e->record = r;
        atomic_store(&e->state, LEFT);
        k->top = i + 1;
        left++;
    }
    if (bad)
        daemon_err("%s: ignored %u damaged entries", k->path, bad);
    k->inherited = left > 0;
    if (left)
        daemon_log(
            "%s: %u containers still have the limits of an earlier tided: restoring their own",
            k->path, left);
}

/* Allocates all blocks before the first record: a full disk fails here or never. */
static int prepare_file(struct journal *k)
{
    struct header header = {0}, ours = {MAGIC, VERSION, JOURNAL_CONTAINERS_MAX};
    ssize_t len = pread(k->fd, &header, sizeof(header), 0);
    int r;

    if (len == (ssize_t)sizeof(header) && memcmp(&header, &ours, sizeof(ours)) == 0) {
        read_records(k);
    } else {
        if (len != 0)
            daemon_err("%s is damaged or of another tided version: ignored", k->path);
        if (ftruncate(k->fd, 0) < 0)
            return -errno;
    }
    r = posix_fallocate(k->fd, 0, (off_t)SLOT_BYTES * (1 + JOURNAL_CONTAINERS_MAX));
    if (r > 0)
        return -r;
    if (pwrite(k->fd, &ours, sizeof(ours), 0) != (ssize_t)sizeof(ours) || fsync(k->fd) < 0)
        return -errno;
    return 0;
}

/* A new file survives a power failure only if its directory is synced. */
static int sync_directory(const char *dir)
{
    _cleanup_fd_ int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    return fd < 0 || fsync(fd) < 0 ? -errno : 0;
}

static void use_file(struct journal *k, const char *dir)
{
    int r;

    if (snprintf(k->path, sizeof(k->path), "%s/" JOURNAL_FILE, dir) >= (int)sizeof(k->path))
        r = -ENAMETOOLONG;
    else
        k->fd = r = open_file(k->path);
    if (r >= 0 && flock(k->fd, LOCK_EX | LOCK_NB) < 0)
        r = -errno; /* another daemon has the lock */
    if (r >= 0)
        r = prepare_file(k);
    if (r >= 0)
        r = sync_directory(dir);
    k->on_disk = r >= 0;
    if (k->on_disk)
        return;
    complain(k, -r);
    k->fd = close_fd(k->fd);
}

/* ---- the table ---- */

int journal_new(const char *dir, struct journal **ret)
{
    struct journal *k =
        mmap(NULL, sizeof(*k), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (k == MAP_FAILED)
        return -errno;
    k->fd = -1;
    if (dir)
        use_file(k, dir);
    *ret = k;
    return 0;
}

struct journal *journal_free(struct journal *k)
{
    if (!k)
        return NULL;
    close_fd(k->fd);
    munmap(k, sizeof(*k));
    return NULL;
}

static struct entry *find(struct journal *k, const char *id)
{
    for (unsigned i = 0; i < k->top; i++)
        if (atomic_load(&k->entry[i].state) != FREE && strcmp(k->entry[i].record.id, id) == 0)
            return &k->entry[i];
    return NULL;
}

static void set_own(struct record *r, const struct engine_update *own)
{
    r->cpus = *own->cpus;
    r->quota = *own->quota;
    r->shares = own->shares;
    r->sum = sum_of(r);
}

int journal_note(struct journal *k, const char *socket_path, const char *id,
                 const struct engine_update *own)
{
    unsigned i = 0;
    struct entry *e = find(k, id);

    if (e) { /* an entry left by an earlier daemon goes on, too */
        atomic_store(&e->state, KEPT);
        return e->unsynced;
    }
    while (i < JOURNAL_CONTAINERS_MAX && atomic_load(&k->entry[i].state) != FREE)
        i++;
    if (i == JOURNAL_CONTAINERS_MAX)
        return -ENOSPC;
    e = &k->entry[i];
    e->failures = 0;
    atomic_store(&e->called, false);
    memset(&e->record, 0, sizeof(e->record));
    snprintf(e->record.path, sizeof(e->record.path), "%s", socket_path);
    snprintf(e->record.id, sizeof(e->record.id), "%s", id);
    set_own(&e->record, own);
    if (k->top <= i)
        k->top = i + 1;
    atomic_store(&e->state, KEPT);
    write_record(k, e);
    e->unsynced = k->fd >= 0;
    return e->unsynced;
}

void journal_sync(struct journal *k)
{
    if (k->fd >= 0 && fdatasync(k->fd) < 0)
        complain(k, errno);
    for (unsigned i = 0; i < k->top; i++)
        k->entry[i].unsynced = false;
    failpoint(FAILPOINT_CONTAINER_NOTED);
}

void journal_correct(struct journal *k, const char *id, const struct engine_update *own)
{
    struct entry *e = find(k, id);

    if (!e)
        return;
    atomic_store(&e->state, FREE); /* while it is half-written */
    set_own(&e->record, own);
    atomic_store(&e->state, KEPT);
    write_record(k, e);
    e->unsynced = k->fd >= 0;
}

static void drop(struct journal *k, struct entry *e)
{
    atomic_store(&e->state, FREE);
    e->unsynced = false; /* a forgotten entry may reach the disk late */
    write_record(k, e);
}

void journal_forget(struct journal *k, const char *id)
{
    struct entry *e = find(k, id);

    if (e)
        drop(k, e);
}

void journal_pause(struct journal *k, const char *id, bool paused)
{
    struct entry *e = find(k, id);

    if (!e || e->record.paused == paused)
        return;
    e->record.paused = paused;
    e->record.sum = sum_of(&e->record);
    write_record(k, e); /* no pause survives a power failure */
}

void journal_call(struct journal *k, const char *id, bool under_way)
{
    struct entry *e = find(k, id);

    if (e)
        atomic_store(&e->called, under_way);
}

/* ---- putting back ---- */

static int64_t ask(struct entry *e, struct engine *engine, struct engine_then then)
{
    struct engine_update own = {
        .cpus = &e->record.cpus, .quota = &e->record.quota, .shares = e->record.shares};
    int64_t ticket = e->record.paused ? engine_unpause(engine, e->record.id, then)
                                      : engine_update(engine, e->record.id, &own, then);

    if (ticket > 0)
        atomic_store(&e->state, ASKED);
    return ticket;
}

int journal_put_back(struct journal *k, struct engine *engine, const char *id,
                     struct engine_then then)
{
    struct entry *e = find(k, id);
    unsigned state = e ? atomic_load(&e->state) : FREE;
    int64_t ticket;

    if (state != LEFT)
        return state == ASKED;
    ticket = ask(e, engine, then);
    return ticket < 0 ? (int)ticket : 1;
}

bool journal_left(struct journal *k, const char *id)
{
    struct entry *e = k->inherited ? find(k, id) : NULL;

    return e && atomic_load(&e->state) != KEPT;
}

bool journal_settle(struct journal *k, const struct engine_result *result)
{
    struct entry *e = find(k, result->target);
    bool lost =
        result->code == -ETIMEDOUT || result->code == -ECONNRESET || result->code == -ENOTCONN;

    if (!e || atomic_load(&e->state) != ASKED)
        return true;
    if (result->code == -EREMOTEIO) /* never given up: the pause would last for ever */
        lost = ++e->failures < FAILURES_MAX || result->verb == ENGINE_V_UNPAUSE;
    if (!lost && result->verb == ENGINE_V_UPDATE) {
        drop(k, e);
        return true;
    }
    if (!lost) { /* the container runs: now its limits */
        journal_pause(k, e->record.id, false);
        e->failures = 0;
    }
    atomic_store(&e->state, LEFT);
    return false;
}

void journal_sweep(struct journal *k, const char *socket_path, const struct engine_result *list)
{
    for (unsigned i = 0; i < k->top; i++) {
        struct entry *e = &k->entry[i];
        bool there = false;

        if (atomic_load(&e->state) != LEFT || strcmp(e->record.path, socket_path) != 0)
            continue;
        for (size_t c = 0; c < list->n_containers && !there; c++)
            there = strcmp(list->containers[c].id, e->record.id) == 0;
        if (!there)
            drop(k, e);
    }
}

/* ---- in the guardian ---- */

struct restoring {
    struct journal *journal;
    const char *path; /* of the engine at work */
    struct engine *engine;
    unsigned next, pending, again;
    bool ready;
};

static void on_done(void *arg, const struct engine_result *result);

/* A few at a time: each costs an engine some 20 ms of processor time. */
static void ask_more(struct restoring *r)
{
    struct journal *k = r->journal;

    for (; r->ready && r->pending < ASIDE && r->next < k->top; r->next++) {
        struct entry *e = &k->entry[r->next];
        struct engine_then then = {.done = on_done, .arg = r};

        if (atomic_load(&e->state) == LEFT && strcmp(e->record.path, r->path) == 0)
            r->pending += ask(e, r->engine, then) > 0;
    }
}

static void on_done(void *arg, const struct engine_result *result)
{
    struct restoring *r = arg;
    struct entry *e = find(r->journal, result->target);

    r->pending--;
    if (!journal_settle(r->journal, result) && result->verb == ENGINE_V_UNPAUSE &&
        e->failures < FAILURES_MAX)
        r->pending += ask(e, r->engine, (struct engine_then){.done = on_done, .arg = r}) > 0;
    ask_more(r);
}

static void on_news(void *arg, const struct engine_news *news)
{
    struct restoring *r = arg;

    r->ready |= news->kind == ENGINE_RESYNC;
    ask_more(r);
}

static void restore_engine(struct journal *k, const char *path, uint64_t until_ns)
{
    struct restoring r = {.journal = k, .path = path};

    if (engine_new(path, on_news, &r, &r.engine, NULL) < 0)
        return;
    while ((!r.ready || r.pending) && clock_now_ns() < until_ns) {
        struct pollfd ready = {.fd = engine_fd(r.engine), .events = POLLIN};

        if (poll(&ready, 1, 100) > 0)
            engine_dispatch(r.engine);
    }
    engine_free(r.engine);
}

/* Waits for each engine once. */
static void restore_all(struct journal *k, uint64_t until_ns)
{
    bool done[JOURNAL_CONTAINERS_MAX] = {false};

    for (unsigned i = 0; i < k->top; i++) {
        char path[sizeof(k->entry[i].record.path)];

        if (done[i] || atomic_load(&k->entry[i].state) != LEFT)
            continue;
        memcpy(path, k->entry[i].record.path, sizeof(path));
        for (unsigned o = i; o < k->top; o++)
            done[o] |= strcmp(k->entry[o].record.path, path) == 0;
        restore_engine(k, path, until_ns);
    }
}

/*
 * An engine may carry out calls out of order: one that the daemon had outstanding when it died can
 * undo a restored limit. Such a container is restored a second time.
 */
unsigned journal_restore(struct journal *k)
{
    uint64_t until_ns = clock_now_ns() + JOURNAL_RESTORE_MS * NS_PER_MS;
    bool called[JOURNAL_CONTAINERS_MAX] = {false}, paused[JOURNAL_CONTAINERS_MAX], any = false;
    unsigned left = 0;

    k->fd = k->on_disk ? open_file(k->path) : -1; /* the daemon's descriptor was closed */
    for (unsigned i = 0; i < k->top; i++) {
        struct entry *e = &k->entry[i];

        if (atomic_load(&e->state) == FREE)
            continue;
        atomic_store(&e->state, LEFT); /* including updates without an answer in time */
        any |= called[i] = atomic_exchange(&e->called, false);
        paused[i] = e->record.paused;
    }
    restore_all(k, until_ns);
    if (any)
        usleep(OVERTAKEN_MS * 1000);
    for (unsigned i = 0; i < k->top; i++) {
        if (!called[i])
            continue;
        k->entry[i].record.paused = paused[i];
        atomic_store(&k->entry[i].state, LEFT);
    }
    if (any)
        restore_all(k, until_ns);
    for (unsigned i = 0; i < k->top; i++)
        left += atomic_load(&k->entry[i].state) != FREE;
    k->fd = close_fd(k->fd);
    return left;
}

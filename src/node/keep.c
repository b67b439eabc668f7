/* SPDX-License-Identifier: Apache-2.0 */
#include "node/keep.h"

#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

struct entry {
    atomic_uint used; /* set last, so that a torn entry is never acted upon */
    atomic_bool paused;
    uint32_t shares;
    struct cpuset cpus;
    struct engine_quota quota;
    char path[108];
    char id[65];
};

struct keep {
    unsigned top; /* entries ever used */
    struct entry entry[KEEP_CONTAINERS_MAX];
};

int keep_new(struct keep **ret)
{
    struct keep *k =
        mmap(NULL, sizeof(*k), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (k == MAP_FAILED)
        return -errno;
    *ret = k;
    return 0;
}

struct keep *keep_free(struct keep *k)
{
    if (k)
        munmap(k, sizeof(*k));
    return NULL;
}

static struct entry *find(struct keep *k, const char *id)
{
    for (unsigned i = 0; i < k->top; i++)
        if (atomic_load(&k->entry[i].used) && strcmp(k->entry[i].id, id) == 0)
            return &k->entry[i];
    return NULL;
}

int keep_note(struct keep *k, const char *socket_path, const char *id,
              const struct engine_update *own)
{
    unsigned i = 0;
    struct entry *e = &k->entry[0];

    if (find(k, id))
        return 0;
    while (i < KEEP_CONTAINERS_MAX && atomic_load(&k->entry[i].used))
        i++;
    if (i == KEEP_CONTAINERS_MAX)
        return -ENOSPC;
    e = &k->entry[i];
    snprintf(e->path, sizeof(e->path), "%s", socket_path);
    snprintf(e->id, sizeof(e->id), "%s", id);
    e->cpus = *own->cpus;
    e->quota = *own->quota;
    e->shares = own->shares;
    atomic_store(&e->paused, false);
    atomic_store(&e->used, 1);
    if (k->top <= i)
        k->top = i + 1;
    return 0;
}

void keep_forget(struct keep *k, const char *id)
{
    struct entry *e = find(k, id);

    if (e)
        atomic_store(&e->used, 0);
}

void keep_pause(struct keep *k, const char *id, bool paused)
{
    struct entry *e = find(k, id);

    if (e)
        atomic_store(&e->paused, paused);
}

/* ---- in the guardian ---- */

struct restoring {
    struct keep *keep;
    const char *path; /* of the engine at work */
    struct engine *engine;
    unsigned pending;
    bool asked;
};

static void on_done(void *arg, const struct engine_result *result)
{
    struct restoring *r = arg;

    r->pending--;
}

static void count(struct restoring *r, int64_t ticket)
{
    r->pending += ticket > 0;
}

/* All at once: the engine takes some 40 ms for each, side by side. */
static void on_news(void *arg, const struct engine_news *news)
{
    struct restoring *r = arg;

    if (news->kind != ENGINE_RESYNC || r->asked)
        return;
    r->asked = true;
    for (unsigned i = 0; i < r->keep->top; i++) {
        struct entry *e = &r->keep->entry[i];
        struct engine_update own = {.cpus = &e->cpus, .quota = &e->quota, .shares = e->shares};
        struct engine_then then = {.done = on_done, .arg = r};

        if (!atomic_load(&e->used) || strcmp(e->path, r->path) != 0)
            continue;
        atomic_store(&e->used, 0);
        if (atomic_load(&e->paused))
            count(r, engine_unpause(r->engine, e->id, then));
        count(r, engine_update(r->engine, e->id, &own, then));
    }
}

static void restore_engine(struct keep *k, const char *path, uint64_t until_ns)
{
    struct restoring r = {.keep = k, .path = path};

    if (engine_new(path, on_news, &r, &r.engine, NULL) < 0)
        return;
    while ((!r.asked || r.pending) && clock_now_ns() < until_ns) {
        struct pollfd ready = {.fd = engine_fd(r.engine), .events = POLLIN};

        if (poll(&ready, 1, 100) > 0)
            engine_dispatch(r.engine);
    }
    engine_free(r.engine);
}

void keep_restore(struct keep *k)
{
    uint64_t until_ns = clock_now_ns() + KEEP_RESTORE_MS * NS_PER_MS;

    for (unsigned i = 0; i < k->top; i++) {
        struct entry *e = &k->entry[i];
        char path[sizeof(e->path)];

        if (!atomic_load(&e->used))
            continue;
        memcpy(path, e->path, sizeof(path));
        restore_engine(k, path, until_ns);
        atomic_store(&e->used, 0); /* also of an engine that never answered: once is enough */
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backend for OpenMP: libgomp (gcc), libomp (clang) and libiomp5 (Intel), in any number of copies.
 * This part notices that a runtime is loaded, keeps the target and describes the copies;
 * docs/design/52-openmp.md says when the number of threads may change.
 */
#include "agent/runtimes/openmp/openmp.h"
#include "agent/agent.h"
#include "agent/compat.h"
#include "agent/process/limit.h"
#include "agent/process/objects.h"
#include "agent/process/room.h"
#include "agent/processor.h"

#include "base/clock.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PENDING_TICKS 8 /* most ticks between two looks at slots that are not filled in */
#define AGAIN_NS      1000000000ull /* limits that leave no room are read again after that */

struct openmp_state openmp;

/* Control thread. */
static struct {
    uint32_t threads; /* that regions get at most; 0: not known yet */
    bool is_short;    /* fewer than the target, because of limits */
    uint64_t again_ns;
} room;

/* ---- a runtime is loaded ---- */

/* A thread of the program, perhaps with the loader's lock: the rest is the control thread's. */
static void begin(void)
{
    static _Atomic bool begun;
    const char *tools = getenv("OMP_TOOL_LIBRARIES");
    int saved = errno;

    if (!number_threads_are_bound() && !atomic_exchange(&begun, true)) {
        openmp.most = number_of_environment(&openmp.wish.sized);
        openmp.wish.chosen = openmp.most ? openmp.most : limit_affinity_cpus();
        openmp.tools = tools && *tools;
        objects_watch_forks();
        if (agent_start())
            atomic_store(&openmp.present, true);
    }
    errno = saved;
}

static int is_runtime_here(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    (void)arg;
    return info->dlpi_name && openmp_is_runtime(info->dlpi_name);
}

/* It was begun by a thread of the program, in the middle of a load. */
static void omp_loaded(const struct object *o)
{
    if (agent_config.openmp && !atomic_load(&openmp.present) && openmp_is_runtime(o->path))
        begin();
}

/* Libraries of the program may be initialized before the agent. */
__attribute__((constructor)) static void begin_if_linked(void)
{
    if (agent_config.enabled && agent_config.openmp && !atomic_load(&openmp.present) &&
        dl_iterate_phdr(is_runtime_here, NULL) == 1)
        begin();
}

/* ---- targets ---- */

static uint32_t wanted(void)
{
    struct number_wish wish = openmp.wish;

    wish.target = atomic_load(&openmp.target);
    wish.limit = atomic_load(&openmp.limit);
    return thread_number(wish.sized ? openmp.most : wish.chosen, &wish);
}

static unsigned free_copies(void)
{
    unsigned n = 0;

    for (unsigned i = 0; i < COPIES_MAX; i++)
        n += openmp.copies[i].start && atomic_load(&openmp.copies[i].may) != OPENMP_NEVER;
    return n > 0 ? n : 1;
}

/*
 * How many threads may regions have? libgomp ends a program for which it cannot make a thread, and
 * ends threads that a region does not need. So what they may have falls with the target, and rises
 * with it as far as limits leave room. A thread of the program that is new here may make a team of
 * the runtime's number, as without us, and a larger one when there was room for that, too.
 * Returns true when something has changed.
 */
static bool make_room(uint64_t now_ns)
{
    uint32_t want = wanted(), had = room.threads, chosen = openmp.wish.chosen;
    uint64_t known = hooks_threads(true), fresh = hooks_threads(false), left = UINT64_MAX, each,
             may;

    want = want > 0 ? want : 1;
    known = known > 0 ? known : 1;
    if (want > had || (fresh > 0 && want > chosen))
        left = room_for_threads("/", room_openmp_stack_bytes()) / free_copies();
    room.threads = want;
    if (want > had && (want - had) * known > left)
        room.threads = had + (uint32_t)(left / known);
    if (room.threads > had)
        left -= (room.threads - had) * known;
    each = room.threads > chosen ? room.threads - chosen : 0;
    may = each * fresh > left ? left / each : fresh;
    hooks_know((unsigned)may);
    room.is_short = room.threads < want || may < fresh;
    room.again_ns = room.is_short ? now_ns + AGAIN_NS : 0;
    atomic_store(&openmp.give, room.threads < want ? room.threads : atomic_load(&openmp.target));
    return room.threads != had || may > 0;
}

/* Threads take the number before their next region, from now on. */
static void begin_generation(void)
{
    uint32_t generation = atomic_load(&openmp.generation);

    atomic_store(&openmp.generation, generation < OPENMP_FORKED - 1 ? generation + 1 : 1);
    if (!atomic_load(&openmp.fences))
        syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
}

static bool has_generation(void)
{
    uint32_t generation = atomic_load(&openmp.generation);

    return generation != 0 && generation != OPENMP_FORKED;
}

static bool omp_settled(void)
{
    bool settled = hooks_settled();

    if (settled)
        atomic_store(&openmp.watched, false);
    return settled;
}

/* The control thread's first look. */
static bool prepare(void)
{
    static bool prepared;

    if (prepared)
        return true;
    atomic_store(&openmp.fences,
                 syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) != 0);
    openmp.wish.machine = agent_config.max;
    room.threads = openmp.wish.chosen;
    if (!openmp.wish.sized)
        openmp.most = agent_config.max > openmp.wish.chosen ? agent_config.max : openmp.wish.chosen;
    /* place_stub() rests on one of these */
    prepared = hooks_prepare() && (PROCESSOR_ORDERS_WRITES || !atomic_load(&openmp.fences));
    return prepared;
}

static bool omp_apply(const struct agent_target *target)
{
    atomic_store(&openmp.target, target->intra);
    atomic_store(&openmp.limit, limit_threads(target->allowed_mcpu));
    if (!atomic_load(&openmp.present) || !prepare())
        return true;
    objects_look();
    make_room(clock_now_ns());
    atomic_store(&openmp.watched, true); /* until it is settled */
    begin_generation();
    return omp_settled();
}

static void omp_measure(struct proto_ack *ack)
{
    agent_measure(ack, atomic_load(&openmp.placed_ns));
}

/*
 * New copies and new objects are looked at within a tick; slots that ld.so has not filled in yet
 * ever more rarely, since they may be of functions that are never called.
 */
static void omp_watch(uint64_t now_ns)
{
    static unsigned ticks, wait = 1;

    if (!atomic_load(&openmp.present) || !prepare())
        return;
    omp_settled();
    if (has_generation() && (room.is_short || hooks_threads(false) > 0) &&
        now_ns >= room.again_ns && make_room(now_ns))
        begin_generation();
    if (atomic_load(&openmp.loads) != objects_loaded() || !has_generation())
        wait = 1;
    else if (!objects_pending() || ++ticks < wait)
        return;
    else if (wait < PENDING_TICKS)
        wait *= 2;
    ticks = 0;
    objects_look();
    if (!has_generation())
        begin_generation();
}

/* A copy whose regions follow, or one that cannot; NULL: nothing is known yet. */
static const struct copy *to_show(bool *ret_malleable)
{
    const struct copy *shown = NULL;

    *ret_malleable = false;
    for (unsigned i = 0; i < COPIES_MAX; i++) {
        const struct copy *copy = &openmp.copies[i];
        int may = atomic_load(&copy->may);
        bool follows = may == OPENMP_FREE && atomic_load(&copy->begun);

        if (!copy->start || (may != OPENMP_NEVER && !follows))
            continue;
        *ret_malleable |= follows;
        if (!shown || may == OPENMP_NEVER)
            shown = copy;
    }
    return shown;
}

static bool omp_describe(struct proto_backend *b)
{
    bool malleable;
    const struct copy *shown = to_show(&malleable);

    if (!shown)
        return false;
    b->malleable = malleable;
    b->max_intra = malleable ? openmp.most : openmp.wish.chosen;
    b->target_intra = wanted();
    b->active_intra = !malleable || !hooks_settled() ? hooks_active()
                      : room.threads < wanted()      ? room.threads
                                                     : wanted();
    snprintf(b->name, sizeof(b->name), "openmp");
    snprintf(b->version, sizeof(b->version), "%s", shown->name);
    snprintf(b->note, sizeof(b->note), "%s",
             malleable && !shown->note[0] && room.is_short ? ROOM_SHORT_NOTE : shown->note);
    return true;
}

static uint64_t omp_tasks(void)
{
    return hooks_regions();
}

static void omp_after_fork(void)
{
    atomic_store(&openmp.watched, false);
    atomic_store(&openmp.generation, OPENMP_FORKED);
    hooks_after_fork();
}

const struct agent_backend openmp_backend = {
    .name = "openmp",
    .needs_safe_point = true,
    .apply = omp_apply,
    .settled = omp_settled,
    .measure = omp_measure,
    .describe = omp_describe,
    .watch = omp_watch,
    .loaded = omp_loaded,
    .tasks = omp_tasks,
    .after_fork = omp_after_fork,
};

/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/process/safe_number.h"

#include "agent/process/limit.h"
#include "agent/process/python.h"
#include "agent/process/room.h"

#include "base/clock.h"

#include <errno.h>
#include <stdio.h>

#define TEAMS 2 /* PyTorch's thread of backward passes has threads of its own, as many */

/* The largest number that a target can give it. */
static uint32_t most(const struct safe_number *n)
{
    uint32_t sized = atomic_load(&n->sized), own = atomic_load(&n->own);
    uint32_t limit = sized ? sized : agent_config.max;

    return limit > own ? limit : own;
}

/* The number that it is to have where limits leave room for any. */
static uint32_t wished(const struct safe_number *n)
{
    uint32_t target = atomic_load(&n->target), own = atomic_load(&n->own), can = most(n);

    if (target == 0) { /* the program's own, or the limit where it has not chosen a number */
        target = atomic_load(&n->sized) ? 0 : atomic_load(&n->allowed);
        return target && target < own ? target : own;
    }
    return target < can ? target : can;
}

uint32_t safe_number_wanted(const struct safe_number *n)
{
    uint32_t want = wished(n), room = atomic_load(&n->room);

    if (atomic_load(&n->may) != NUMBER_FREE)
        return atomic_load(&n->own);
    return room && room < want ? room : want;
}

/* Whether limits keep it below what it is to have. */
static bool is_short(const struct safe_number *n)
{
    uint32_t room = atomic_load(&n->room);

    return atomic_load(&n->may) == NUMBER_FREE && room && room < wished(n);
}

/*
 * The runtime's OpenMP ends a program for which it cannot make a thread, and ends threads that it
 * does not need, which others may have used since. So the number rises as far as limits leave room.
 */
static void make_room(struct safe_number *n)
{
    uint32_t want = wished(n), had = atomic_load(&n->ours), room = want;
    uint64_t left;

    had = had > 0 ? had : 1;
    if (want > had) {
        left = room_for_threads("/", room_openmp_stack_bytes()) / TEAMS;
        if (want - had > left)
            room = had + (uint32_t)left;
    }
    if (atomic_exchange(&n->room, room) != room)
        atomic_fetch_add(&n->wanted, 1);
}

bool safe_number_lacks_gil(struct safe_number *n)
{
    if (!python_is_here() || python_has_gil())
        return false;
    safe_number_fix(n, "moldable: Python without a GIL");
    return true;
}

void safe_number_free(struct safe_number *n)
{
    int unseen = NUMBER_UNSEEN;

    if (atomic_compare_exchange_strong(&n->may, &unseen, NUMBER_FREE))
        atomic_fetch_add(&n->wanted, 1);
}

void safe_number_fix(struct safe_number *n, const char *note)
{
    int may = atomic_load(&n->may);

    do {
        if (may == NUMBER_JUDGING || may == NUMBER_FIXED)
            return;
    } while (!atomic_compare_exchange_weak(&n->may, &may, NUMBER_JUDGING));
    snprintf(n->note, sizeof(n->note), "%s", note);
    atomic_store(&n->may, NUMBER_FIXED);
    atomic_fetch_add(&n->wanted, 1);
    if (!atomic_load(&n->forked))
        agent_notify();
}

/* ---- who shares the runtime ---- */

void safe_number_meet(struct safe_number *n, const struct object *o)
{
    char note[PROTO_NOTE_MAX];

    if (!n->shares(o))
        return;
    snprintf(note, sizeof(note), "moldable: %.40s uses %s OpenMP, too", object_file(o), n->whose);
    safe_number_fix(n, note);
}

struct look {
    struct safe_number *number;
    uint64_t loads;
};

static int look_at(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct look *look = arg;
    struct object o;

    (void)size;
    look->loads = info->dlpi_adds;
    object_read(&o, info);
    safe_number_meet(look->number, &o);
    return 0;
}

void safe_number_look(struct safe_number *n)
{
    struct look look = {.number = n};
    uint64_t loads;

    if (atomic_load(&n->may) != NUMBER_FREE)
        return;
    loads = objects_loaded();
    if (loads == UINT64_MAX || atomic_load(&n->loads) == loads) /* the first: the program forks */
        return;
    each_object(look_at, &look);
    atomic_store(&n->loads, look.loads);
    python_answer_ctypes();
}

bool safe_number_all_seen(const struct safe_number *n)
{
    return atomic_load(&n->loads) == objects_loaded();
}

/* ---- ctypes ---- */

uint32_t safe_number_told(const struct safe_number *n, uint32_t held)
{
    return held == atomic_load(&n->ours) && !atomic_load(&n->limit) ? atomic_load(&n->own) : held;
}

uint32_t safe_number_given(struct safe_number *n, uint32_t number)
{
    uint32_t own = atomic_load(&n->own);
    bool puts_back = number == own;

    if (own == 0)
        return number;
    atomic_store(&n->limit, puts_back ? 0 : number);
    if (puts_back && (atomic_load(&n->forked) || atomic_load(&n->may) != NUMBER_FREE))
        atomic_store(&n->ours, own);
    return puts_back ? atomic_load(&n->ours) : number;
}

/* ---- the safe point ---- */

static int at_safe_point(void *arg)
{
    struct safe_number *n = arg;
    uint64_t wanted = atomic_load(&n->wanted);
    int saved = errno;

    atomic_store(&n->asked, false);
    if (n->at_safe_point()) {
        atomic_store(&n->placed_ns, clock_now_ns());
        atomic_store(&n->placed, wanted);
        agent_notify();
    }
    errno = saved;
    return 0;
}

static void ask(struct safe_number *n)
{
    if (!atomic_exchange(&n->asked, true) && !python_call_soon(at_safe_point, n))
        atomic_store(&n->asked, false);
}

/* ---- targets ---- */

bool safe_number_settled(struct safe_number *n)
{
    int may = atomic_load(&n->may);
    bool sleeps;

    if (may == NUMBER_UNSEEN || (may == NUMBER_FIXED && !atomic_load(&n->own)) ||
        atomic_load(&n->placed) == atomic_load(&n->wanted))
        return true;
    ask(n);
    sleeps = python_sleeps_long() && (!n->sleeper_is_safe || n->sleeper_is_safe());
    atomic_store(&n->sleeps, sleeps);
    return sleeps;
}

bool safe_number_apply(struct safe_number *n, const struct agent_target *target)
{
    atomic_store(&n->target, target->intra);
    atomic_store(&n->allowed, limit_threads(target->allowed_mcpu));
    atomic_store(&n->forked, false);
    make_room(n);
    safe_number_look(n);
    atomic_fetch_add(&n->wanted, 1);
    return safe_number_settled(n);
}

void safe_number_watch(struct safe_number *n)
{
    safe_number_look(n);
    if (is_short(n))
        make_room(n);
    safe_number_settled(n); /* asks again for a safe point */
    if (atomic_load(&n->theirs))
        ask(n); /* the library may have put the number back */
}

/* How many threads the main thread's next piece of work has. */
static uint32_t active(const struct safe_number *n)
{
    bool unplaced = atomic_load(&n->placed) != atomic_load(&n->wanted);

    if (atomic_load(&n->theirs))
        return atomic_load(&n->held);
    return unplaced && atomic_load(&n->sleeps) ? safe_number_wanted(n) : atomic_load(&n->ours);
}

bool safe_number_describe(const struct safe_number *n, struct proto_backend *b)
{
    uint32_t own = atomic_load(&n->own), shown;
    int may = atomic_load(&n->may);

    if (may != NUMBER_FIXED && (may != NUMBER_FREE || own == 0))
        return false;
    shown = own ? own : limit_affinity_cpus();
    b->malleable = may == NUMBER_FREE;
    b->max_intra = b->malleable ? most(n) : shown;
    b->target_intra = b->malleable ? safe_number_wanted(n) : shown;
    b->active_intra = own ? active(n) : shown;
    snprintf(b->name, sizeof(b->name), "%s", n->name);
    snprintf(b->version, sizeof(b->version), "%s", n->version);
    snprintf(b->note, sizeof(b->note), "%s",
             !b->malleable                ? n->note
             : atomic_load(&n->theirs)    ? "a library has set the number of threads itself"
             : is_short(n)                ? ROOM_SHORT_NOTE
             : atomic_load(&n->elsewhere) ? "other threads than the main one keep their number"
                                          : "");
    return true;
}

/* The child of a fork is not governed. */
void safe_number_after_fork(struct safe_number *n)
{
    atomic_store(&n->asked, false);
    atomic_store(&n->forked, true);
    atomic_store(&n->target, 0);
    atomic_store(&n->allowed, 0);
    atomic_store(&n->room, 0);
}

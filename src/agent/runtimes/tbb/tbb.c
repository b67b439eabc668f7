/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backend for oneTBB (libtbb.so.12). Its library takes tbb::global_control objects from any thread,
 * and the smallest limit among them is in force: the control thread keeps one of its own there
 * while the target is smaller than what the program would have. docs/design/58-tbb.md says why.
 *
 *   libtbb is loaded -> control thread: look() finds it, and who asks it for the limit
 *   -> target -> place(): create() the new control, then destroy() the old one
 */
#include "agent/agent.h"
#include "agent/compat.h"
#include "agent/process/limit.h"
#include "agent/process/objects.h"

#include "base/clock.h"
#include "base/slice.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define COPIES_MAX    4
#define OLDEST        12010 /* TBB_INTERFACE_VERSION of oneTBB 2021.1 */
#define NEXT_MAJOR    13000
#define WAIT_TRIES    10000
#define WAIT_PAUSE_US 100
#define STILL_NS      (2 * NS_PER_S)   /* without this much processor time … */
#define STILL_CPU_NS  (20 * NS_PER_MS) /* … the process stands still */
#define LIFT_MAX_NS   (16 * NS_PER_S)
#define CREATE        "_ZN3tbb6detail2r16createERNS0_2d114global_controlE"
#define DESTROY       "_ZN3tbb6detail2r17destroyERNS0_2d114global_controlE"
#define ACTIVE_VALUE  "_ZN3tbb6detail2r127global_control_active_valueEi"
#define MAX_PARALLEL  0 /* tbb::global_control::max_allowed_parallelism */

/* tbb::detail::d1::global_control: the same from 2021.1 to 2023.2. The spare bytes are for one that
 * has grown; @param is then still MAX_PARALLEL, wherever it is. */
struct global_control {
    size_t value;
    intptr_t reserved;
    int param;
    char spare[40];
};

typedef void (*control_fn)(struct global_control *);
typedef size_t (*value_fn)(int param);

enum may {
    FREE,
    JUDGING, /* a thread writes the note */
    FIXED,   /* moldable for good, and the note says why */
    MAY_MAX
};

static struct copy {
    uintptr_t start; /* 0: free */
    char path[512];
    _Atomic bool ready; /* it stays loaded, and is initialized */
    control_fn create, destroy;
    value_fn active_value;
    struct global_control control[2];
    unsigned at;            /* which of them is in force */
    _Atomic uint32_t limit; /* its value; 0: none is */
} copies[COPIES_MAX];

static struct {
    _Atomic int may;
    char version[PROTO_SHORT_MAX];
    char note[PROTO_NOTE_MAX];
    _Atomic bool main_begins; /* what the program is linked with is initialized */
    _Atomic bool present;     /* the agent runs because of it */
    _Atomic bool forked;      /* the child of a fork: other threads' locks may be held for ever */
    _Atomic bool found;       /* a copy that is known, or one that is not */
    _Atomic uint32_t most;    /* cores that the process has had since */
    _Atomic uint32_t target;  /* 0: none */
    _Atomic bool lifted;      /* for the moment, since the process stood still */
    _Atomic uint64_t placed_ns;
    /* The thread that has loaded it: threads that start because of us are to be like its own. */
    sigset_t mask;
    char comm[16];
    uint64_t slice_ns;
} tbb;

static uint64_t seen_loads;

/* ---- one thread at a time, none at a fork, none once the program ends ---- */

enum gate { OPEN, BUSY, CLOSED, GATE_MAX };
static _Atomic int gate;

static bool enter(void)
{
    int open = OPEN;

    if (!forks_hold())
        return false;
    if (atomic_compare_exchange_strong(&gate, &open, BUSY))
        return true;
    forks_release();
    return false;
}

static void leave(void)
{
    int busy = BUSY;

    atomic_compare_exchange_strong(&gate, &busy, OPEN);
    forks_release();
}

/* At exit(), before libtbb's own destructors. The wait has an end: a signal's handler may have
 * called exit() on the thread that is within. */
static void close_gate(void)
{
    for (int i = 0; i < WAIT_TRIES; i++) {
        int open = OPEN;

        if (atomic_compare_exchange_strong(&gate, &open, CLOSED) || open == CLOSED)
            return;
        usleep(WAIT_PAUSE_US);
    }
    atomic_store(&gate, CLOSED);
}

/* ---- the rule ---- */

/* The value of our control; 0: none. */
static uint32_t wanted(void)
{
    uint32_t target = atomic_load(&tbb.target);

    return atomic_load(&tbb.may) == FREE && !atomic_load(&tbb.lifted) &&
                   target < atomic_load(&tbb.most)
               ? target
               : 0;
}

/* Any thread; the first note stays. */
static void fix(const char *note)
{
    int may = FREE;

    if (!atomic_compare_exchange_strong(&tbb.may, &may, JUDGING))
        return;
    snprintf(tbb.note, sizeof(tbb.note), "%s", note);
    atomic_store(&tbb.may, FIXED);
}

/* ---- controls ---- */

/* Within the gate. In between both are in the library's list, so the limit changes once. */
static void exchange(struct copy *copy, uint32_t limit)
{
    uint32_t before = atomic_load(&copy->limit);
    unsigned next = !copy->at;

    if (limit) {
        copy->control[next] = (struct global_control){.value = limit, .param = MAX_PARALLEL};
        copy->create(&copy->control[next]);
        /* While a control is there, the library tells the smallest without counting cores. */
        if (!before && copy->active_value(MAX_PARALLEL) > limit)
            fix("moldable: an unknown oneTBB");
    }
    if (before)
        copy->destroy(&copy->control[copy->at]);
    copy->at = next;
    atomic_store(&copy->limit, limit);
}

/* A larger limit can start threads, which inherit signal mask, name and slice of this one. */
static void place(struct copy *copy)
{
    sigset_t ours;

    if (atomic_load(&copy->limit) == wanted() || !enter())
        return;
    sigprocmask(SIG_SETMASK, &tbb.mask, &ours);
    prctl(PR_SET_NAME, tbb.comm);
    if (tbb.slice_ns)
        slice_set(tbb.slice_ns);
    exchange(copy, wanted());
    if (tbb.slice_ns)
        slice_set(SLICE_SHORT_NS);
    prctl(PR_SET_NAME, "tide-agent");
    sigprocmask(SIG_SETMASK, &ours, NULL);
    leave();
}

/*
 * Tasks that wait for each other need more threads than a limit may leave them. All threads of such
 * a program sleep, so the limit is lifted for a moment, each time a longer one. A program that is
 * idle sleeps, too, and has no use for threads meanwhile.
 */
static void watch_still(uint64_t now_ns)
{
    static uint64_t since_ns, before_ns, until_ns, moment_ns;
    uint64_t used_ns = clock_process_ns();

    if (now_ns < until_ns)
        return;
    if (atomic_exchange(&tbb.lifted, false) || wanted() == 0 ||
        used_ns - before_ns >= STILL_CPU_NS) {
        if (now_ns - until_ns > LIFT_MAX_NS)
            moment_ns = 0;
        since_ns = now_ns;
        before_ns = used_ns;
    } else if (now_ns - since_ns >= STILL_NS) {
        moment_ns = moment_ns == 0 ? NS_PER_S : 2 * moment_ns;
        if (moment_ns > LIFT_MAX_NS)
            moment_ns = LIFT_MAX_NS;
        until_ns = now_ns + moment_ns;
        atomic_store(&tbb.lifted, true);
    }
}

static bool all_placed(void)
{
    uint32_t limit = wanted();

    for (struct copy *copy = copies; copy < copies + COPIES_MAX; copy++)
        if (atomic_load(&copy->ready) && atomic_load(&copy->limit) != limit)
            return atomic_load(&gate) == CLOSED;
    return true;
}

static void place_all(void)
{
    for (struct copy *copy = copies; copy < copies + COPIES_MAX; copy++)
        if (atomic_load(&copy->ready))
            place(copy);
    if (all_placed())
        atomic_store(&tbb.placed_ns, clock_now_ns());
}

/* A thread of the program. What it is about to load must not meet our limit. */
static void lift(void)
{
    for (int i = 0; i < WAIT_TRIES && atomic_load(&gate) != CLOSED; i++) {
        if (enter()) {
            for (struct copy *copy = copies; copy < copies + COPIES_MAX; copy++)
                if (atomic_load(&copy->ready) && atomic_load(&copy->limit))
                    exchange(copy, 0);
            leave();
            return;
        }
        usleep(WAIT_PAUSE_US);
    }
}

/* ---- objects ---- */

/* libtbb.so.12, or a wheel's libtbb-<hash>.so.12.8; not libtbbmalloc.so, not libtbb.so.2 */
static bool is_tbb(const struct object *o)
{
    const char *file = object_file(o);

    return o->dynamic && strncmp(file, "libtbb", 6) == 0 && (file[6] == '.' || file[6] == '-') &&
           strstr(object_soname(o), ".so.12");
}

static void ask(void *arg, const struct import *import)
{
    if (!import->defined && strcmp(import->name, ACTIVE_VALUE) == 0)
        *(bool *)arg = true;
}

/* May it build on the limit (buffers for so many threads) that it is told? */
static bool asks(const struct object *o)
{
    bool found = false;

    if (o->dynamic && object_needs(o, "libtbb"))
        object_imports(o, ask, &found);
    return found;
}

static void fix_asker(const struct object *o)
{
    char note[PROTO_NOTE_MAX];

    snprintf(note, sizeof(note), "moldable: %.60s asks oneTBB for its limit",
             *o->path ? object_file(o) : "the program");
    fix(note);
}

static void meet(const struct object *o)
{
    typedef int (*number_fn)(void);
    typedef const char *(*text_fn)(void);
    number_fn number = (number_fn)pointer_to(object_defines(o, "TBB_runtime_interface_version"));
    text_fn text = (text_fn)pointer_to(object_defines(o, "TBB_runtime_version"));
    struct copy *copy = copies;

    for (; copy < copies + COPIES_MAX && copy->start; copy++)
        if (copy->start == o->start)
            return;
    if (text && !tbb.version[0])
        snprintf(tbb.version, sizeof(tbb.version), "%s", text());
    if (copy == copies + COPIES_MAX) {
        fix("moldable: too many copies of oneTBB");
        return;
    }
    *copy = (struct copy){.create = (control_fn)pointer_to(object_defines(o, CREATE)),
                          .destroy = (control_fn)pointer_to(object_defines(o, DESTROY)),
                          .active_value = (value_fn)pointer_to(object_defines(o, ACTIVE_VALUE))};
    if (!copy->create || !copy->destroy || !copy->active_value || !number || number() < OLDEST ||
        number() >= NEXT_MAJOR || strlen(o->path) >= sizeof(copy->path)) {
        fix("moldable: an unknown oneTBB");
        return;
    }
    snprintf(copy->path, sizeof(copy->path), "%s", o->path);
    copy->start = o->start;
}

static int look_at(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct object o;

    (void)size;
    *(uint64_t *)arg = info->dlpi_adds;
    object_read(&o, info);
    if (is_tbb(&o))
        meet(&o);
    else if (asks(&o))
        fix_asker(&o);
    return 0;
}

/*
 * Its functions can be called once its constructors are done: a dlopen() under way has the loader's
 * lock until then, and what the program is linked with is done before main(). Our handle keeps the
 * library. What we have registered for exit() last runs first there.
 */
static void make_ready(struct copy *copy)
{
    if (!dlopen(copy->path, RTLD_LAZY | RTLD_NOLOAD) || atexit(close_gate) != 0)
        copy->start = 0;
    else
        atomic_store(&copy->ready, true);
}

static void look(void)
{
    uint32_t cpus = limit_affinity_cpus();
    uint64_t loads = objects_loaded();

    if (loads == UINT64_MAX) /* it forks */
        return;
    if (cpus > atomic_load(&tbb.most))
        atomic_store(&tbb.most, cpus);
    if (loads == seen_loads || !each_object(look_at, &loads))
        return;
    seen_loads = loads;
    for (struct copy *copy = copies; copy < copies + COPIES_MAX; copy++)
        if (copy->start && !atomic_load(&copy->ready))
            make_ready(copy);
    if (atomic_load(&tbb.may) == FIXED || atomic_load(&copies[0].ready))
        atomic_store(&tbb.found, true);
}

/* ---- an object is loaded: a thread of the program, in the middle of that ---- */

static void begin(void)
{
    struct slice_attr attr = {.size = sizeof(attr)};
    const char *tcm = getenv("TCM_ENABLE");

    if (tcm && *tcm && strcmp(tcm, "0") != 0)
        fix("moldable: TCM decides about oneTBB's threads");
    sigprocmask(SIG_SETMASK, NULL, &tbb.mask);
    prctl(PR_GET_NAME, tbb.comm);
    if (syscall(SYS_sched_getattr, 0, &attr, sizeof(attr), 0) == 0 && attr.policy == 0)
        tbb.slice_ns = attr.runtime_ns;
    atomic_store(&tbb.most, limit_affinity_cpus());
    objects_watch_forks();
    if (agent_start())
        atomic_store(&tbb.present, true);
}

static int find_tbb(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct object o;

    (void)size;
    (void)arg;
    object_read(&o, info);
    return is_tbb(&o);
}

/* The program itself is initialized last, when it has all that it is linked with. */
static void tbb_loaded(const struct object *o)
{
    if (atomic_load(&tbb.forked))
        return;
    if (!*o->path)
        atomic_store(&tbb.main_begins, true);
    if (atomic_load(&tbb.present)) {
        if (!is_tbb(o) && atomic_load(&tbb.may) == FREE && asks(o)) {
            fix_asker(o);
            lift();
        }
    } else if (atomic_load(&tbb.main_begins) &&
               (*o->path ? is_tbb(o) : dl_iterate_phdr(find_tbb, NULL) == 1)) {
        begin();
    }
}

/* ---- targets: the control thread ---- */

static bool follows(void)
{
    return atomic_load(&tbb.present) && !atomic_load(&tbb.forked);
}

static bool tbb_settled(void)
{
    return !follows() || all_placed();
}

static bool tbb_apply(const struct agent_target *target)
{
    atomic_store(&tbb.target, target->intra);
    if (!follows())
        return true;
    look();
    place_all();
    return tbb_settled();
}

static void tbb_watch(uint64_t now_ns)
{
    if (!follows())
        return;
    look();
    watch_still(now_ns);
    if (!all_placed())
        place_all();
}

static void tbb_measure(struct proto_ack *ack)
{
    if (follows())
        agent_measure(ack, atomic_load(&tbb.placed_ns));
}

static bool tbb_describe(struct proto_backend *b)
{
    uint32_t most = atomic_load(&tbb.most), limit = atomic_load(&tbb.target);
    int may = atomic_load(&tbb.may);

    if (!follows() || !atomic_load(&tbb.found) || may == JUDGING)
        return false;
    b->malleable = may == FREE;
    b->max_intra = most;
    b->target_intra = b->active_intra = may == FREE && limit && limit < most ? limit : most;
    snprintf(b->name, sizeof(b->name), "tbb");
    snprintf(b->version, sizeof(b->version), "%s", tbb.version);
    snprintf(b->note, sizeof(b->note), "%s", may == FREE ? "" : tbb.note);
    return true;
}

static uint64_t tbb_tasks(void)
{
    return 0;
}

/* The child keeps the limit: who has its locks is not known. */
static void tbb_after_fork(void)
{
    atomic_store(&tbb.forked, true);
    atomic_store(&gate, OPEN);
}

const struct agent_backend tbb_backend = {
    .name = "tbb",
    .apply = tbb_apply,
    .settled = tbb_settled,
    .measure = tbb_measure,
    .describe = tbb_describe,
    .watch = tbb_watch,
    .tasks = tbb_tasks,
    .loaded = tbb_loaded,
    .after_fork = tbb_after_fork,
};

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which objects leave it open how many threads their regions have? An object that learns the number
 * may build on it: buffers for each thread, a division of the work. It must then always meet the
 * number that it has learnt. So the regions of a copy are malleable only while every object that
 * uses it is one of those that cannot know:
 *
 *   it imports no function that tells or sets the number (omp_get_max_threads, …), and
 *   each of its calls of omp_get_num_threads is one that gcc makes for a static loop: the number
 *   goes into a register, and the next call is omp_get_thread_num, which it calls nowhere else, and
 *   all its regions are ours to see.
 *
 * Any other object may be called by a region. So all copies are malleable only while no object of
 * the process, but those that every process has,
 *
 *   keeps data for each thread (threadprivate, pthread_setspecific), which end with a thread, or
 *   has barriers for a number of threads (pthread_barrier_wait), or
 *   has the text OMP_NUM_THREADS or THREAD_LIMIT, and can look a variable up.
 *
 * Which copy an object uses is read from its slots, the table of addresses that ld.so has filled in
 * for it (GOT). Our stub calls the address that the slot held, so nothing is looked up and no call
 * goes elsewhere than without us. A slot that ld.so fills in at the first call is left to it.
 */
#include "agent/compat.h"
#include "agent/process/objects.h"
#include "agent/processor.h"
#include "agent/runtimes/openmp/openmp.h"

#include "base/cleanup.h"
#include "base/fnv.h"

#include <linux/membarrier.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define OBJECTS_MAX 1024         /* looked at; with more of them nothing is malleable */
#define SLOTS_MAX   32           /* entries of regions in an object */
#define TRIES_MAX   50           /* looks at an object that ld.so has not finished */
#define READ_MAX    (64ul << 20) /* bytes of an object; a larger one counts as one that asks */
#define READ_A_LOOK (16ul << 20) /* bytes; then the agent has other things to do */
#define ALL_COPIES  ((1u << COPIES_MAX) - 1)

/* Functions that tell a number of threads or cores, or set it. */
static const char *const telling[] = {
    "omp_get_max_threads",
    "omp_get_max_threads_",
    "omp_get_num_procs",
    "omp_get_num_procs_",
    "omp_set_num_threads",
    "omp_set_num_threads_",
    "omp_set_num_threads_8_",
    "omp_get_num_threads_",
    "omp_get_thread_num_",
    "omp_get_ancestor_thread_num",
    "omp_get_ancestor_thread_num_",
    "omp_get_thread_limit",
    "omp_get_thread_limit_",
    "omp_get_team_size",
    "omp_get_team_size_",
    "omp_get_team_size_8_",
    "omp_set_dynamic",
    "omp_set_dynamic_",
    "omp_set_dynamic_8_",
    "__kmpc_push_num_teams",
    "__kmpc_global_num_threads",
    "__kmpc_bound_num_threads",
    "GOMP_teams_reg",
    "sched_getaffinity",
    "pthread_getaffinity_np",
    "get_nprocs",
    "get_nprocs_conf",
    "_ZNSt6thread20hardware_concurrencyEv",
    "__kmpc_threadprivate_cached",
    "openblas_get_num_threads",
    "openblas_get_num_procs",
    "mkl_get_max_threads",
};

/* Functions that rest on a number of threads, or on threads that stay, whoever calls them. */
static const char *const resting[] = {
    "pthread_barrier_init", "pthread_barrier_wait", "pthread_setspecific", "tss_set",
    "__emutls_get_address",
};

static const char *const looking_up[] = {
    "getenv",
    "secure_getenv",
    "environ",
    "__environ",
    "_gfortran_get_environment_variable_i4",
    "_gfortran_get_environment_variable_i8",
};

/* The objects looked at, so that each is judged once. */
static struct seen {
    struct seen_object {
        uintptr_t base;
        uint32_t key; /* tells it from others at the same address */
        uint8_t tries;
        bool met;  /* at this look */
        bool read; /* what had to be read of it, with these answers */
        bool asks;
        bool cores;
        const char *text;
        bool judged;
        bool innocent; /* … and it cannot know its number */
        bool done;     /* nothing is left to do for it */
        bool plain;    /* … and nothing will be: it has no slots for us */
    } objects[OBJECTS_MAX];
    unsigned n;
    uint64_t unloads;
    bool pending;               /* some object is not done */
    bool again;                 /* a copy has become moldable: all slots once more */
    char doubt[PROTO_NOTE_MAX]; /* why later copies are moldable, too */
} seen;

/* The object that is being read, over several looks if it is large. */
static struct {
    struct reading what;
    uintptr_t base; /* 0: none */
    uint32_t key;
} reading;

/* An object that may use OpenMP. */
struct user {
    struct object object;
    struct callee number, id;
    const char *what;  /* the first function that tells; NULL: none */
    const char *rests; /* … on which something rests for good */
    bool looks_up;     /* variables of the environment */
    bool has_regions;  /* it calls an entry of parallel regions */
    bool pushes;       /* num_threads(n), as clang's code says it */
    bool sysconf;
    bool uses_openmp;
    uint32_t copies;   /* that it is bound to; a bit each */
    bool unbound;      /* some slot of a runtime's function waits for its first call */
    bool foreign;      /* some entry of regions is bound to what we do not know */
    bool unfinished;   /* ld.so is not done with it */
    bool number_twice; /* one of the two functions has more than a slot */
    bool linked[2];    /* their slots are of the procedure linkage table */
    struct {
        uintptr_t at;
        enum openmp_entry entry;
    } slots[SLOTS_MAX];
    unsigned n_slots;
    bool asleep; /* it need not be judged while no copy is malleable */
};

struct look {
    uint64_t loads, unloads;
    bool looked; /* the second time */
    bool whole;  /* all objects could be judged */
    bool tool;   /* OMPT */
    bool sanitized;
    bool archer;
    bool torch;
    uint32_t present; /* copies met */
};

bool objects_pending(void)
{
    return seen.pending;
}

bool openmp_is_runtime(const char *file)
{
    static const char *const prefixes[] = {"libgomp", "libomp", "libiomp5"};
    const char *slash = strrchr(file, '/');

    for (size_t i = 0; i < ARRAY_LEN(prefixes); i++)
        if (strncmp(slash ? slash + 1 : file, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

/* ---- copies ---- */

static void condemn(uint32_t copies, const char *note)
{
    for (unsigned i = 0; i < COPIES_MAX; i++) {
        struct copy *copy = &openmp.copies[i];

        if (!(copies >> i & 1) || !copy->start || atomic_load(&copy->may) == OPENMP_NEVER)
            continue;
        snprintf(copy->note, sizeof(copy->note), "%s", note);
        atomic_store(&copy->may, OPENMP_NEVER);
        seen.again = true; /* our stubs are taken out */
    }
}

/* For a reason that holds for copies that come later, too. */
static void condemn_all(const char *note)
{
    snprintf(seen.doubt, sizeof(seen.doubt), "%s", note);
    condemn(ALL_COPIES, note);
}

#define SYMBOL(type, name) ((type)pointer_to(object_defines(o, name)))

static void copy_fill(struct copy *copy, const struct object *o)
{
    const char *slash = strrchr(o->path, '/');

    *copy = (struct copy){.end = o->end};
    copy->get_max = SYMBOL(int (*)(void), "omp_get_max_threads");
    copy->level = SYMBOL(int (*)(void), "omp_get_level");
    copy->push = SYMBOL(void (*)(void *, int32_t, int32_t), "__kmpc_push_num_threads");
    copy->thread = SYMBOL(int32_t(*)(void *), "__kmpc_global_thread_num");
    snprintf(copy->name, sizeof(copy->name), "%s", slash ? slash + 1 : o->path);
    copy->start = o->start;
    if (!copy->get_max || !copy->level) {
        snprintf(copy->note, sizeof(copy->note), "moldable: an unknown runtime");
        atomic_store(&copy->may, OPENMP_NEVER);
    } else if (seen.doubt[0]) {
        snprintf(copy->note, sizeof(copy->note), "%s", seen.doubt);
        atomic_store(&copy->may, OPENMP_NEVER);
    }
}

static bool is_same(const struct copy *copy, const struct object *o)
{
    return copy->start == o->start && copy->end == o->end &&
           copy->get_max == SYMBOL(int (*)(void), "omp_get_max_threads");
}

/* Makes a runtime known, and remembers that it is still there. */
static void meet_copy(struct look *look, const struct object *o)
{
    unsigned unused = COPIES_MAX;

    for (unsigned i = 0; i < COPIES_MAX; i++) {
        if (is_same(&openmp.copies[i], o)) {
            look->present |= 1u << i;
            return;
        }
        if (!openmp.copies[i].start && unused == COPIES_MAX)
            unused = i;
    }
    if (unused == COPIES_MAX) {
        condemn_all("moldable: more copies of OpenMP than the agent can tell apart");
        return;
    }
    copy_fill(&openmp.copies[unused], o);
    look->present |= 1u << unused;
}

/* First way through the list: runtimes, and tools that watch them. */
static int meet(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct look *look = arg;
    struct object o;

    (void)size;
    look->loads = info->dlpi_adds;
    look->unloads = info->dlpi_subs;
    object_read(&o, info);
    if (!o.dynamic)
        return 0;
    if (openmp_is_runtime(o.path)) {
        meet_copy(look, &o);
        return 0;
    }
    if (strstr(o.path, "/libtorch"))
        look->torch = true;
    if (object_defines(&o, "__tsan_init"))
        look->sanitized = true;
    if (object_defines(&o, "ompt_start_tool")) {
        if (strstr(o.path, "/libarcher.so")) /* loaded by libomp; it wants ThreadSanitizer */
            look->archer = true;
        else
            look->tool = true;
    }
    return 0;
}

/* ---- slots ---- */

enum where { WHERE_COPY, WHERE_OURS, WHERE_UNBOUND, WHERE_UNFINISHED, WHERE_ELSEWHERE, WHERE_MAX };

/* Where does the address in a slot of @o lead to? */
static enum where where_leads(const struct object *o, uintptr_t held, unsigned *ret_copy)
{
    for (unsigned i = 0; i < COPIES_MAX; i++) {
        const struct copy *copy = &openmp.copies[i];

        if (copy->start && held >= copy->start && held < copy->end) {
            *ret_copy = i;
            return WHERE_COPY;
        }
        for (unsigned e = 0; e < OPENMP_ENTRY_MAX; e++)
            if (held && held == (uintptr_t)hooks_stub(i, (enum openmp_entry)e)) {
                *ret_copy = i;
                return WHERE_OURS;
            }
    }
    if (held >= o->start && held < o->end)
        return WHERE_UNBOUND; /* behind it lies the call of ld.so */
    return held < o->end - o->start ? WHERE_UNFINISHED : WHERE_ELSEWHERE;
}

static void take_binding(struct user *u, uintptr_t slot, bool region)
{
    unsigned copy = 0;

    switch (where_leads(&u->object, slot_held(slot), &copy)) {
    case WHERE_COPY:
    case WHERE_OURS:
        u->copies |= 1u << copy;
        break;
    case WHERE_UNBOUND:
        u->unbound = true;
        break;
    case WHERE_UNFINISHED:
        u->unfinished = true;
        break;
    default:
        u->foreign |= region;
        break;
    }
}

static bool entry_of(const char *name, enum openmp_entry *ret)
{
#define OPENMP_NAME(constant, symbol) symbol,
    static const char *const names[] = {OPENMP_ENTRIES(OPENMP_NAME)};

    for (unsigned e = 0; e < OPENMP_ENTRY_MAX; e++)
        if (strcmp(name, names[e]) == 0) {
            *ret = (enum openmp_entry)e;
            return true;
        }
    return false;
}

static void take_region(struct user *u, const char *name, uintptr_t slot, bool is_slot)
{
    enum openmp_entry entry;

    u->has_regions = true;
    if (!is_slot || !entry_of(name, &entry) || u->n_slots == SLOTS_MAX) {
        u->foreign = true; /* data or code of the program, or an entry that is newer than we are */
        return;
    }
    u->slots[u->n_slots].at = slot;
    u->slots[u->n_slots++].entry = entry;
}

static bool begins(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

static const char *one_of(const char *const names[], size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(name, names[i]) == 0)
            return names[i];
    return NULL;
}

static void take_import(void *arg, const struct import *import)
{
    struct user *u = arg;
    const char *name = import->name;
    uintptr_t slot = import->slot;
    bool region = begins(name, "GOMP_parallel") || begins(name, "__kmpc_fork_");

    if (import->defined)
        return;
    if (region)
        take_region(u, name, slot, import->is_slot);
    if (begins(name, "GOMP_") || begins(name, "omp_") || begins(name, "__kmpc_")) {
        u->uses_openmp = true;
        if (import->is_slot)
            take_binding(u, slot, region);
        else
            u->foreign |= region;
    }
    if (strcmp(name, "omp_get_num_threads") == 0) {
        u->number_twice |= u->number.got != 0 || !import->is_slot;
        u->number.got = slot;
        u->linked[0] = import->linked;
    } else if (strcmp(name, "omp_get_thread_num") == 0) {
        u->number_twice |= u->id.got != 0 || !import->is_slot;
        u->id.got = slot;
        u->linked[1] = import->linked;
    } else if (begins(name, "__kmpc_push_num_threads")) {
        u->pushes = true;
    } else if (strcmp(name, "sysconf") == 0) {
        u->sysconf = true;
    }
    if (!u->what)
        u->what = one_of(telling, ARRAY_LEN(telling), name);
    if (!u->rests)
        u->rests = one_of(resting, ARRAY_LEN(resting), name);
    u->looks_up |= one_of(looking_up, ARRAY_LEN(looking_up), name) != NULL;
}

/* ---- stubs ---- */

/* Puts our stub into a slot, or, for a copy that turned out to be moldable, takes it out. Returns
 * false when that has to wait. */
static bool place_stub(const struct user *u, uintptr_t slot, enum openmp_entry entry)
{
    uintptr_t held = slot_held(slot);
    unsigned i = 0;
    enum where where = where_leads(&u->object, held, &i);
    struct copy *copy = &openmp.copies[i];
    bool never = atomic_load(&copy->may) == OPENMP_NEVER;
    void *stub = hooks_stub(i, entry);

    if (where == WHERE_OURS)
        return !never || slot_write(&u->object, slot, (uintptr_t)copy->entry[entry]);
    if (where != WHERE_COPY)
        return where == WHERE_ELSEWHERE;
    if (never || !stub)
        return true;
    if (!copy->entry[entry]) {
        memcpy(&copy->entry[entry], &held, sizeof(held));
        if (!atomic_load(&openmp.fences)) /* who sees the stub sees the entry */
            syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
    }
    if ((uintptr_t)copy->entry[entry] == held)
        return slot_write(&u->object, slot, (uintptr_t)stub);
    condemn(1u << i, "moldable: an entry of the runtime has two addresses");
    return true;
}

/* ---- judgement ---- */

/* Libraries that keep what they have built for a number of threads, whatever the user says, and
 * PyTorch, whose number another backend may change. Code of torch.compile lies in a cache, which
 * may be anywhere but among packages. */
static bool is_known_to_build(const struct look *look, const struct user *u)
{
    return strstr(u->object.path, "/lib_lightgbm.") || strstr(u->object.path, "/libtorch") ||
           strstr(u->object.path, "/torchinductor_") ||
           (look->torch && u->object.path[0] && !strstr(u->object.path, "-packages/"));
}

/*
 * Objects without OpenMP whose data for each thread begin by themselves, wherever a thread is new:
 * nobody fills them in for later. Python makes a thread's state anew for each call from a thread
 * that it did not make, and modules of its own are called by it alone.
 */
static bool is_harmless(const struct object *o)
{
    static const char *const names[] = {
        "ld-linux",    "libc.",         "libc-",       "libpthread",        "libm.",
        "libdl.",      "librt.",        "libgcc_s",    "libstdc++",         "libc++",
        "libgfortran", "libquadmath",   "libasan",     "libubsan",          "liblsan",
        "libtsan",     "libclang_rt",   "libjemalloc", "libtcmalloc",       "libmimalloc",
        "libcrypto.",  "libtide-agent", "libopenblas", "libscipy_openblas", "libnss_",
        "libresolv.",
    };
    const char *file = object_file(o);

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (begins(file, names[i]))
            return true;
    return strstr(file, ".cpython-") || strstr(file, ".abi3.so") ||
           object_defines(o, "Py_AddPendingCall");
}

/* The kinds of code to read of @u. */
static unsigned to_read(const struct user *u)
{
    unsigned wants = 0;

    if (!u->rests && !u->object.has_tls &&
        (u->looks_up || u->uses_openmp || !u->object.path[0])) /* main()'s third argument */
        wants |= CODE_TEXT;
    if (!u->uses_openmp || u->what)
        return wants;
    if ((u->number.got || u->id.got) && !u->number_twice)
        wants |= CODE_LOOPS;
    if (u->has_regions && u->sysconf)
        wants |= CODE_CORES;
    return wants;
}

static void begin_reading(const struct user *u, const struct seen_object *s, unsigned wants)
{
    struct reading *r = &reading.what;
    size_t size = 0;

    if (reading.base)
        return; /* one after the other */
    reading.base = s->base;
    reading.key = s->key;
    *r = (struct reading){.wants = wants,
                          .number = u->number,
                          .id = u->id,
                          .linked = u->linked[0] && u->linked[1],
                          .n_spans = u->object.n_spans};
    memcpy(r->spans, u->object.spans, sizeof(r->spans));
    r->unread = r->n_spans > OBJECT_SPANS_MAX;
    for (unsigned i = 0; i < r->n_spans && !r->unread; i++)
        size += r->spans[i].size;
    r->unread |= size > READ_MAX || !r->number.got != !r->id.got;
}

/* Goes on with the object that is read. Returns true when something new is known of it. */
static bool read_on(size_t *left)
{
    const struct reading *r = &reading.what;

    if (!reading.base || reading_goes_on(&reading.what, left))
        return false;
    for (unsigned i = 0; i < seen.n; i++) {
        struct seen_object *s = &seen.objects[i];

        if (s->base != reading.base || s->key != reading.key)
            continue;
        s->read = true;
        s->asks = (r->wants & CODE_LOOPS) && !reading_only_loops(r);
        s->cores = (r->wants & CODE_CORES) && (r->cores || r->unread);
        s->text = !(r->wants & CODE_TEXT) ? NULL : r->unread ? "code that is not read" : r->text;
    }
    reading.base = 0;
    return true;
}

/* Returns what lets @u build on the number of threads; NULL: nothing does. */
static const char *what_it_knows(const struct look *look, const struct user *u,
                                 const struct seen_object *s)
{
    if (u->what)
        return u->what;
    if ((u->number.got || u->id.got) && (u->number_twice || s->asks))
        return u->number.got ? "omp_get_num_threads" : "omp_get_thread_num";
    if (s->cores)
        return "sysconf";
    if (u->has_regions && is_known_to_build(look, u))
        return "torch.compile";
    return NULL;
}

/* … or any other object, when it calls @u. */
static const char *what_rests(const struct user *u, const struct seen_object *s)
{
    if (u->object.has_tls)
        return "thread-local variables";
    return u->rests ? u->rests : s->text;
}

/* Returns true if @u cannot know. */
static bool judge(struct look *look, const struct user *u, const struct seen_object *s)
{
    bool all = u->unbound || u->foreign || u->unfinished || !u->copies;
    const char *what = u->uses_openmp ? what_it_knows(look, u, s) : NULL;
    const char *rests = what ? NULL : what_rests(u, s);
    const char *file = u->object.path[0] ? object_file(&u->object) : "the program";
    char note[PROTO_NOTE_MAX];

    if (rests && rests == s->text)
        snprintf(note, sizeof(note), "moldable: %.32s may know the number of threads (%s%s)", file,
                 begins(rests, "code") ? "" : "the text ", rests);
    else if (what || rests)
        snprintf(note, sizeof(note), "moldable: %.32s may build on the number of threads (%s)",
                 file, what ? what : rests);
    else if (u->foreign)
        snprintf(note, sizeof(note), "moldable: regions of %.32s go to an unknown library", file);
    else if (u->pushes)
        snprintf(note, sizeof(note), "moldable: %.32s has num_threads() for libomp", file);
    else
        return true;
    if (all || rests || what_rests(u, s))
        condemn_all(note);
    else
        condemn(u->copies, note);
    return false;
}

static bool some_copy_may(void)
{
    for (unsigned i = 0; i < COPIES_MAX; i++)
        if (openmp.copies[i].start && atomic_load(&openmp.copies[i].may) != OPENMP_NEVER)
            return true;
    return false;
}

/* Returns false when something is left to do for @o. */
static bool take(struct look *look, struct user *u, struct seen_object *s)
{
    unsigned wants;
    bool done = true;

    if (!u->object.dynamic || openmp_is_runtime(u->object.path))
        return s->plain = true;
    object_imports(&u->object, take_import, u);
    if (!u->uses_openmp && is_harmless(&u->object))
        return s->plain = true;
    if (!s->judged && u->unfinished && s->tries < TRIES_MAX) {
        s->tries++;
        look->whole = false;
        return false;
    }
    wants = s->judged || s->read ? 0 : to_read(u);
    u->asleep = wants && !some_copy_may();
    if (wants && !u->asleep) {
        begin_reading(u, s, wants);
        look->whole = false;
        return false;
    }
    if (!s->judged && !wants)
        s->innocent = judge(look, u, s);
    s->judged |= !wants;
    s->plain = u->n_slots == 0 && s->judged;
    for (unsigned i = 0; i < u->n_slots; i++)
        done &= place_stub(u, u->slots[i].at, u->slots[i].entry);
    return done && s->judged;
}

/* An object that is loaded where another one was has another path, or other headers. */
static uint32_t key_of(const struct dl_phdr_info *info)
{
    uint64_t key = fnv_text(FNV_START, info->dlpi_name ? info->dlpi_name : "");

    return (uint32_t)fnv_bytes(key, info->dlpi_phdr, info->dlpi_phnum * sizeof(*info->dlpi_phdr));
}

/* NULL: there is no room for a further object. */
static struct seen_object *seen_of(const struct dl_phdr_info *info)
{
    uintptr_t base = (uintptr_t)info->dlpi_phdr;
    uint32_t key = key_of(info);
    unsigned i = 0;

    while (i < seen.n && seen.objects[i].base != base)
        i++;
    if (i == OBJECTS_MAX)
        return NULL;
    if (i == seen.n || seen.objects[i].key != key)
        seen.objects[i] = (struct seen_object){.base = base, .key = key};
    if (i == seen.n)
        seen.n++;
    seen.objects[i].met = true;
    return &seen.objects[i];
}

/* Second way through the list. */
static int look_at(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct look *look = arg;
    struct seen_object *s;
    struct user u;

    (void)size;
    look->looked = true;
    if (info->dlpi_adds != look->loads || info->dlpi_subs != look->unloads) {
        look->whole = false; /* again in a moment: a runtime may be among them */
        return 1;
    }
    s = seen_of(info);
    if (!s) {
        condemn_all("moldable: more libraries than the agent can tell apart");
        return 1;
    }
    if (s->done)
        return 0;
    u = (struct user){.what = NULL};
    object_read(&u.object, info);
    s->done = take(look, &u, s);
    seen.pending |= !s->done && !u.asleep;
    return 0;
}

/*
 * Something was unloaded, or a copy has become moldable: slots are looked at once more. The same
 * library at the same place is the same code; who could know may have met another copy.
 */
static void begin_again(void)
{
    for (unsigned i = 0; i < seen.n; i++) {
        struct seen_object *s = &seen.objects[i];

        if (s->plain)
            continue;
        s->judged = s->innocent;
        s->done = s->met = false;
        s->tries = 0;
    }
    seen.again = false;
}

static void forget_unloaded(void)
{
    unsigned n = 0;

    for (unsigned i = 0; i < seen.n; i++)
        if (seen.objects[i].met)
            seen.objects[n++] = seen.objects[i];
    seen.n = n;
    for (unsigned i = 0; i < n; i++)
        seen.objects[i].met = false;
}

static void after_meeting(const struct look *look)
{
    for (unsigned i = 0; i < COPIES_MAX; i++) {
        struct copy *copy = &openmp.copies[i];

        if (!(look->present >> i & 1)) {
            copy->start = 0;
        } else if (copy->push && (look->tool || (look->archer && look->sanitized))) {
            condemn(1u << i, "moldable: a tool watches OpenMP (OMPT)");
        } else if (copy->push && !hooks_stub(i, OPENMP_FORK_CALL)) {
            condemn(1u << i, PROCESSOR_NOTE);
        }
    }
}

static void look_once(void)
{
    struct look look = {.whole = true, .tool = openmp.tools};

    each_object(meet, &look);
    if (look.loads == 0)
        return; /* the program forks */
    seen.pending = false;
    if (look.unloads != seen.unloads)
        reading.base = 0; /* perhaps other code lies there */
    if (look.unloads != seen.unloads || seen.again)
        begin_again();
    seen.unloads = look.unloads;
    after_meeting(&look);
    each_object(look_at, &look);
    look.whole &= look.looked;
    if (look.whole)
        forget_unloaded();
    for (unsigned i = 0; look.whole && i < COPIES_MAX; i++) {
        int may = OPENMP_UNJUDGED;

        if (openmp.copies[i].start)
            atomic_compare_exchange_strong(&openmp.copies[i].may, &may, OPENMP_FREE);
    }
    seen.pending |= seen.again || !look.whole;
    atomic_store(&openmp.loads, look.whole ? look.loads : 0);
}

void objects_look(void)
{
    size_t left = READ_A_LOOK;

    do
        look_once();
    while (read_on(&left));
}

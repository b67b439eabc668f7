/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which objects leave it open how many threads their regions have? An object that learns the number
 * may build on it: buffers for each thread, a division of the work. It must then always meet the
 * number that it has learnt. So the regions of a copy are malleable only while every object that
 * uses it is one of those that cannot know:
 *
 *   it imports no function that tells or sets the number (omp_get_max_threads, …), and
 *   it has no thread-local variables (threadprivate), which end with a thread of the runtime, and
 *   each of its calls of omp_get_num_threads is one that gcc makes for a static loop: the number
 *   goes into a register, and the next call is omp_get_thread_num.
 *
 * The last one is read from the machine code. What cannot be read counts as an object that asks.
 */
#include "agent/compat.h"
#include "agent/process/python.h"
#include "agent/runtimes/openmp/openmp.h"

#include "base/cleanup.h"

#include <link.h>
#include <stdio.h>
#include <string.h>

#define OBJECTS_MAX 1024         /* looked at; with more of them nothing is malleable */
#define TEXT_MAX    (64ul << 20) /* bytes of code; a larger object counts as one that asks */
#define STUBS_MAX   8
#define PATH_MAX_   1024

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
    "omp_get_thread_limit",
    "omp_get_thread_limit_",
    "omp_get_team_size",
    "omp_get_team_size_",
    "omp_get_team_size_8_",
    "omp_set_dynamic",
    "omp_set_dynamic_",
    "omp_set_dynamic_8_",
    "__kmpc_push_num_teams",
    "GOMP_teams_reg",
    "sched_getaffinity",
    "pthread_getaffinity_np",
    "get_nprocs",
    "_ZNSt6thread20hardware_concurrencyEv",
    "__kmpc_threadprivate_cached",
};

/* Of an object, while the loader's lock keeps it in place. */
struct object {
    ElfW(Addr) base;
    char path[PATH_MAX_];
    bool has_regions; /* it calls an entry of parallel regions */
    bool asks;        /* a function that tells is among its imports */
    char what[40];    /* the first of these, or what else it has */
    bool has_tls;
    uintptr_t number_got; /* where the addresses of the two functions are; 0: not imported */
    uintptr_t id_got;
    const unsigned char *text;
    size_t text_size;
};

/* The objects looked at, so that each is looked at once. An object at a used address is new only if
 * something was unloaded. */
static struct seen {
    uintptr_t base[OBJECTS_MAX];
    unsigned n;
    uint64_t unloads;
    bool full;
} seen;

/* ---- counts of the loader ---- */

struct counts {
    uint64_t loads, unloads;
};

static int count(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    *(struct counts *)arg = (struct counts){info->dlpi_adds, info->dlpi_subs};
    return 1; /* all objects give the same numbers */
}

uint64_t objects_loaded(void)
{
    struct counts counts = {0, 0};

    dl_iterate_phdr(count, &counts);
    return counts.loads;
}

uint64_t objects_unloaded(void)
{
    struct counts counts = {0, 0};

    dl_iterate_phdr(count, &counts);
    return counts.unloads;
}

/* ---- machine code ---- */

#ifdef __x86_64__
static int32_t relative(const unsigned char *at)
{
    int32_t value;

    memcpy(&value, at, sizeof(value));
    return value;
}

/* A call at @at, directly or through the table of addresses. Returns its length; 0: no such call.
 */
struct callee {
    uintptr_t got;
    uintptr_t stub[STUBS_MAX]; /* entries of the procedure linkage table */
    unsigned n;
};

static unsigned call_length(const struct callee *callee, const unsigned char *at)
{
    if (at[0] == 0xff && at[1] == 0x15 && (uintptr_t)at + 6 + relative(at + 2) == callee->got)
        return 6;
    if (at[0] != 0xe8)
        return 0;
    for (unsigned i = 0; i < callee->n; i++)
        if ((uintptr_t)at + 5 + relative(at + 1) == callee->stub[i])
            return 5;
    return 0;
}

/* jmp *table(%rip), perhaps behind endbr64 and with a bnd prefix */
static void find_stubs(const struct object *o, struct callee *callee)
{
    static const unsigned char endbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};

    for (size_t i = 5; i + 6 <= o->text_size && callee->n + 3 <= STUBS_MAX; i++) {
        const unsigned char *at = o->text + i;

        if (at[0] != 0xff || at[1] != 0x25 || (uintptr_t)at + 6 + relative(at + 2) != callee->got)
            continue;
        callee->stub[callee->n++] = (uintptr_t)at;
        if (at[-1] == 0xf2)
            at--;
        callee->stub[callee->n++] = (uintptr_t)at;
        if (at - 4 >= o->text && memcmp(at - 4, endbr64, sizeof(endbr64)) == 0)
            callee->stub[callee->n++] = (uintptr_t)at - 4;
    }
}

/* mov %eax, register, or movslq %eax, register. Returns its length; 0: something else. */
static unsigned move_length(const unsigned char *at)
{
    unsigned prefix = at[0] >= 0x40 && at[0] <= 0x4f;
    const unsigned char *op = at + prefix;

    if (op[0] == 0x89 && (op[1] & 0xf8) == 0xc0)
        return prefix + 2; /* source: eax */
    if (op[0] == 0x63 && (op[1] & 0xc7) == 0xc0)
        return prefix + 2;
    return 0;
}

/* All mentions of omp_get_num_threads in the code are calls for static loops. */
static bool only_static_loops(const struct object *o)
{
    struct callee number = {.got = o->number_got};
    struct callee id = {.got = o->id_got};
    unsigned calls = 0;

    if (!o->text || o->text_size > TEXT_MAX || !o->id_got)
        return false;
    find_stubs(o, &number);
    find_stubs(o, &id);
    for (size_t i = 0; i + 24 <= o->text_size; i++) {
        const unsigned char *at = o->text + i;
        unsigned length = call_length(&number, at);
        unsigned move;

        /* mov table(%rip), register: a call through a register */
        if ((at[0] & 0xfb) == 0x48 && at[1] == 0x8b && (at[2] & 0xc7) == 0x05 &&
            (uintptr_t)at + 7 + relative(at + 3) == number.got)
            return false;
        if (length == 0)
            continue;
        move = move_length(at + length);
        if (move == 0 || call_length(&id, at + length + move) == 0)
            return false;
        calls++;
    }
    return calls > 0;
}
#else
static bool only_static_loops(const struct object *o)
{
    (void)o;
    return false;
}
#endif

/* ---- imports ---- */

static void take_import(struct object *o, const char *name, uintptr_t got)
{
    if (strncmp(name, "GOMP_parallel", 13) == 0 || strcmp(name, "__kmpc_fork_call") == 0)
        o->has_regions = true;
    if (strcmp(name, "omp_get_num_threads") == 0)
        o->number_got = got;
    if (strcmp(name, "omp_get_thread_num") == 0)
        o->id_got = got;
    for (size_t i = 0; i < ARRAY_LEN(telling); i++) {
        if (o->asks || strcmp(name, telling[i]) != 0)
            continue;
        o->asks = true;
        snprintf(o->what, sizeof(o->what), "%s", name);
    }
}

static const void *at(ElfW(Addr) address)
{
    const void *ret;

    memcpy(&ret, &address, sizeof(ret));
    return ret;
}

static const void *relocated(const struct object *o, ElfW(Addr) address)
{
    return at(address < o->base ? o->base + address : address);
}

static void read_imports(struct object *o, const ElfW(Dyn) * dynamic)
{
    const ElfW(Rela) * table[2] = {NULL, NULL};
    size_t bytes[2] = {0, 0};
    const ElfW(Sym) *symbols = NULL;
    const char *names = NULL;

    for (; dynamic->d_tag != DT_NULL; dynamic++) {
        if (dynamic->d_tag == DT_SYMTAB)
            symbols = relocated(o, dynamic->d_un.d_ptr);
        else if (dynamic->d_tag == DT_STRTAB)
            names = relocated(o, dynamic->d_un.d_ptr);
        else if (dynamic->d_tag == DT_JMPREL)
            table[0] = relocated(o, dynamic->d_un.d_ptr);
        else if (dynamic->d_tag == DT_RELA)
            table[1] = relocated(o, dynamic->d_un.d_ptr);
        else if (dynamic->d_tag == DT_PLTRELSZ)
            bytes[0] = dynamic->d_un.d_val;
        else if (dynamic->d_tag == DT_RELASZ)
            bytes[1] = dynamic->d_un.d_val;
    }
    for (unsigned t = 0; t < 2 && symbols && names; t++)
        for (size_t i = 0; table[t] && i < bytes[t] / sizeof(*table[t]); i++) {
            size_t symbol = (size_t)ELF64_R_SYM(table[t][i].r_info);

            if (symbol)
                take_import(o, names + symbols[symbol].st_name, o->base + table[t][i].r_offset);
        }
}

/* ---- objects ---- */

/* A new object that uses OpenMP, out of the loader's list; the others are marked as seen. */
static int take_object(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct object *ret = arg;
    struct object o = {.base = info->dlpi_addr};
    const ElfW(Dyn) *dynamic = NULL;

    (void)size;
    for (unsigned i = 0; i < seen.n; i++)
        if (seen.base[i] == (uintptr_t)info->dlpi_phdr)
            return 0;
    if (seen.n == OBJECTS_MAX) {
        seen.full = true;
        return 1;
    }
    seen.base[seen.n++] = (uintptr_t)info->dlpi_phdr;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];

        if (header->p_type == PT_DYNAMIC)
            dynamic = at(o.base + header->p_vaddr);
        else if (header->p_type == PT_TLS && header->p_memsz > 0)
            o.has_tls = true;
        else if (header->p_type == PT_LOAD && (header->p_flags & PF_X) && !o.text) {
            o.text = at(o.base + header->p_vaddr);
            o.text_size = header->p_memsz;
        }
    }
    if (!dynamic || openmp_is_runtime(info->dlpi_name ? info->dlpi_name : ""))
        return 0;
    read_imports(&o, dynamic);
    if (!o.has_regions && !o.asks && !o.number_got)
        return 0;
    if (!o.has_regions && strncmp(o.what, "omp_", 4) != 0 && !o.number_got)
        return 0; /* it looks at cores, and has nothing to do with OpenMP */
    if (!o.asks && o.number_got && !only_static_loops(&o)) {
        o.asks = true;
        snprintf(o.what, sizeof(o.what), "omp_get_num_threads");
    }
    if (!o.asks && o.has_tls) {
        o.asks = true;
        snprintf(o.what, sizeof(o.what), "thread-local variables");
    }
    snprintf(o.path, sizeof(o.path), "%s", info->dlpi_name ? info->dlpi_name : "");
    *ret = o;
    return 1;
}

/* Libraries that keep what they have built for a number of threads, whatever the user says. */
static bool is_known_to_build(const struct object *o)
{
    return strstr(o->path, "/lib_lightgbm.") || strstr(o->path, "/torchinductor_");
}

/* The copy that @o's calls go to, or NULL. */
static struct copy *copy_of_object(const struct object *o)
{
    void *handle = dlopen(o->path[0] ? o->path : NULL, RTLD_LAZY | RTLD_NOLOAD);
    void *level = dlsym(RTLD_NEXT, "omp_get_level");

    if (!level && handle)
        level = dlsym(handle, "omp_get_level");
    /* The handle stays open: an object that is judged is one that is used. */
    return level ? copy_of(level) : NULL;
}

/* Returns true when the copy's `may` has changed. */
static bool condemn(struct copy *copy, const struct object *o)
{
    const char *file = strrchr(o->path, '/');

    if (agent_config.openmp_follow && python_is_here() && !is_known_to_build(o)) {
        return atomic_exchange(&copy->may, OPENMP_PYTHON) != OPENMP_PYTHON;
    }
    snprintf(copy->note, sizeof(copy->note),
             "moldable: %.32s may build on the number of threads (%s)",
             file         ? file + 1
             : o->path[0] ? o->path
                          : "the program",
             o->what);
    atomic_store(&copy->may, OPENMP_NEVER);
    return true;
}

/* An object was unloaded, so a known address may be another object's. */
static void forget_unloaded(void)
{
    uint64_t unloads = objects_unloaded();

    if (unloads != seen.unloads)
        seen.n = 0;
    seen.unloads = unloads;
}

bool objects_judge(void)
{
    uint64_t loads = objects_loaded();
    bool changed = false;
    unsigned n;

    forget_unloaded();
    for (;;) {
        struct object o = {.base = 0};
        struct copy *copy;

        if (!dl_iterate_phdr(take_object, &o) || seen.full)
            break;
        copy = o.asks ? copy_of_object(&o) : NULL;
        if (!copy || atomic_load(&copy->may) == OPENMP_NEVER)
            continue;
        changed |= condemn(copy, &o);
    }
    n = atomic_load(&openmp.n_copies);
    for (unsigned i = 0; i < n; i++) {
        int may = OPENMP_UNJUDGED;

        if (seen.full && atomic_load(&openmp.copies[i].may) != OPENMP_NEVER) {
            snprintf(openmp.copies[i].note, PROTO_NOTE_MAX, "moldable: more than %d libraries",
                     OBJECTS_MAX);
            atomic_store(&openmp.copies[i].may, OPENMP_NEVER);
            changed = true;
        }
        changed |= atomic_compare_exchange_strong(&openmp.copies[i].may, &may, OPENMP_FREE);
    }
    atomic_store(&openmp.loads, loads);
    return changed;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/process/objects.h"

#include "agent/compat.h"
#include "agent/processor.h"

#include <fcntl.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FORK_TRIES    10000
#define FORK_PAUSE_US 50

/* ---- the loader's list ---- */

/*
 * Its lock is not made new in the child of a fork (glibc 2.36, posix/fork.c), so nobody of ours may
 * have it then: a fork waits for those who are in the list, and keeps others out.
 */
static _Atomic int readers, forks;

bool forks_hold(void)
{
    atomic_fetch_add(&readers, 1);
    if (atomic_load(&forks) == 0)
        return true;
    atomic_fetch_sub(&readers, 1);
    return false;
}

void forks_release(void)
{
    atomic_fetch_sub(&readers, 1);
}

bool each_object(each_fn each, void *arg)
{
    if (!forks_hold())
        return false;
    dl_iterate_phdr(each, arg);
    forks_release();
    return true;
}

static void before_fork(void)
{
    atomic_fetch_add(&forks, 1);
    /* The wait has an end: the thread that forks may have the loader's lock itself. */
    for (int i = 0; i < FORK_TRIES && atomic_load(&readers) > 0; i++)
        usleep(FORK_PAUSE_US);
}

static void after_fork_in_parent(void)
{
    atomic_fetch_sub(&forks, 1);
}

static void after_fork_in_child(void)
{
    atomic_store(&readers, 0);
    atomic_store(&forks, 0);
}

void objects_watch_forks(void)
{
    static _Atomic bool watched;

    if (!atomic_exchange(&watched, true))
        pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

static int count(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    *(uint64_t *)arg = info->dlpi_adds;
    return 1; /* all objects give the same number */
}

uint64_t objects_loaded(void)
{
    uint64_t loads = UINT64_MAX;

    each_object(count, &loads);
    return loads;
}

/* ---- what an object consists of ---- */

const void *pointer_to(uintptr_t address)
{
    const void *ret;

    memcpy(&ret, &address, sizeof(ret));
    return ret;
}

static const void *relocated(const struct object *o, ElfW(Addr) address)
{
    return pointer_to(address < o->base ? o->base + address : address);
}

void object_read(struct object *o, const struct dl_phdr_info *info)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

    *o = (struct object){.base = info->dlpi_addr,
                         .path = info->dlpi_name ? info->dlpi_name : "",
                         .start = UINTPTR_MAX};
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        uintptr_t from = o->base + header->p_vaddr, to = from + header->p_memsz;

        if (header->p_type == PT_DYNAMIC) {
            o->dynamic = pointer_to(from);
        } else if (header->p_type == PT_TLS) {
            o->has_tls = header->p_memsz > 0;
        } else if (header->p_type == PT_GNU_RELRO) {
            o->relro_start = from & -page;
            o->relro_end = to & -page;
        } else if (header->p_type == PT_LOAD) {
            o->start = from < o->start ? from : o->start;
            o->end = to > o->end ? to : o->end;
            if ((header->p_flags & (PF_W | PF_X)) == PF_W)
                continue;
            if (o->n_spans < OBJECT_SPANS_MAX)
                o->spans[o->n_spans] =
                    (struct span){from, header->p_filesz, (header->p_flags & PF_X) != 0};
            o->n_spans++;
        }
    }
}

const char *object_file(const struct object *o)
{
    const char *slash = strrchr(o->path, '/');

    return slash ? slash + 1 : o->path;
}

struct search {
    uintptr_t code;
    struct object *found;
};

static int holds(struct dl_phdr_info *info, size_t size, void *arg)
{
    const struct search *s = arg;

    (void)size;
    object_read(s->found, info);
    return s->code >= s->found->start && s->code < s->found->end;
}

bool object_at(const void *code, struct object *ret)
{
    struct search s = {(uintptr_t)code, ret};

    return dl_iterate_phdr(holds, &s) == 1;
}

/* ---- symbols that an object defines ---- */

struct symbols {
    const ElfW(Sym) * table;
    const char *names;
    const uint32_t *hash; /* DT_GNU_HASH */
};

static struct symbols symbols_of(const struct object *o)
{
    struct symbols s = {.table = NULL};

    for (const ElfW(Dyn) *d = o->dynamic; d && d->d_tag != DT_NULL; d++) {
        if (d->d_tag == DT_SYMTAB)
            s.table = relocated(o, d->d_un.d_ptr);
        else if (d->d_tag == DT_STRTAB)
            s.names = relocated(o, d->d_un.d_ptr);
        else if (d->d_tag == DT_GNU_HASH)
            s.hash = relocated(o, d->d_un.d_ptr);
    }
    return s;
}

/* dlsym() without the loader's lock. Format: docs.oracle.com, "GNU Hash Section". */
static uintptr_t definition(const struct object *o, const char *name, unsigned type)
{
    struct symbols s = symbols_of(o);
    uint32_t hash = 5381;
    const uint32_t *buckets, *chain;
    uint32_t i;

    if (!s.table || !s.names || !s.hash || s.hash[0] == 0)
        return 0;
    for (const char *c = name; *c; c++)
        hash = hash * 33 + (unsigned char)*c;
    buckets = s.hash + 4 + s.hash[2] * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
    chain = buckets + s.hash[0];
    i = buckets[hash % s.hash[0]];
    if (i < s.hash[1])
        return 0;
    for (;; i++) {
        uint32_t other = chain[i - s.hash[1]];
        const ElfW(Sym) *symbol = &s.table[i];

        if ((other | 1) == (hash | 1) && strcmp(s.names + symbol->st_name, name) == 0 &&
            symbol->st_shndx != SHN_UNDEF && (symbol->st_info & 0xf) == type)
            return o->base + symbol->st_value;
        if (other & 1)
            return 0;
    }
}

uintptr_t object_defines(const struct object *o, const char *name)
{
    return definition(o, name, STT_FUNC);
}

uintptr_t object_variable(const struct object *o, const char *name)
{
    return definition(o, name, STT_OBJECT);
}

/* The first text of the dynamic section with this tag and beginning. */
static const char *text_of(const struct object *o, ElfW(Sxword) tag, const char *prefix)
{
    struct symbols s = symbols_of(o);

    for (const ElfW(Dyn) *d = o->dynamic; d && s.names && d->d_tag != DT_NULL; d++)
        if (d->d_tag == tag && strncmp(s.names + d->d_un.d_val, prefix, strlen(prefix)) == 0)
            return s.names + d->d_un.d_val;
    return NULL;
}

const char *object_needs(const struct object *o, const char *prefix)
{
    return text_of(o, DT_NEEDED, prefix);
}

const char *object_soname(const struct object *o)
{
    const char *name = text_of(o, DT_SONAME, "");

    return name ? name : "";
}

static bool is_slot(uint64_t info)
{
    return ELF64_R_TYPE(info) == PROCESSOR_SLOT_CALL || ELF64_R_TYPE(info) == PROCESSOR_SLOT_DATA;
}

void object_imports(const struct object *o, void (*take)(void *arg, const struct import *import),
                    void *arg)
{
    struct symbols s = symbols_of(o);
    const ElfW(Rela) * table[2] = {NULL, NULL};
    size_t bytes[2] = {0, 0};

    for (const ElfW(Dyn) *d = o->dynamic; d->d_tag != DT_NULL; d++) {
        if (d->d_tag == DT_JMPREL)
            table[0] = relocated(o, d->d_un.d_ptr);
        else if (d->d_tag == DT_RELA)
            table[1] = relocated(o, d->d_un.d_ptr);
        else if (d->d_tag == DT_PLTRELSZ)
            bytes[0] = d->d_un.d_val;
        else if (d->d_tag == DT_RELASZ)
            bytes[1] = d->d_un.d_val;
    }
    for (unsigned t = 0; t < 2 && s.table && s.names; t++)
        for (size_t i = 0; table[t] && i < bytes[t] / sizeof(*table[t]); i++) {
            size_t symbol = (size_t)ELF64_R_SYM(table[t][i].r_info);

            if (symbol)
                take(arg, &(struct import){.name = s.names + s.table[symbol].st_name,
                                           .slot = o->base + table[t][i].r_offset,
                                           .is_slot = is_slot(table[t][i].r_info),
                                           .linked = t == 0,
                                           .defined = s.table[symbol].st_shndx != SHN_UNDEF});
        }
}

/* ---- slots ---- */

static uintptr_t *slot_of(uintptr_t address)
{
    uintptr_t *ret;

    memcpy(&ret, &address, sizeof(ret));
    return ret;
}

uintptr_t slot_held(uintptr_t slot)
{
    return __atomic_load_n(slot_of(slot), __ATOMIC_RELAXED);
}

/* The mapping that @address lies in. Returns its end, 0 where there is none or it cannot be read.
 */
static uintptr_t mapping_of(uintptr_t address, bool *ret_writable)
{
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    char text[4096];
    size_t have = 0;
    uintptr_t found = 0;
    ssize_t n;

    while (fd >= 0 && !found && (n = read(fd, text + have, sizeof(text) - 1 - have)) > 0) {
        char *line = text, *end;

        text[have += (size_t)n] = '\0';
        for (; (end = strchr(line, '\n')); line = end + 1) {
            char *dash;
            uintptr_t from = (uintptr_t)strtoull(line, &dash, 16), to;

            to = *dash == '-' ? (uintptr_t)strtoull(dash + 1, &dash, 16) : 0;
            if (address >= from && address < to) {
                *ret_writable = dash[0] != ' ' || dash[2] != '-';
                found = to;
            }
        }
        have = strlen(line);
        if (have == sizeof(text) - 1)
            break;
        memmove(text, line, have);
    }
    if (fd >= 0)
        close(fd);
    return found;
}

uintptr_t object_mapping_end(uintptr_t address)
{
    bool writable;

    return mapping_of(address, &writable);
}

/* In doubt it is: then the slot is left alone. */
static bool is_writable(uintptr_t address)
{
    bool writable = true;

    mapping_of(address, &writable);
    return writable;
}

/*
 * Where others need not see a core's writes in their order, a thread could meet a stub and not yet
 * what the stub calls. Kernels before 4.14 cannot help it.
 */
static void publish(void)
{
    static _Atomic bool registered;

    if (PROCESSOR_ORDERS_WRITES)
        return;
    if (!atomic_exchange(&registered, true))
        syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
    syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
}

bool slot_write(const struct object *o, uintptr_t slot, uintptr_t value)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = slot & -page;
    bool protects = slot >= o->relro_start && slot < o->relro_end;

    if (protects &&
        (is_writable(slot) || mprotect(slot_of(start), page, PROT_READ | PROT_WRITE) != 0))
        return false;
    publish();
    __atomic_store_n(slot_of(slot), value, __ATOMIC_RELEASE);
    if (protects)
        mprotect(slot_of(start), page, PROT_READ);
    return true;
}

struct taking {
    const struct object *o;
    const char *name;
    uintptr_t real, stub;
    bool loads, writes;
    unsigned found, wrong;
};

static int defines_another(struct dl_phdr_info *info, size_t size, void *arg)
{
    const struct taking *t = arg;
    struct object o;
    uintptr_t defined;

    (void)size;
    object_read(&o, info);
    defined = object_defines(&o, t->name);
    return defined != 0 && defined != t->real;
}

/*
 * Will ld.so bind a slot that is not bound yet to the wanted function? dlsym() asks for the
 * loader's lock. A thread that is in the loader's list and does not have that lock would wait for
 * a load that waits for the list, so there no other object may have the name.
 */
static bool will_lead_to_real(struct taking *t)
{
    uintptr_t global;

    if (!t->loads)
        return dl_iterate_phdr(defines_another, t) == 0;
    global = (uintptr_t)dlsym(RTLD_DEFAULT, t->name);
    return global == 0 || global == t->real;
}

/* A slot that is not bound yet leads to the object itself, and will to what the global scope has
 * first. */
static bool leads_to_real(struct taking *t, uintptr_t held)
{
    return held == t->real || (held >= t->o->start && held < t->o->end && will_lead_to_real(t));
}

static void take_slot(void *arg, const struct import *import)
{
    struct taking *t = arg;
    uintptr_t held;

    if (!import->is_slot || strcmp(import->name, t->name) != 0)
        return;
    t->found++;
    held = slot_held(import->slot);
    if (held == t->stub)
        return;
    if (t->writes ? !slot_write(t->o, import->slot, t->stub) : !leads_to_real(t, held))
        t->wrong++;
}

static bool take_slots(struct taking t)
{
    object_imports(t.o, take_slot, &t);
    if (!t.real || t.found == 0 || t.wrong > 0)
        return false;
    t.writes = true;
    object_imports(t.o, take_slot, &t);
    return t.wrong == 0;
}

bool slots_take(const struct object *o, const char *name, const void *real, const void *stub)
{
    return take_slots((struct taking){
        .o = o, .name = name, .real = (uintptr_t)real, .stub = (uintptr_t)stub, .loads = true});
}

bool slots_take_later(const struct object *o, const char *name, const void *real, const void *stub)
{
    return take_slots(
        (struct taking){.o = o, .name = name, .real = (uintptr_t)real, .stub = (uintptr_t)stub});
}

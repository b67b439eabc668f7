/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to this room: reads loaded objects, and writes to their slots, without the loader's main
 * lock. Control thread, where nothing else is said.
 */
#pragma once

#include "agent/runtimes/openmp/openmp.h"

#define SLOTS_MAX 32 /* entries of regions in an object */

/* A loaded object, while dl_iterate_phdr keeps it in place. */
struct object {
    ElfW(Addr) base;
    const char *path;
    uintptr_t start, end;             /* of its memory */
    uintptr_t relro_start, relro_end; /* ld.so makes it read-only when it is done */
    const ElfW(Dyn) * dynamic;
    const char *what; /* the first function that tells, or what else it has; NULL: none */
    bool has_tls;
    bool has_regions; /* it calls an entry of parallel regions */
    bool pushes;      /* num_threads(n), as clang's code says it */
    bool sysconf;
    bool uses_openmp;
    uint32_t copies; /* that it is bound to; a bit each */
    bool unbound;    /* some slot of a runtime's function waits for its first call */
    bool foreign;    /* some entry of regions is bound to what we do not know */
    bool unfinished; /* ld.so is not done with it */
    bool number_twice;
    struct code code;
    struct {
        uintptr_t at;
        enum openmp_entry entry;
    } slots[SLOTS_MAX];
    unsigned n_slots;
};

typedef int (*each_fn)(struct dl_phdr_info *info, size_t size, void *arg);

/* dl_iterate_phdr(), unless the program forks at this moment: then nothing. Any thread. */
void each_object(each_fn each, void *arg);

/* Fills in what the headers say, and zeroes the others. */
void object_read(struct object *o, const struct dl_phdr_info *info);

/* The address of the function @name that @o defines; 0: none. */
uintptr_t object_defines(const struct object *o, const char *name);

/* Calls @take for each import: its name, its slot, and whether that is of the linkage table. */
void object_imports(struct object *o,
                    void (*take)(struct object *o, const char *name, uintptr_t slot, bool linked));

/* What a slot holds. */
uintptr_t slot_held(uintptr_t slot);

/* Returns false when ld.so may still write to that page. */
bool slot_write(const struct object *o, uintptr_t slot, uintptr_t value);

/* An address as a pointer. */
const void *pointer_to(uintptr_t address);

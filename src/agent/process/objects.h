/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loaded objects (the program, its libraries): reads them, and writes to the slots of their tables
 * of addresses (GOT), without the loader's main lock, which a constructor may hold for minutes.
 * Control thread, where nothing else is said.
 */
#pragma once

#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OBJECT_SPANS_MAX 6

/* Code of an object, or constants. */
struct span {
    uintptr_t start;
    size_t size;
    bool is_code;
};

/* While dl_iterate_phdr keeps it in place. */
struct object {
    ElfW(Addr) base;
    const char *path;
    uintptr_t start, end;             /* of its memory */
    uintptr_t relro_start, relro_end; /* ld.so makes it read-only when it is done */
    const ElfW(Dyn) * dynamic;
    bool has_tls;
    struct span spans[OBJECT_SPANS_MAX]; /* code and constants */
    unsigned n_spans;                    /* there may be more of them */
};

/* An entry of an object's table of addresses that holds a function. */
struct import {
    const char *name;
    uintptr_t slot;
    bool is_slot; /* of the table of addresses; else the program's own data, or an address in its
                     code */
    bool linked;  /* the slot is of the procedure linkage table */
    bool defined; /* the object itself has such a function, too */
};

typedef int (*each_fn)(struct dl_phdr_info *info, size_t size, void *arg);

/* dl_iterate_phdr(), unless the program forks at this moment: then nothing, and false. Any thread.
 */
bool each_object(each_fn each, void *arg);

/* How many objects the program has loaded so far; UINT64_MAX: not known. Any thread. */
uint64_t objects_loaded(void);

/* From now on a fork waits until nobody of ours is in the loader's list. Any thread. */
void objects_watch_forks(void);

/*
 * A fork waits until forks_release(), too, for some half a second: no lock that is taken in between
 * is one that its child would find taken. Returns false while the program forks. Any thread.
 */
bool forks_hold(void);
void forks_release(void);

/* Fills in what the headers say. Any thread. */
void object_read(struct object *o, const struct dl_phdr_info *info);

/* The name of its file, without the folder. Any thread. */
const char *object_file(const struct object *o);

/*
 * Reads the object that has the code at @code, for a thread in the middle of a load: it may have
 * the loader's lock, so a fork is not waited for. Returns false when there is none.
 */
bool object_at(const void *code, struct object *ret);

/* The address of the function @name that @o defines; 0: none. */
uintptr_t object_defines(const struct object *o, const char *name);

/* The address of the variable @name that @o defines; 0: none. */
uintptr_t object_variable(const struct object *o, const char *name);

/* A library that @o was linked with and whose name begins with @prefix; NULL: none. Any thread. */
const char *object_needs(const struct object *o, const char *prefix);

/* The name under which @o satisfies other objects' needs (DT_SONAME); "": none. */
const char *object_soname(const struct object *o);

/* Calls @take for each import. Any thread. */
void object_imports(const struct object *o, void (*take)(void *arg, const struct import *import),
                    void *arg);

/* The end of the mapping that @address lies in; 0: none, or it cannot be read. */
uintptr_t object_mapping_end(uintptr_t address);

/* The address that a slot holds. Any thread. */
uintptr_t slot_held(uintptr_t slot);

/* Returns false when ld.so may still write to that page. One thread at a time for each object: the
 * control thread, or the one that loads it. */
bool slot_write(const struct object *o, uintptr_t slot, uintptr_t value);

/*
 * Puts @stub into the slots with which @o calls its @name, if all of them lead to @real, or would
 * once ld.so has bound them. Also where @stub is already. Returns false when there is none, or one
 * leads elsewhere or cannot be written. A thread in the middle of a load: it has the loader's lock.
 */
bool slots_take(const struct object *o, const char *name, const void *real, const void *stub);

/*
 * The same for a thread that is in the loader's list without the loader's lock, as the control
 * thread is in each_object(): dlsym() would hold up a load there for ever. Where a slot is not
 * bound yet, no other object may have @name, either.
 */
bool slots_take_later(const struct object *o, const char *name, const void *real, const void *stub);

/* An address as a pointer. */
const void *pointer_to(uintptr_t address);

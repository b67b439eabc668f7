/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backend for ONNX Runtime, from any language. Its thread pools keep their size, but each parallel
 * loop says anew how many of a pool's threads are to help, so the number may change between two
 * loops. docs/design/56-onnxruntime.md says why. This part sees the library being loaded, keeps the
 * target and describes the pools; the loops are in onnx_hooks.c.
 */
#include "agent/runtimes/onnx/onnx.h"
#include "agent/compat.h"
#include "agent/process/limit.h"
#include "agent/process/objects.h"
#include "agent/process/python.h"
#include "agent/processor.h"

#include "base/clock.h"
#include "base/startup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QUIET_NS (200 * NS_PER_MS) /* all of a pool's threads have been on a core meanwhile */

#define LIBRARY "libonnxruntime.so"
#define MODULE  "onnxruntime_pybind11_state." /* of Python, with the library in it */

struct onnx_state onnx;

static char version[PROTO_SHORT_MAX];
static _Atomic bool versioned; /* it has been read, for good */
static uint64_t quiet_until_ns;

void onnx_fix(const char *note)
{
    int may = atomic_load(&onnx.may);

    do {
        if (may == ONNX_JUDGING || may == ONNX_FIXED)
            return;
    } while (!atomic_compare_exchange_weak(&onnx.may, &may, ONNX_JUDGING));
    snprintf(onnx.note, sizeof(onnx.note), "%s", note);
    atomic_store(&onnx.may, ONNX_FIXED);
    agent_notify();
}

/* ---- the library is loaded: a thread of the program, in the middle of that ---- */

static bool is_module(const struct object *o)
{
    return strncmp(object_file(o), MODULE, strlen(MODULE)) == 0;
}

static bool is_library(const struct object *o)
{
    return o->dynamic && (is_module(o) || strncmp(object_file(o), LIBRARY, strlen(LIBRARY)) == 0);
}

bool onnx_is_library(const struct object *o)
{
    if (!is_library(o) || is_module(o))
        return false;
    for (unsigned i = 0; i < ONNX_COPIES_MAX; i++) {
        const struct onnx_copy *copy = &onnx.copies[i];

        if (copy->start == o->start && copy->end == o->end &&
            slot_held(onnx_entry(copy, ONNX_RUN)) == (uintptr_t)onnx_run)
            return true;
    }
    return false;
}

/* A place for the library; one that had been here and was unloaded gives its place back. */
static struct onnx_copy *place_for(const struct object *o)
{
    struct onnx_copy *place = NULL;

    for (unsigned i = ONNX_COPIES_MAX; i-- > 0;) {
        struct onnx_copy *copy = &onnx.copies[i];

        if (copy->start < o->end && o->start < copy->end)
            return copy;
        if (copy->start == 0)
            place = copy;
    }
    return place;
}

static void take_import(void *arg, const struct import *import)
{
    const struct object *o = arg;

    if (!import->is_slot || import->defined)
        return;
    if (strcmp(import->name, "getenv") == 0)
        slot_write(o, import->slot, (uintptr_t)onnx_getenv);
    else if (strcmp(import->name, "pthread_setaffinity_np") == 0)
        slot_write(o, import->slot, (uintptr_t)onnx_set_affinity);
}

static void take(const struct dl_phdr_info *info, struct object *o)
{
    struct onnx_copy *copy = place_for(o), found = {.start = 0};
    int unseen = ONNX_UNSEEN;

    if (!copy || !onnx_find_class(info, &found)) {
        onnx_fix(PROCESSOR_CODE_IS_KNOWN ? "moldable: an unknown ONNX Runtime" : PROCESSOR_NOTE);
        return;
    }
    if (found.run == onnx_run)
        return; /* it has been taken */
    atomic_store(&copy->proven, false);
    copy->start = o->start;
    copy->end = o->end;
    copy->run = found.run;
    copy->run_more = found.run_more;
    copy->spin = found.spin;
    copy->doze = found.doze;
    copy->threads_at = found.threads_at;
    copy->spins_at = found.spins_at;
    copy->table = found.table;
    if (!slot_write(o, onnx_entry(copy, ONNX_RUN), (uintptr_t)onnx_run) ||
        !slot_write(o, onnx_entry(copy, ONNX_RUN_MORE), (uintptr_t)onnx_run_more)) {
        onnx_fix("moldable: ONNX Runtime cannot be changed");
        return;
    }
    object_imports(o, take_import, o);
    atomic_compare_exchange_strong(&onnx.may, &unseen, ONNX_FREE);
}

static void begin(void)
{
    static _Atomic bool begun;

    if (atomic_exchange(&begun, true))
        return;
    onnx.set_affinity = (int (*)(pthread_t, size_t, const cpu_set_t *))dlsym(
        RTLD_DEFAULT, "pthread_setaffinity_np");
    onnx.spins = startup_spins(getenv(STARTUP_SPIN));
    snprintf(onnx.most, sizeof(onnx.most), "%u", agent_config.max);
}

/* Version in the name of a library: libonnxruntime.so.1.32.0. */
static void read_name(const struct object *o)
{
    const char *number = object_file(o) + strlen(LIBRARY);

    if (is_module(o)) {
        atomic_store(&onnx.in_python, true);
        return;
    }
    atomic_store(&onnx.has_library, true);
    if (*number == '.' && strchr(number + 1, '.') && !atomic_load(&versioned)) {
        snprintf(version, sizeof(version), "%s", number + 1);
        atomic_store(&versioned, true);
    }
}

static int is_library_here(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct object o;

    (void)size;
    (void)arg;
    object_read(&o, info);
    return is_library(&o);
}

/* @arg: the object that is wanted; NULL: all. */
static int take_if_library(struct dl_phdr_info *info, size_t size, void *arg)
{
    const struct object *wanted = arg;
    struct object o;

    (void)size;
    object_read(&o, info);
    if (is_library(&o) && (!wanted || wanted->start == o.start)) {
        read_name(&o);
        take(info, &o);
    }
    return 0;
}

static void onnx_loaded(const struct object *o)
{
    if (is_library(o) && agent_start()) {
        begin();
        dl_iterate_phdr(take_if_library, (void *)o);
    }
}

/* Libraries that the program is linked with may be initialized before us. */
__attribute__((constructor)) static void begin_if_linked(void)
{
    int saved = errno;

    if (agent_config.enabled && dl_iterate_phdr(is_library_here, NULL) == 1 && agent_start()) {
        begin();
        dl_iterate_phdr(take_if_library, NULL);
    }
    errno = saved;
}

/* ---- Python's main thread, between two bytecodes ---- */

static bool read_version(void)
{
    python_text("onnxruntime", "__version__", version, sizeof(version));
    atomic_store(&versioned, true);
    agent_notify();
    return true;
}

static struct python_errand errand = {.package = "onnxruntime", .run = read_version};

/* ---- targets: the control thread ---- */

static bool onnx_settled(void)
{
    if (onnx_hooks_fit())
        return true;
    atomic_store(&onnx.watched, true); /* then again: a loop that ends meanwhile tells */
    if (!onnx_hooks_fit())
        return false;
    atomic_store(&onnx.watched, false);
    return true;
}

static bool onnx_apply(const struct agent_target *target)
{
    uint32_t before = atomic_exchange(&onnx.target, target->intra);

    if (before != target->intra)
        atomic_store(&onnx.leader, NULL);
    if (target->intra && (before == 0 || before > target->intra)) {
        quiet_until_ns = clock_now_ns() + QUIET_NS;
        atomic_store(&onnx.quiet, true);
    }
    return onnx_settled();
}

static void onnx_watch(uint64_t now_ns)
{
    if (atomic_load(&onnx.quiet) && now_ns >= quiet_until_ns)
        atomic_store(&onnx.quiet, false);
    if (atomic_load(&onnx.in_python) && !atomic_load(&versioned))
        python_errand(&errand);
    onnx_calls_watch();
}

static void onnx_measure(struct proto_ack *ack)
{
    agent_measure(ack, atomic_load(&onnx.placed_ns));
}

static bool onnx_describe(struct proto_backend *b)
{
    uint32_t most = atomic_load(&onnx.largest), limit = onnx_limit();
    int may = atomic_load(&onnx.may);

    if ((may != ONNX_FREE || most == 0) && may != ONNX_FIXED)
        return false;
    if (most == 0)
        most = limit_affinity_cpus();
    b->malleable = may == ONNX_FREE;
    b->max_intra = most;
    b->target_intra = limit ? limit : most;
    b->active_intra = onnx_hooks_fit() ? b->target_intra : 1 + onnx_hooks_helpers();
    snprintf(b->name, sizeof(b->name), "onnxruntime");
    snprintf(b->version, sizeof(b->version), "%s", atomic_load(&versioned) ? version : "");
    snprintf(b->note, sizeof(b->note), "%s", b->malleable ? "" : onnx.note);
    return true;
}

/* A step of inference has the same loops, whatever the number of threads. */
static uint64_t onnx_tasks(void)
{
    return onnx_hooks_loops();
}

/* Pools of the parent have no threads here: their loops run alone, as without the agent. */
static void onnx_after_fork(void)
{
    onnx_hooks_after_fork();
    onnx_calls_after_fork();
    atomic_store(&onnx.target, 0);
    atomic_store(&onnx.largest, 0);
    atomic_store(&onnx.watched, false);
    atomic_store(&onnx.quiet, false);
    atomic_store(&errand.asked, false);
    atomic_store(&onnx.forked, true);
}

const struct agent_backend onnx_backend = {
    .name = "onnxruntime",
    .apply = onnx_apply,
    .settled = onnx_settled,
    .measure = onnx_measure,
    .describe = onnx_describe,
    .watch = onnx_watch,
    .tasks = onnx_tasks,
    .loaded = onnx_loaded,
    .after_fork = onnx_after_fork,
};

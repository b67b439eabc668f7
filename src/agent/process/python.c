/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/process/python.h"

#include "agent/compat.h"
#include "agent/process/objects.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LONG_NS     (50 * NS_PER_MS)
#define ANSWERS_MAX 8

#define ERRAND_TRIES 1200 /* at ten a second: an import that takes longer has failed */

bool python_is_here(void)
{
    typedef int (*is_initialized_fn)(void);
    is_initialized_fn is_initialized = (is_initialized_fn)dlsym(RTLD_DEFAULT, "Py_IsInitialized");

    return is_initialized && is_initialized();
}

bool python_has_gil(void)
{
    typedef const char *(*version_fn)(void);
    version_fn version = (version_fn)dlsym(RTLD_DEFAULT, "Py_GetVersion");

    return python_is_here() && version && !strstr(version(), "free-threading");
}

bool python_call_soon(int (*fn)(void *), void *arg)
{
    typedef int (*add_fn)(int (*)(void *), void *);
    typedef int (*is_initialized_fn)(void);
    static is_initialized_fn is_initialized;
    static add_fn add; /* dlsym() takes the loader's lock: once */

    if (!add && python_has_gil()) {
        is_initialized = (is_initialized_fn)dlsym(RTLD_DEFAULT, "Py_IsInitialized");
        add = (add_fn)dlsym(RTLD_DEFAULT, "Py_AddPendingCall");
    }
    return add && is_initialized() && add(fn, arg) == 0;
}

static int run_errand(void *arg)
{
    struct python_errand *e = arg;
    int saved = errno;

    if (!atomic_load(&e->done) && python_prepare() && !python_imports(e->package) &&
        (e->run() || ++e->tries == ERRAND_TRIES))
        atomic_store(&e->done, true);
    atomic_store(&e->asked, false);
    errno = saved;
    return 0;
}

void python_errand(struct python_errand *e)
{
    if (!atomic_load(&e->done) && !atomic_exchange(&e->asked, true) &&
        !python_call_soon(run_errand, e))
        atomic_store(&e->asked, false);
}

/* Reads a file of the main thread. */
static bool read_main(const char *file, char *text, size_t size)
{
    char path[64];
    ssize_t n;
    int fd;

    snprintf(path, sizeof(path), "/proc/self/task/%d/%s", (int)getpid(), file);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    n = read(fd, text, size - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    return n > 0;
}

static bool sleeps(void)
{
    char text[256];
    const char *state = read_main("stat", text, sizeof(text)) ? strrchr(text, ')') : NULL;

    return state && state[1] == ' ' && state[2] == 'S';
}

bool python_sleeps_long(void)
{
    static const char name[] = "\nvoluntary_ctxt_switches:";
    static unsigned long long before; /* how often it has gone to sleep */
    static uint64_t since_ns;
    char text[4096];
    const char *found = read_main("status", text, sizeof(text)) ? strstr(text, name) : NULL;
    unsigned long long times = found ? strtoull(found + sizeof(name) - 1, NULL, 10) : 0;
    uint64_t now_ns = clock_now_ns();

    if (!found || !sleeps() || times != before) {
        before = times;
        since_ns = now_ns;
        return false;
    }
    return now_ns - since_ns >= LONG_NS;
}

/* ---- ctypes ---- */

static struct {
    const void *real, *ours;
} answers[ANSWERS_MAX];
static _Atomic unsigned n_answers;
static void *(*lookup)(void *handle, const char *name); /* what ctypes' slot held */

/* In place of dlsym(). A thread of the program; errno and dlerror() are the real function's. */
static void *answer(void *handle, const char *name)
{
    void *found = lookup(handle, name);

    for (unsigned i = 0; found && i < atomic_load(&n_answers); i++)
        if (answers[i].real == found)
            return (void *)answers[i].ours;
    return found;
}

void python_add_answer(const void *real, const void *ours)
{
    unsigned n = atomic_load(&n_answers);

    if (n < ANSWERS_MAX) {
        answers[n].real = real;
        answers[n].ours = ours;
        atomic_store(&n_answers, n + 1);
    }
}

struct ctypes {
    struct object object;
    uintptr_t slot; /* of dlsym(); 0: none */
};

static void take_lookup(void *arg, const struct import *import)
{
    if (import->is_slot && strcmp(import->name, "dlsym") == 0)
        ((struct ctypes *)arg)->slot = import->slot;
}

static int find_ctypes(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct ctypes *found = arg;

    (void)size;
    object_read(&found->object, info);
    if (!found->object.dynamic || strncmp(object_file(&found->object), "_ctypes.", 8) != 0)
        return 0;
    object_imports(&found->object, take_lookup, found);
    return 1;
}

void python_answer_ctypes(void)
{
    struct ctypes found = {.slot = 0};
    uintptr_t held;

    if (lookup || !each_object(find_ctypes, &found) || !found.slot)
        return;
    held = slot_held(found.slot);
    /* Not bound yet: ld.so would look for the same function. */
    if (held >= found.object.start && held < found.object.end)
        held = (uintptr_t)dlsym;
    lookup = (void *(*)(void *, const char *))pointer_to(held);
    if (!slot_write(&found.object, found.slot, (uintptr_t)answer))
        lookup = NULL; /* ld.so is not done: again in a moment */
}

/* ---- the interpreter's objects ---- */

/* The part of the C API that is used: the same since Python 3.4. */
static struct {
    _Atomic bool ready;
    int (*has_gil)(void);
    void *(*modules)(void);
    void *(*get_item)(void *dict, const char *key); /* borrowed; sets no error */
    void *(*dict_of)(void *module);
    void *(*attribute)(void *object, const char *name);
    int (*is_true)(void *object);
    const char *(*text_of)(void *object);
    void (*release)(void *object);
    void (*fetch)(void **type, void **value, void **trace);
    void (*restore)(void *type, void *value, void *trace);
} api;

#define FIND(member, name)                                                                         \
    ((api.member = (__typeof__(api.member))dlsym(RTLD_DEFAULT, name)) != NULL)

bool python_prepare(void)
{
    if (!atomic_load(&api.ready) && FIND(has_gil, "PyGILState_Check") &&
        FIND(modules, "PyImport_GetModuleDict") && FIND(get_item, "PyDict_GetItemString") &&
        FIND(dict_of, "PyModule_GetDict") && FIND(attribute, "PyObject_GetAttrString") &&
        FIND(is_true, "PyObject_IsTrue") && FIND(text_of, "PyUnicode_AsUTF8") &&
        FIND(release, "Py_DecRef") && FIND(fetch, "PyErr_Fetch") && FIND(restore, "PyErr_Restore"))
        atomic_store(&api.ready, true);
    return atomic_load(&api.ready);
}

/* In the dictionary of a module, where no code of the module runs. Borrowed. */
static void *find(const char *module, const char *name)
{
    void *modules = api.modules();
    void *found = modules ? api.get_item(modules, module) : NULL;
    void *dict = found ? api.dict_of(found) : NULL;

    return dict ? api.get_item(dict, name) : NULL;
}

bool python_has_module(const char *name)
{
    void *error[3], *modules;
    bool has;

    if (!atomic_load(&api.ready) || !api.has_gil())
        return false;
    api.fetch(&error[0], &error[1], &error[2]);
    modules = api.modules();
    has = modules && api.get_item(modules, name);
    api.restore(error[0], error[1], error[2]);
    return has;
}

bool python_imports(const char *module)
{
    void *error[3], *spec, *flag;
    bool imports;

    api.fetch(&error[0], &error[1], &error[2]);
    spec = find(module, "__spec__");
    flag = spec ? api.attribute(spec, "_initializing") : NULL;
    imports = flag && api.is_true(flag) == 1;
    if (flag)
        api.release(flag);
    api.restore(error[0], error[1], error[2]); /* instead of one of ours */
    return imports;
}

void python_text(const char *module, const char *name, char *to, size_t size)
{
    void *error[3], *object;
    const char *text;

    api.fetch(&error[0], &error[1], &error[2]);
    object = find(module, name);
    text = object ? api.text_of(object) : NULL;
    snprintf(to, size, "%s", text ? text : "");
    api.restore(error[0], error[1], error[2]);
}

/* ---- methods of the program's classes ---- */

/* PyMethodDef */
struct definition {
    const char *name;
    python_method_fn function;
    int flags;
    const char *doc;
};

#define FASTCALL_KEYWORDS (0x80 | 0x02) /* METH_FASTCALL | METH_KEYWORDS: since Python 3.7 */

/* Types of the two objects of a method made by pybind11: a built-in function, and its wrapper. */
static struct {
    void *function_type, *method_type;
    void *(*type_of)(void *object);
    void *(*new_function)(struct definition *d, void *self, void *module);
    void *(*new_method)(void *function);
    void *(*call)(void *callable, void *const *args, size_t n, void *names);
    int (*set_attribute)(void *object, const char *name, void *value);
} methods;

#define FIND_METHOD(member, name)                                                                  \
    ((methods.member = (__typeof__(methods.member))dlsym(RTLD_DEFAULT, name)) != NULL)

static bool prepare_methods(void)
{
    return FIND_METHOD(function_type, "PyCFunction_Type") &&
           FIND_METHOD(method_type, "PyInstanceMethod_Type") &&
           FIND_METHOD(type_of, "PyObject_Type") &&
           FIND_METHOD(new_function, "PyCFunction_NewEx") &&
           FIND_METHOD(new_method, "PyInstanceMethod_New") &&
           FIND_METHOD(call, "PyObject_Vectorcall") &&
           FIND_METHOD(set_attribute, "PyObject_SetAttrString");
}

void *python_call(void *original, void *const *args, ptrdiff_t n, void *names)
{
    return methods.call(original, args, (size_t)n, names);
}

static bool is_of(void *object, const void *wanted)
{
    void *type = object ? methods.type_of(object) : NULL;

    if (type)
        api.release(type);
    return type && type == wanted;
}

static char *doc_of(void *function)
{
    void *doc = api.attribute(function, "__doc__");
    const char *text = doc ? api.text_of(doc) : NULL;
    char *ret = text ? strdup(text) : NULL;

    if (doc)
        api.release(doc);
    return ret;
}

/* The new function has @original as its "self", and keeps it. */
static bool replace(void *type, void *original, const char *name, python_method_fn method)
{
    struct definition *d = calloc(1, sizeof(*d));
    char *doc = doc_of(original);
    void *function = NULL, *made = NULL;
    bool done = false;

    if (d) {
        *d = (struct definition){name, method, FASTCALL_KEYWORDS, doc};
        function = methods.new_function(d, original, NULL);
    }
    if (function && (made = methods.new_method(function)))
        done = methods.set_attribute(type, name, made) == 0;
    if (made)
        api.release(made);
    if (function)
        api.release(function);
    if (!done) {
        free(doc);
        free(d);
    }
    return done;
}

bool python_replace(const char *module, const char *type, const char *name, python_method_fn method)
{
    void *error[3], *class, *before, *original = NULL;
    bool done = false;

    if (!atomic_load(&api.ready) || !api.has_gil() || !prepare_methods())
        return false;
    api.fetch(&error[0], &error[1], &error[2]);
    class = find(module, type);
    before = class ? api.attribute(class, name) : NULL;
    if (is_of(before, methods.method_type))
        original = api.attribute(before, "__func__");
    if (is_of(original, methods.function_type))
        done = replace(class, original, name, method);
    if (original)
        api.release(original);
    if (before)
        api.release(before);
    api.restore(error[0], error[1], error[2]); /* instead of one of ours */
    return done;
}

/* ---- functions of the program's classes ---- */

#define VECTORCALL_AT 56  /* tp_vectorcall_offset in a type, where Python is older than 3.12 */
#define OFFSET_MAX    256 /* of the pointer in a function, by far */

static struct {
    void *type; /* of functions written in Python */
    void *(*call)(void *callable);
    void (*keep)(void *object);
    /* since Python 3.12 */
    python_function_fn (*held)(void *function);
    void (*set)(void *function, python_function_fn fn);
    /* The one that all functions hold; known before where Python is older. */
    python_function_fn stock;
} functions;

#define FIND_FUNCTION(member, name)                                                                \
    ((functions.member = (__typeof__(functions.member))dlsym(RTLD_DEFAULT, name)) != NULL)

static bool prepare_functions(void)
{
    if (!FIND_METHOD(type_of, "PyObject_Type") || !FIND_FUNCTION(type, "PyFunction_Type") ||
        !FIND_FUNCTION(call, "PyObject_CallNoArgs") || !FIND_FUNCTION(keep, "Py_IncRef"))
        return false;
    return FIND_FUNCTION(set, "PyFunction_SetVectorcall")
               ? FIND_FUNCTION(held, "PyVectorcall_Function")
               : FIND_FUNCTION(stock, "_PyFunction_Vectorcall");
}

void *python_call_function(void *function, void *const *args, size_t n, void *names)
{
    return functions.stock(function, args, n, names);
}

/* Where @function holds its pointer, by its type; NULL: it holds another one than stock's. */
static python_function_fn *place_of(void *function)
{
    uintptr_t at = *(const uintptr_t *)((const char *)functions.type + VECTORCALL_AT);
    python_function_fn *place = (python_function_fn *)((char *)function + at);

    return at > 0 && at < OFFSET_MAX && at % sizeof(void *) == 0 && *place == functions.stock
               ? place
               : NULL;
}

/* @new: one that nobody has changed. With the GIL and no pending error. */
static bool take_function(void *function, void *new, python_function_fn ours)
{
    python_function_fn *place, held;

    if (functions.set) {
        held = functions.held(function);
        if (!held || held != functions.held(new))
            return false;
        functions.stock = held;
        functions.set(function, ours);
        return true;
    }
    place = place_of(function);
    if (place)
        *place = ours;
    return place != NULL;
}

bool python_replace_function(const char *module, const char *type, const char *name,
                             python_function_fn ours)
{
    void *error[3], *class, *function, *new;
    bool done = false;

    if (!atomic_load(&api.ready) || !api.has_gil() || !prepare_functions())
        return false;
    api.fetch(&error[0], &error[1], &error[2]);
    class = find(module, type);
    function = class ? api.attribute(class, name) : NULL;
    new = class ? api.attribute(class, "__init__") : NULL;
    if (is_of(function, functions.type) && is_of(new, functions.type))
        done = take_function(function, new, ours);
    if (function)
        api.release(function);
    if (new)
        api.release(new);
    api.restore(error[0], error[1], error[2]); /* instead of one of ours */
    return done;
}

void *python_keep(const char *module, const char *name)
{
    void *error[3], *found = NULL;

    if (!atomic_load(&api.ready) || !api.has_gil() || !prepare_functions())
        return NULL;
    api.fetch(&error[0], &error[1], &error[2]);
    found = find(module, name);
    if (found)
        functions.keep(found);
    api.restore(error[0], error[1], error[2]);
    return found;
}

int python_ask(void *callable)
{
    void *error[3], *said = functions.call(callable);
    int truth = said ? api.is_true(said) : -1;

    if (said)
        api.release(said);
    if (truth < 0) {
        api.fetch(&error[0], &error[1], &error[2]);
        for (unsigned i = 0; i < 3; i++)
            if (error[i])
                api.release(error[i]);
    }
    return truth;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of TensorFlow that answer requests of a program which tells none (control/requests.c): of
 * functions (tf.function, signatures of a SavedModel, batches of Keras' predict()) and of sessions.
 * Nothing is in their way until the daemon wants them. All come through two functions of the C API,
 * for which the library for Python has slots. What a call does is told by the operations of its
 * graph: one that writes variables answers none, nor does a function that is recorded for a
 * gradient.
 */
#include "agent/process/objects.h"
#include "agent/runtimes/tensorflow/tensorflow.h"
#include "agent/runtimes/tensorflow/tensorflow_function.h"

#include "base/cleanup.h"
#include "base/fnv.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY      "libtensorflow_cc.so.2"
#define FUNCTION     "__"         /* names of functions begin so */
#define FORWARD      "__forward_" /* … of those that are recorded for a gradient */
#define BACKWARD     "__backward_"
#define EFFECTS_MAX  4096   /* of functions and runs, a power of 2 */
#define PROBES       16     /* places where one of them may be */
#define DEPTH_MAX    64     /* functions in functions */
#define OPERATIONS   262144 /* of a session's run, at most */
#define CONTROLS_MAX 256    /* of one operation */
#define TRIES        100    /* to put the stubs, at ten a second */

/* ---- the C API ---- */

struct buffer { /* TF_Buffer */
    const void *data;
    size_t length;
    void (*free)(void *data, size_t length);
};

struct output { /* TF_Output, TF_Input */
    void *operation;
    int index;
};

static struct {
    void (*execute)(void *op, void **results, int *n, void *status);
    void (*session_run)(void *session, const struct buffer *options, const struct output *inputs,
                        void *const *values, int n_inputs, const struct output *outputs,
                        void **results, int n_outputs, void *const *targets, int n_targets,
                        struct buffer *metadata, void *status);
    const char *(*op_name)(const void *op, void *status);
    void *(*op_context)(const void *op, void *status);
    void (*function)(void *context, const char *name, struct buffer *to, void *status);
    const char *(*type)(void *operation);
    const char *(*name)(void *operation);
    int (*n_inputs)(void *operation);
    struct output (*input)(struct output input);
    int (*n_controls)(void *operation);
    int (*controls)(void *operation, void **to, int max);
    struct buffer *(*new_buffer)(void);
    void (*delete_buffer)(struct buffer *buffer);
    void *(*new_status)(void);
    void (*delete_status)(void *status);
    int (*code)(const void *status);
} api;

static _Atomic bool trained;       /* the process has */
static _Atomic uint64_t looked_at; /* at functions and operations; see TF_LOOK_MAX */

/* ---- what calls do, as found before ---- */

/* A hash with the effect, counted from 1, in its lower bits; 0: free. */
static _Atomic uint64_t effects[EFFECTS_MAX];
static_assert(TF_EFFECT_MAX < 4, "two bits");

/* Where @hash is, or may be; NULL: no place is free. */
static _Atomic uint64_t *place_of(uint64_t hash)
{
    for (unsigned i = 0; i < PROBES; i++) {
        _Atomic uint64_t *place = &effects[((hash >> 2) + i) % EFFECTS_MAX];
        uint64_t held = atomic_load_explicit(place, memory_order_relaxed);

        if (held == 0 || held >> 2 == hash >> 2)
            return place;
    }
    return NULL;
}

static bool find_effect(uint64_t hash, enum tf_effect *ret)
{
    _Atomic uint64_t *place = place_of(hash);
    uint64_t held = place ? atomic_load_explicit(place, memory_order_relaxed) : 0;

    if (place && held >> 2 != hash >> 2) /* free, or just taken by another one */
        return false;
    *ret = place ? (enum tf_effect)((held & 3) - 1) : TF_WRITES; /* too many to tell */
    return true;
}

static void keep_effect(uint64_t hash, enum tf_effect effect)
{
    _Atomic uint64_t *place = place_of(hash);
    uint64_t none = 0;

    if (place)
        atomic_compare_exchange_strong(place, &none,
                                       (hash & ~UINT64_C(3)) | ((uint64_t)effect + 1));
}

/* ---- functions ---- */

struct within {
    void *context;
    unsigned depth;
};

static enum tf_effect effect_of_called(void *arg, const char *name, size_t length);

static enum tf_effect read_function(struct within *w, const char *name)
{
    struct within deeper = {w->context, w->depth + 1};
    struct buffer *def = api.new_buffer();
    void *status = api.new_status();
    enum tf_effect effect = TF_WRITES;

    /* TensorFlow tells a function's size only with its copy: one may be beyond what is left. */
    if (def && status && w->depth < DEPTH_MAX && tf_may_look(&looked_at)) {
        api.function(w->context, name, def, status);
        if (api.code(status) == 0 && def->length > 0 &&
            tf_looks_at(&looked_at, TF_LOOK_FUNCTION + def->length))
            effect = tf_effect_of_function(def->data, def->length, effect_of_called, &deeper);
    }
    if (def)
        api.delete_buffer(def);
    if (status)
        api.delete_status(status);
    return effect;
}

static enum tf_effect effect_of_named(struct within *w, const char *name)
{
    uint64_t hash = fnv_text(FNV_START, name);
    enum tf_effect effect;

    if (strstr(name, BACKWARD))
        return TF_TRAINS;
    if (strstr(name, FORWARD))
        return TF_WRITES;
    if (find_effect(hash, &effect))
        return effect;
    effect = read_function(w, name);
    keep_effect(hash, effect);
    return effect;
}

static enum tf_effect effect_of_called(void *arg, const char *name, size_t length)
{
    _cleanup_free_ char *text = strndup(name, length);

    return text ? effect_of_named(arg, text) : TF_WRITES;
}

static void train(void)
{
    requests_trained = true;
    atomic_store(&trained, true);
}

static bool answers(enum tf_effect effect)
{
    if (effect == TF_TRAINS)
        train();
    return effect == TF_READS && requests_serves(atomic_load(&trained));
}

/* In place of TFE_Execute(), by which each operation comes that is run by itself. */
static void execute(void *op, void **results, int *n, void *status)
{
    const char *name;
    enum tf_effect effect;
    uint64_t began_ns;

    if (!requests_want_calls(PROTO_REQUESTS_TENSORFLOW)) {
        api.execute(op, results, n, status);
        return;
    }
    name = api.op_name(op, status);
    if (strncmp(name, FUNCTION, strlen(FUNCTION)) != 0) {
        if (tf_effect_of(name, strlen(name)) == TF_TRAINS)
            train();
        api.execute(op, results, n, status);
        return;
    }
    effect = effect_of_named(&(struct within){.context = api.op_context(op, status)}, name);
    if (!answers(effect)) {
        api.execute(op, results, n, status);
        return;
    }
    began_ns = requests_call_begin(PROTO_REQUESTS_TENSORFLOW, NULL);
    api.execute(op, results, n, status);
    requests_call_returned(began_ns, api.code(status) != 0);
}

/* ---- sessions ---- */

/* Operations that a run needs: those that have been looked at, as a table, and those that were not.
 */
struct needed {
    void **seen, **todo;
    size_t room, n_seen, n_todo;
};

static bool need_room(struct needed *n)
{
    size_t room = n->room ? 4 * n->room : 256;
    void **seen = calloc(room, sizeof(*seen)), **todo = realloc(n->todo, room * sizeof(*todo));

    n->todo = todo ? todo : n->todo;
    if (!seen || !todo) {
        free(seen);
        return false;
    }
    for (size_t i = 0; i < n->room; i++) {
        size_t at = fnv_bytes(FNV_START, &n->seen[i], sizeof(void *)) % room;

        while (n->seen[i] && seen[at])
            at = (at + 1) % room;
        if (n->seen[i])
            seen[at] = n->seen[i];
    }
    free(n->seen);
    n->seen = seen;
    n->room = room;
    return true;
}

/* Returns false when it cannot be added: there are too many, or an input that has none. */
static bool need(struct needed *n, void *operation)
{
    size_t at;

    if (!operation)
        return false;
    if (2 * (n->n_seen + 1) > n->room && (n->n_seen >= OPERATIONS || !need_room(n)))
        return false;
    at = fnv_bytes(FNV_START, &operation, sizeof(operation)) % n->room;
    while (n->seen[at] && n->seen[at] != operation)
        at = (at + 1) % n->room;
    if (n->seen[at])
        return true;
    n->seen[at] = n->todo[n->n_todo++] = operation;
    n->n_seen++;
    return true;
}

/* Those that call functions which may write: their functions are not looked at. */
static enum tf_effect effect_of_operation(const char *type)
{
    static const char *const calling[] = {"StatefulPartitionedCall", "If", "While", "Case",
                                          "RemoteCall"};

    for (size_t i = 0; i < ARRAY_LEN(calling); i++)
        if (strcmp(type, calling[i]) == 0)
            return TF_WRITES;
    return strncmp(type, FUNCTION, strlen(FUNCTION)) == 0 ? TF_WRITES
                                                          : tf_effect_of(type, strlen(type));
}

static bool need_inputs(struct needed *n, void *operation)
{
    void *controls[CONTROLS_MAX];
    int inputs = api.n_inputs(operation), most = api.n_controls(operation);
    uint64_t cost = TF_LOOK_OPERATION * (1 + (uint64_t)inputs + (uint64_t)most);

    if (!tf_looks_at(&looked_at, cost))
        return false;
    for (int i = 0; i < inputs; i++)
        if (!need(n, api.input((struct output){operation, i}).operation))
            return false;
    if (most > CONTROLS_MAX)
        return false;
    most = api.controls(operation, controls, CONTROLS_MAX);
    for (int i = 0; i < most; i++)
        if (!need(n, controls[i]))
            return false;
    return true;
}

static enum tf_effect effect_of_needed(struct needed *n)
{
    enum tf_effect most = TF_READS, effect;

    while (n->n_todo > 0 && most < TF_TRAINS) {
        void *operation = n->todo[--n->n_todo];

        effect = effect_of_operation(api.type(operation));
        most = effect > most ? effect : most;
        if (!need_inputs(n, operation))
            return TF_WRITES;
    }
    return most;
}

static enum tf_effect effect_of_run(const struct output *outputs, int n_outputs,
                                    void *const *targets, int n_targets)
{
    struct needed n = {.room = 0};
    uint64_t hash = FNV_START;
    enum tf_effect effect;
    bool fit = true;

    for (int i = 0; i < n_outputs + n_targets; i++) {
        void *operation = i < n_outputs ? outputs[i].operation : targets[i - n_outputs];

        hash = fnv_bytes(hash, &operation, sizeof(operation));
        hash = fnv_text(hash, api.name(operation)); /* another graph may lie at the same place */
    }
    if (find_effect(hash, &effect))
        return effect;
    for (int i = 0; i < n_outputs + n_targets && fit; i++)
        fit = need(&n, i < n_outputs ? outputs[i].operation : targets[i - n_outputs]);
    effect = fit ? effect_of_needed(&n) : TF_WRITES;
    free(n.seen);
    free(n.todo);
    keep_effect(hash, effect);
    return effect;
}

/* In place of TF_SessionRun(). */
static void session_run(void *session, const struct buffer *options, const struct output *inputs,
                        void *const *values, int n_inputs, const struct output *outputs,
                        void **results, int n_outputs, void *const *targets, int n_targets,
                        struct buffer *metadata, void *status)
{
    bool counts = requests_want_calls(PROTO_REQUESTS_TENSORFLOW) &&
                  answers(effect_of_run(outputs, n_outputs, targets, n_targets));
    uint64_t began_ns = counts ? requests_call_begin(PROTO_REQUESTS_TENSORFLOW, NULL) : 0;

    api.session_run(session, options, inputs, values, n_inputs, outputs, results, n_outputs,
                    targets, n_targets, metadata, status);
    if (counts)
        requests_call_returned(began_ns, api.code(status) != 0);
}

/* ---- the control thread ---- */

#define FIND(member, symbol)                                                                       \
    if (!api.member)                                                                               \
    api.member = (__typeof__(api.member))pointer_to(object_defines(&o, symbol))

static int find_api(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct object o;

    (void)size;
    (void)arg;
    object_read(&o, info);
    if (!o.dynamic || !strstr(o.path, "tensorflow"))
        return 0;
    if (strcmp(object_file(&o), LIBRARY) == 0) {
        FIND(execute, "TFE_Execute");
        FIND(session_run, "TF_SessionRun");
        FIND(op_name, "TFE_OpGetName");
        FIND(op_context, "TFE_OpGetContext");
        FIND(function, "TFE_ContextGetFunctionDef");
        FIND(type, "TF_OperationOpType");
        FIND(name, "TF_OperationName");
        FIND(n_inputs, "TF_OperationNumInputs");
        FIND(input, "TF_OperationInput");
        FIND(n_controls, "TF_OperationNumControlInputs");
        FIND(controls, "TF_OperationGetControlInputs");
    }
    if (strcmp(object_file(&o), LIBRARY) == 0 || strcmp(object_file(&o), TF_SONAME) == 0) {
        FIND(new_buffer, "TF_NewBuffer");
        FIND(delete_buffer, "TF_DeleteBuffer");
        FIND(new_status, "TF_NewStatus");
        FIND(delete_status, "TF_DeleteStatus");
        FIND(code, "TF_GetCode");
    }
    return 0;
}

static bool has_api(void)
{
    return api.execute && api.session_run && api.op_name && api.op_context && api.function &&
           api.type && api.name && api.n_inputs && api.input && api.n_controls && api.controls &&
           api.new_buffer && api.delete_buffer && api.new_status && api.delete_status && api.code;
}

/* The library for Python, which has both slots. */
static int put_stubs(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct object o;
    bool *put = arg;

    (void)size;
    object_read(&o, info);
    if (o.dynamic && (strcmp(object_file(&o), "lib_pywrap_tensorflow_common.so") == 0 ||
                      strcmp(object_file(&o), "_pywrap_tensorflow_internal.so") == 0))
        *put =
            slots_take_later(&o, "TFE_Execute", (const void *)api.execute, (const void *)execute) &&
            slots_take_later(&o, "TF_SessionRun", (const void *)api.session_run,
                             (const void *)session_run);
    return *put;
}

void tf_calls_watch(void)
{
    static bool put;
    static uint64_t looked; /* objects_loaded() when something was missing */
    static unsigned tries;
    uint64_t loaded;

    if (put || tries == TRIES || atomic_load(&tf.mode) == TF_UNKNOWN ||
        !requests_want_calls(PROTO_REQUESTS_TENSORFLOW))
        return;
    loaded = objects_loaded();
    if (loaded == looked || !each_object(find_api, NULL))
        return;
    if (!has_api())
        looked = loaded;
    else if (each_object(put_stubs, &put))
        tries++; /* ld.so may not be done */
}

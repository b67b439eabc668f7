/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/doctor/runtimes.h"

#include "base/cleanup.h"
#include "base/startup.h"
#include "base/visible.h"
#include "cli/api.h"

#include <string.h>

int runtimes_read(int root, pid_t pid, struct proc_runtimes *ret)
{
    int r = proc_read_runtimes(root, pid, ret);

    if (r == 0 && (r = proc_read_program(root, pid, ret)) == -ENOEXEC)
        r = 0; /* a 32-bit program */
    for (int i = 0; r == 0 && i < PROC_RUNTIME_MAX; i++)
        visible(ret->r[i].version); /* the process chose its files' names */
    return r;
}

/* The agent's report on this runtime of the process, or NULL: one backend has all OpenMP. */
static const json_t *reported(const json_t *backends, pid_t pid, enum proc_runtime runtime)
{
    bool openmp = runtime == PROC_RUNTIME_GOMP || runtime == PROC_RUNTIME_LLVM_OMP;
    const char *name = openmp                          ? "openmp"
                       : runtime == PROC_RUNTIME_TORCH ? "pytorch"
                                                       : proc_runtime_name(runtime);
    const json_t *backend;
    size_t i;

    json_array_foreach (backends, i, backend)
        if (member_long(backend, "pid") == pid && strcmp(member_text(backend, "name"), name) == 0)
            return backend;
    return NULL;
}

/* Beside these the agent leaves a BLAS alone: they, too, compute with threads. */
static bool is_beside_others(const struct proc_runtimes *found, enum proc_runtime runtime)
{
    static const enum proc_runtime others[] = {PROC_RUNTIME_TENSORFLOW,  PROC_RUNTIME_TORCH,
                                               PROC_RUNTIME_ONNXRUNTIME, PROC_RUNTIME_JAX,
                                               PROC_RUNTIME_TBB,         PROC_RUNTIME_GGML,
                                               PROC_RUNTIME_XGBOOST,     PROC_RUNTIME_LIGHTGBM,
                                               PROC_RUNTIME_NUMBA,       PROC_RUNTIME_POLARS};

    if (runtime != PROC_RUNTIME_OPENBLAS && runtime != PROC_RUNTIME_MKL &&
        runtime != PROC_RUNTIME_BLIS)
        return false;
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        if (found->r[others[i]].loaded)
            return true;
    /* Somebody's that computes with it, as scikit-learn's. The other two may use it themselves. */
    return runtime == PROC_RUNTIME_OPENBLAS &&
           (found->r[PROC_RUNTIME_GOMP].loaded || found->r[PROC_RUNTIME_LLVM_OMP].loaded);
}

/* A backend's note says "moldable: …" where it stands alone; here the kind stands before it. */
static const char *without_kind(const char *note)
{
    static const char kind[] = "moldable: ";

    return strncmp(note, kind, strlen(kind)) == 0 ? note + strlen(kind) : note;
}

static enum malleability judge(const struct proc_runtimes *found, enum proc_runtime runtime,
                               const json_t *backends, pid_t pid, const char **ret_why)
{
    const json_t *backend = reported(backends, pid, runtime);
    enum malleability m = diagnose_runtime(runtime, ret_why);
    const char *note = backend ? member_text(backend, "note") : "";

    if (!backend && is_beside_others(found, runtime)) {
        *ret_why = "another library computes with threads, too";
        return MOLDABLE;
    }
    if (*note)
        *ret_why = without_kind(note);
    else if (backend && m != MALLEABLE && member_bool(backend, "malleable"))
        *ret_why = "the agent changes its number of threads";
    if (!backend || m != MALLEABLE)
        return backend && member_bool(backend, "malleable") ? MALLEABLE : m;
    if (member_bool(backend, "malleable"))
        return MALLEABLE;
    return strncmp(note, "moldable", 8) == 0 ? MOLDABLE : RIGID;
}

/* "OMP_NUM_THREADS=8" of the process's environment at its start; null: unset, or not readable. */
static json_t *variable_json(int root, pid_t pid, enum proc_runtime runtime)
{
    const char *name = diagnose_variable(runtime);
    _cleanup_free_ char *value = NULL;

    if (!name || proc_read_environ(root, pid, name, &value) < 0)
        return json_null();
    visible(value);
    return json_sprintf("%s=%s", name, value);
}

/* A number of threads that the agent has reported; null: it has none to report. */
static json_t *threads_json(const json_t *of, const char *member)
{
    long n = of ? member_long(of, member) : 0;

    return n > 0 ? json_integer(n) : json_null();
}

static json_t *one_json(int root, const struct proc_runtimes *found, enum proc_runtime runtime,
                        const json_t *backends, pid_t pid)
{
    const json_t *backend = reported(backends, pid, runtime);
    const char *why, *except = NULL, *version = found->r[runtime].version;
    enum malleability m = judge(found, runtime, backends, pid, &why);

    if (!backend && m == MALLEABLE)
        except = diagnose_exceptions(runtime);
    if (backend && !*version) /* its files do not tell, the agent asked the library */
        version = member_text(backend, "version");
    return json_pack("{s:s, s:s, s:i, s:b, s:s, s:s, s:b, s:o, s:o, s:o, s:o, s:s?}", "name",
                     proc_runtime_name(runtime), "version", version, "copies",
                     (int)found->r[runtime].copies, "malleable", m == MALLEABLE, "kind",
                     malleability_name(m), "why", why, "reported", backend != NULL, "max",
                     threads_json(backend, "max"), "active", threads_json(backend, "active"),
                     "inter", threads_json(json_object_get(backend, "inter"), "max"), "variable",
                     variable_json(root, pid, runtime), "except", except);
}

json_t *runtimes_json(int root, const struct proc_runtimes *found, const json_t *backends,
                      pid_t pid)
{
    json_t *list = json_array();

    for (int i = 0; i < PROC_RUNTIME_MAX; i++)
        if (found->r[i].loaded)
            json_array_append_new(list, one_json(root, found, (enum proc_runtime)i, backends, pid));
    return list;
}

/* Runtimes of which a program's libraries bring copies of their own. */
static bool is_bundled(const char *name)
{
    static const enum proc_runtime bundled[] = {PROC_RUNTIME_GOMP, PROC_RUNTIME_LLVM_OMP,
                                                PROC_RUNTIME_OPENBLAS};

    for (size_t i = 0; i < ARRAY_LEN(bundled); i++)
        if (strcmp(name, proc_runtime_name(bundled[i])) == 0)
            return true;
    return false;
}

/* ", pool of 8, 3 active, inter-op pool of 2": as far as the agent has reported it. */
static void print_pool(const json_t *one)
{
    if (member_long(one, "max") > 0)
        printf(", pool of %ld", member_long(one, "max"));
    if (member_long(one, "max") > 0 && member_long(one, "active") > 0)
        printf(", %ld active", member_long(one, "active"));
    if (member_long(one, "inter") > 0)
        printf(", inter-op pool of %ld", member_long(one, "inter"));
}

/* "malleable (why)"; without the agent's word "usually", and what it would leave alone. */
static void print_kind(const json_t *one)
{
    const char *except = member_text(one, "except");

    printf(": %s%s (%s%s%s)", *except ? "usually " : "", member_text(one, "kind"),
           member_text(one, "why"), *except ? "; not: " : "", except);
}

void runtimes_print(const json_t *list, const char *label)
{
    const char *before = label;
    bool unknown = false;
    const json_t *one;
    size_t i;

    json_array_foreach (list, i, one) {
        const char *name = member_text(one, "name"), *version = member_text(one, "version");

        if (strcmp(name, proc_runtime_name(PROC_RUNTIME_AGENT)) == 0)
            continue;
        printf("%*s  %s%s%s", (int)strlen(label), before, name, *version ? " " : "", version);
        if (is_bundled(name) && member_long(one, "copies") > 1)
            printf(", %ld copies", member_long(one, "copies"));
        print_kind(one);
        print_pool(one);
        if (*member_text(one, "variable"))
            printf(", %s", member_text(one, "variable"));
        printf("\n");
        unknown |= !member_bool(one, "reported") &&
                   strcmp(member_text(one, "kind"), malleability_name(RIGID)) != 0;
        before = "";
    }
    if (*before)
        printf("%s  none that tide recognizes\n", label);
    if (unknown)
        printf("%*s  how large the pools are is known only where the agent reports it\n",
               (int)strlen(label), "");
}

json_t *runtimes_started(int root, pid_t pid)
{
    _cleanup_free_ char *mark = NULL;
    json_t *started = NULL;
    struct startup s;

    if (proc_read_environ(root, pid, STARTUP_MARK, &mark) < 0 || !startup_read_mark(mark, &s))
        return NULL;
    for (size_t i = 0; i < startup_rows; i++) {
        _cleanup_free_ char *value = NULL;

        if (!(s.set >> i & 1) || startup_table[i].kind == STARTUP_WAIT ||
            proc_read_environ(root, pid, startup_table[i].name, &value) < 0)
            continue;
        started = started ? started : json_object();
        visible(value);
        json_object_set_new(started, startup_table[i].name, json_string(value));
    }
    return started;
}

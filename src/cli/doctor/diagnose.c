/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/doctor/diagnose.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/startup.h"
#include "base/visible.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define CROWDED_PERMILLE   250 /* part of its runnable time spent waiting for a CPU */
#define THROTTLED_PERMILLE 50  /* part of the sampled periods */
#define BUSY_MILLI         250 /* below a quarter of a core, waiting says nothing */
#define SPINNING_PERMILLE  200 /* part of its time on CPUs */
#define SPINNING_SAMPLES   50  /* fewer say nothing: an eighth of a second on a CPU */

static const char *const names[] = {
    [FINDING_OVERSUBSCRIBED] = "oversubscribed", [FINDING_CROWDED] = "crowded",
    [FINDING_THROTTLED] = "throttled",           [FINDING_NO_AGENT] = "no-agent",
    [FINDING_DISCONNECTED] = "disconnected",     [FINDING_NOT_MALLEABLE] = "not-malleable",
    [FINDING_NO_HANDLER] = "no-handler",         [FINDING_SPINNING] = "spinning",
};
static_assert(ARRAY_LEN(names) == FINDING_CODE_MAX, "a finding without a name");

const char *finding_name(enum finding_code code)
{
    return names[code];
}

/*
 * docs/runtimes.md has the same with sources. @variable sizes the runtime, also where it would
 * follow another's that base/startup.c has; the program may have it set already. @except: where the
 * agent leaves a malleable runtime alone, which only the agent inside the process can see.
 */
static const struct {
    enum malleability m;
    const char *why, *variable, *except;
} kinds[] = {
    [PROC_RUNTIME_AGENT] = {RIGID, "has no pool", NULL, NULL},
    [PROC_RUNTIME_TENSORFLOW] = {MALLEABLE, "the agent parks its threads", NULL,
                                 "other versions than 2.15, 2.18 and 2.21"},
    [PROC_RUNTIME_TORCH] = {MALLEABLE,
                            "the agent sets its number of threads between two lines of Python",
                            "OMP_NUM_THREADS",
                            "torch.compile, programs in C++, Python without a GIL, another library "
                            "in its OpenMP, threads that OpenMP binds, children of a fork"},
    [PROC_RUNTIME_ONNXRUNTIME] = {MALLEABLE, "the agent limits the threads of each parallel loop",
                                  "ORT_INTRA_OP_NUM_THREADS",
                                  "versions that it does not know, other providers"},
    [PROC_RUNTIME_JAX] = {MOLDABLE, "makes its pools when its client is created", "PJRT_NPROC",
                          NULL},
    [PROC_RUNTIME_GOMP] = {MOLDABLE, "reads its size at the start", "OMP_NUM_THREADS", NULL},
    [PROC_RUNTIME_LLVM_OMP] = {MOLDABLE, "reads its size at the start", "OMP_NUM_THREADS", NULL},
    [PROC_RUNTIME_OPENBLAS] = {MALLEABLE, "the agent limits the threads of each call",
                               "OPENBLAS_NUM_THREADS", "builds with OpenMP"},
    [PROC_RUNTIME_MKL] = {MALLEABLE, "the agent limits the threads of each call", "MKL_NUM_THREADS",
                          "MKL with TBB, MKL in a static program"},
    [PROC_RUNTIME_ONEDNN] = {MOLDABLE, "has as many threads as OpenMP", "OMP_NUM_THREADS", NULL},
    [PROC_RUNTIME_BLIS] = {MALLEABLE, "the agent limits the threads of each call",
                           "BLIS_NUM_THREADS",
                           "AMD's BLIS, loops that BLIS_JC_NT and others divide"},
    [PROC_RUNTIME_TBB] = {MALLEABLE, "the agent adds a limit to the program's own", NULL,
                          "libraries that ask for the limit, TCM_ENABLE=1"},
    [PROC_RUNTIME_GGML] = {MALLEABLE, "the agent sets the threads of each graph", NULL,
                           "pools of a program with a ggml before 0.9.6"},
    [PROC_RUNTIME_LITERT] = {RIGID,
                             "has the threads that the program asks for by num_threads, else one",
                             NULL, NULL},
    [PROC_RUNTIME_EXECUTORCH] = {RIGID, "makes its pool once, for the machine's cores", NULL, NULL},
    [PROC_RUNTIME_XNNPACK] = {RIGID, "its pool has the size that the program asked for", NULL,
                              NULL},
    [PROC_RUNTIME_XGBOOST] = {MALLEABLE,
                              "the agent sets its number of threads between two of its calls",
                              "OMP_NUM_THREADS",
                              "languages other than Python, libomp, another library in its OpenMP, "
                              "other threads than the main one, children of a fork"},
    [PROC_RUNTIME_LIGHTGBM] = {MOLDABLE, "has as many threads as OpenMP", "OMP_NUM_THREADS", NULL},
    [PROC_RUNTIME_OPENCV] = {MOLDABLE, "reads its size at the start", "OPENCV_FOR_THREADS_NUM",
                             NULL},
    [PROC_RUNTIME_NUMBA] = {MOLDABLE, "makes its pool once", "NUMBA_NUM_THREADS", NULL},
    [PROC_RUNTIME_POLARS] = {MOLDABLE, "makes its pool once", "POLARS_MAX_THREADS", NULL},
    [PROC_RUNTIME_RAYON] = {MOLDABLE, "makes its pool once", "RAYON_NUM_THREADS", NULL},
    [PROC_RUNTIME_JVM] = {MOLDABLE, "sizes its collector and pools at the start",
                          "JDK_JAVA_OPTIONS", NULL},
    [PROC_RUNTIME_GO] = {RIGID, "counts its cores itself; since 1.25 it follows quota and affinity",
                         NULL, NULL},
    [PROC_RUNTIME_JULIA] = {RIGID, "sized by the program's own options", NULL, NULL},
    [PROC_RUNTIME_R] = {RIGID, "computes with one thread; its BLAS may have more", NULL, NULL},
};
static_assert(ARRAY_LEN(kinds) == PROC_RUNTIME_MAX, "a runtime without a kind");

static const char *const malleability_names[] = {
    [MALLEABLE] = "malleable", [MOLDABLE] = "moldable", [RIGID] = "rigid"};
static_assert(ARRAY_LEN(malleability_names) == MALLEABILITY_MAX, "a malleability without a name");

const char *malleability_name(enum malleability m)
{
    return malleability_names[m];
}

enum malleability diagnose_runtime(enum proc_runtime runtime, const char **ret_why)
{
    *ret_why = kinds[runtime].why;
    return kinds[runtime].m;
}

const char *diagnose_exceptions(enum proc_runtime runtime)
{
    return kinds[runtime].except;
}

const char *diagnose_variable(enum proc_runtime runtime)
{
    return kinds[runtime].variable;
}

bool diagnose_malleable(enum proc_runtime runtime)
{
    return kinds[runtime].m == MALLEABLE;
}

bool diagnose_oversubscribed(uint32_t demand_milli, uint32_t allowed_mcpu)
{
    return demand_milli >= allowed_mcpu + 500 &&
           (uint64_t)demand_milli * 4 > (uint64_t)allowed_mcpu * 5;
}

/* ---- text ---- */

static bool is_plain(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c && strchr("-_./=:,+@%", c));
}

/* Appends one quoted argument at @at; returns the new end, or 0 if it does not fit. */
static size_t quote_one(const char *arg, char *buf, size_t at, size_t size)
{
    bool plain = *arg != '\0';

    for (const char *p = arg; *p; p++)
        plain = plain && is_plain(*p);
    if (!plain && at + 1 < size)
        buf[at++] = '\'';
    for (; *arg; arg++) {
        if (at + 6 >= size)
            return 0;
        if (*arg == '\'') {
            for (const char *quoted = "'\\''"; *quoted; quoted++)
                buf[at++] = *quoted;
        } else {
            buf[at++] = *arg;
        }
    }
    if (at + 2 >= size)
        return 0;
    if (!plain)
        buf[at++] = '\'';
    return at;
}

int diagnose_quote(const char *args, size_t len, char *buf, size_t size)
{
    size_t at = 0;

    buf[0] = '\0';
    for (const char *arg = args; arg < args + len; arg += strlen(arg) + 1) {
        size_t from = at, end;

        if (at > 0)
            buf[from++] = ' ';
        end = quote_one(arg, buf, from, size);
        if (end == 0) {
            buf[at] = '\0';
            return 1;
        }
        at = end;
        buf[at] = '\0';
    }
    return 0;
}

int diagnose_container(const char *cgroup_path, char ret_id[65])
{
    for (const char *p = cgroup_path; *p;) {
        size_t n = strspn(p, "0123456789abcdef");

        if (n == 64) {
            memcpy(ret_id, p, 64);
            ret_id[64] = '\0';
            return 0;
        }
        p += n ? n : 1;
    }
    return -ENOENT;
}

__attribute__((format(printf, 4, 5))) static struct finding *add(struct diagnosis *d,
                                                                 enum finding_code code,
                                                                 enum finding_severity severity,
                                                                 const char *fmt, ...)
{
    struct finding *finding = &d->finding[d->n++];
    va_list ap;

    finding->code = code;
    finding->severity = severity;
    finding->fix[0] = '\0';
    va_start(ap, fmt);
    vsnprintf(finding->text, sizeof(finding->text), fmt, ap);
    va_end(ap);
    visible(finding->text); /* a cut text may end in half a character */
    if (severity == FINDING_PROBLEM)
        d->healthy = false;
    return finding;
}

__attribute__((format(printf, 2, 3))) static void set_fix(struct finding *finding, const char *fmt,
                                                          ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(finding->fix, sizeof(finding->fix), fmt, ap);
    va_end(ap);
    visible(finding->fix);
}

/* Writes "2 cores", "1 core", "1.5 cores". */
static const char *cores(uint32_t milli, char buf[24])
{
    if (milli % 1000 == 0)
        snprintf(buf, 24, "%u core%s", milli / 1000, milli == 1000 ? "" : "s");
    else
        snprintf(buf, 24, "%u.%u cores", milli / 1000, milli % 1000 / 100);
    return buf;
}

/* The command line to start again; a cut one ends in dots, so that no user pastes it unread. */
static const char *command_of(const struct observation *seen, char buf[DIAGNOSE_COMMAND_MAX + 4])
{
    bool known = *seen->command && !seen->command_changed;

    snprintf(buf, DIAGNOSE_COMMAND_MAX + 4, "%s%s", known ? seen->command : "COMMAND",
             known && seen->command_cut ? " ..." : "");
    return buf;
}

/* ---- loaded runtimes ---- */

static bool has_malleable(const struct observation *seen)
{
    for (int i = 0; i < PROC_RUNTIME_MAX; i++) {
        if (seen->runtimes.r[i].loaded && diagnose_malleable((enum proc_runtime)i))
            return true;
    }
    return false;
}

/* Appends "NAME=VALUE ", the value as the start-up table has it. */
static size_t add_variable(const char *name, unsigned threads, char *buf, size_t at, size_t size)
{
    const struct startup_row *row = startup_row_of(name);
    struct startup s = {.size = threads};
    char value[STARTUP_VALUE_MAX];

    snprintf(value, sizeof(value), "%u", threads);
    if (row)
        startup_value(row, &s, value);
    return at + (size_t)snprintf(buf + at, size - at, "%s=%s ", name, value);
}

/* "OMP_NUM_THREADS=2 RAYON_NUM_THREADS=2 " for the loaded runtimes; may be empty. */
static void size_variables(const struct observation *seen, unsigned threads, char *buf, size_t size)
{
    size_t at = 0;

    buf[0] = '\0';
    for (int i = 0; i < PROC_RUNTIME_MAX; i++) {
        const char *name = kinds[i].variable;

        if (!name || !seen->runtimes.r[i].loaded || strstr(buf, name))
            continue;
        at = add_variable(name, threads, buf, at, size);
        if (at >= size)
            return;
    }
}

/* ---- the findings ---- */

static void fix_oversubscribed(const struct observation *seen, const struct diagnosis *d,
                               struct finding *finding)
{
    char command[DIAGNOSE_COMMAND_MAX + 4], variables[512];

    if (seen->tide == OBSERVED_TIDE_JOB && seen->job_malleable) {
        if (seen->job_pinned)
            set_fix(finding, "tide set %s --auto", seen->job_name);
        else
            set_fix(finding, "tide set %s --threads %u", seen->job_name, d->recommended);
        return;
    }
    if (has_malleable(seen) && !seen->runtimes.r[PROC_RUNTIME_AGENT].loaded) {
        set_fix(finding, "tide run -- %s", command_of(seen, command));
        return;
    }
    if (seen->runtimes.r[PROC_RUNTIME_AGENT].loaded && seen->handler) { /* no job of a daemon */
        set_fix(finding, "tide signal %d %u", (int)seen->pid, d->recommended);
        return;
    }
    size_variables(seen, d->recommended, variables, sizeof(variables));
    if (*variables)
        set_fix(finding, "env %s%s", variables, command_of(seen, command));
}

static void judge_demand(const struct observation *seen, struct diagnosis *d)
{
    uint32_t waiting_permille =
        d->demand_milli ? (uint32_t)((uint64_t)seen->waiting_milli * 1000 / d->demand_milli) : 0;
    char allowed[24];

    cores(d->allowed_mcpu, allowed);
    if (diagnose_oversubscribed(d->demand_milli, d->allowed_mcpu)) {
        fix_oversubscribed(
            seen, d,
            add(d, FINDING_OVERSUBSCRIBED, FINDING_PROBLEM,
                "%u.%u threads want to run at a time, but the process may use %s: they wait for a "
                "CPU %u %% of their time",
                d->demand_milli / 1000, d->demand_milli % 1000 / 100, allowed,
                waiting_permille / 10));
    } else if (d->demand_milli >= BUSY_MILLI && waiting_permille >= CROWDED_PERMILLE &&
               seen->throttle.throttled == 0) {
        char command[DIAGNOSE_COMMAND_MAX + 4];
        struct finding *finding =
            /* Sharing means more jobs than cores; that is not the job's fault. */
            add(d, FINDING_CROWDED,
                seen->tide == OBSERVED_TIDE_JOB ? FINDING_NOTE : FINDING_PROBLEM,
                "its own threads fit into %s, but other programs run on the same CPUs: its "
                "threads wait %u %% of their runnable time",
                allowed, waiting_permille / 10);

        if (seen->tide == OBSERVED_TIDE_JOB)
            set_fix(finding, "tide doctor    # lists the others: start them with tide run, too");
        else if (has_malleable(seen))
            set_fix(finding, "tide run -- %s", command_of(seen, command));
    }
}

/* True for a unit of systemd that is no option of its commands. */
static bool is_unit(const char *name)
{
    return *name != '-' &&
           (strstr(name, ".service") || strstr(name, ".scope") || strstr(name, ".slice"));
}

/*
 * The command that lifts the quota depends on who set it, as the group's path tells. A group's name
 * can be its user's, so it is quoted.
 */
static void fix_throttled(const struct observation *seen, const struct diagnosis *d,
                          struct finding *finding)
{
    const char *path = seen->quota_path, *unit = strrchr(path, '/');
    uint32_t wanted = (d->demand_milli + 900) / 1000, cpus = cpuset_count(&seen->cpus);
    char id[65], quoted[CGROUP_PATH_MAX * 2];
    size_t n;

    unit = unit ? unit + 1 : path;
    n = quote_one(is_unit(unit) ? unit : path, quoted, 0, sizeof(quoted));
    quoted[n] = '\0';
    wanted = wanted > cpus ? cpus : wanted; /* more cores than its CPUs are of no use */
    wanted = wanted ? wanted : 1;
    if (cgroup_path_is_ours(path)) {
        set_fix(finding, "tide set %s --min %u", *seen->job_name ? seen->job_name : "JOB", wanted);
    } else if (strstr(path, "kubepods")) {
        set_fix(finding, "kubectl edit pod POD    # resources.limits.cpu: \"%u\"", wanted);
    } else if (diagnose_container(path, id) == 0) {
        set_fix(finding, "docker update --cpus %u %.12s", wanted, id);
    } else if (n && is_unit(unit)) {
        set_fix(finding, "systemctl set-property --runtime %s CPUQuota=%u%%", quoted, wanted * 100);
    } else if (n && *path && seen->quota_version == CGROUP_V1) {
        set_fix(finding, "echo %u > /sys/fs/cgroup/cpu%s/cpu.cfs_quota_us", wanted * 100000,
                strcmp(path, "/") ? quoted : "");
    } else if (n && *path) {
        set_fix(finding, "echo '%u 100000' > /sys/fs/cgroup%s/cpu.max", wanted * 100000,
                strcmp(path, "/") ? quoted : "");
    }
}

static void judge_throttle(const struct observation *seen, struct diagnosis *d)
{
    const struct cgroup_throttle *throttle = &seen->throttle;
    char quota[24] = "unlimited";

    if (throttle->throttled == 0 ||
        throttle->throttled * 1000 < throttle->periods * THROTTLED_PERMILLE)
        return;
    if (seen->quota_mcpu != CGROUP_NO_QUOTA)
        cores(seen->quota_mcpu, quota);
    fix_throttled(
        seen, d,
        add(d, FINDING_THROTTLED, FINDING_PROBLEM,
            "its quota (%s, cgroup %s) ran out in %llu of %llu periods: the kernel stopped it for "
            "%llu ms of %llu",
            quota, *seen->quota_path ? seen->quota_path : "?",
            (unsigned long long)throttle->throttled, (unsigned long long)throttle->periods,
            (unsigned long long)(throttle->throttled_ns / NS_PER_MS),
            (unsigned long long)(seen->elapsed_ns / NS_PER_MS)));
}

static void judge_spinning(const struct observation *seen, struct diagnosis *d)
{
    char command[DIAGNOSE_COMMAND_MAX + 4];
    const char *who = seen->runtimes.r[PROC_RUNTIME_GOMP].loaded ? "libgomp" : "libomp";

    if (!seen->have_spin || seen->spin_samples < SPINNING_SAMPLES ||
        seen->spin_permille < SPINNING_PERMILLE)
        return;
    set_fix(add(d, FINDING_SPINNING, FINDING_NOTE,
                "%u %% of its time on CPUs goes to threads that wait inside %s for others, "
                "without sleeping",
                seen->spin_permille / 10, who),
            "%s%s",
            seen->tide == OBSERVED_TIDE_JOB ? "env OMP_WAIT_POLICY=passive " : "tide run -- ",
            command_of(seen, command));
}

/* True if a finding already tells the user to start the program with tide. */
static bool told_to_run(const struct diagnosis *d)
{
    for (size_t i = 0; i < d->n; i++) {
        if (strncmp(d->finding[i].fix, "tide run ", strlen("tide run ")) == 0)
            return true;
    }
    return false;
}

static void judge_agent(const struct observation *seen, struct diagnosis *d)
{
    bool loaded = seen->runtimes.r[PROC_RUNTIME_AGENT].loaded;
    char command[DIAGNOSE_COMMAND_MAX + 4];

    if (!loaded && has_malleable(seen) && !told_to_run(d)) {
        set_fix(add(d, FINDING_NO_AGENT, FINDING_NOTE,
                    "its threads could change while it runs, but tide did not start it"),
                "tide run -- %s", command_of(seen, command));
    } else if (loaded && seen->agent_disabled) {
        add(d, FINDING_DISCONNECTED, FINDING_NOTE,
            "the agent is loaded, but TIDE_DISABLE switches it off");
    } else if (loaded && has_malleable(seen) && seen->tide != OBSERVED_TIDE_JOB) {
        add(d, FINDING_DISCONNECTED, FINDING_NOTE,
            "the agent is loaded, but %s: it follows the process's own CPUs and quota",
            seen->tide == OBSERVED_TIDE_UNREACHABLE ? "no daemon answers"
                                                    : "the daemon does not know the process");
    }
    if (seen->tide == OBSERVED_TIDE_JOB && !seen->job_malleable && has_malleable(seen))
        add(d, FINDING_NOT_MALLEABLE, FINDING_NOTE, "tide cannot change its threads: %s",
            *seen->job_note ? seen->job_note : "no thread pool exists yet");
    if (loaded && !seen->handler && !seen->agent_disabled && has_malleable(seen))
        add(d, FINDING_NO_HANDLER, FINDING_NOTE,
            "no handler for the resize signal: the signal would kill the process");
}

/* Names the runtimes of one kind: "torch, gomp". */
static bool list_kind(const struct observation *seen, enum malleability m, char *buf, size_t size)
{
    size_t at = 0;

    buf[0] = '\0';
    for (int i = 0; i < PROC_RUNTIME_MAX && at < size; i++)
        if (i != PROC_RUNTIME_AGENT && seen->runtimes.r[i].loaded && kinds[i].m == m)
            at += (size_t)snprintf(buf + at, size - at, "%s%s", at ? ", " : "",
                                   proc_runtime_name((enum proc_runtime)i));
    return at > 0;
}

static void judge_runtimes(const struct observation *seen, struct diagnosis *d)
{
    char moldable[256], rigid[256];
    bool some = list_kind(seen, MOLDABLE, moldable, sizeof(moldable));
    bool none = list_kind(seen, RIGID, rigid, sizeof(rigid));

    if (has_malleable(seen) || (!some && !none))
        return;
    add(d, FINDING_NOT_MALLEABLE, FINDING_NOTE, "%s%s%s%s%s; tide changes only its cores",
        some ? moldable : "", some ? ": moldable, sized when the program starts" : "",
        some && none ? "; " : "", none ? rigid : "",
        none ? ": rigid, sized by the program itself" : "");
}

void diagnose(const struct observation *seen, struct diagnosis *ret)
{
    unsigned cpus = cpuset_count(&seen->cpus);

    ret->n = 0;
    ret->healthy = true;
    ret->allowed_mcpu = cpus * 1000;
    if (seen->quota_mcpu < ret->allowed_mcpu)
        ret->allowed_mcpu = seen->quota_mcpu;
    ret->demand_milli = seen->running_milli + seen->waiting_milli;
    ret->idle = ret->demand_milli < BUSY_MILLI;
    ret->recommended = ret->allowed_mcpu < 1000 ? 1 : ret->allowed_mcpu / 1000;
    judge_demand(seen, ret);
    judge_throttle(seen, ret);
    judge_spinning(seen, ret);
    judge_agent(seen, ret);
    judge_runtimes(seen, ret);
}

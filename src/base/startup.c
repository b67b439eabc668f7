/* SPDX-License-Identifier: Apache-2.0 */
#include "base/startup.h"

#include "base/cleanup.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Each row names the place that reads the variable, and where there is one the version that was
 * read. tests/component/test_startup.py (OpenMP; Java where there is a compiler) and, in `make
 * soak`, tests/runtimes/test_startup_wheels.py see what sizes do; docs/runtimes.md has the versions
 * with which they were seen. Of the variables for waiting a test sees libgomp's alone.
 *
 * Runtimes without a row, and why:
 *   MKL, BLIS, NumExpr, OpenBLAS: take OMP_NUM_THREADS when their own variable is missing. joblib
 *     gives each of its workers OMP_, MKL_, OPENBLAS_ … _NUM_THREADS of cores / workers, but not
 *     those that are there already. So each variable less is a worker that is not oversubscribed.
 *     Without any BLIS computes with one thread.
 *   Go: reads affinity and quota itself, since 1.25 again and again. GOMAXPROCS would end that.
 *   Julia, R: one thread, and two processes of mclapply(), unless the user asks for more; their
 *     variables (JULIA_NUM_THREADS, MC_CORES) could only add threads. Their BLAS: OMP_NUM_THREADS.
 *   TBB: has no variable.
 *   LiteRT, XNNPACK: have none, and one thread unless the program asks for more (num_threads).
 *   ExecuTorch: has none; its pool is made for the machine's cores.
 */
const struct startup_row startup_table[] = {
    /* src/agent/control/start.c; the agent makes TensorFlow's pools of that size. */
    {.runtime = "TensorFlow", .name = STARTUP_MOST_NAME, .kind = STARTUP_MOST, .ours = true},
    /*
     * OpenMP 5.2, section 21.1.2; libgomp/env.c (GCC 12.2), kmp_settings.cpp (LLVM 14). PyTorch
     * (ATen/ParallelOpenMP.cpp), scikit-learn, XGBoost and LightGBM follow. The
     * agent changes the number of PyTorch and XGBoost later, and on trial OpenMP's
     * (agent/process/number.h); the others keep it.
     */
    {.runtime = "OpenMP", .name = "OMP_NUM_THREADS", .kind = STARTUP_SIZE},
    /*
     * OpenMP 5.2, section 21.1.6; libgomp/env.c, kmp_settings.cpp. With it libgomp also sleeps at
     * once when it has more threads than cores. libomp: KMP_BLOCKTIME wins.
     */
    {.runtime = "OpenMP",
     .name = "OMP_WAIT_POLICY",
     .kind = STARTUP_WAIT,
     .text = "passive",
     .unless = {"GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY"}},
    /*
     * libgomp/env.c: rounds of spinning before a thread sleeps. 1000 take about as long as sleeping
     * and waking up (10 to 30 us); libgomp's own 300,000 take milliseconds. docs/runtimes.md
     * has the measurements.
     */
    {.runtime = "libgomp",
     .name = "GOMP_SPINCOUNT",
     .kind = STARTUP_WAIT,
     .text = "1000",
     .unless = {"OMP_WAIT_POLICY", "KMP_BLOCKTIME", "KMP_LIBRARY"}},
    /*
     * driver/others/blas_server.c: threads without work give way for 2^26 cycles (20 ms) before
     * they sleep; 2^15 are 10 us. 0.3.21 (Debian 12), 0.3.31 (NumPy's wheel). Builds of OpenBLAS
     * with OpenMP ignore it.
     */
    {.runtime = "OpenBLAS", .name = "OPENBLAS_THREAD_TIMEOUT", .kind = STARTUP_WAIT, .text = "15"},
    /* numba/core/config.py; 0.68. numba.set_num_threads() accepts at most this number. */
    {.runtime = "Numba", .name = "NUMBA_NUM_THREADS", .kind = STARTUP_SIZE},
    /* docs.pola.rs, polars.thread_pool_size(); 2.1. It makes Rayon's pool itself. */
    {.runtime = "Polars", .name = "POLARS_MAX_THREADS", .kind = STARTUP_SIZE},
    /* rayon-core/src/lib.rs, ThreadPoolBuilder::get_num_threads(). */
    {.runtime = "Rayon",
     .name = "RAYON_NUM_THREADS",
     .kind = STARTUP_SIZE,
     .unless = {"RAYON_RS_NUM_CPUS"}},
    /* xla/pjrt/utils.cc, DefaultThreadPoolSize(); jaxlib 0.10. */
    {.runtime = "JAX", .name = "PJRT_NPROC", .kind = STARTUP_SIZE, .unless = {"NPROC"}},
    /* loky/backend/context.py, cpu_count(): lowers it only. joblib 1.6: n_jobs=-1. */
    {.runtime = "joblib", .name = "LOKY_MAX_CPU_COUNT", .kind = STARTUP_SIZE},
    /* Read by the library since 1.32 at the latest; session options win. The agent answers with
     * TIDE_MAX where it governs the pools, so that they can grow. */
    {.runtime = "ONNX Runtime", .name = "ORT_INTRA_OP_NUM_THREADS", .kind = STARTUP_SIZE},
    /* modules/core/src/parallel.cpp, defaultNumberOfThreads(); 5.0. cv::setNumThreads() wins. */
    {.runtime = "OpenCV", .name = "OPENCV_FOR_THREADS_NUM", .kind = STARTUP_SIZE},
    /*
     * The launcher `java` since 9 (docs.oracle.com, "The java Command"); options behind it and on
     * the command line win. It prints a line with the options on stderr. JAVA_TOOL_OPTIONS, which
     * prints one, too, would also reach Java 8, where an unknown option ends the program.
     */
    {.runtime = "Java",
     .name = "JDK_JAVA_OPTIONS",
     .kind = STARTUP_SIZE,
     .text = "-XX:ActiveProcessorCount=",
     .added = true,
     .unless = {"JAVA_TOOL_OPTIONS"}},
};
const size_t startup_rows = ARRAY_LEN(startup_table);
#define ROWS_MAX 32
static_assert(ARRAY_LEN(startup_table) <= ROWS_MAX, "more rows than a mark has bits");

struct startup startup_of(unsigned threads, unsigned request, unsigned min, unsigned max,
                          unsigned cores)
{
    struct startup s = {.size = threads, .most = max};

    if (threads)
        return s;
    s.size = request ? request : max;
    if (s.size && s.size < min)
        s.size = min;
    if (max && s.size > max)
        s.size = max;
    if (s.size >= cores)
        s.size = 0;
    return s;
}

bool startup_spins(const char *value)
{
    return value && *value && strcmp(value, "0") != 0;
}

struct startup startup_of_container(const struct startup_container *c, startup_lookup *lookup,
                                    const void *arg)
{
    const char *own = lookup(arg, STARTUP_MOST_NAME);
    unsigned long most = own ? strtoul(own, NULL, 10) : c->max;
    unsigned max = most <= STARTUP_NUMBER_MAX ? (unsigned)most : STARTUP_NUMBER_MAX;
    unsigned limit = c->limit_mcpu / 1000 + (c->limit_mcpu % 1000 > 0);
    struct startup s = startup_of(0, c->request, c->min,
                                  limit && (max == 0 || limit < max) ? limit : max, c->cores);

    s.most = own ? 0 : max; /* his own stays as it is */
    s.spin = startup_spins(lookup(arg, STARTUP_SPIN));
    return s;
}

bool startup_value(const struct startup_row *row, const struct startup *s,
                   char buf[STARTUP_VALUE_MAX])
{
    const char *text = row->text ? row->text : "";
    unsigned number = row->kind == STARTUP_MOST ? s->most : s->size;

    if (row->kind == STARTUP_WAIT ? s->spin : number == 0)
        return false;
    if (row->kind == STARTUP_WAIT)
        snprintf(buf, STARTUP_VALUE_MAX, "%s", text);
    else
        snprintf(buf, STARTUP_VALUE_MAX, "%s%u", text, number);
    return true;
}

bool startup_free(const struct startup_row *row, startup_lookup *lookup, const void *arg)
{
    if (row->ours)
        return true;
    for (size_t i = 0; i < ARRAY_LEN(row->unless) && row->unless[i]; i++)
        if (lookup(arg, row->unless[i]))
            return false;
    return row->added || !lookup(arg, row->name);
}

/* Sets @value, in front of the user's own words where it is such a variable. 1: is set; 0: left
 * out. */
static int set_row(const struct startup_row *row, const char *value, startup_lookup *lookup,
                   int (*set)(void *arg, const char *name, const char *value), void *arg)
{
    const char *own = row->added ? lookup(arg, row->name) : NULL;
    _cleanup_free_ char *joined = NULL;
    int r;

    if (own && strlen(own) > STARTUP_OWN_MAX)
        return 0;
    if (own && asprintf(&joined, "%s %s", value, own) < 0) {
        joined = NULL;
        return -ENOMEM;
    }
    r = set(arg, row->name, joined ? joined : value);
    return r < 0 ? r : r == 0;
}

int startup_apply(struct startup *s, startup_lookup *lookup,
                  int (*set)(void *arg, const char *name, const char *value), void *arg)
{
    char value[STARTUP_VALUE_MAX], mark[STARTUP_MARK_MAX];
    bool is_free[ROWS_MAX];
    int r = 0;

    for (size_t i = 0; i < startup_rows; i++)
        is_free[i] = startup_free(&startup_table[i], lookup, arg);
    s->set = 0;
    for (size_t i = 0; r >= 0 && i < startup_rows; i++) {
        if (!is_free[i] || !startup_value(&startup_table[i], s, value))
            continue;
        r = set_row(&startup_table[i], value, lookup, set, arg);
        if (r > 0)
            s->set |= UINT32_C(1) << i;
    }
    if (r < 0)
        return r;
    startup_mark(s, mark);
    r = set(arg, STARTUP_MARK, mark);
    return r < 0 ? r : 0;
}

bool startup_sized(const struct startup *s)
{
    for (size_t i = 0; i < startup_rows; i++)
        if (startup_table[i].kind == STARTUP_SIZE && (s->set >> i & 1))
            return true;
    return false;
}

const struct startup_row *startup_row_of(const char *name)
{
    for (size_t i = 0; i < startup_rows; i++)
        if (strcmp(startup_table[i].name, name) == 0)
            return &startup_table[i];
    return NULL;
}

bool startup_is_set(const struct startup *s, const struct startup_row *row)
{
    return s->set >> (row - startup_table) & 1;
}

const char *startup_own(const struct startup_row *row, const struct startup *earlier,
                        const char *present)
{
    char value[STARTUP_VALUE_MAX];
    size_t n;

    if (row->ours)
        return NULL;
    if (!present || !startup_is_set(earlier, row) || !startup_value(row, earlier, value))
        return present;
    n = strlen(value);
    if (strncmp(present, value, n) != 0)
        return present;
    if (row->added && present[n] == ' ')
        return present + n + 1;
    return present[n] ? present : NULL;
}

const char *startup_own_of(const char *name, const struct startup *earlier, const char *present)
{
    const struct startup_row *row = startup_row_of(name);

    return row ? startup_own(row, earlier, present) : present;
}

void startup_mark(const struct startup *s, char buf[STARTUP_MARK_MAX])
{
    snprintf(buf, STARTUP_MARK_MAX, "%u:%u:%" PRIx32, s->size, s->most, s->set);
}

bool startup_read_mark(const char *text, struct startup *ret)
{
    unsigned size, most;
    uint32_t set;
    int end = 0;

    /* NOLINTNEXTLINE(cert-err34-c): the widths keep the numbers small */
    if (!text || sscanf(text, "%5u:%5u:%8" SCNx32 "%n", &size, &most, &set, &end) != 3 || text[end])
        return false;
    *ret = (struct startup){.size = size, .most = most, .set = set};
    return true;
}

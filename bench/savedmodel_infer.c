/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stock inference from a plain C program, a workload of the benchmarks: loads the SavedModel that
 * `models.py --model savedmodel` exports, runs it through TensorFlow's C API for a time or a number
 * of steps, and prints one line of JSON as models.py does.
 *
 *     savedmodel_infer --tensorflow DIR [--seconds S | --steps N] [--warmup N] [--batch N]
 *                      [--intra K] [--inter K] [--times FILE] MODEL
 *
 * DIR is the wheel's `tensorflow` folder. The library is loaded at run time: the wheel has no
 * import library in a place the linker knows, and the build must not depend on TensorFlow. One
 * thread; errors end the program with status 1, a wrong command line with 2.
 */
#include <dlfcn.h>
#include <err.h>
#include <getopt.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* The part of tensorflow/c/c_api.h that we call; its ABI is stable within TensorFlow 2. */
typedef struct TF_Status TF_Status;
typedef struct TF_Graph TF_Graph;
typedef struct TF_Session TF_Session;
typedef struct TF_SessionOptions TF_SessionOptions;
typedef struct TF_Operation TF_Operation;
typedef struct TF_Tensor TF_Tensor;
struct tf_output {
    TF_Operation *oper;
    int index;
};
enum { TF_FLOAT = 1 };

static TF_Status *(*TF_NewStatus)(void);
static int (*TF_GetCode)(const TF_Status *);
static const char *(*TF_Message)(const TF_Status *);
static const char *(*TF_Version)(void);
static TF_Graph *(*TF_NewGraph)(void);
static TF_SessionOptions *(*TF_NewSessionOptions)(void);
static void (*TF_SetConfig)(TF_SessionOptions *, const void *proto, size_t len, TF_Status *);
static TF_Session *(*TF_LoadSessionFromSavedModel)(const TF_SessionOptions *,
                                                   const void *run_options, const char *dir,
                                                   const char *const *tags, int n_tags, TF_Graph *,
                                                   void *meta_graph, TF_Status *);
static TF_Operation *(*TF_GraphOperationByName)(TF_Graph *, const char *);
static TF_Tensor *(*TF_AllocateTensor)(int dtype, const int64_t *dims, int n_dims, size_t len);
static void *(*TF_TensorData)(const TF_Tensor *);
static size_t (*TF_TensorByteSize)(const TF_Tensor *);
static void (*TF_DeleteTensor)(TF_Tensor *);
static void (*TF_SessionRun)(TF_Session *, const void *run_options, const struct tf_output *inputs,
                             TF_Tensor *const *input_values, int n_inputs,
                             const struct tf_output *outputs, TF_Tensor **ret_values, int n_outputs,
                             const TF_Operation *const *targets, int n_targets, void *run_metadata,
                             TF_Status *);
static void (*TF_CloseSession)(TF_Session *, TF_Status *);
static void (*TF_DeleteSession)(TF_Session *, TF_Status *);

#define SYMBOL(name)                                                                               \
    {                                                                                              \
#name, (void **)&(name)                                                                    \
    }
static const struct {
    const char *name;
    void **slot;
} symbols[] = {
    SYMBOL(TF_NewStatus),
    SYMBOL(TF_GetCode),
    SYMBOL(TF_Message),
    SYMBOL(TF_Version),
    SYMBOL(TF_NewGraph),
    SYMBOL(TF_NewSessionOptions),
    SYMBOL(TF_SetConfig),
    SYMBOL(TF_LoadSessionFromSavedModel),
    SYMBOL(TF_GraphOperationByName),
    SYMBOL(TF_AllocateTensor),
    SYMBOL(TF_TensorData),
    SYMBOL(TF_TensorByteSize),
    SYMBOL(TF_DeleteTensor),
    SYMBOL(TF_SessionRun),
    SYMBOL(TF_CloseSession),
    SYMBOL(TF_DeleteSession),
};

struct options {
    const char *tensorflow; /* borrowed from argv, as is model */
    const char *model;
    const char *times; /* file for CLOCK_MONOTONIC at the end of every step, or NULL */
    double seconds;
    long steps; /* 0: by time */
    long warmup;
    long batch;
    long intra; /* 0: TensorFlow's default, as is inter */
    long inter;
};

struct result {
    long steps;
    double wall_s;
    double cpu_s;
    uint64_t output_hash;
};

static double seconds_of(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void check(const TF_Status *status, const char *what)
{
    if (TF_GetCode(status) != 0)
        errx(1, "%s: %s", what, TF_Message(status));
}

static long number(const char *option, const char *text, long min, long max)
{
    char *end;
    long value = strtol(text, &end, 10);

    if (end == text || *end || value < min || value > max)
        errx(2, "--%s takes a number from %ld to %ld, not '%s'", option, min, max, text);
    return value;
}

static void parse(int argc, char **argv, struct options *ret_options)
{
    enum { TENSORFLOW = 1, SECONDS, STEPS, WARMUP, BATCH, INTRA, INTER, TIMES };
    static const struct option table[] = {
        {"tensorflow", required_argument, NULL, TENSORFLOW},
        {"seconds", required_argument, NULL, SECONDS},
        {"steps", required_argument, NULL, STEPS},
        {"warmup", required_argument, NULL, WARMUP},
        {"batch", required_argument, NULL, BATCH},
        {"intra", required_argument, NULL, INTRA},
        {"inter", required_argument, NULL, INTER},
        {"times", required_argument, NULL, TIMES},
        {NULL, 0, NULL, 0},
    };
    struct options o = {.seconds = 20, .warmup = 5, .batch = 64};
    int opt;

    while ((opt = getopt_long(argc, argv, "", table, NULL)) != -1) {
        switch (opt) {
        case TENSORFLOW:
            o.tensorflow = optarg;
            break;
        case SECONDS:
            o.seconds = (double)number("seconds", optarg, 1, 86400);
            break;
        case STEPS:
            o.steps = number("steps", optarg, 1, INT_MAX);
            break;
        case WARMUP:
            o.warmup = number("warmup", optarg, 0, INT_MAX);
            break;
        case BATCH:
            o.batch = number("batch", optarg, 1, 4096);
            break;
        case INTRA:
            o.intra = number("intra", optarg, 1, 127);
            break;
        case INTER:
            o.inter = number("inter", optarg, 1, 127);
            break;
        case TIMES:
            o.times = optarg;
            break;
        default:
            exit(2);
        }
    }
    if (!o.tensorflow || optind != argc - 1)
        errx(2, "usage: savedmodel_infer --tensorflow DIR [--seconds S | --steps N] MODEL");
    if (o.steps && o.steps <= o.warmup)
        errx(2, "--steps must be above --warmup");
    o.model = argv[optind];
    *ret_options = o;
}

static void load_tensorflow(const char *dir)
{
    char path[PATH_MAX];
    void *handle;

    snprintf(path, sizeof(path), "%s/libtensorflow_cc.so.2", dir);
    handle = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!handle)
        errx(1, "%s", dlerror());
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        *symbols[i].slot = dlsym(handle, symbols[i].name);
        if (!*symbols[i].slot)
            errx(1, "%s: no %s", path, symbols[i].name);
    }
}

/*
 * A serialised ConfigProto with the two thread counts, so that no protobuf library is needed:
 * fields 2 and 5 are varints, and a count below 128 is one byte.
 */
static void set_threads(TF_SessionOptions *session_options, const struct options *o,
                        TF_Status *status)
{
    uint8_t config[4];
    size_t len = 0;

    if (o->intra) {
        config[len++] = 2 << 3;
        config[len++] = (uint8_t)o->intra;
    }
    if (o->inter) {
        config[len++] = 5 << 3;
        config[len++] = (uint8_t)o->inter;
    }
    TF_SetConfig(session_options, config, len, status);
    check(status, "thread counts");
}

static struct tf_output find_output(TF_Graph *graph, const char *name)
{
    struct tf_output output = {.oper = TF_GraphOperationByName(graph, name)};

    if (!output.oper)
        errx(1, "the model has no operation '%s': export it with models.py", name);
    return output;
}

static TF_Tensor *make_images(long batch)
{
    const int64_t dims[] = {batch, 32, 32, 3};
    size_t count = (size_t)batch * 32 * 32 * 3;
    TF_Tensor *images = TF_AllocateTensor(TF_FLOAT, dims, 4, count * sizeof(float));
    float *pixel;

    if (!images)
        errx(1, "no memory for a batch of %ld", batch);
    pixel = TF_TensorData(images);
    for (size_t i = 0; i < count; i++)
        pixel[i] = (float)((i * 2654435761u >> 8) % 1000) * 1e-3f; /* varied, the same every time */
    return images;
}

/* FNV-1a over the output's bytes: the same input has to give the same bits in every step. */
static uint64_t hash_tensor(const TF_Tensor *tensor)
{
    const uint8_t *bytes = TF_TensorData(tensor);
    uint64_t hash = 0xcbf29ce484222325u;

    for (size_t i = 0; i < TF_TensorByteSize(tensor); i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3u;
    return hash;
}

static void infer(TF_Session *session, TF_Graph *graph, const struct options *o, TF_Status *status,
                  struct result *ret_result)
{
    struct tf_output input = find_output(graph, "serving_default_x");
    struct tf_output output = find_output(graph, "StatefulPartitionedCall");
    TF_Tensor *images = make_images(o->batch);
    struct result r = {0};
    double begin = 0, cpu_begin = 0;
    FILE *times = o->times ? fopen(o->times, "we") : NULL;

    if (o->times && !times)
        err(1, "%s", o->times);
    for (;;) {
        TF_Tensor *scores = NULL;

        if (r.steps == o->warmup) {
            begin = seconds_of(CLOCK_MONOTONIC);
            cpu_begin = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
        }
        TF_SessionRun(session, NULL, &input, &images, 1, &output, &scores, 1, NULL, 0, NULL,
                      status);
        check(status, "inference");
        r.output_hash = hash_tensor(scores);
        TF_DeleteTensor(scores);
        r.steps++;
        if (times) {
            fprintf(times, "%.6f\n", seconds_of(CLOCK_MONOTONIC));
            fflush(times);
        }
        if (r.steps <= o->warmup)
            continue;
        r.wall_s = seconds_of(CLOCK_MONOTONIC) - begin;
        if (o->steps ? r.steps >= o->steps : r.wall_s >= o->seconds)
            break;
    }
    r.cpu_s = seconds_of(CLOCK_PROCESS_CPUTIME_ID) - cpu_begin;
    TF_DeleteTensor(images);
    if (times)
        fclose(times);
    *ret_result = r;
}

static void print_result(const struct options *o, const struct result *r)
{
    struct rusage usage;
    long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "re");

    if (!statm || fscanf(statm, "%*d %ld", &pages) != 1)
        err(1, "/proc/self/statm");
    fclose(statm);
    getrusage(RUSAGE_SELF, &usage);
    printf("{\"model\": \"savedmodel\", \"tensorflow\": \"%s\", \"pid\": %d, \"intra\": %ld, "
           "\"inter\": %ld, \"steps\": %ld, \"steps_per_s\": %.4f, \"wall_s\": %.4f, "
           "\"cpu_s\": %.4f, \"output_hash\": \"%016llx\", \"rss_kib\": %ld, "
           "\"rss_max_kib\": %ld}\n",
           TF_Version(), getpid(), o->intra, o->inter, r->steps,
           (double)(r->steps - o->warmup) / r->wall_s, r->wall_s, r->cpu_s,
           (unsigned long long)r->output_hash, pages * sysconf(_SC_PAGESIZE) / 1024,
           usage.ru_maxrss);
}

int main(int argc, char **argv)
{
    static const char *const tags[] = {"serve"};
    struct options o;
    struct result r;
    TF_SessionOptions *session_options;
    TF_Session *session;
    TF_Status *status;
    TF_Graph *graph;

    parse(argc, argv, &o);
    setenv("TF_CPP_MIN_LOG_LEVEL", "3", 0);
    load_tensorflow(o.tensorflow);
    status = TF_NewStatus();
    graph = TF_NewGraph();
    session_options = TF_NewSessionOptions();
    set_threads(session_options, &o, status);
    session =
        TF_LoadSessionFromSavedModel(session_options, NULL, o.model, tags, 1, graph, NULL, status);
    check(status, o.model);
    infer(session, graph, &o, status, &r);
    print_result(&o, &r);
    TF_CloseSession(session, status);
    TF_DeleteSession(session, status);
    return 0;
}

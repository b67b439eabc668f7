/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/input/scenario.h"

#include "base/cleanup.h"
#include "sim/engine/machine.h"
#include "sim/input/document.h"
#include "sim/input/workload.h"

#include <assert.h>
#include <string.h>

#define ERROR_WORD "bad-scenario"

static void cleanup_scenario(struct scenario **scenario)
{
    scenario_free(*scenario);
}

struct scenario *scenario_free(struct scenario *scenario)
{
    if (!scenario)
        return NULL;
    for (size_t i = 0; i < scenario->curve_count; i++)
        free(scenario->curves[i].curve);
    for (size_t i = 0; i < scenario->server_count; i++)
        server_spec_done(&scenario->servers[i]);
    free(scenario->servers);
    speedup_set_done(&scenario->fractions);
    workload_free(scenario->workload);
    free(scenario->curves);
    free(scenario->jobs);
    free(scenario->observed.turnaround_ns);
    free(scenario->trace_path);
    free(scenario->file);
    free(scenario);
    return NULL;
}

static struct job_context listed_context(struct scenario *s)
{
    return (struct job_context){.cores = s->machine.cores,
                                .curves = s->curves,
                                .curve_count = s->curve_count,
                                .fractions = &s->fractions};
}

/* ---- machine --------------------------------------------------------------------------------- */

enum machine_key {
    MACHINE_CORES,
    MACHINE_NUMA,
    MACHINE_SMT,
    MACHINE_SMT_GAIN,
    MACHINE_MEMORY,
    MACHINE_DEVICES,
    MACHINE_IDLE_WATTS,
    MACHINE_CORE_WATTS,
    MACHINE_CAP_WATTS,
    MACHINE_PLACEMENT,
    MACHINE_OVERSUBSCRIPTION,
    MACHINE_CONTENTION,
    MACHINE_NUMA_LOSS,
    MACHINE_SPEEDS, /* a list; the others are values */
    MACHINE_KEY_MAX
};

static const char *const placements[] = {
    [SIM_SHARED] = "shared",
    [SIM_EXCLUSIVE] = "exclusive",
    [SIM_QUOTA] = "quota",
    [SIM_PLACEMENT_MAX] = NULL,
};

/* In the order of enum machine_key, ended by NULL as node_object() wants it. */
static const char *const machine_keys[] = {
    "cores",      "numa",       "smt",       "smt_gain",  "memory",           "devices",
    "idle_watts", "core_watts", "cap_watts", "placement", "oversubscription", "contention",
    "numa_loss",  "speeds",     NULL};
static_assert(ARRAY_LEN(machine_keys) == MACHINE_KEY_MAX + 1, "a name for each key");

static const struct value_type machine_types[] = {
    [MACHINE_CORES] = {VALUE_COUNT, 1, SIM_CORES_MAX, NULL, 0},
    [MACHINE_NUMA] = {VALUE_COUNT, 1, 1024, NULL, 0},
    [MACHINE_SMT] = {VALUE_COUNT, 1, 64, NULL, 0},
    [MACHINE_SMT_GAIN] = {VALUE_FACTOR, 0, 1000, NULL, 0},
    [MACHINE_MEMORY] = {VALUE_BYTES, 0, INT64_C(1) << 60, NULL, 0},
    [MACHINE_DEVICES] = {VALUE_DEVICES, 0, DEVICES_COUNTS_MAX, NULL, 0},
    [MACHINE_IDLE_WATTS] = {VALUE_POWER, 0, (int64_t)POLICY_POWER_MAX, NULL, 0},
    [MACHINE_CORE_WATTS] = {VALUE_POWER, 0, (int64_t)POLICY_POWER_MAX, NULL, 0},
    [MACHINE_CAP_WATTS] = {VALUE_POWER, 0, (int64_t)POLICY_POWER_MAX, NULL, 0},
    [MACHINE_PLACEMENT] = {VALUE_WORD, 0, 0, placements, 0},
    [MACHINE_OVERSUBSCRIPTION] = {VALUE_FACTOR, 0, 1000000, NULL, 0},
    [MACHINE_CONTENTION] = {VALUE_FACTOR, 0, 999, NULL, 0},
    [MACHINE_NUMA_LOSS] = {VALUE_FACTOR, 0, 999, NULL, 0},
};
static_assert(ARRAY_LEN(machine_types) == MACHINE_SPEEDS, "a type for each value");

/* Reads [[8, 1], [4, 0.6]]: eight cores, and four that are slower. */
static int read_speeds(const struct node *machine, struct sim_machine *ret, struct error *err)
{
    static const struct value_type cores = {VALUE_COUNT, 1, SIM_CORES_MAX, NULL, 0};
    static const struct value_type speed = {VALUE_FACTOR, 1, POLICY_FASTEST, NULL, 0};
    struct node list = node_member(machine, machine_keys[MACHINE_SPEEDS]);
    int r = list.value ? node_array(&list, 1, POLICY_SPEEDS_MAX, err) : 0;

    for (size_t i = 0; r == 0 && i < json_array_size(list.value); i++) {
        struct node group = node_element(&list, i);
        int64_t value[2] = {0};

        r = node_array(&group, 2, 2, err);
        for (size_t k = 0; r == 0 && k < 2; k++) {
            struct node part = node_element(&group, k);

            r = node_value(&part, k ? &speed : &cores, &value[k], err);
        }
        ret->speeds[ret->speed_count++] =
            (struct policy_speed){(uint32_t)value[0], (uint32_t)value[1]};
    }
    return r;
}

static int read_machine(const struct node *root, struct scenario *s, struct error *err)
{
    int64_t value[MACHINE_KEY_MAX] = {[MACHINE_NUMA] = 1, [MACHINE_SMT] = 1};
    struct node node = node_member(root, "machine");
    struct error reason;
    const char *text;
    int r;

    if (!node.value)
        return node_error(root, err, "machine is missing: {\"cores\": 16}");
    r = node_object(&node, machine_keys, err);
    for (int key = 0; r == 0 && key < MACHINE_SPEEDS; key++)
        r = node_optional(&node, machine_keys[key], &machine_types[key], &value[key], err);
    if (r == 0 && value[MACHINE_CORES] == 0)
        r = node_error(&node, err, "cores is missing: how many the machine has");
    if (r < 0)
        return r;
    s->machine = (struct sim_machine){
        .cores = (uint32_t)value[MACHINE_CORES],
        .numa = (uint32_t)value[MACHINE_NUMA],
        .smt = (uint32_t)value[MACHINE_SMT],
        .smt_gain_permille = (uint32_t)value[MACHINE_SMT_GAIN],
        .memory_bytes = value[MACHINE_MEMORY],
        .devices = value[MACHINE_DEVICES],
        .idle_uw = (uint64_t)value[MACHINE_IDLE_WATTS],
        .core_uw = (uint64_t)value[MACHINE_CORE_WATTS],
        .cap_uw = (uint64_t)value[MACHINE_CAP_WATTS],
        .placement = (enum sim_placement)value[MACHINE_PLACEMENT],
        .oversubscription_permille = (uint32_t)value[MACHINE_OVERSUBSCRIPTION],
        .contention_permille = (uint32_t)value[MACHINE_CONTENTION],
        .numa_permille = (uint32_t)value[MACHINE_NUMA_LOSS],
    };
    s->fractions.cores = s->machine.cores;
    r = read_speeds(&node, &s->machine, err);
    if (r < 0)
        return r;
    if (machine_check(&s->machine, &reason) == 0)
        return 0;
    text = strstr(reason.text, ": "); /* the path says "machine" already */
    return node_error(&node, err, "%s", text ? text + 2 : reason.text);
}

/* ---- speed-ups ------------------------------------------------------------------------------- */

static int read_amdahl(const struct node *node, uint32_t cores, struct sim_curve **ret_curve,
                       struct error *err)
{
    static const struct value_type fraction = {VALUE_FRACTION, 0, SPEEDUP_UNIT, NULL, 0};
    int64_t parallel = 0, contention = 0;
    int r = node_object(node, (const char *const[]){"amdahl", "contention", NULL}, err);

    if (r == 0 && !node_member(node, "amdahl").value)
        r = node_error(node, err, "amdahl is missing: the parallel fraction, as 0.95");
    if (r == 0)
        r = node_optional(node, "amdahl", &fraction, &parallel, err);
    if (r == 0)
        r = node_optional(node, "contention", &fraction, &contention, err);
    if (r < 0)
        return r;
    *ret_curve = speedup_amdahl(parallel, contention, cores);
    return *ret_curve ? 0 : error_set(err, -ENOMEM, "out of memory");
}

static const struct value_type cores_type = {VALUE_COUNT, 1, SIM_CORES_MAX, NULL, 0};

/* Reads [1, 1.9, 2.7]: with 1, 2, 3 cores; or [[1, 1], [4, 3.4]]: with those cores. */
static int read_points(const struct node *list, uint32_t *cores, double *speed, struct error *err)
{
    bool pairs = json_is_array(json_array_get(list->value, 0));

    for (size_t i = 0; i < json_array_size(list->value); i++) {
        struct node point = node_element(list, i);
        struct node value = pairs ? node_element(&point, 1) : point;
        struct node at = node_element(&point, 0);
        int64_t count = (int64_t)i + 1;
        int r = pairs ? node_array(&point, 2, 2, err) : 0;

        r = r == 0 && pairs ? node_value(&at, &cores_type, &count, err) : r;
        if (r < 0)
            return r;
        if (i == 0 ? count != 1 : count <= (int64_t)cores[i - 1])
            return node_error(&point, err, "points begin with 1 core and increase");
        cores[i] = (uint32_t)count;
        speed[i] = json_number_value(value.value);
        if (!(speed[i] > 1e-9 && speed[i] < 1e12))
            return node_error(&value, err, "must be a speed, above 0 and below 1e12");
    }
    return 0;
}

static int read_table(const struct node *node, uint32_t count, struct sim_curve **ret_curve,
                      struct error *err)
{
    struct node list = node_member(node, "table");
    _cleanup_free_ uint32_t *cores = NULL;
    _cleanup_free_ double *speed = NULL;
    int r = node_object(node, (const char *const[]){"table", NULL}, err);

    if (r == 0)
        r = node_array(&list, 1, SPEEDUP_POINTS_MAX, err);
    if (r < 0)
        return r;
    cores = calloc(json_array_size(list.value), sizeof(*cores));
    speed = calloc(json_array_size(list.value), sizeof(*speed));
    if (!cores || !speed)
        return error_set(err, -ENOMEM, "out of memory");
    r = read_points(&list, cores, speed, err);
    if (r < 0)
        return r;
    *ret_curve = speedup_measured(cores, speed, json_array_size(list.value), count);
    return *ret_curve ? 0 : error_set(err, -ENOMEM, "out of memory");
}

static int read_curve(const struct node *node, struct scenario *s, struct named_curve *curve,
                      struct error *err)
{
    uint32_t cores = s->machine.cores;

    if (strlen(node->key) >= sizeof(curve->name))
        return node_error(node, err, "has too long a name");
    if (strcmp(node->key, "exact") == 0 || strcmp(node->key, "none") == 0)
        return node_error(node, err, "is a word of told_speedup; choose another name");
    snprintf(curve->name, sizeof(curve->name), "%s", node->key);
    if (json_object_get(node->value, "table"))
        return read_table(node, cores, &curve->curve, err);
    return read_amdahl(node, cores, &curve->curve, err);
}

static int read_curves(const struct node *root, struct scenario *s, struct error *err)
{
    struct node node = node_member(root, "speedups");
    size_t count = json_object_size(node.value);
    const char *key;
    json_t *json;

    if (!node.value)
        return 0;
    if (!json_is_object(node.value))
        return node_error(&node, err, "must be an object: {\"cnn\": {\"amdahl\": 0.95}}");
    if (count > JOB_CURVES_MAX || count * s->machine.cores > SPEEDUP_ENTRIES_MAX)
        return node_error(&node, err, "has too many entries for so many cores: %zu", count);
    s->curves = calloc(count ? count : 1, sizeof(*s->curves));
    if (!s->curves)
        return error_set(err, -ENOMEM, "out of memory");
    json_object_foreach (node.value, key, json) {
        struct node member = node_member(&node, key);
        int r = read_curve(&member, s, &s->curves[s->curve_count], err);

        if (r < 0)
            return r;
        s->curve_count++;
    }
    return 0;
}

/* ---- jobs ------------------------------------------------------------------------------------ */

/* The id is the place in the list, until the source numbers the jobs. */
static int by_arrival(const void *a, const void *b)
{
    const struct sim_job *x = a, *y = b;

    if (x->arrival_ns != y->arrival_ns)
        return x->arrival_ns < y->arrival_ns ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static int read_job(const struct node *node, struct scenario *s, struct sim_job *job,
                    struct error *err)
{
    const struct job_context context = listed_context(s);
    struct job_spec spec = s->defaults;
    struct error reason;
    int r = job_node_read(node, NULL, &context, &spec, NULL, err);

    if (r < 0)
        return r;
    if (job_spec_resolve(&spec, &context, job, &reason) < 0)
        return node_error(node, err, "%s", reason.text);
    if (!*job->name)
        snprintf(job->name, sizeof(job->name), "job-%zu", node->index + 1);
    job->id = node->index + 1;
    return 0;
}

static int read_jobs(const struct node *root, struct scenario *s, struct error *err)
{
    struct node list = node_member(root, "jobs");
    size_t count = json_array_size(list.value);
    int r = list.value ? node_array(&list, 1, SCENARIO_JOBS_MAX, err) : 0;

    if (r < 0 || count == 0)
        return r;
    s->jobs = calloc(count, sizeof(*s->jobs));
    if (!s->jobs)
        return error_set(err, -ENOMEM, "out of memory");
    for (; s->job_count < count; s->job_count++) {
        struct node node = node_element(&list, s->job_count);

        r = read_job(&node, s, &s->jobs[s->job_count], err);
        if (r < 0)
            return r;
    }
    qsort(s->jobs, count, sizeof(*s->jobs), by_arrival);
    return 0;
}

static int server_by_arrival(const void *a, const void *b)
{
    const struct server_spec *x = a, *y = b;

    if (x->job.arrival_ns != y->job.arrival_ns)
        return x->job.arrival_ns < y->job.arrival_ns ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static int read_servers(const struct node *root, struct scenario *s, struct error *err)
{
    const struct job_context context = listed_context(s);
    struct node list = node_member(root, "servers");
    size_t count = json_array_size(list.value);
    int r = list.value ? node_array(&list, 1, SERVERS_MAX, err) : 0;

    if (r < 0 || count == 0)
        return r;
    s->servers = calloc(count, sizeof(*s->servers));
    if (!s->servers)
        return error_set(err, -ENOMEM, "out of memory");
    for (; s->server_count < count; s->server_count++) {
        struct node node = node_element(&list, s->server_count);

        r = server_spec_read(&node, &s->defaults, &context, s->file, &s->servers[s->server_count],
                             err);
        if (r < 0)
            return r;
    }
    qsort(s->servers, count, sizeof(*s->servers), server_by_arrival);
    return 0;
}

bool scenario_is_random(const struct scenario *scenario)
{
    bool random = scenario->workload != NULL;

    for (size_t i = 0; i < scenario->server_count; i++)
        random |= server_spec_is_random(&scenario->servers[i]);
    return random;
}

static int read_defaults(const struct node *root, struct scenario *s, struct error *err)
{
    const struct job_context context = listed_context(s);
    struct node node = node_member(root, "defaults");
    struct node arrival = node_member(&node, "arrival");

    if (arrival.value)
        return node_error(&arrival, err, "has no default: give one for each job");
    return node.value ? job_node_read(&node, NULL, &context, &s->defaults, NULL, err) : 0;
}

static int read_workload(const struct node *root, struct scenario *s, struct error *err)
{
    const struct job_context context = listed_context(s);
    struct node node = node_member(root, "workload");

    return node.value ? workload_read(&node, &s->defaults, &context, &s->workload, err) : 0;
}

static int read_trace(const struct node *root, struct scenario *s, struct error *err)
{
    static const char *const formats[] = {"csv", "swf", NULL};
    static const struct value_type format_type = {VALUE_WORD, 0, 0, formats, SCENARIO_TRACE_CSV};
    struct node node = node_member(root, "trace");
    struct node file = node_member(&node, "file");
    const char *name, *slash = strrchr(s->file, '/'), *dot;
    int64_t format = SCENARIO_TRACE_NONE;
    int r;

    if (!node.value)
        return 0;
    r = node_object(&node, (const char *const[]){"file", "format", NULL}, err);
    if (r == 0)
        r = node_string(&file, 1024, &name, err);
    if (r < 0)
        return r;
    dot = strrchr(name, '.');
    if (dot && node_member(&node, "format").value == NULL)
        format = strcmp(dot, ".csv") == 0   ? SCENARIO_TRACE_CSV
                 : strcmp(dot, ".swf") == 0 ? SCENARIO_TRACE_SWF
                                            : SCENARIO_TRACE_NONE;
    r = node_optional(&node, "format", &format_type, &format, err);
    if (r == 0 && format == SCENARIO_TRACE_NONE)
        r = node_error(&node, err, "format is missing: csv or swf");
    if (r < 0)
        return r;
    s->trace = (enum scenario_trace)format;
    if (asprintf(&s->trace_path, "%.*s%s", *name == '/' || !slash ? 0 : (int)(slash - s->file) + 1,
                 s->file, name) < 0) {
        s->trace_path = NULL;
        return error_set(err, -ENOMEM, "out of memory");
    }
    return 0;
}

/* ---- the rest -------------------------------------------------------------------------------- */

static const struct value_type time_type = {VALUE_DURATION, 1, VALUE_DURATION_MAX, NULL, 0};

/*
 * In the order of the scenario's jobs, which `tide record` writes by arrival; useless if the jobs
 * changed.
 */
static int read_turnarounds(const struct node *list, struct scenario *s, struct error *err)
{
    size_t count = json_array_size(list->value);

    if (count != s->job_count || count == 0 || s->workload || s->server_count ||
        s->trace != SCENARIO_TRACE_NONE)
        return 0;
    s->observed.turnaround_ns = calloc(count, sizeof(*s->observed.turnaround_ns));
    if (!s->observed.turnaround_ns)
        return error_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < count; i++) {
        struct node job = node_element(list, i), time = node_member(&job, "turnaround");
        int r = time.value ? node_value(&time, &time_type, &s->observed.turnaround_ns[i], err)
                           : node_error(&job, err, "turnaround is missing");

        if (r < 0)
            return r;
    }
    return 0;
}

static int read_observed(const struct node *root, struct scenario *s, struct error *err)
{
    /* Only users read `recorded` and `others`. */
    static const char *const keys[] = {
        "policy", "makespan", "mean_turnaround", "recorded", "others", "jobs", NULL};
    struct scenario_observed *observed = &s->observed;
    struct node node = node_member(root, "observed");
    struct node policy = node_member(&node, "policy"), jobs = node_member(&node, "jobs");
    const char *text = "";
    int r;

    if (!node.value)
        return 0;
    r = node_object(&node, keys, err);
    if (r == 0 && policy.value)
        r = node_string(&policy, sizeof(observed->policy), &text, err);
    if (r == 0)
        r = node_optional(&node, "makespan", &time_type, &observed->makespan_ns, err);
    if (r == 0)
        r = node_optional(&node, "mean_turnaround", &time_type, &observed->mean_turnaround_ns, err);
    if (r == 0 && (observed->makespan_ns == 0 || observed->mean_turnaround_ns == 0))
        r = node_error(&node, err, "must hold makespan and mean_turnaround");
    if (r == 0)
        r = read_turnarounds(&jobs, s, err);
    if (r < 0)
        return r;
    snprintf(observed->policy, sizeof(observed->policy), "%s", text);
    observed->present = true;
    return 0;
}

/* Returns where the file's name begins in its path. */
static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static int read_head(const struct node *root, struct scenario *s, struct error *err)
{
    static const char *const keys[] = {"name",     "description", "machine",  "resolution",
                                       "speedups", "defaults",    "jobs",     "servers",
                                       "workload", "trace",       "observed", NULL};
    struct node name = node_member(root, "name"), text = node_member(root, "description");
    const char *string = base_name(s->file);
    int64_t resolution = 1;
    int r = node_object(root, keys, err);

    if (r == 0 && name.value)
        r = node_string(&name, sizeof(s->name), &string, err);
    if (r < 0)
        return r;
    snprintf(s->name, sizeof(s->name), "%s", string);
    string = "";
    if (text.value)
        r = node_string(&text, sizeof(s->text), &string, err);
    if (r == 0)
        r = node_optional(root, "resolution", &time_type, &resolution, err);
    snprintf(s->text, sizeof(s->text), "%s", string);
    s->resolution_ns = (uint64_t)resolution;
    return r;
}

static int read_scenario(const struct node *root, struct scenario *s, struct error *err)
{
    static int (*const readers[])(const struct node *, struct scenario *, struct error *) = {
        read_head,    read_machine,  read_curves, read_defaults, read_jobs,
        read_servers, read_workload, read_trace,  read_observed,
    };

    for (size_t i = 0; i < ARRAY_LEN(readers); i++) {
        int r = readers[i](root, s, err);

        if (r < 0)
            return r;
    }
    if (!s->jobs && !s->servers && !s->workload && s->trace == SCENARIO_TRACE_NONE)
        return node_error(root, err, "there are no jobs: add jobs, servers, workload or trace");
    return 0;
}

static int parse(const struct document *doc, struct scenario **ret_scenario, struct error *err)
{
    _cleanup_(cleanup_scenario) struct scenario *s = calloc(1, sizeof(*s));
    struct node root = node_root(doc);
    int r;

    if (!s || !(s->file = strdup(doc->name)))
        return error_set(err, -ENOMEM, "out of memory");
    r = read_scenario(&root, s, err);
    if (r == 0)
        *ret_scenario = TAKE_PTR(s);
    return r;
}

int scenario_parse(const char *path, char *text, size_t size, struct scenario **ret_scenario,
                   struct error *err)
{
    struct document doc;
    int r = document_init(&doc, path, text, size, err);

    if (r == 0)
        r = parse(&doc, ret_scenario, err);
    document_done(&doc);
    return r;
}

int scenario_load(const char *path, struct scenario **ret_scenario, struct error *err)
{
    _cleanup_file_ FILE *file = fopen(path, "re");
    /* Reads one byte more than allowed, to notice a larger file; and the NUL. */
    _cleanup_free_ char *text = malloc(DOCUMENT_SIZE_MAX + 2);
    size_t size;

    if (!file)
        return error_set(err, -errno, "%s: %s", path, strerror(errno));
    if (!text)
        return error_set(err, -ENOMEM, "out of memory");
    size = fread(text, 1, DOCUMENT_SIZE_MAX + 1, file);
    if (ferror(file))
        return error_set(err, -EIO, "%s: cannot be read: %s", path, strerror(errno));
    text[size] = '\0';
    return scenario_parse(path, TAKE_PTR(text), size, ret_scenario, err);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/report/compare.h"

#include "base/cleanup.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#define ERROR_WORD "simulation-failed"

#define PROGRESS_MS 100

static int read_decider(struct compare_policy *policy, const char *path, struct error *err)
{
    if (!*path || strlen(path) >= sizeof(policy->decider))
        return error_word(err,
                          error_set(err, -EINVAL, "external: needs the path of a decider's socket"),
                          "bad-policy");
    strcpy(policy->decider, path);
    policy->spec.policy = decider_fallback();
    return 0;
}

/* Cuts "+idle" or "+split=2" off the end. 1, 0: there is none, or -EINVAL. */
static int cut_suffix(struct compare_policy *policy, struct error *err)
{
    static const struct value_type cores = {VALUE_COUNT, 1, SIM_CORES_MAX, NULL, 0};
    char *at = strrchr(policy->text, '+');
    struct error reason;
    int64_t value;

    if (!at || at == policy->text)
        return 0;
    if (strcmp(at, COMPARE_EXTRAS) == 0) {
        policy->extras = true;
    } else if (strncmp(at, COMPARE_SPLIT, strlen(COMPARE_SPLIT)) == 0) {
        if (value_from_text(&cores, at + strlen(COMPARE_SPLIT), &value, &reason) < 0)
            return error_word(err, error_set(err, -EINVAL, "%s: %s", at, reason.text),
                              "bad-policy");
        policy->split = (uint32_t)value;
    } else {
        return 0;
    }
    *at = '\0';
    return 1;
}

int compare_policy_parse(const char *text, struct compare_policy *ret_policy, struct error *err)
{
    struct compare_policy policy = {0};
    int r;

    if (strlen(text) >= sizeof(policy.text))
        return error_word(err, error_set(err, -EINVAL, "%.40s… is too long", text), "bad-policy");
    strcpy(policy.text, text);
    do {
        r = cut_suffix(&policy, err);
    } while (r > 0);
    if (r < 0)
        return r;
    if (strncmp(policy.text, COMPARE_EXTERNAL, strlen(COMPARE_EXTERNAL)) == 0)
        r = read_decider(&policy, policy.text + strlen(COMPARE_EXTERNAL), err);
    else if (strcmp(policy.text, COMPARE_NO_CONTROL) != 0)
        r = policy_spec_parse(policy.text, &policy.spec, err);
    else if (policy.extras || policy.split)
        r = error_word(err,
                       error_set(err, -EINVAL, "without a policy there are no %s",
                                 policy.extras ? "idle cores to lend" : "cores to split"),
                       "bad-policy");
    if (r < 0)
        return r;
    strcpy(policy.text, text);
    *ret_policy = policy;
    return 0;
}

bool compare_policy_equal(const struct compare_policy *a, const struct compare_policy *b)
{
    uint32_t count = a->spec.policy ? a->spec.policy->param_count : 0;

    return a->spec.policy == b->spec.policy && a->extras == b->extras && a->split == b->split &&
           strcmp(a->decider, b->decider) == 0 &&
           memcmp(a->spec.params, b->spec.params, count * sizeof(a->spec.params[0])) == 0;
}

/* ---- one run --------------------------------------------------------------------------------- */

/* The common state of all threads. */
struct work {
    struct compare *compare;
    atomic_uint next;           /* the next run to take */
    atomic_uint_fast64_t ended; /* finished jobs of all runs */
    atomic_bool stop;           /* a run failed */
    pthread_mutex_t lock;       /* guards the members below */
    pthread_cond_t changed;
    uint32_t working; /* number of threads */
    uint32_t written; /* runs whose lines are in the file of jobs */
    uint32_t failed;  /* the first run that failed; UINT32_MAX: none */
    struct error err;
    int code;
};

/* The sink of one run. */
struct run {
    struct sim_sink sink;
    struct work *work;
    uint32_t index, policy;
    uint64_t seed;
    struct sim_metrics metrics;
    struct chart *chart; /* NULL: not wanted */
    FILE *jobs;          /* this run's lines, until its turn; NULL: not wanted */
};

static int on_segment(struct sim_sink *sink, const struct sim_segment *segment)
{
    struct run *run = (struct run *)sink;

    chart_segment(run->chart, segment);
    return 0;
}

static double seconds(uint64_t ns)
{
    return (double)ns / 1e9;
}

static double milliseconds(const struct sim_served *served, uint32_t permille)
{
    return served->requests ? (double)sim_quantiles_at(served->latency_ns, permille) / 1e6 : NAN;
}

/* Writes a name, in quotes if it needs them. */
static void write_name(FILE *file, const char *name)
{
    if (!strpbrk(name, ",\"")) {
        fputs(name, file);
        return;
    }
    putc('"', file);
    for (; *name; name++)
        fprintf(file, *name == '"' ? "\"\"" : "%c", *name);
    putc('"', file);
}

static void write_job(const struct run *run, const struct sim_record *r)
{
    const struct sim_job *job = r->job;
    bool done = r->finish_ns != POLICY_NEVER;
    bool missed = job->deadline_ns != POLICY_NEVER && (!done || r->finish_ns > job->deadline_ns);
    FILE *f = run->jobs;

    fprintf(f, "%s,%llu,%llu,", run->work->compare->policies[run->policy].text,
            (unsigned long long)run->seed, (unsigned long long)job->id);
    write_name(f, job->name);
    fprintf(f, ",%s,%.6f,",
            done            ? "finished"
            : r->infeasible ? "infeasible"
                            : "unfinished",
            seconds(job->arrival_ns));
    if (r->start_ns != POLICY_NEVER)
        fprintf(f, "%.6f", seconds(r->start_ns));
    if (done)
        fprintf(f, ",%.6f,%.6f", seconds(r->finish_ns), seconds(r->finish_ns - job->arrival_ns));
    else
        fputs(",,", f);
    fprintf(f, ",%.6f,%.6f,%.6f,%u,%.6f,%.6f,%.6f,%u,%u,%d", seconds(r->wait_ns),
            seconds(r->run_ns), seconds(r->alone_ns), job->request, seconds(r->core_ns),
            seconds(r->busy_ns), seconds(r->useful_ns), r->resizes, r->pauses, missed);
    if (r->served)
        fprintf(f, ",%llu,%llu,%llu,%.3f,%.3f\n", (unsigned long long)r->served->requests,
                (unsigned long long)r->served->seconds, (unsigned long long)r->served->kept,
                milliseconds(r->served, 500), milliseconds(r->served, 990));
    else
        fputs(",,,,,\n", f);
}

static const char jobs_header[] =
    "policy,seed,job,name,state,arrival,start,finish,turnaround,waiting,execution,alone,request,"
    "core_seconds,busy_seconds,useful_seconds,resizes,pauses,deadline_missed,"
    "requests,seconds,kept_seconds,p50_ms,p99_ms\n";

static void note_turnaround(struct compare_run *result, const struct sim_record *r)
{
    result->turnaround_s[r->job->id - 1] =
        r->finish_ns == POLICY_NEVER ? NAN : seconds(r->finish_ns - r->job->arrival_ns);
}

static int note_server(struct compare_run *result, const struct sim_record *r)
{
    struct compare_server *more =
        reallocarray(result->servers, result->server_count + 1, sizeof(*more));

    if (!more)
        return -ENOMEM;
    result->servers = more;
    more += result->server_count++;
    *more = (struct compare_server){
        .requests = r->served->requests,
        .seconds = r->served->seconds,
        .kept = r->served->kept,
        .p50_ms = milliseconds(r->served, 500),
        .p99_ms = milliseconds(r->served, 990),
        .cores = r->run_ns ? seconds(r->core_ns) / seconds(r->run_ns) : 0,
    };
    memcpy(more->name, r->job->name, sizeof(more->name));
    return 0;
}

static int on_record(struct sim_sink *sink, const struct sim_record *record)
{
    struct run *run = (struct run *)sink;

    sim_metrics_add(&run->metrics, record);
    if (record->served && note_server(&run->work->compare->runs[run->index], record) < 0)
        return -ENOMEM;
    if (run->work->compare->runs[run->index].turnaround_s)
        note_turnaround(&run->work->compare->runs[run->index], record);
    if (run->chart)
        chart_record(run->chart, record);
    if (run->jobs)
        write_job(run, record);
    atomic_fetch_add_explicit(&run->work->ended, 1, memory_order_relaxed);
    return atomic_load_explicit(&run->work->stop, memory_order_relaxed) ? -ECANCELED : 0;
}

static void cleanup_source(struct scenario_source **source)
{
    scenario_source_free(*source);
}

static int ask_decider(void *arg, const struct policy_snapshot *snapshot, struct policy_plan *plan)
{
    return decider_decide(arg, snapshot, plan);
}

static void note_decider(struct compare_run *result, const struct decider_client *decider)
{
    result->asked = decider->asked;
    result->answered = decider->answered;
    memcpy(result->decider_fault, decider->first_fault, sizeof(result->decider_fault));
}

static int simulate(struct run *run, struct error *err)
{
    struct compare *compare = run->work->compare;
    const struct compare_policy *policy = &compare->policies[run->policy];
    struct compare_run *result = &compare->runs[run->index];
    _cleanup_(cleanup_source) struct scenario_source *source = NULL;
    _cleanup_(decider_close) struct decider_client decider = {.fd = -1};
    struct sim_options options = {
        .policy = policy->spec.policy,
        .params = policy->spec.params,
        .extras = policy->extras,
        .split = policy->split,
        .seed = run->seed,
        .resolution_ns = compare->scenario->resolution_ns,
        .check = compare->check,
    };
    int r = scenario_source_new(compare->scenario, run->seed, &source, err);

    if (r == 0 && *policy->decider) {
        r = decider_open(policy->decider, COMPARE_DEADLINE_NS, &decider, err);
        options.decide = ask_decider;
        options.decide_arg = &decider;
    }
    if (r < 0)
        return r;
    r = sim_run(&compare->machine, scenario_source_jobs(source), &options, &run->sink,
                &result->totals, err);
    note_decider(result, &decider);
    result->stuck = r == -EDEADLK;
    if (r < 0 && !result->stuck)
        return r;
    if (result->stuck)
        memcpy(result->why, err->text, sizeof(result->why));
    sim_metrics_finish(&run->metrics, &compare->machine, &result->totals, result->value);
    return 0;
}

/* Writes the lines of jobs in the order of runs, so a run waits for those before it. */
static int write_jobs(struct run *run)
{
    struct work *work = run->work;
    char buf[65536];
    size_t size;

    pthread_mutex_lock(&work->lock);
    while (work->written < run->index && !atomic_load(&work->stop))
        pthread_cond_wait(&work->changed, &work->lock);
    pthread_mutex_unlock(&work->lock);
    if (atomic_load(&work->stop))
        return -ECANCELED;
    rewind(run->jobs);
    while ((size = fread(buf, 1, sizeof(buf), run->jobs)) > 0)
        fwrite(buf, 1, size, work->compare->jobs);
    if (ferror(run->jobs) || ferror(work->compare->jobs))
        return -EIO;
    pthread_mutex_lock(&work->lock);
    work->written++;
    pthread_cond_broadcast(&work->changed);
    pthread_mutex_unlock(&work->lock);
    return 0;
}

static int do_run(struct work *work, struct run *run, uint32_t index, struct error *err)
{
    struct compare *compare = work->compare;
    uint32_t seed = index % compare->seed_count;
    _cleanup_file_ FILE *jobs = compare->jobs ? tmpfile() : NULL;
    int r;

    memset(run, 0, sizeof(*run));
    *run = (struct run){.work = work,
                        .index = index,
                        .policy = index / compare->seed_count,
                        .seed = compare->first_seed + seed,
                        .jobs = jobs};
    run->chart = compare->chart && seed == 0 ? compare->chart[run->policy] : NULL;
    run->sink.record = on_record;
    run->sink.segment = run->chart ? on_segment : NULL;
    if (compare->jobs && !jobs)
        return error_set(err, -errno, "no temporary file: %s", strerror(errno));
    r = simulate(run, err);
    if (r == 0 && jobs)
        r = write_jobs(run);
    return r == -EIO ? error_set(err, r, "cannot write the jobs: %s", strerror(errno)) : r;
}

/* ---- all runs -------------------------------------------------------------------------------- */

static void fail(struct work *work, uint32_t index, int code, const struct error *err)
{
    pthread_mutex_lock(&work->lock);
    if (index < work->failed && code != -ECANCELED) {
        work->failed = index;
        work->code = code;
        work->err = *err;
    }
    atomic_store(&work->stop, true);
    pthread_cond_broadcast(&work->changed);
    pthread_mutex_unlock(&work->lock);
}

static void *thread_main(void *arg)
{
    struct work *work = arg;
    uint32_t count = work->compare->policy_count * work->compare->seed_count;
    _cleanup_free_ struct run *run = malloc(sizeof(*run));
    uint32_t index = 0;
    struct error err;
    int r = 0;

    while (r == 0 && !atomic_load(&work->stop) &&
           (index = atomic_fetch_add(&work->next, 1)) < count)
        r = run ? do_run(work, run, index, &err) : error_set(&err, -ENOMEM, "out of memory");
    if (r < 0)
        fail(work, index, r, &err);
    pthread_mutex_lock(&work->lock);
    work->working--;
    pthread_cond_broadcast(&work->changed);
    pthread_mutex_unlock(&work->lock);
    return NULL;
}

/* Waits for the last thread and reports progress, at first that the runs have begun. */
static void wait_for_threads(struct work *work)
{
    const struct compare *compare = work->compare;
    double all = (double)compare->job_count * compare->policy_count * compare->seed_count;
    uint32_t working = 1;

    while (working > 0) {
        struct timespec until;

        if (compare->progress)
            compare->progress(compare, all > 0 ? (double)atomic_load(&work->ended) / all : 1);
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += PROGRESS_MS * 1000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_mutex_lock(&work->lock);
        while (work->working > 0 &&
               pthread_cond_timedwait(&work->changed, &work->lock, &until) == 0)
            ;
        working = work->working;
        pthread_mutex_unlock(&work->lock);
    }
}

static int run_threads(struct work *work)
{
    uint32_t count = work->compare->policy_count * work->compare->seed_count;
    uint32_t threads = work->compare->threads < count ? work->compare->threads : count;
    _cleanup_free_ pthread_t *thread = calloc(threads, sizeof(*thread));
    uint32_t started = 0;

    if (!thread)
        return -ENOMEM;
    work->working = threads;
    while (started < threads && pthread_create(&thread[started], NULL, thread_main, work) == 0)
        started++;
    pthread_mutex_lock(&work->lock);
    work->working -= threads - started;
    pthread_mutex_unlock(&work->lock);
    wait_for_threads(work);
    for (uint32_t i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
    return started ? 0 : -EAGAIN;
}

/* Reads the jobs of the first seed once before all runs, so that a bad trace is reported now. */
static int count_jobs(struct compare *compare, struct error *err)
{
    _cleanup_(cleanup_source) struct scenario_source *source = NULL;
    int r = scenario_source_new(compare->scenario, compare->first_seed, &source, err);
    struct sim_job job;

    while (r == 0) {
        struct sim_source *jobs = scenario_source_jobs(source);

        r = jobs->next(jobs, &job, err);
        if (r <= 0)
            break;
        compare->job_count++;
        r = 0;
    }
    return r;
}

static int allocate(struct compare *compare)
{
    compare->runs =
        calloc((size_t)compare->policy_count * compare->seed_count, sizeof(*compare->runs));
    if (!compare->runs)
        return -ENOMEM;
    for (uint32_t p = 0; compare->scenario->observed.turnaround_ns && p < compare->policy_count;
         p++) {
        struct compare_run *first = &compare->runs[(size_t)p * compare->seed_count];

        first->turnaround_s = calloc(compare->job_count, sizeof(*first->turnaround_s));
        if (!first->turnaround_s)
            return -ENOMEM;
    }
    if (!compare->charts)
        return 0;
    compare->chart = calloc(compare->policy_count, sizeof(*compare->chart));
    for (uint32_t p = 0; compare->chart && p < compare->policy_count; p++) {
        compare->chart[p] = calloc(1, sizeof(*compare->chart[p]));
        if (!compare->chart[p])
            return -ENOMEM;
    }
    return compare->chart ? 0 : -ENOMEM;
}

int compare_all(struct compare *compare, struct error *err)
{
    struct work work = {
        .compare = compare, .failed = UINT32_MAX, .lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_condattr_t attributes;
    const char *trace = compare->scenario->trace_path;
    int r = count_jobs(compare, err);

    if (r < 0)
        return r;
    if (compare->job_count == 0)
        return error_word(err,
                          error_set(err, -EINVAL, "%s: there are no jobs: %s%s",
                                    compare->scenario->file,
                                    trace ? "none in " : "none arrives before workload.until",
                                    trace ? trace : ""),
                          "bad-scenario");
    /* Not pthread_cond_clockwait, which glibc before 2.30 lacks. */
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&work.changed, &attributes);
    r = allocate(compare);
    if (r == 0 && compare->jobs)
        fputs(jobs_header, compare->jobs);
    if (r == 0)
        r = run_threads(&work);
    if (r < 0)
        return error_set(err, r, "%s", r == -ENOMEM ? "out of memory" : "cannot start a thread");
    if (work.failed != UINT32_MAX)
        return error_set(err, work.code, "%s, seed %llu: %s",
                         compare->policies[work.failed / compare->seed_count].text,
                         (unsigned long long)compare->first_seed +
                             work.failed % compare->seed_count,
                         work.err.text);
    return 0;
}

void compare_done(struct compare *compare)
{
    for (uint32_t p = 0; compare->chart && p < compare->policy_count; p++)
        free(compare->chart[p]);
    for (size_t i = 0; compare->runs && i < (size_t)compare->policy_count * compare->seed_count;
         i++) {
        free(compare->runs[i].turnaround_s);
        free(compare->runs[i].servers);
    }
    free(compare->chart);
    free(compare->runs);
    compare->chart = NULL;
    compare->runs = NULL;
}

/* ---- results --------------------------------------------------------------------------------- */

static double *values_of(const struct compare *compare, uint32_t policy, enum sim_metric metric)
{
    const struct compare_run *runs = compare_runs(compare, policy);
    double *values = malloc(compare->seed_count * sizeof(*values));

    for (uint32_t s = 0; values && s < compare->seed_count; s++)
        values[s] = runs[s].value[metric];
    return values;
}

void compare_estimate(const struct compare *compare, uint32_t policy, enum sim_metric metric,
                      struct sim_estimate *ret_estimate)
{
    _cleanup_free_ double *values = values_of(compare, policy, metric);

    *ret_estimate = (struct sim_estimate){0};
    if (values)
        sim_estimate(values, compare->seed_count, ret_estimate);
}

void compare_gain(const struct compare *compare, uint32_t policy, enum sim_metric metric,
                  struct sim_estimate *ret_estimate)
{
    _cleanup_free_ double *own = values_of(compare, policy, metric);
    _cleanup_free_ double *base = values_of(compare, 0, metric);
    int better = sim_metric_info(metric)->better;

    *ret_estimate = (struct sim_estimate){0};
    for (uint32_t s = 0; own && s < compare->seed_count; s++)
        if (compare_runs(compare, policy)[s].value[SIM_UNFINISHED] !=
            compare_runs(compare, 0)[s].value[SIM_UNFINISHED])
            own[s] = NAN; /* a run with other jobs cannot be compared */
    if (own && base && better)
        sim_compare(better > 0 ? own : base, better > 0 ? base : own, compare->seed_count,
                    ret_estimate);
}

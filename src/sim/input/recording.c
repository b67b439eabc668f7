/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/input/recording.h"

#include "base/cleanup.h"
#include "base/minmax.h"
#include "policy/model/fit.h"
#include "sim/input/jobspec.h"

#include <string.h>

#define ERROR_WORD "bad-scenario"

#define NS           1e9
#define COUNTS_MAX   64  /* distinct thread counts of one job */
#define CHANGES_MAX  200 /* changes of the thread count in the file */
#define PACE_LOOKS   6
#define UNREPORTED_S 0.8
#define EDGE         0.01  /* part of the work that counts as start and end */
#define MOMENT       0.001 /* s; the smallest work */
#define IDLE         0.05  /* cores; a job below this is left out */
#define GUESS        0.9   /* parallel part assumed for a job seen with only one thread count */
#define IDLE_MOST    0.9   /* largest part of its time that a job may sleep */
#define SAMPLE_S     1.0   /* a rate for the fit is measured over this time … */
#define FIT_RATE     1e6   /* … and the fit counts the mean rate as this */
#define TABLE_DENSE  16    /* up to here a table holds every count, … */
#define TABLE_STEP   8     /* … then every eighth, and the observed ones */

/* Observations of a job with one number of threads, while it worked. */
struct count {
    uint32_t threads;
    double time_s, alone_s, cpu_s, wait_s;
    double done;
};

struct stretch {
    double time_s, alone_s, cpu_s;
    double done;
};

struct analysis {
    size_t first, last; /* looks between which it worked at a steady pace */
    double missing;     /* ratio of all its work to the work between them */
    double start_s;     /* before and after the work: time in which one core was busy … */
    double idle_s;      /* … and time that passed without */
    struct count count[COUNTS_MAX];
    size_t counts;
    struct fit fit;
    double rate_one; /* rate by the fit, with one thread */
    double fraction; /* parallel part; used without a table */
    double idle;     /* part of its time with one thread in which it slept */
    double waste;
    uint32_t *table; /* by the fit, for 1 … cores; NULL: at most one count was seen */
};

/* ---- looks ----------------------------------------------------------------------------------- */

/* Drops half of the looks; the last one stays. */
static void thin(struct recording_job *job)
{
    size_t n = 0;

    for (size_t i = 0; i < job->looks; i += 2)
        job->look[n++] = job->look[i];
    if (job->looks % 2 == 0)
        job->look[n++] = job->look[job->looks - 1];
    job->looks = n;
    job->spacing_ns = 2 * (job->look[n - 1].at_ns - job->look[0].at_ns) / RECORDING_LOOKS_MAX;
}

int recording_look(struct recording_job *job, const struct recording_look *look)
{
    size_t n = job->looks;

    /* Keeps the last look always, and replaces it while it is too close to the one before. */
    if (n >= 2 && job->look[n - 1].at_ns - job->look[n - 2].at_ns < job->spacing_ns &&
        job->look[n - 1].threads == look->threads)
        n--;
    if (n == job->looks && (n & (n - 1)) == 0) {
        struct recording_look *bigger = reallocarray(job->look, n ? 2 * n : 1, sizeof(*job->look));

        if (!bigger)
            return -ENOMEM;
        job->look = bigger;
    }
    job->look[n] = *look;
    job->looks = n + 1;
    if (job->looks == RECORDING_LOOKS_MAX)
        thin(job);
    return 0;
}

struct recording_job *recording_job_free(struct recording_job *job)
{
    if (!job)
        return NULL;
    free(job->look);
    free(job);
    return NULL;
}

/* Returns the part of @time that would remain without waiting. */
static double alone(double time, double cpu, double wait)
{
    double threads = time > 0 ? (cpu + wait) / time : 0;

    return time - wait / larger_double(1, threads);
}

/* ---- analysis -------------------------------------------------------------------------------- */

static double since(uint64_t at_ns, uint64_t from_ns)
{
    return at_ns > from_ns ? (double)(at_ns - from_ns) / NS : 0;
}

/* Differences between two looks. */
static struct stretch between(const struct recording_look *from, const struct recording_look *to)
{
    double time = (double)(to->at_ns - from->at_ns) / NS;
    double cpu = (double)(to->cpu_ns - from->cpu_ns) / NS;
    double wait = (double)(to->wait_ns - from->wait_ns) / NS;

    return (struct stretch){time, alone(time, cpu, wait), cpu, (double)(to->done - from->done)};
}

/* Returns the units/s without waiting. */
static double pace(const struct recording_job *job, size_t from, size_t to)
{
    struct stretch s = between(&job->look[from], &job->look[to]);

    return s.done / larger_double(s.alone_s, s.time_s / 1000);
}

/* Time in a queue was the policy's doing; a replay has a queue of its own. */
static uint64_t begun_ns(const struct recording_job *job)
{
    return job->arrival_ns + job->queued_ns;
}

/* Adds the time besides the work: all but that of work done at @rate, on @busy cores. */
static void add_beside(struct analysis *a, const struct stretch *s, double rate, double busy)
{
    double work_s = s->done / rate;
    double rest_s = larger_double(0, s->alone_s - work_s);
    double busy_s = smaller_double(rest_s, larger_double(0, s->cpu_s - work_s * busy));

    a->start_s += busy_s;
    a->idle_s += rest_s - busy_s;
}

/*
 * Work outside of the window took its time at the pace of the window's ends; the rest of the time
 * before and after it is start and end. A tail no longer than the gap between looks and reports is
 * work that was not reported.
 */
static void find_start(const struct recording_job *job, struct analysis *a, uint64_t base)
{
    const struct recording_look *first = &job->look[a->first], *last = &job->look[a->last];
    const struct recording_look begun = {.at_ns = begun_ns(job), .done = base};
    struct recording_look end = job->look[job->looks - 1];
    size_t looks = a->last - a->first < PACE_LOOKS ? a->last - a->first : PACE_LOOKS;
    double least = pace(job, a->first, a->last) / 2; /* a stall does not count as a pace */
    double tail = larger_double(least, pace(job, a->last - looks, a->last));
    struct stretch before = between(&begun, first), work = between(first, last), after;
    double head = larger_double(least, pace(job, a->first, a->first + looks));
    double busy = work.cpu_s / larger_double(work.alone_s, work.time_s / 1000), unseen;

    if (!job->early)
        add_beside(a, &before, head, busy);
    end.at_ns = job->end_ns > end.at_ns ? job->end_ns : end.at_ns;
    after = between(last, &end);
    unseen = after.alone_s - after.done / tail;
    if (unseen > UNREPORTED_S) {
        add_beside(a, &after, tail, busy);
        unseen = 0;
    }
    a->missing = ((double)(end.done - base) + larger_double(0, unseen) * tail) /
                 (double)(last->done - first->done);
}

/*
 * Finds the looks between which it worked at a steady pace. Imports, tracing and the first few
 * tasks come before, its end after. False: it did no work that counts.
 */
static bool find_window(const struct recording_job *job, struct analysis *a)
{
    uint64_t base = job->looks && job->early ? job->look[0].done : 0;
    uint64_t total = job->looks ? job->look[job->looks - 1].done - base : 0;

    if (total == 0)
        return false;
    while (!job->early && (double)(job->look[a->first].done - base) < EDGE * (double)total)
        a->first++;
    a->last = a->first;
    while ((double)(job->look[a->last].done - base) < (1 - EDGE) * (double)total)
        a->last++;
    if (a->last == a->first)
        return false;
    find_start(job, a, base);
    return true;
}

static struct count *count_of(struct analysis *a, uint32_t threads)
{
    for (size_t i = 0; i < a->counts; i++)
        if (a->count[i].threads == threads)
            return &a->count[i];
    if (threads == 0 || a->counts == COUNTS_MAX)
        return NULL;
    a->count[a->counts] = (struct count){.threads = threads};
    return &a->count[a->counts++];
}

static void add_stretch(struct analysis *a, const struct recording_look *from,
                        const struct recording_look *to)
{
    struct count *count = count_of(a, to->threads);

    if (!count)
        return;
    count->time_s += (double)(to->at_ns - from->at_ns) / NS;
    count->cpu_s += (double)(to->cpu_ns - from->cpu_ns) / NS;
    count->wait_s += (double)(to->wait_ns - from->wait_ns) / NS;
    count->done += (double)(to->done - from->done);
}

static double rate_alone(const struct count *count)
{
    return count->done / count->alone_s;
}

static int by_threads(const void *a, const void *b)
{
    const struct count *x = a, *y = b;

    return x->threads < y->threads ? -1 : x->threads > y->threads;
}

/* Collects the counts with which it made progress, in order. */
static void sum_counts(const struct recording_job *job, struct analysis *a)
{
    size_t n = 0;

    for (size_t i = a->first; i < a->last; i++)
        add_stretch(a, &job->look[i], &job->look[i + 1]);
    for (size_t i = 0; i < a->counts; i++) {
        struct count *c = &a->count[i];

        c->alone_s = alone(c->time_s, c->cpu_s, c->wait_s);
        if (c->done > 0 && c->alone_s > 0)
            a->count[n++] = *c;
    }
    a->counts = n;
    qsort(a->count, n, sizeof(a->count[0]), by_threads);
}

static const struct count *seen(const struct analysis *a, uint32_t threads)
{
    for (size_t i = 0; i < a->counts; i++)
        if (a->count[i].threads == threads)
            return &a->count[i];
    return NULL;
}

static const struct count *longest(const struct analysis *a)
{
    const struct count *found = &a->count[0];

    for (size_t i = 1; i < a->counts; i++)
        if (a->count[i].time_s > found->time_s)
            found = &a->count[i];
    return found;
}

/* Returns the cores kept busy, without other jobs. */
static double demand(const struct count *count)
{
    return count->cpu_s / count->alone_s;
}

/* ---- speed ----------------------------------------------------------------------------------- */

/*
 * Adds the rates in the order of time. A look's count of work is older than its count of threads,
 * so the first look after a change begins no sample.
 */
static void add_samples(const struct recording_job *job, struct analysis *a)
{
    double mean = pace(job, a->first, a->last);
    size_t from = a->first;

    for (size_t i = a->first + 1; i <= a->last; i++) {
        const struct recording_look *look = &job->look[i];

        if (look->threads != job->look[i - 1].threads) {
            from = i + 1;
            continue;
        }
        if (i <= from || since(look->at_ns, job->look[from].at_ns) < SAMPLE_S)
            continue;
        fit_add(&a->fit, look->at_ns, look->threads,
                (uint64_t)(FIT_RATE * pace(job, from, i) / mean));
        from = i;
    }
}

/* Returns the fit's rate for @threads; 0: the fit never saw them. */
static double fitted(const struct analysis *a, uint32_t threads)
{
    for (size_t i = 0; i < FIT_COUNTS; i++)
        if (a->fit.count[i].threads == threads)
            return (double)a->fit.count[i].rate;
    return 0;
}

/* Returns the speed with @threads relative to one: as measured, else by the curve. */
static double speedup(const struct analysis *a, uint32_t threads)
{
    if (a->table && fitted(a, threads) > 0)
        return fitted(a, threads) / a->rate_one;
    if (a->table)
        return a->table[threads - 1] / 1000.0;
    return 1 / (1 - a->fraction + a->fraction / threads);
}

/* Returns Amdahl's fraction with which a job keeps @busy of @threads cores busy. */
static double fraction_of(double busy, uint32_t threads)
{
    double speed = smaller_double(larger_double(busy, 1), threads);

    return threads == 1 ? GUESS : (1 - 1 / speed) / (1 - 1.0 / threads);
}

/* 0 or -ENOMEM. */
static int find_curve(const struct recording_job *job, struct analysis *a, uint32_t cores)
{
    uint32_t last = a->count[a->counts - 1].threads, entries = cores > last ? cores : last;
    const struct count *most = longest(a);
    struct fit_model model;

    a->fraction = fraction_of(demand(most), most->threads);
    add_samples(job, a);
    if (!fit_solve(&a->fit, job->look[a->last].at_ns, &model))
        return 0;
    a->table = calloc(entries, sizeof(*a->table));
    if (!a->table)
        return -ENOMEM;
    fit_table(&model, entries, a->table);
    a->rate_one = fitted(a, 1) > 0 ? fitted(a, 1) : (double)model.rate_one;
    return 0;
}

/* Returns the time with one thread. */
static double work(const struct analysis *a)
{
    double sum = 0;

    for (size_t i = 0; i < a->counts; i++)
        sum += a->count[i].alone_s * speedup(a, a->count[i].threads);
    return sum * a->missing;
}

/* Computes CPU time beside the work, and sleep, as sim_job.waste_permille and idle_permille. */
static void find_waste(struct analysis *a)
{
    double busy_one = seen(a, 1) ? demand(seen(a, 1)) : 1;
    double waste = 0, time = 0;

    for (size_t i = 0; i < a->counts; i++) {
        const struct count *c = &a->count[i];

        if (c->threads == 1)
            continue;
        waste += c->time_s * (demand(c) / busy_one / speedup(a, c->threads) - 1) /
                 (1 - 1.0 / c->threads);
        time += c->time_s;
    }
    a->idle = smaller_double(IDLE_MOST, larger_double(0, 1 - busy_one));
    a->waste = time > 0 ? larger_double(0, waste / time) : 0;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* Keeps enough digits to tell moments apart, but few enough to read; none is negative. */
static json_t *rounded(double value, double digits)
{
    return json_real((double)(uint64_t)(value * digits + 0.5) / digits);
}

static json_t *seconds(double s)
{
    return rounded(larger_double(0, s), 1e3);
}

static void put(json_t *object, const char *key, int64_t value, int64_t usual)
{
    if (value != usual)
        json_object_set_new(object, key, json_integer(value));
}

/* Writes the range that its owner and its pools allow: always one that a scenario takes. */
static void put_bounds(json_t *view, const struct recording_job *job, uint32_t cores)
{
    uint32_t min = job->min ? job->min : 1, max = job->max, request = job->request;

    if (job->pool && job->pool < (max ? max : cores))
        max = job->pool;
    if (job->pinned)
        min = max = job->pinned;
    if (max && max < min)
        max = min;
    if (request && request < min)
        request = min;
    if (max && request > max)
        request = max;
    put(view, "min", min, 1);
    put(view, "max", max, 0);
    put(view, "request", request, 0);
    put(view, "threads", job->pool, 0);
}

static json_t *view_terms(const struct recording_job *job, uint64_t zero_ns)
{
    json_t *view = json_pack("{s:s,s:o,s:b}", "name", job->name, "arrival",
                             seconds(since(job->arrival_ns, zero_ns)), "preemptible", 0);

    if (job->deadline_ns != POLICY_NEVER && job->deadline_ns > job->arrival_ns)
        json_object_set_new(view, "deadline", seconds(since(job->deadline_ns, zero_ns)));
    put(view, "weight", job->weight, 0);
    put(view, "class", job->class, 0);
    put(view, "priority", job->priority, 0);
    return view;
}

static json_t *view_table(const struct analysis *a, uint32_t cores)
{
    json_t *points = json_array();
    uint32_t last = a->count[a->counts - 1].threads;

    for (uint32_t k = 1; k <= (cores > last ? cores : last); k++)
        if (k <= TABLE_DENSE || k % TABLE_STEP == 0 || k == cores || seen(a, k))
            json_array_append_new(points, json_pack("[i,o]", (int)k, rounded(speedup(a, k), 1e4)));
    return json_pack("{s:o}", "table", points);
}

/* Writes a table if several counts were seen and the scenario has room, else the fraction. */
static json_t *view_speedup(const struct analysis *a, const struct recording_job *job,
                            uint32_t cores, json_t *curves)
{
    char name[SIM_NAME_MAX];

    if (!a->table || json_object_size(curves) == JOB_CURVES_MAX)
        return rounded(a->fraction, 1e3);
    snprintf(name, sizeof(name), "%.50s-%zu", job->name, json_object_size(curves) + 1);
    json_object_set_new(curves, name, view_table(a, cores));
    return json_string(name);
}

static json_t *view_working(const struct recording_job *job, const struct analysis *a,
                            uint32_t cores, uint64_t zero_ns, json_t *curves)
{
    json_t *view = view_terms(job, zero_ns);

    json_object_set_new(view, "work", seconds(larger_double(MOMENT, work(a))));
    json_object_set_new(view, "speedup", view_speedup(a, job, cores, curves));
    json_object_set_new(view, "start_work", seconds(a->start_s));
    json_object_set_new(view, "start_cost", seconds(a->idle_s));
    if (a->waste >= 0.001)
        json_object_set_new(view, "waste", rounded(smaller_double(a->waste, 1000), 1e3));
    if (a->idle >= 0.001)
        json_object_set_new(view, "idle", rounded(a->idle, 1e3));
    if (!job->sized)
        json_object_set_new(view, "estimate", json_string("none"));
    put_bounds(view, job, cores);
    return view;
}

/* For a job whose threads do not change: as many cores as it kept busy, as long as it took. */
static json_t *view_rigid(const struct recording_job *job, double alone_s, double busy,
                          uint64_t zero_ns)
{
    uint32_t request = busy > 1 ? (uint32_t)(busy + 0.5) : 1;
    json_t *view = view_terms(job, zero_ns);

    json_object_set_new(view, "work", seconds(larger_double(MOMENT, alone_s * request)));
    json_object_set_new(view, "speedup", json_integer(1));
    json_object_set_new(view, "malleability", json_string("rigid"));
    json_object_set_new(view, "request", json_integer(request));
    json_object_set_new(view, "threads", json_integer(request));
    json_object_set_new(view, "estimate", json_string("none"));
    return view;
}

/* ---- what happened --------------------------------------------------------------------------- */

static json_t *view_rates(const struct analysis *a)
{
    json_t *list = json_array();

    for (size_t i = 0; i < a->counts; i++) {
        const struct count *c = &a->count[i];

        json_array_append_new(list, json_pack("{s:i,s:o,s:o,s:o,s:o,s:o}", "threads",
                                              (int)c->threads, "time", seconds(c->time_s), "rate",
                                              rounded(c->done / c->time_s, 1e3), "rate_alone",
                                              rounded(rate_alone(c), 1e3), "busy",
                                              rounded(c->cpu_s / c->time_s, 1e3), "waiting",
                                              rounded(c->wait_s / c->time_s, 1e3)));
    }
    return list;
}

/* [time, threads], at each change */
static json_t *view_changes(const struct recording_job *job, uint64_t zero_ns)
{
    json_t *list = json_array();

    for (size_t i = 0; i < job->looks && json_array_size(list) < CHANGES_MAX; i++)
        if (i == 0 || job->look[i].threads != job->look[i - 1].threads)
            json_array_append_new(list,
                                  json_pack("[o,i]", seconds(since(job->look[i].at_ns, zero_ns)),
                                            (int)job->look[i].threads));
    return list;
}

static json_t *view_observed(const struct recording_job *job, const struct analysis *a,
                             uint64_t zero_ns)
{
    const struct recording_look *last = &job->look[job->looks - 1];
    json_t *view = json_pack("{s:s,s:o,s:o,s:o,s:s,s:I,s:o,s:o,s:o}", "name", job->name, "finish",
                             seconds(since(job->end_ns, zero_ns)), "turnaround",
                             seconds(since(job->end_ns, job->arrival_ns)), "cpu",
                             seconds((double)last->cpu_ns / NS), "unit", job->unit, "done",
                             (json_int_t)last->done, "rates", view_rates(a), "threads",
                             view_changes(job, zero_ns), "cut", json_boolean(job->cut));

    return view;
}

/* ---- the whole ------------------------------------------------------------------------------- */

struct writing {
    const struct recording *recording;
    uint64_t zero_ns, end_ns;
    json_t *jobs, *curves, *observed;
    double turnaround_s;
};

/* Returns 1, 0 (left out: it hardly used a core), or -ENOMEM. */
static int write_job(struct writing *w, const struct recording_job *job)
{
    const struct recording_look *last = &job->look[job->looks - 1];
    double time = since(job->end_ns, begun_ns(job));
    double cpu = (double)last->cpu_ns / NS;
    double alone_s = alone(time, cpu, (double)last->wait_ns / NS);
    _cleanup_free_ struct analysis *a = calloc(1, sizeof(*a));
    json_t *view;

    if (!a)
        return -ENOMEM;
    if (job->malleable && find_window(job, a))
        sum_counts(job, a);
    if (a->counts == 0 && cpu <= IDLE * time)
        return 0;
    if (a->counts > 0) {
        if (find_curve(job, a, w->recording->cores) < 0)
            return -ENOMEM;
        find_waste(a);
        view = view_working(job, a, w->recording->cores, w->zero_ns, w->curves);
    } else {
        view = view_rigid(job, alone_s, cpu / alone_s, w->zero_ns);
    }
    json_array_append_new(w->jobs, view);
    json_array_append_new(w->observed, view_observed(job, a, w->zero_ns));
    w->turnaround_s += since(job->end_ns, job->arrival_ns);
    w->end_ns = job->end_ns > w->end_ns ? job->end_ns : w->end_ns;
    free(a->table);
    return 1;
}

static int by_arrival(const void *a, const void *b)
{
    const struct recording_job *x = *(struct recording_job *const *)a;
    const struct recording_job *y = *(struct recording_job *const *)b;

    return x->arrival_ns < y->arrival_ns ? -1 : x->arrival_ns > y->arrival_ns;
}

static json_t *finish(const struct writing *w)
{
    const struct recording *r = w->recording;
    double jobs = (double)json_array_size(w->jobs);
    json_t *observed = json_pack("{s:s,s:s,s:o,s:o,s:o,s:O}", "recorded", r->recorded, "policy",
                                 r->policy, "makespan", seconds(since(w->end_ns, w->zero_ns)),
                                 "mean_turnaround", seconds(w->turnaround_s / jobs), "others",
                                 rounded(r->others, 1e2), "jobs", w->observed);
    json_t *machine =
        json_pack("{s:I,s:s}", "cores", (json_int_t)r->cores, "placement", r->placement);

    return json_pack("{s:s,s:o,s:O,s:O,s:o}", "description", "recorded by tide record", "machine",
                     machine, "speedups", w->curves, "jobs", w->jobs, "observed", observed);
}

json_t *recording_scenario(struct recording *recording, size_t *ret_left_out, struct error *err)
{
    struct writing w = {.recording = recording,
                        .jobs = json_array(),
                        .curves = json_object(),
                        .observed = json_array()};
    size_t left_out = 0;
    json_t *scenario = NULL;
    int r = 0;

    qsort(recording->job, recording->jobs, sizeof(recording->job[0]), by_arrival);
    for (size_t i = 0; r >= 0 && i < recording->jobs; i++) {
        /* The scenario's time begins with the first job that is not left out. */
        if (json_array_size(w.jobs) == 0)
            w.zero_ns = recording->job[i]->arrival_ns;
        r = recording->job[i]->looks ? write_job(&w, recording->job[i]) : 0;
        left_out += r == 0;
    }
    if (r >= 0 && json_array_size(w.jobs) == 0)
        error_set(err, -ENODATA, "no job used enough processor time to be recorded");
    else if (r < 0 || !(scenario = finish(&w)))
        error_set(err, -ENOMEM, "out of memory");
    json_decref(w.jobs);
    json_decref(w.curves);
    json_decref(w.observed);
    if (scenario && ret_left_out)
        *ret_left_out = left_out;
    return scenario;
}

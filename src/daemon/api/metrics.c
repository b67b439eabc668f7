/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/api/metrics.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/prometheus.h"
#include "daemon/api/api.h"
#include "daemon/daemon.h"
#include "daemon/job/confine.h"
#include "daemon/plan/beyond.h"
#include "daemon/plan/decision.h"
#include "daemon/record/history.h"
#include "daemon/record/promised.h"
#include "host/proc/file.h"

#include <dirent.h>
#include <inttypes.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Upper bounds, from the time that parking a pool takes to the deadline of a shrink. */
static const struct {
    uint64_t ns;
    const char *text;
} bucket[METRICS_BUCKETS] = {
    {100000, "0.0001"},  {250000, "0.00025"}, {500000, "0.0005"}, {1000000, "0.001"},
    {2500000, "0.0025"}, {5000000, "0.005"},  {10000000, "0.01"}, {25000000, "0.025"},
    {50000000, "0.05"},  {100000000, "0.1"},  {500000000, "0.5"}, {2000000000, "2"},
};

/* Counters of the whole daemon. */
static struct metrics {
    uint64_t resizes, resize_sum_ns;
    uint64_t resize_bucket[METRICS_BUCKETS]; /* not cumulative; longer ones are in none */
} counted;

static void resized(struct job *j, uint64_t latency_ns)
{
    struct metrics *m = &counted;

    m->resizes++;
    m->resize_sum_ns += latency_ns;
    for (unsigned i = 0; i < METRICS_BUCKETS; i++)
        if (latency_ns <= bucket[i].ns) {
            m->resize_bucket[i]++;
            return;
        }
}

const struct job_observer metrics_observer = {.resized = resized};

/* ---- text ---- */

static void put_job(FILE *f, const char *metric, const struct job *j)
{
    fprintf(f, "%s{job=\"%s\",name=\"", metric, j->id);
    prometheus_label(f, j->name);
    fputc('"', f);
}

/* ---- jobs ---- */

typedef void (*per_job_fn)(FILE *f, const struct job *j);

static void each_job(FILE *f, const struct request *r, per_job_fn fn)
{
    for (const struct job *j = r->daemon->jobs->first; j; j = j->next)
        if (control_may_read(r->daemon, &r->who, j))
            fn(f, j);
}

static void put_threads(FILE *f, const struct job *j)
{
    const struct {
        const char *kind;
        uint32_t value;
    } rows[] = {{"target", job_target(j)},
                {"active", job_active(j)},
                {"max", job_max(j)},
                {"extra", beyond_extra(j)}};

    for (unsigned i = 0; i < ARRAY_LEN(rows); i++) {
        put_job(f, "tide_job_threads", j);
        fprintf(f, ",kind=\"%s\"} %u\n", rows[i].kind, rows[i].value);
    }
}

static void put_cores(FILE *f, const struct job *j)
{
    put_job(f, "tide_job_cores", j);
    fprintf(f, "} %.15g\n", job_allowed_mcpu(j) / 1000.0);
}

static void put_weight(FILE *f, const struct job *j)
{
    put_job(f, "tide_job_weight", j);
    fprintf(f, "} %" PRId64 "\n", j->asked.attributes.weight);
}

static void put_cpu_weight(FILE *f, const struct job *j)
{
    put_job(f, "tide_job_cpu_weight", j);
    fprintf(f, "} %u\n", j->confine->can_limit(j) ? j->placed.weight : 0);
}

static void put_place(FILE *f, const struct job *j)
{
    if (j->wanted.place == 0)
        return;
    put_job(f, "tide_job_queue_place", j);
    fprintf(f, "} %u\n", j->wanted.place);
}

static void put_progress(FILE *f, const struct job *j, const char *metric, double value)
{
    struct job_progress p;

    job_progress(j, &p);
    put_job(f, metric, j);
    fputs(",unit=\"", f);
    prometheus_label(f, p.unit);
    fprintf(f, "\"} %.15g\n", value < 0 ? (double)p.done : value);
}

static void put_rate(FILE *f, const struct job *j)
{
    put_progress(f, j, "tide_job_rate", job_rate(j));
}

static void put_done(FILE *f, const struct job *j)
{
    put_progress(f, j, "tide_job_progress_total", -1);
}

/* Jobs of which no request was told have none of these. */
static void put_requests(FILE *f, const struct job *j)
{
    if (j->latency.seconds.since_ns == 0)
        return;
    put_job(f, "tide_job_requests_total", j);
    fprintf(f, "} %" PRIu64 "\n", j->latency.requests);
}

static void put_in_flight(FILE *f, const struct job *j)
{
    struct latency_window w;

    if (!latency_window(j, clock_now_ns(), &w))
        return;
    put_job(f, "tide_job_requests_in_flight", j);
    fprintf(f, "} %u\n", w.in_flight);
}

static void put_latency(FILE *f, const struct job *j)
{
    struct latency_window w;

    if (!latency_window(j, clock_now_ns(), &w) || w.p99_ns == 0)
        return;
    put_job(f, "tide_job_latency_seconds", j);
    fprintf(f, ",quantile=\"0.99\",source=\"%s\"} %.15g\n", latency_source_name(&j->latency),
            (double)w.p99_ns / NS_PER_S);
}

static void put_promise(FILE *f, const struct job *j)
{
    if (j->asked.attributes.slo_us == 0)
        return;
    put_job(f, "tide_job_promise_seconds", j);
    fprintf(f, ",quantile=\"0.99\"} %.15g\n", (double)j->asked.attributes.slo_us / 1e6);
}

static void put_judged(FILE *f, const struct job *j)
{
    for (int kept = 0; kept <= 1 && j->asked.attributes.slo_us; kept++) {
        put_job(f, "tide_job_promise_judged_seconds_total", j);
        fprintf(f, ",kept=\"%s\"} %" PRIu64 "\n", kept ? "yes" : "no",
                kept ? j->latency.seconds.kept
                     : j->latency.seconds.judged - j->latency.seconds.kept);
    }
}

static void put_keepable(FILE *f, const struct job *j)
{
    struct promised_verdict v;

    if (j->asked.attributes.slo_us == 0)
        return;
    promised_judge(j->daemon, j, j->uid, NULL, 0, &j->asked.attributes, &v);
    for (int k = PROMISE_UNKNOWN; k <= PROMISE_UNKEEPABLE; k++) {
        put_job(f, "tide_job_promise_keepable", j);
        fprintf(f, ",keepable=\"%s\"} %d\n", promised_keepable_name((enum promise_keepable)k),
                (int)v.keepable == k);
    }
}

static void put_states(FILE *f, const struct request *r)
{
    static const char *const states[] = {"held",     "queued", "paused",  "running",
                                         "moldable", "rigid",  "starting"};
    uint64_t now = clock_now_ns();

    prometheus_family(f, "tide_jobs", "gauge", "Jobs by state.");
    for (unsigned i = 0; i < ARRAY_LEN(states); i++) {
        unsigned count = 0;

        for (const struct job *j = r->daemon->jobs->first; j; j = j->next)
            count += control_may_read(r->daemon, &r->who, j) &&
                     strcmp(job_state(j, now), states[i]) == 0;
        fprintf(f, "tide_jobs{state=\"%s\"} %u\n", states[i], count);
    }
}

/* In the order of the text. */
static const struct {
    const char *name, *type, *help;
    per_job_fn put;
} per_job[] = {
    {"tide_job_threads", "gauge",
     "Threads of a job: commanded, not parked, and those that its pools were built with.",
     put_threads},
    {"tide_job_cores", "gauge", "Cores that a job may use.", put_cores},
    {"tide_job_weight", "gauge", "Weight of a job among the others; 100 is the usual one.",
     put_weight},
    {"tide_job_cpu_weight", "gauge",
     "Weight that tided gave a job's control group; 0 where it gave none.", put_cpu_weight},
    {"tide_job_queue_place", "gauge", "Place of a job that waits, where the policy has an order.",
     put_place},
    {"tide_job_rate", "gauge", "Units of work of a job in a second.", put_rate},
    {"tide_job_progress_total", "counter", "Units of work that a job has done.", put_done},
    {"tide_job_requests_total", "counter",
     "Ended requests of a job, since this tided knows the job.", put_requests},
    {"tide_job_requests_in_flight", "gauge", "Requests of a job in flight.", put_in_flight},
    {"tide_job_latency_seconds", "gauge",
     "Latency of a job's requests in the last second or two: told by its program, or estimated "
     "from "
     "the calls of the runtime that \"source\" names.",
     put_latency},
    {"tide_job_promise_seconds", "gauge", "Latency that was promised for a job's requests.",
     put_promise},
    {"tide_job_promise_keepable", "gauge",
     "1 for whether a job's promise can be kept, as far as is known.", put_keepable},
    {"tide_job_promise_judged_seconds_total", "counter",
     "Seconds in which a job had requests, by whether its promise was kept in them.", put_judged},
};

static void put_jobs(FILE *f, const struct request *r)
{
    put_states(f, r);
    for (unsigned i = 0; i < ARRAY_LEN(per_job); i++) {
        prometheus_family(f, per_job[i].name, per_job[i].type, per_job[i].help);
        each_job(f, r, per_job[i].put);
    }
}

/* ---- the daemon ---- */

static void put_resizes(FILE *f, const struct metrics *m)
{
    uint64_t sum = 0;

    prometheus_one(f, "tide_resizes_total", "counter",
                   "Changes of a job's threads that all of its agents acknowledged.",
                   (double)m->resizes);
    prometheus_family(f, "tide_resize_seconds", "histogram",
                      "Time from the command to the last acknowledgement.");
    for (unsigned i = 0; i < METRICS_BUCKETS; i++) {
        sum += m->resize_bucket[i];
        fprintf(f, "tide_resize_seconds_bucket{le=\"%s\"} %" PRIu64 "\n", bucket[i].text, sum);
    }
    fprintf(f,
            "tide_resize_seconds_bucket{le=\"+Inf\"} %" PRIu64 "\ntide_resize_seconds_sum %.15g\n"
            "tide_resize_seconds_count %" PRIu64 "\n",
            m->resizes, (double)m->resize_sum_ns / NS_PER_S, m->resizes);
}

static unsigned open_descriptors(void)
{
    DIR *dir = opendir("/proc/self/fd");
    unsigned n = 0;

    while (dir && readdir(dir))
        n++;
    if (dir)
        closedir(dir);
    return n > 3 ? n - 3 : 0; /* ".", ".." and the directory's own */
}

/* Boot time in seconds since 1970: "btime 1700000000" in /proc/stat. */
static double boot_time(const struct daemon *d)
{
    _cleanup_free_ char *text = NULL;
    const char *line;
    size_t len;

    if (file_read_all(d->root, "proc/stat", &text, &len) < 0)
        return 0;
    line = strstr(text, "\nbtime ");
    return line ? strtod(line + strlen("\nbtime "), NULL) : 0;
}

static void put_process(FILE *f, const struct daemon *d)
{
    struct rlimit limit = {0};
    unsigned long long start = 0, size = 0;
    char text[1024];
    const char *rest =
        file_read(d->root, "proc/self/stat", text, sizeof(text)) > 0 ? strrchr(text, ')') : NULL;

    if (rest)
        sscanf(rest + 1,
               " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d "
               "%llu %llu",
               &start, &size);
    getrlimit(RLIMIT_NOFILE, &limit);
    prometheus_process(f, "tided");
    prometheus_one(f, "process_virtual_memory_bytes", "gauge", "Address space of tided.",
                   (double)size);
    prometheus_one(f, "process_open_fds", "gauge", "Descriptors that tided has open.",
                   open_descriptors());
    prometheus_one(f, "process_max_fds", "gauge", "Descriptors that tided may open.",
                   (double)limit.rlim_cur);
    prometheus_one(f, "process_start_time_seconds", "gauge", "When tided was started, since 1970.",
                   boot_time(d) + (double)start / (double)sysconf(_SC_CLK_TCK));
}

char *metrics_text(const struct request *r)
{
    const struct daemon *d = r->daemon;
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);

    if (!f)
        return NULL;
    prometheus_family(f, "tide_build_info", "gauge", "1, with the version of tided.");
    fputs("tide_build_info{version=\"" TIDE_VERSION "\"} 1\n", f);
    prometheus_family(f, "tide_policy_info", "gauge", "1, with the policy in force.");
    fprintf(f, "tide_policy_info{policy=\"%s\"} 1\n", decision_policy(d->decision)->policy->name);
    prometheus_one(f, "tide_cores", "gauge", "Cores that this daemon divides.",
                   cpuset_count(&d->cpus));
    put_jobs(f, r);
    prometheus_one(f, "tide_decisions_total", "counter", "Decisions of the policy.",
                   (double)d->generation);
    put_resizes(f, &counted);
    metrics_power(f, r);
    prometheus_one(f, "tide_history_dropped_total", "counter",
                   "Rows of the history that were not written.",
                   (double)history_dropped(d->history));
    put_process(f, d);
    return prometheus_end(f, &text);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* `tide explain`: says why a job has its threads and cores. */
#include "base/size.h"
#include "cli/api.h"
#include "cli/doctor/runtimes.h"
#include "cli/views/job_text.h"

#include <fcntl.h>
#include <string.h>
#include <time.h>

#define PROCESSES_MAX 16 /* whose runtimes are read */

static void print_threads(const json_t *job)
{
    const char *cores = member_text(job, "cores");
    long target = member_long(job, "target");

    if (member_long(job, "max"))
        printf(", %ld of %ld threads active, target %ld", member_long(job, "active"),
               member_long(job, "max"), target);
    else if (member_long(job, "sized"))
        printf(", started with %ld thread%s", member_long(job, "sized"),
               member_long(job, "sized") == 1 ? "" : "s");
    else if (target)
        printf(", no thread pool yet, target %ld", target);
    else
        printf(", no thread pool yet");
    if (*cores)
        printf(", cores %s", cores);
}

/* Prints how long a submitted job waited for its turn, and how long it has run. */
static void print_turn(const json_t *job)
{
    char waited[32], ran[32];

    job_text_duration(member_number(job, "wait_s"), waited, sizeof(waited));
    job_text_duration(member_number(job, "run_s"), ran, sizeof(ran));
    if (job_text_waits(job))
        printf("  submitted, has waited %s\n", waited);
    else if (member_bool(job, "submitted"))
        printf("  submitted, waited %s for its turn, has run %s\n", waited, ran);
    if (member_bool(job, "submitted") && !member_bool(job, "preemptible"))
        printf("  cannot be paused for others: %s\n", member_text(job, "preemptible_note"));
}

static void print_now(const json_t *job)
{
    const char *reason = member_text(job, "reason");
    char split[512];

    printf("%s %s: %s", member_text(job, "id"), member_text(job, "name"),
           member_text(job, "state"));
    if (!job_text_waits(job))
        print_threads(job);
    printf("\n");
    if (*reason)
        printf("  why: %s\n", reason);
    job_text_split(job, split, sizeof(split));
    if (*split)
        printf("  divided among its processes by %s: %s\n",
               json_is_object(json_object_get(json_object_get(job, "latency"), "instances"))
                   ? "requests in flight"
                   : "what they use",
               split);
    if (*member_text(job, "note"))
        printf("  note: %s\n", member_text(job, "note"));
    if (member_bool(job, "oversubscribed") && !strstr(reason, "oversubscribed"))
        printf("  oversubscribed: more threads than cores\n");
    print_turn(job);
}

static void print_deadline(double at)
{
    char when[32];

    if (at <= 0)
        return;
    job_text_time(at, when, sizeof(when));
    printf(", deadline %s", when);
}

static void print_memory(const json_t *job)
{
    double asked = member_number(job, "memory"), used = member_number(job, "memory_used");
    char text[SIZE_TEXT_MAX];

    size_text((uint64_t)asked, text);
    if (asked > 0)
        printf(", memory %s", text);
    size_text((uint64_t)used, text);
    if (used > 0)
        printf(asked > 0 ? " (uses %s)" : ", uses %s of memory", text);
}

/* The devices that it asked for and holds, and the cores for the threads that feed them. */
static void print_devices(const json_t *job)
{
    const char *asked = member_text(job, "devices");
    char feeds[JOB_DEVICES_MAX];

    if (*asked)
        printf(", devices %s", asked);
    if (*job_text_devices(job, feeds, sizeof(feeds)))
        printf("\n  %s", feeds);
}

static const char *holder(const json_t *job)
{
    const char *by = member_text(job, "pinned_by");

    return strcmp(by, "signal") == 0    ? "by a signal"
           : strcmp(by, "program") == 0 ? "by the program"
                                        : "by hand";
}

static void print_bounds(const json_t *job)
{
    const json_t *pinned = json_object_get(job, "pinned");
    char terms[JOB_TERMS_MAX];

    job_text_terms(job, terms, sizeof(terms));
    printf("  placement %s", terms);
    print_memory(job);
    print_deadline(member_number(job, "deadline"));
    if (json_is_integer(pinned))
        printf(", pinned to %lld %s ('tide set %s --auto' lets go)",
               (long long)json_integer_value(pinned), holder(job), member_text(job, "name"));
    print_devices(job);
    printf("\n");
}

static void print_instances(const json_t *instances)
{
    long count = member_long(instances, "at_a_time"), threads = member_long(instances, "threads");

    printf("; %ld process%s at a time with %ld thread%s each", count, count == 1 ? "" : "es",
           threads, threads == 1 ? "" : "s");
}

static void print_latency(const json_t *latency)
{
    double promise = member_number(latency, "promise_us") / 1000;
    double p99 = member_number(latency, "p99_us") / 1000;
    const json_t *kept = json_object_get(latency, "kept");
    const char *calls = job_text_calls(latency);

    if (!json_is_object(latency))
        return;
    printf("  requests: %ld, %ld/s now, %ld in flight", member_long(latency, "requests"),
           member_long(latency, "rate"), member_long(latency, "in_flight"));
    if (p99 > 0)
        printf(", p99 %.3g ms", p99);
    if (promise > 0)
        printf(", promised %.4g ms", promise);
    if (json_is_number(kept))
        printf("; kept in %.1f %% of %ld seconds", 100 * json_number_value(kept),
               member_long(latency, "seconds"));
    if (json_is_object(json_object_get(latency, "instances")))
        print_instances(json_object_get(latency, "instances"));
    if (calls)
        printf("; estimated from %s%s", strcmp(calls, "sockets") == 0 ? "its " : "calls of ",
               calls);
    printf("\n");
}

static void print_promise(const json_t *promise)
{
    const char *keepable = member_text(promise, "keepable");

    if (!json_is_object(promise) || strcmp(keepable, "no") == 0) /* its note says that */
        return;
    printf("  its promise %s: %s\n",
           strcmp(keepable, "yes") == 0 ? "can be kept" : "may be kept or not, which is not known",
           member_text(promise, "reason"));
}

/* Prints the speed with 2, 4, 8 … threads and with the most. */
static void print_speedup(const json_t *speedup)
{
    const json_t *table = json_object_get(speedup, "table");
    size_t count = json_array_size(table);
    const char *before = "  speed-up:", *earlier = member_text(speedup, "earlier");

    if (count < 2)
        return;
    for (size_t k = 2; k <= count; k = k < count && 2 * k > count ? count : 2 * k) {
        printf("%s %.1f with %zu", before, json_number_value(json_array_get(table, k - 1)), k);
        before = ",";
    }
    printf(" threads; confidence %.0f %% after %ld different numbers of threads%s\n",
           100 * member_number(speedup, "confidence"), member_long(speedup, "counts"),
           strcmp(earlier, "own") == 0      ? ", with those of earlier runs"
           : strcmp(earlier, "shared") == 0 ? ", with those of another user's runs"
                                            : "");
}

static void print_changes(const json_t *changes)
{
    const json_t *change;
    size_t i;

    if (json_array_size(changes) == 0) {
        printf("No change yet.\n");
        return;
    }
    printf("\n%-12s  %-10s  %-8s  %-10s  %s\n", "TIME", "THREADS", "CORES", "TOOK", "REASON");
    json_array_foreach (changes, i, change) {
        double at = member_number(change, "time");
        double latency = member_number(change, "latency_us");
        time_t seconds = (time_t)at;
        char when[16], threads[40], took[24] = "-";
        struct tm tm;

        localtime_r(&seconds, &tm);
        strftime(when, sizeof(when), "%H:%M:%S", &tm);
        snprintf(threads, sizeof(threads), "%ld %s %ld", member_long(change, "from"),
                 cli_glyph(CLI_ARROW), member_long(change, "to"));
        if (latency > 0)
            snprintf(took, sizeof(took), "%.1f ms", latency / 1000);
        /* An arrow of three bytes takes one column. */
        printf("%s.%03d  %-*s  %-8s  %-10s  %s\n", when, (int)((at - (double)seconds) * 1000),
               strstr(threads, "→") ? 12 : 10, threads, member_text(change, "cores"), took,
               member_text(change, "reason"));
    }
}

/* ---- the runtimes of its processes ---- */

/* Only what the caller may read himself is told: the daemon reads no program for this. */
static json_t *read_processes(const json_t *job)
{
    const json_t *pids = json_object_get(job, "pids"), *backends = json_object_get(job, "backends");
    _cleanup_fd_ int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    json_t *list = json_array();
    const json_t *one;
    size_t i;

    json_array_foreach (pids, i, one) {
        pid_t pid = (pid_t)json_integer_value(one);
        struct proc_runtimes found;
        int r = i < PROCESSES_MAX ? runtimes_read(root, pid, &found) : -E2BIG;
        json_t *process = json_pack("{s:i}", "pid", (int)pid);

        if (r == -E2BIG)
            json_object_set_new(process, "unread", json_string("too many processes"));
        else if (r < 0)
            json_object_set_new(process, "unread", json_string(strerror(-r)));
        else
            json_object_set_new(process, "runtimes", runtimes_json(root, &found, backends, pid));
        json_object_set_new(process, "started", r < 0 ? json_null() : runtimes_started(root, pid));
        json_array_append_new(list, process);
    }
    return list;
}

static void print_process(const json_t *process)
{
    const json_t *started = json_object_get(process, "started"), *value;
    const char *name, *before = ": started with";
    char label[48];

    snprintf(label, sizeof(label), "  process %ld", member_long(process, "pid"));
    if (*member_text(process, "unread"))
        printf("%s: its runtimes cannot be read: %s\n", label, member_text(process, "unread"));
    else
        runtimes_print(json_object_get(process, "runtimes"), label);
    if (json_object_size(started) == 0)
        return;
    printf("%s", label);
    json_object_foreach ((json_t *)started, name, value) {
        printf("%s %s=%s", before, name, json_string_value(value));
        before = ",";
    }
    printf("\n");
}

static int get(const char *job, const char *suffix, json_t **ret)
{
    char path[API_PATH_MAX];
    int r = api_job_path(&command_explain, job, suffix, path);

    return r == CLI_OK ? api_request(&command_explain, "GET", path, NULL, API_TIMEOUT_MS, ret) : r;
}

static int explain_run(int argc, char **argv)
{
    static const struct option options[] = {{"json", no_argument, NULL, 'j'}, {0}};
    const struct command *cmd = &command_explain;
    _cleanup_json_ json_t *job = NULL;
    _cleanup_json_ json_t *history = NULL;
    bool json = false;
    json_t *processes, *process;
    size_t i;
    int c;
    int r;

    while ((c = option_next(cmd, argc, argv, options, false)) != -1) {
        json = true;
    }
    option_operands(cmd, argc, argv, 1, 1);
    r = get(argv[optind], "/explain", &history);
    if (r == CLI_OK)
        r = get(argv[optind], "", &job);
    if (r != CLI_OK)
        return r;
    processes = read_processes(job);
    json_object_set_new(history, "processes", processes);
    if (json)
        return api_print(history);
    print_now(job);
    if (*member_text(history, "external"))
        printf("  external: %s\n", member_text(history, "external"));
    print_bounds(job);
    print_latency(json_object_get(job, "latency"));
    print_promise(json_object_get(job, "promise"));
    if (!job_text_waits(job))
        json_array_foreach (processes, i, process)
            print_process(process);
    print_speedup(json_object_get(history, "speedup"));
    print_changes(json_object_get(history, "changes"));
    return CLI_OK;
}

const struct command command_explain = {
    .name = "explain",
    .usage = "JOB [--json]",
    .brief = "say why a job has its threads, or what it waits for",
    .help = "Its present state, and its last changes (at most 64, newest last): when, from\n"
            "and to how many threads, on which cores, how long until the surplus threads\n"
            "slept or the wanted ones were awake, and why. Between them the runtimes that its\n"
            "processes have, which of them can change their threads, and with which variables\n"
            "tide started them; of other users' processes only root is told.\n"
            "\n"
            "Options:\n"
            "  -j, --json  print the daemon's answer, with the processes and their runtimes\n"
            "\n"
            "Examples:\n"
            "  tide explain cnn\n"
            "  tide explain j2 --json\n",
    .far = FAR_GOES,
    .run = explain_run,
};

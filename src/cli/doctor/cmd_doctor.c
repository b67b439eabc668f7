/* SPDX-License-Identifier: Apache-2.0 */
/* `tide doctor`: says what is wrong with a process or with the installation, and how to mend it. */
#include "base/clock.h"
#include "base/visible.h"
#include "cli/api.h"
#include "cli/doctor/diagnose.h"
#include "cli/doctor/doctor.h"
#include "cli/doctor/observe.h"
#include "cli/doctor/runtimes.h"
#include "host/proc/file.h"

#include <assert.h>
#include <string.h>

#define ERROR_WORD "process-unreadable"

#define SAMPLE_MS   1000
#define SURVEY_ROWS 5

/* ---- the daemon's view of the process ---- */

/* Returns what the agent has reported about the job's runtimes; NULL: nothing. */
static json_t *ask_daemon(struct observation *seen)
{
    _cleanup_answer_ struct api_answer answer = {0};
    struct error err = {0};
    const json_t *backend;
    char path[32];
    size_t i;

    snprintf(path, sizeof(path), "/v1/jobs/%d", (int)seen->pid);
    if (api_try("GET", path, NULL, API_TIMEOUT_MS, &answer, &err) < 0) {
        seen->tide = OBSERVED_TIDE_UNREACHABLE;
        return NULL;
    }
    seen->tide = answer.status == 200 ? OBSERVED_TIDE_JOB : OBSERVED_TIDE_UNKNOWN;
    if (seen->tide != OBSERVED_TIDE_JOB)
        return NULL;
    snprintf(seen->job_name, sizeof(seen->job_name), "%s", member_text(answer.body, "name"));
    snprintf(seen->job_state, sizeof(seen->job_state), "%s", member_text(answer.body, "state"));
    seen->job_pinned = json_is_integer(json_object_get(answer.body, "pinned"));
    seen->job_target = (uint32_t)member_long(answer.body, "target");
    seen->job_active = (uint32_t)member_long(answer.body, "active");
    json_array_foreach (json_object_get(answer.body, "backends"), i, backend) {
        seen->job_malleable = seen->job_malleable || member_bool(backend, "malleable");
        if (!member_bool(backend, "malleable") && *member_text(backend, "note"))
            snprintf(seen->job_note, sizeof(seen->job_note), "%s: %s", member_text(backend, "name"),
                     member_text(backend, "note"));
    }
    visible(seen->job_note);
    return json_incref(json_object_get(answer.body, "backends"));
}

/* ---- a process ---- */

static json_t *names_json(const struct observation *seen)
{
    json_t *object = json_object();

    for (size_t i = 0; i < DIAGNOSE_GROUPS_MAX && seen->group[i].n; i++)
        json_object_set_new(object, seen->group[i].comm, json_integer(seen->group[i].n));
    return object;
}

/* Parts of what it could have done; null: unknown. */
static json_t *losses_json(const struct observation *seen, const struct diagnosis *d)
{
    return json_pack(
        "{s:o, s:o, s:o, s:f}", "waiting",
        json_real(d->demand_milli ? (double)seen->waiting_milli / d->demand_milli : 0), "throttled",
        json_real(seen->throttle.periods
                      ? (double)seen->throttle.throttled / (double)seen->throttle.periods
                      : 0),
        "spinning",
        seen->have_spin && seen->spin_samples ? json_real(seen->spin_permille / 1000.0)
                                              : json_null(),
        "involuntary_per_second",
        (double)seen->involuntary * 1e9 / (double)(seen->elapsed_ns ? seen->elapsed_ns : 1));
}

static json_t *findings_json(const struct diagnosis *d)
{
    json_t *list = json_array();

    for (size_t i = 0; i < d->n; i++)
        json_array_append_new(list, json_pack("{s:s, s:b, s:s, s:s}", "code",
                                              finding_name(d->finding[i].code), "problem",
                                              d->finding[i].severity == FINDING_PROBLEM, "text",
                                              d->finding[i].text, "fix", d->finding[i].fix));
    return list;
}

static int print_process_json(const struct observation *seen, const struct diagnosis *d,
                              json_t *runtimes)
{
    static const char *const tide[] = {"unreachable", "unknown", "job"};
    char cpus[CPUSET_TEXT_MAX];
    _cleanup_json_ json_t *json = NULL;

    cpuset_format(&seen->cpus, cpus, sizeof(cpus));
    json = json_pack(
        "{s:i, s:s, s:s, s:b, s:i, s:s, s:f, s:f, s:f, s:o?, s:{s:I, s:I, s:I}, s:o, s:s, s:o?, "
        "s:b, s:o, s:o, s:o, s:b}",
        "pid", (int)seen->pid, "comm", seen->comm, "command", seen->command, "healthy", d->healthy,
        "threads", (int)seen->threads, "cores", cpus, "allowed", d->allowed_mcpu / 1000.0,
        "running", seen->running_milli / 1000.0, "waiting", seen->waiting_milli / 1000.0, "quota",
        seen->quota_mcpu == CGROUP_NO_QUOTA ? NULL : json_real(seen->quota_mcpu / 1000.0),
        "throttle", "periods", (json_int_t)seen->throttle.periods, "throttled",
        (json_int_t)seen->throttle.throttled, "throttled_ns",
        (json_int_t)seen->throttle.throttled_ns, "runtimes", json_incref(runtimes), "tide",
        tide[seen->tide], "job",
        seen->tide == OBSERVED_TIDE_JOB ? json_string(seen->job_name) : NULL, "signal_handler",
        seen->handler, "findings", findings_json(d), "thread_names", names_json(seen), "losses",
        losses_json(seen, d), "static", seen->runtimes.is_static);
    if (!json)
        return cli_error(&command_doctor, CLI_FAILED, NULL,
                         "the process's command line is not UTF-8");
    api_print(json);
    return d->healthy ? CLI_OK : CLI_FAILED;
}

static void print_names(const struct observation *seen)
{
    uint32_t named = 0;

    printf("  threads    ");
    for (size_t i = 0; i < DIAGNOSE_GROUPS_MAX && seen->group[i].n; i++) {
        printf("%s%u %s", i ? ", " : "", seen->group[i].n, seen->group[i].comm);
        named += seen->group[i].n;
    }
    if (seen->threads > named)
        printf(", %u others", seen->threads - named);
    putchar('\n');
}

static void print_losses(const struct observation *seen, const struct diagnosis *d)
{
    if (d->idle) {
        puts("  loses      nothing that shows: it hardly runs");
        return;
    }
    printf("  loses      %u %% of its threads' time to waiting for a CPU (switched away %llu times "
           "a second)\n",
           d->demand_milli ? (unsigned)((uint64_t)seen->waiting_milli * 100 / d->demand_milli) : 0,
           (unsigned long long)(seen->involuntary * 1000 /
                                (seen->elapsed_ns / NS_PER_MS ? seen->elapsed_ns / NS_PER_MS : 1)));
    if (seen->quota_mcpu != CGROUP_NO_QUOTA)
        printf("             stopped by its quota in %llu of %llu periods\n",
               (unsigned long long)seen->throttle.throttled,
               (unsigned long long)seen->throttle.periods);
    if (!seen->have_spin)
        puts("             spinning: unknown, the kernel does not let you sample it");
    else if (seen->spin_samples)
        printf("             %u %% of its time on CPUs to spinning in OpenMP (%u samples)\n",
               seen->spin_permille / 10, seen->spin_samples);
}

static void print_tide(const struct observation *seen)
{
    const char *agent = seen->runtimes.r[PROC_RUNTIME_AGENT].loaded ? "agent in it" : "no agent";

    if (seen->tide == OBSERVED_TIDE_JOB)
        printf("  tide       job %s (%s), target %u, active %u, %s%s\n", seen->job_name,
               seen->job_state, seen->job_target, seen->job_active, agent,
               seen->handler ? ", resize signal" : "");
    else
        printf(
            "  tide       %s, %s%s\n",
            seen->tide == OBSERVED_TIDE_UNKNOWN ? "not a job of the daemon" : "no daemon answers",
            agent,
            seen->handler && seen->runtimes.r[PROC_RUNTIME_AGENT].loaded ? ", resize signal" : "");
}

static void print_findings(const struct diagnosis *d)
{
    bool color = cli_color();

    for (size_t i = 0; i < d->n; i++) {
        const struct finding *finding = &d->finding[i];
        bool problem = finding->severity == FINDING_PROBLEM;

        printf("\n%s%s%s: %s\n", color ? (problem ? "\033[1;31m" : "\033[33m") : "",
               problem ? "problem" : "note", color ? "\033[0m" : "", finding->text);
        if (*finding->fix)
            printf("    %s\n", finding->fix);
    }
    if (d->healthy)
        printf("\n%shealthy%s\n", color ? "\033[32m" : "", color ? "\033[0m" : "");
}

static void print_process(const struct observation *seen, const struct diagnosis *d,
                          const json_t *runtimes)
{
    char cpus[CPUSET_TEXT_MAX];

    cpuset_format(&seen->cpus, cpus, sizeof(cpus));
    printf("process %d (%s), %u thread%s\n", (int)seen->pid, seen->comm, seen->threads,
           seen->threads == 1 ? "" : "s");
    printf("  may use    %u.%u cores (CPUs %s", d->allowed_mcpu / 1000,
           d->allowed_mcpu % 1000 / 100, cpus);
    if (seen->quota_mcpu != CGROUP_NO_QUOTA)
        printf(", quota %u.%02u of cgroup %s", seen->quota_mcpu / 1000,
               seen->quota_mcpu % 1000 / 10, seen->quota_path);
    printf(")\n  wants      %u.%02u: running %u.%02u, waiting for a CPU %u.%02u%s\n",
           d->demand_milli / 1000, d->demand_milli % 1000 / 10, seen->running_milli / 1000,
           seen->running_milli % 1000 / 10, seen->waiting_milli / 1000,
           seen->waiting_milli % 1000 / 10, seen->have_waiting ? "" : " (estimated)");
    print_losses(seen, d);
    print_names(seen);
    runtimes_print(runtimes, "  runtimes ");
    if (seen->runtimes.is_static)
        puts("  program    static: the agent cannot be loaded into it");
    print_tide(seen);
    print_findings(d);
}

static int examine(int root, const struct cgroup *cg, pid_t pid, bool json)
{
    _cleanup_json_ json_t *backends = NULL, *runtimes = NULL;
    struct observation seen;
    struct diagnosis diagnosis;
    struct error err = {0};
    int r = observe_process(root, cg, pid, SAMPLE_MS, &seen, &err);

    if (r == -ESRCH)
        return cli_error(&command_doctor, CLI_NOT_FOUND,
                         "'tide doctor' lists your processes that want more than they have.", "%s",
                         err.text);
    if (r == -EACCES)
        return cli_error(&command_doctor, CLI_DENIED, "Ask its owner, or run as root.", "%s",
                         err.text);
    if (r < 0)
        return cli_error(&command_doctor, CLI_FAILED, NULL, "%s", err.text);
    backends = ask_daemon(&seen);
    diagnose(&seen, &diagnosis);
    runtimes = runtimes_json(root, &seen.runtimes, backends, pid);
    if (json)
        return print_process_json(&seen, &diagnosis, runtimes);
    print_process(&seen, &diagnosis, runtimes);
    return diagnosis.healthy ? CLI_OK : CLI_FAILED;
}

/* ---- the installation ---- */

static const char *const level_names[] = {
    [CHECK_OK] = "ok", [CHECK_NOTE] = "note", [CHECK_PROBLEM] = "problem"};
static_assert(ARRAY_LEN(level_names) == CHECK_LEVEL_MAX, "a level without a name");

static void print_checks(const struct checks *checks)
{
    static const char *const colors[] = {"\033[32m", "\033[33m", "\033[1;31m"};
    bool color = cli_color();

    for (size_t i = 0; i < checks->n; i++) {
        const struct check *check = &checks->check[i];

        printf("%s%-8s%s%-11s %s\n", color ? colors[check->level] : "", level_names[check->level],
               color ? "\033[0m" : "", check->name, check->text);
        if (*check->fix)
            printf("%-19s %s\n", "", check->fix);
    }
}

static void print_rows(const struct observed_row *rows, size_t n)
{
    size_t shown = 0;

    for (size_t i = 0; i < n; i++) {
        if (!diagnose_oversubscribed(rows[i].demand_milli, rows[i].allowed_mcpu))
            continue;
        if (shown++ == 0)
            printf("\nProcesses whose threads do not fit their cores ('tide doctor PID' tells "
                   "more):\n%8s  %-16s %8s %8s %8s\n",
                   "PID", "NAME", "THREADS", "WANT", "MAY USE");
        printf("%8d  %-16.16s %8u %8.1f %8.1f\n", (int)rows[i].pid, rows[i].comm, rows[i].threads,
               rows[i].demand_milli / 1000.0, rows[i].allowed_mcpu / 1000.0);
    }
    if (shown == 0)
        puts("\nNone of your processes has more runnable threads than cores.");
}

static int print_survey_json(const struct checks *checks, const struct observed_row *rows, size_t n,
                             bool healthy)
{
    _cleanup_json_ json_t *json =
        json_pack("{s:b, s:[], s:[]}", "healthy", healthy, "checks", "processes");

    for (size_t i = 0; i < checks->n; i++)
        json_array_append_new(json_object_get(json, "checks"),
                              json_pack("{s:s, s:s, s:s, s:s}", "name", checks->check[i].name,
                                        "level", level_names[checks->check[i].level], "text",
                                        checks->check[i].text, "fix", checks->check[i].fix));
    for (size_t i = 0; i < n; i++)
        json_array_append_new(
            json_object_get(json, "processes"),
            json_pack("{s:i, s:s, s:i, s:f, s:f, s:f, s:b}", "pid", (int)rows[i].pid, "comm",
                      rows[i].comm, "threads", (int)rows[i].threads, "demand",
                      rows[i].demand_milli / 1000.0, "waiting", rows[i].waiting_milli / 1000.0,
                      "allowed", rows[i].allowed_mcpu / 1000.0, "oversubscribed",
                      diagnose_oversubscribed(rows[i].demand_milli, rows[i].allowed_mcpu)));
    api_print(json);
    return healthy ? CLI_OK : CLI_FAILED;
}

static int survey(int root, const struct cgroup *cg, bool json)
{
    struct observed_row rows[SURVEY_ROWS];
    struct checks checks;
    bool healthy = true;
    size_t n = 0;
    int r;

    doctor_check_installation(root, cg, &checks);
    r = observe_survey(root, cg, geteuid(), SAMPLE_MS, rows, SURVEY_ROWS, &n);
    if (r < 0)
        return cli_error(&command_doctor, CLI_FAILED, NULL, "cannot list the processes: %s",
                         strerror(-r));
    for (size_t i = 0; i < checks.n; i++)
        healthy = healthy && checks.check[i].level != CHECK_PROBLEM;
    for (size_t i = 0; i < n; i++)
        healthy = healthy && !diagnose_oversubscribed(rows[i].demand_milli, rows[i].allowed_mcpu);
    if (json)
        return print_survey_json(&checks, rows, n, healthy);
    print_checks(&checks);
    print_rows(rows, n);
    return healthy ? CLI_OK : CLI_FAILED;
}

/* ---- the command ---- */

static void cgroup_cleanup(struct cgroup **cg)
{
    cgroup_free(*cg);
}

static int doctor_run(int argc, char **argv)
{
    static const struct option options[] = {{"json", no_argument, NULL, 'j'}, {0}};
    const struct command *cmd = &command_doctor;
    _cleanup_(cgroup_cleanup) struct cgroup *cg = NULL;
    _cleanup_fd_ int root = -1;
    bool json = false;
    long pid = 0;
    int c;
    int r;

    while ((c = option_next(cmd, argc, argv, options, false)) != -1) {
        json = true;
    }
    option_operands(cmd, argc, argv, 0, 1);
    if (optind < argc && option_number(cmd, argv[optind], "PID", 1, INT_MAX, &pid) != CLI_OK)
        return CLI_USAGE;
    root = file_open_root();
    r = root < 0 ? root : cgroup_new(root, &cg);
    if (r < 0)
        return cli_error(cmd, CLI_FAILED, "Is /proc mounted?", "cannot inspect the machine: %s",
                         strerror(-r));
    return pid ? examine(root, cg, (pid_t)pid, json) : survey(root, cg, json);
}

const struct command command_doctor = {
    .name = "doctor",
    .usage = "[PID] [--json]",
    .brief = "find oversubscription in any process, or check the installation",
    .help = "With PID, watches that process for a second, whoever started it: how many of its\n"
            "threads want to run against the cores it may use, whether a quota stops it, how\n"
            "much of its time OpenMP's threads spin, which runtimes it has and whether their\n"
            "threads can be steered; and prints the command that would mend what is wrong.\n"
            "No daemon and no agent is needed, and nothing is changed.\n"
            "\n"
            "Without PID, checks the installation (agent, directory, daemon, privileges,\n"
            "cgroups) and lists the processes of yours that are oversubscribed most.\n"
            "\n"
            "Exit status: 0 healthy, 1 problems found, 2 usage, 3 no such process (or one\n"
            "that runs no program: it has ended, or is a part of the kernel), 4 not yours\n"
            "to look into.\n"
            "\n"
            "Examples:\n"
            "  tide doctor\n"
            "  tide doctor 48213\n"
            "  tide doctor 48213 --json\n",
    .run = doctor_run,
};

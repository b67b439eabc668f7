/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tide-sim, the program behind `tide sim`: simulates a scenario under several policies. src/sim
 * does the work.
 */
#include "cli/api.h"
#include "cli/sim/sim_table.h"

#include "sim/report/compare.h"
#include "sim/report/report.h"
#include "sim/report/svg.h"

#include <ctype.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ERROR_WORD "simulation-failed"

#define DEFAULT_SEEDS 10 /* for scenarios that generate jobs */
#define BAR_WIDTH     30
#define SPLITS_ALL    8 /* so many cores of a server are tried one by one */

enum output { OUTPUT_CSV, OUTPUT_GANTT, OUTPUT_HTML, OUTPUT_MAX };

struct arguments {
    const char *path; /* of the scenario */
    struct compare_policy policies[COMPARE_POLICIES_MAX];
    uint32_t policy_count; /* 0: none given */
    uint64_t first_seed;
    uint32_t seed_count; /* 0: none given */
    long threads;
    int placement; /* -1: the scenario's */
    bool json, check, all;
    const char *path_of[OUTPUT_MAX]; /* NULL: not wanted */
};

static const char *const default_policies[] = {"none", "equal", "fcfs/strict", "throughput",
                                               "response"};
static const char *const placements[] = {"shared", "exclusive", "quota"};

#define POLICIES_OF_SERVERS 2 /* the first ones, where static splits stand beside */

static void cleanup_scenario(struct scenario **scenario)
{
    scenario_free(*scenario);
}

/* ---- arguments ------------------------------------------------------------------------------- */

/* @where: the option or field that named the policy. */
static int add_policy(struct arguments *args, const char *text, const char *where)
{
    struct error err;

    if (args->policy_count == COMPARE_POLICIES_MAX)
        return cli_usage(&command_sim, "%s: there are more than %d policies", where,
                         COMPARE_POLICIES_MAX);
    if (compare_policy_parse(text, &args->policies[args->policy_count], &err) < 0)
        return cli_error_as(&command_sim, CLI_USAGE, error_why(&err),
                            "'tide help sim' says how to write policies.", "%s: %s", where,
                            err.text);
    args->policy_count++;
    return CLI_OK;
}

static int read_policies(struct arguments *args, const char *list)
{
    _cleanup_free_ char *copy = strdup(list);
    char *rest = copy, *text;

    if (!copy)
        return cli_no_memory(&command_sim);
    while ((text = strsep(&rest, ","))) {
        int r = add_policy(args, text, "--policy");

        if (r != CLI_OK)
            return r;
    }
    return CLI_OK;
}

/* Reads "20" (seeds 1 to 20) or "5-7". */
static int read_seeds(struct arguments *args, const char *text)
{
    unsigned long long first = 1, last;
    char *end;

    if (!isdigit((unsigned char)*text))
        goto bad;
    last = strtoull(text, &end, 10);
    if (*end == '-' && isdigit((unsigned char)end[1])) {
        first = last;
        last = strtoull(end + 1, &end, 10);
    }
    if (*end || last < first || last - first >= COMPARE_SEEDS_MAX || last > INT64_MAX)
        goto bad;
    args->first_seed = first;
    args->seed_count = (uint32_t)(last - first + 1);
    if (last)
        return CLI_OK;
bad:
    return cli_usage(&command_sim,
                     "--seeds: '%s' is no number of seeds (20) or range (11-30) of up to %d", text,
                     COMPARE_SEEDS_MAX);
}

static int read_placement(struct arguments *args, const char *text)
{
    for (size_t i = 0; i < ARRAY_LEN(placements); i++)
        if (strcmp(text, placements[i]) == 0) {
            args->placement = (int)i;
            return CLI_OK;
        }
    return cli_usage(&command_sim, "--placement: '%s' is none of shared, exclusive and quota",
                     text);
}

enum {
    OPTION_SEEDS = 128,
    OPTION_PARALLEL,
    OPTION_JOBS, /* the option's old name, easily taken for a number of jobs */
    OPTION_PLACEMENT,
    OPTION_CSV,
    OPTION_GANTT,
    OPTION_HTML,
    OPTION_CHECK
};

static int take_option(struct arguments *args, int option, const char *value)
{
    switch (option) {
    case 'p':
        return read_policies(args, value);
    case OPTION_SEEDS:
        return read_seeds(args, value);
    case OPTION_PARALLEL:
    case OPTION_JOBS:
        return option_number(&command_sim, value, option == OPTION_JOBS ? "--jobs" : "--parallel",
                             1, COMPARE_THREADS_MAX, &args->threads);
    case OPTION_PLACEMENT:
        return read_placement(args, value);
    case OPTION_CSV:
        args->path_of[OUTPUT_CSV] = value;
        return CLI_OK;
    case OPTION_GANTT:
        args->path_of[OUTPUT_GANTT] = value;
        return CLI_OK;
    case OPTION_HTML:
        args->path_of[OUTPUT_HTML] = value;
        return CLI_OK;
    case OPTION_CHECK:
        args->check = true;
        return CLI_OK;
    case 'a':
        args->all = true;
        return CLI_OK;
    default:
        args->json = true;
        return CLI_OK;
    }
}

static int read_arguments(int argc, char **argv, struct arguments *args)
{
    static const struct option options[] = {
        {"policy", required_argument, NULL, 'p'},
        {"seeds", required_argument, NULL, OPTION_SEEDS},
        {"parallel", required_argument, NULL, OPTION_PARALLEL},
        {"jobs", required_argument, NULL, OPTION_JOBS},
        {"placement", required_argument, NULL, OPTION_PLACEMENT},
        {"csv", required_argument, NULL, OPTION_CSV},
        {"gantt", required_argument, NULL, OPTION_GANTT},
        {"html", required_argument, NULL, OPTION_HTML},
        {"check", no_argument, NULL, OPTION_CHECK},
        {"all", no_argument, NULL, 'a'},
        {"json", no_argument, NULL, 'j'},
        {0}};
    int c;

    while ((c = option_next(&command_sim, argc, argv, options, false)) != -1) {
        if (take_option(args, c, optarg) != CLI_OK)
            return CLI_USAGE;
    }
    option_operands(&command_sim, argc, argv, 1, 1);
    args->path = argv[optind];
    return CLI_OK;
}

/* The default of tided, and static splits as an oracle: how far fixed numbers of cores reach.
 */
static int add_policies_of_servers(struct arguments *args, const struct scenario *scenario)
{
    uint32_t cores = scenario->machine.cores, step = 1;
    char text[32];
    int r = add_policy(args, "equal" COMPARE_EXTRAS, "defaults");

    for (uint32_t k = 1; r == CLI_OK && k < cores; k += step) {
        step = k < SPLITS_ALL ? 1 : k; /* beyond, powers of two */
        snprintf(text, sizeof(text), "equal" COMPARE_SPLIT "%u", k);
        r = add_policy(args, text, "defaults");
    }
    return r;
}

/* Adds the usual policies and the one under which the scenario was recorded. */
static int add_default_policies(struct arguments *args, const struct scenario *scenario)
{
    const char *recorded = scenario->observed.policy;
    int r = CLI_OK;

    for (size_t i = 0; r == CLI_OK && i < ARRAY_LEN(default_policies); i++)
        if (scenario->server_count == 0 || i < POLICIES_OF_SERVERS)
            r = add_policy(args, default_policies[i], "defaults");
    if (r == CLI_OK && scenario->server_count)
        r = add_policies_of_servers(args, scenario);
    if (r == CLI_OK && *recorded)
        r = add_policy(args, recorded, "observed.policy of the scenario");
    for (uint32_t p = 0; r == CLI_OK && *recorded && p + 1 < args->policy_count; p++)
        if (compare_policy_equal(&args->policies[p], &args->policies[args->policy_count - 1])) {
            args->policy_count--;
            break;
        }
    return r;
}

/* Fills in the options that were not given, as the scenario suggests. */
static int complete(struct arguments *args, const struct scenario *scenario)
{
    if (args->threads == 0)
        args->threads = sysconf(_SC_NPROCESSORS_ONLN);
    if (args->threads < 1 || args->threads > COMPARE_THREADS_MAX)
        args->threads = args->threads < 1 ? 1 : COMPARE_THREADS_MAX;
    if (args->seed_count == 0) {
        args->first_seed = 1;
        args->seed_count = scenario_is_random(scenario) ? DEFAULT_SEEDS : 1;
    }
    if (!scenario_is_random(scenario) && args->seed_count > 1) {
        cli_note(&command_sim,
                 "--seeds has no effect: the scenario generates no jobs, so every seed gives the "
                 "same run, and tide makes one");
        args->seed_count = 1;
    }
    return args->policy_count == 0 ? add_default_policies(args, scenario) : CLI_OK;
}

/* ---- files ----------------------------------------------------------------------------------- */

struct outputs {
    FILE *file[OUTPUT_MAX]; /* NULL: not wanted */
};

static void close_outputs(struct outputs *outputs)
{
    for (int o = 0; o < OUTPUT_MAX; o++)
        if (outputs->file[o])
            fclose(outputs->file[o]);
}

static int cannot_write(const char *path)
{
    return cli_error_as(&command_sim, CLI_FAILED, "output-failed", NULL, "cannot write %s: %s",
                        path, strerror(errno));
}

/* @b may be NULL. */
static bool same_file(const char *a, const char *b)
{
    struct stat x, y;

    return b && stat(a, &x) == 0 && stat(b, &y) == 0 && S_ISREG(x.st_mode) &&
           x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Opening a file for writing empties it, so it must be neither an input nor another output. */
static bool is_in_use(const struct arguments *args, const struct scenario *scenario, int output)
{
    const char *path = args->path_of[output];

    for (int o = 0; o < output; o++)
        if (same_file(path, args->path_of[o]))
            return true;
    return same_file(path, args->path) || same_file(path, scenario->trace_path);
}

/* Opens the files before the runs: an unwritable file is reported now, not after an hour. */
static int open_outputs(const struct arguments *args, const struct scenario *scenario,
                        struct outputs *outputs)
{
    for (int o = 0; o < OUTPUT_MAX; o++) {
        if (!args->path_of[o])
            continue;
        if (is_in_use(args, scenario, o))
            return cli_usage(&command_sim,
                             "cannot write %s: it is the scenario, its trace or another output",
                             args->path_of[o]);
        outputs->file[o] = fopen(args->path_of[o], "we");
        if (!outputs->file[o])
            return cannot_write(args->path_of[o]);
    }
    return CLI_OK;
}

/* A full disk must not look like success. */
static int flush_outputs(const struct arguments *args, struct outputs *outputs)
{
    for (int o = 0; o < OUTPUT_MAX; o++)
        if (outputs->file[o] && (fflush(outputs->file[o]) != 0 || ferror(outputs->file[o])))
            return cannot_write(args->path_of[o]);
    return CLI_OK;
}

static void write_gantt(FILE *file, const struct compare *compare)
{
    const char *names[COMPARE_POLICIES_MAX];

    for (uint32_t p = 0; p < compare->policy_count; p++)
        names[p] = compare->policies[p].text;
    svg_file(file, compare->scenario->name, names, compare->chart, compare->policy_count,
             compare->machine.cores);
}

static void write_html(FILE *file, const struct compare *compare, const struct arguments *args)
{
    _cleanup_free_ char *command = NULL;
    size_t size;
    FILE *text = open_memstream(&command, &size);

    if (!text)
        return;
    fprintf(text, "tide sim %s --policy ", args->path);
    for (uint32_t p = 0; p < args->policy_count; p++)
        fprintf(text, "%s%s", p ? "," : "", args->policies[p].text);
    fprintf(text, " --seeds %llu-%llu --placement %s", (unsigned long long)args->first_seed,
            (unsigned long long)args->first_seed + args->seed_count - 1,
            placements[compare->machine.placement]);
    if (fclose(text) == 0)
        report_html(file, compare, command);
}

/* ---- the command ----------------------------------------------------------------------------- */

static void show_progress(const struct compare *compare, double done)
{
    int filled = (int)(done * BAR_WIDTH);

    fprintf(stderr, "\r%3.0f %% [%.*s%*s] %u policies × %u seeds", 100 * done, filled,
            "##############################", BAR_WIDTH - filled, "", compare->policy_count,
            compare->seed_count);
}

static int run_all(struct compare *compare)
{
    struct error err;
    bool terminal = isatty(STDERR_FILENO);
    int r;

    compare->progress = terminal ? show_progress : NULL;
    r = compare_all(compare, &err);
    if (terminal)
        fputs("\r\033[K", stderr);
    if (r == 0)
        return CLI_OK;
    return cli_error_as(&command_sim, r == -EINVAL || r == -ENOENT ? CLI_USAGE : CLI_FAILED,
                        error_why(&err), NULL, "%s", err.text);
}

static int report_refused(const struct compare *compare, const char *policy, uint64_t count,
                          const char *why)
{
    if (count == 0)
        return CLI_OK;
    return cli_error(&command_sim, CLI_PARTIAL, "--csv FILE names them: their state is infeasible.",
                     "%s: in %u run%s, %llu job%s %s", policy, compare->seed_count,
                     compare->seed_count == 1 ? "" : "s", (unsigned long long)count,
                     count == 1 ? "" : "s", why);
}

/* Names the policies that left jobs behind. */
static int report_stuck(const struct compare *compare)
{
    int code = CLI_OK;

    for (uint32_t p = 0; p < compare->policy_count; p++) {
        const struct compare_run *runs = compare_runs(compare, p);
        const char *policy = compare->policies[p].text;
        uint32_t stuck = 0, last = 0;
        uint64_t refused = 0, late = 0;

        for (uint32_t s = 0; s < compare->seed_count; s++) {
            refused += runs[s].totals.infeasible;
            late += runs[s].totals.late;
            if (runs[s].stuck) {
                stuck++;
                last = s;
            }
        }
        if (report_refused(compare, policy, refused - late, "can never run on this machine") |
            report_refused(compare, policy, late,
                           "could not have met their deadlines, and were refused"))
            code = CLI_PARTIAL;
        if (stuck)
            code = cli_error(&command_sim, CLI_PARTIAL, NULL,
                             "%s: some jobs did not end in %u of %u runs; seed %llu: %s", policy,
                             stuck, compare->seed_count,
                             (unsigned long long)compare->first_seed + last, runs[last].why);
    }
    return code;
}

/* Says of each decider how often it decided, unless it always did. */
static void report_deciders(const struct compare *compare)
{
    for (uint32_t p = 0; p < compare->policy_count; p++) {
        const struct compare_run *runs = compare_runs(compare, p);
        uint64_t asked = 0, answered = 0;
        const char *fault = "";

        for (uint32_t s = 0; s < compare->seed_count; s++) {
            asked += runs[s].asked;
            answered += runs[s].answered;
            fault = *fault ? fault : runs[s].decider_fault;
        }
        if (answered < asked)
            cli_note_as(
                &command_sim, "decider-fault",
                "%s decided %llu of %llu times, the policy equal the others; first fault: %s",
                compare->policies[p].text, (unsigned long long)answered, (unsigned long long)asked,
                fault);
    }
}

static int print_json(const struct compare *compare)
{
    _cleanup_json_ json_t *json = report_json(compare);

    return json ? api_print(json) : cli_no_memory(&command_sim);
}

static int show(const struct compare *compare, const struct arguments *args,
                struct outputs *outputs)
{
    int r = CLI_OK;

    if (args->json)
        r = print_json(compare);
    else if (sim_table_print(compare, args->all) < 0)
        r = cli_no_memory(&command_sim);
    if (outputs->file[OUTPUT_GANTT])
        write_gantt(outputs->file[OUTPUT_GANTT], compare);
    if (outputs->file[OUTPUT_HTML])
        write_html(outputs->file[OUTPUT_HTML], compare, args);
    if (r == CLI_OK)
        r = flush_outputs(args, outputs);
    report_deciders(compare);
    return r == CLI_OK ? report_stuck(compare) : r;
}

static int simulate(const struct arguments *args, const struct scenario *scenario)
{
    _cleanup_(close_outputs) struct outputs outputs = {0};
    _cleanup_(compare_done) struct compare compare = {
        .scenario = scenario,
        .machine = scenario->machine,
        .policies = args->policies,
        .policy_count = args->policy_count,
        .first_seed = args->first_seed,
        .seed_count = args->seed_count,
        .threads = (uint32_t)args->threads,
        .check = args->check,
        .charts = args->path_of[OUTPUT_GANTT] || args->path_of[OUTPUT_HTML],
    };
    int r = open_outputs(args, scenario, &outputs);

    if (r != CLI_OK)
        return r;
    if (args->placement >= 0)
        compare.machine.placement = (enum sim_placement)args->placement;
    compare.jobs = outputs.file[OUTPUT_CSV];
    r = run_all(&compare);
    return r == CLI_OK ? show(&compare, args, &outputs) : r;
}

int main(int argc, char **argv)
{
    /* Static because it is large. */
    static struct arguments args = {.placement = -1};
    _cleanup_(cleanup_scenario) struct scenario *scenario = NULL;
    struct error err;
    int r = read_arguments(argc, argv, &args);

    if (r == CLI_OK) {
        r = scenario_load(args.path, &scenario, &err);
        if (r < 0)
            return cli_error_as(&command_sim, r == -ENOMEM ? CLI_FAILED : CLI_USAGE,
                                error_why(&err), "tide-sim(1) describes scenarios.", "%s",
                                err.text);
        r = complete(&args, scenario);
        if (r == CLI_OK)
            r = simulate(&args, scenario);
    }
    return cli_end(&command_sim, r);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* `tide record`: writes a scenario of the jobs' real behaviour, which `tide sim` replays. */
#include "cli/launch/recorder.h"

#include "base/clock.h"
#include "base/moment.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>

#define ERROR_WORD "nothing-recorded"

#define OTHERS_NOTED 0.1 /* a smaller part of the cores is not worth a note */

struct record_options {
    const char *file;     /* NULL: stdout */
    uint64_t duration_ms; /* 0: until the user or the daemon ends it */
};

static volatile sig_atomic_t stopped;

static void on_signal(int number)
{
    stopped = 1;
}

static void catch_signals(void)
{
    const struct sigaction action = {.sa_handler = on_signal};

    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
}

static int parse(int argc, char **argv, struct record_options *o)
{
    static const struct option options[] = {
        {"output", required_argument, NULL, 'o'}, {"for", required_argument, NULL, 'f'}, {0}};
    const struct command *cmd = &command_record;
    int c;

    while ((c = option_next(cmd, argc, argv, options, false)) != -1) {
        if (c == 'o')
            o->file = optarg;
        else if (moment_duration(optarg, &o->duration_ms) < 0)
            return cli_usage(cmd, "--for: '%s' is no duration (90s, 10min, 2h, 1h30min)", optarg);
    }
    option_operands(cmd, argc, argv, 0, 0);
    return CLI_OK;
}

static bool gone(int r)
{
    return r == -ENOENT || r == -ECONNREFUSED;
}

/* Machine and policy; the first `tide run` may still have to start the daemon. */
static int meet_daemon(struct recorder *r, uint64_t end_ns)
{
    bool told = false;

    while (!stopped && clock_now_ns() < end_ns) {
        _cleanup_answer_ struct api_answer machine = {0}, policy = {0};
        struct error err = {0};
        int e = api_try("GET", "/v1/machine", NULL, API_TIMEOUT_MS, &machine, &err);

        if (e == 0)
            e = api_try("GET", "/v1/policy", NULL, API_TIMEOUT_MS, &policy, &err);
        if (e == 0 && machine.status == 200 && policy.status == 200) {
            recorder_machine(r, machine.body, policy.body);
            return CLI_OK;
        }
        if (e == 0)
            return api_refused(&command_record, machine.status == 200 ? &policy : &machine);
        if (!gone(e) && e != -ETIMEDOUT)
            return api_unreachable(&command_record, e, &err);
        if (!told)
            cli_note(&command_record, "no daemon runs yet: waiting for the first job");
        told = true;
        recorder_sleep(r, clock_now_ns() + RECORDER_LOOK_NS / 5);
    }
    return cli_error(&command_record, CLI_UNREACHABLE,
                     "'tide run -- COMMAND' starts jobs, and a daemon if there is none.",
                     "nothing recorded: no daemon ran");
}

static int watch(struct recorder *r, uint64_t end_ns)
{
    uint64_t next_ns = clock_now_ns();
    int e = 0;

    while (!stopped && e == 0 && clock_now_ns() < end_ns) {
        _cleanup_answer_ struct api_answer jobs = {0};
        struct error err;
        int asked = api_try("GET", "/v1/jobs", NULL, API_TIMEOUT_MS, &jobs, &err);

        if (gone(asked)) /* the daemon ended with its last job */
            break;
        if (asked == 0 && jobs.status == 200) /* else the daemon is slow: looks again later */
            e = recorder_look(r, jobs.body);
        next_ns += RECORDER_LOOK_NS;
        if (next_ns < clock_now_ns())
            next_ns = clock_now_ns() + RECORDER_LOOK_NS;
        recorder_sleep(r, next_ns < end_ns ? next_ns : end_ns);
    }
    return e < 0 ? cli_no_memory(&command_record) : CLI_OK;
}

static void print_sum(const struct record_options *o, const json_t *scenario,
                      const struct recorder_sum *sum)
{
    const json_t *observed = json_object_get(scenario, "observed");
    double cores = member_number(json_object_get(scenario, "machine"), "cores");
    const struct command *cmd = &command_record;

    cli_note(cmd, "%zu job%s, makespan %.1f s, mean turnaround %.1f s", sum->jobs,
             sum->jobs == 1 ? "" : "s", member_number(observed, "makespan"),
             member_number(observed, "mean_turnaround"));
    if (sum->cut)
        cli_note(cmd, "jobs still running, recorded as if they had ended now: %zu", sum->cut);
    if (sum->left_out)
        cli_note(cmd, "jobs left out, since they hardly used a core: %zu", sum->left_out);
    if (sum->missed)
        cli_note(cmd, "jobs missed, shorter than half a second or too many at once: %zu",
                 sum->missed);
    if (member_number(observed, "others") > OTHERS_NOTED * cores)
        cli_note(cmd, "other programs kept %.1f of %.0f cores busy: a replay leaves them out",
                 member_number(observed, "others"), cores);
    if (o->file)
        cli_note(cmd, "replay it: tide sim %s", o->file);
}

static bool holds_objects(const json_t *json)
{
    const char *key;
    json_t *member;
    size_t i;

    json_array_foreach (json, i, member)
        if (json_is_object(member))
            return true;
    json_object_foreach ((json_t *)json, key, member)
        if (json_is_object(member) || (json_is_array(member) && holds_objects(member)))
            return true;
    return false;
}

/* One job or one speed-up a line: easier to find and to change than one number a line. */
static void print_json(FILE *out, const json_t *json, int depth)
{
    const char *separator = "\n";
    const char *key;
    json_t *member;
    size_t i;

    if (depth > 2 || !holds_objects(json)) {
        json_dumpf(json, out, JSON_REAL_PRECISION(12) | JSON_ENCODE_ANY);
        return;
    }
    putc(json_is_array(json) ? '[' : '{', out);
    json_array_foreach (json, i, member) {
        fprintf(out, "%s%*s", separator, depth + 1, "");
        print_json(out, member, depth + 1);
        separator = ",\n";
    }
    json_object_foreach ((json_t *)json, key, member) {
        fprintf(out, "%s%*s\"%s\": ", separator, depth + 1, "", key); /* keys need no escapes */
        print_json(out, member, depth + 1);
        separator = ",\n";
    }
    fprintf(out, "\n%*s%c", depth, "", json_is_array(json) ? ']' : '}');
}

static int save(const struct record_options *o, struct recorder *r, FILE *out)
{
    struct recorder_sum sum;
    struct error err = {0};
    _cleanup_json_ json_t *scenario = recorder_scenario(r, &sum, &err);

    if (!scenario)
        return cli_error(&command_record, CLI_FAILED,
                         "Start jobs with 'tide run' while it records.", "nothing recorded: %s",
                         err.text);
    /* The file keeps its content until the scenario is ready to replace it. */
    if (!o->file || ftruncate(fileno(out), 0) == 0)
        print_json(out, scenario, 0);
    if (putc('\n', out) == EOF || fflush(out) != 0 || ferror(out))
        return cli_error_as(&command_record, CLI_FAILED, "output-failed", NULL,
                            "cannot write %s: %s", o->file ? o->file : "the output",
                            strerror(errno));
    print_sum(o, scenario, &sum);
    return CLI_OK;
}

static void cleanup_recorder(struct recorder **r)
{
    recorder_free(*r);
}

static int record_run(int argc, char **argv)
{
    _cleanup_(cleanup_recorder) struct recorder *r = NULL;
    _cleanup_file_ FILE *file = NULL;
    struct record_options o = {0};
    struct error err = {0};
    uint64_t end_ns = UINT64_MAX;
    int e = parse(argc, argv, &o);

    if (e != CLI_OK)
        return e;
    if (o.file) { /* an unwritable file is reported now, not after hours */
        int fd = open(o.file, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);

        file = fd < 0 ? NULL : fdopen(fd, "w");
        if (!file)
            return cli_error_as(&command_record, CLI_FAILED, "output-failed", NULL,
                                "cannot write %s: %s", o.file, strerror(errno));
    }
    r = recorder_new(&err);
    if (!r)
        return cli_error_as(&command_record, CLI_FAILED, error_why(&err), NULL, "%s", err.text);
    if (o.duration_ms)
        end_ns = clock_now_ns() + o.duration_ms * NS_PER_MS;
    catch_signals();
    e = meet_daemon(r, end_ns);
    if (e == CLI_OK)
        e = watch(r, end_ns);
    return e == CLI_OK ? save(&o, r, file ? file : stdout) : e;
}

const struct command command_record = {
    .name = "record",
    .usage = "[-o FILE] [--for TIME]",
    .brief = "record what jobs really do, as a scenario that 'tide sim' replays",
    .help = "Watches the daemon's jobs until Ctrl-C, until TIME has passed, or until the\n"
            "daemon ends; if none runs yet, waits for it. Then writes a scenario: the\n"
            "machine, each job's arrival, work and speed-up, and what really happened, with\n"
            "which 'tide sim' compares its prediction. Jobs that run already count from now.\n"
            "\n"
            "Options:\n"
            "  -o, --output FILE  write it there (default: standard output)\n"
            "      --for TIME     end after so long: 90s, 10min, 2h\n"
            "\n"
            "Examples:\n"
            "  tide record -o day.json\n"
            "  tide record --for 10min -o mix.json\n"
            "  tide sim mix.json --policy equal,response\n",
    .run = record_run,
};

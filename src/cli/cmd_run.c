/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `tide run`: registers this very process as a job and becomes the program. What is ours may be
 * missing (daemon, agent): the program then runs as if it had been started without us.
 */
#include "cli/api.h"
#include "cli/terms.h"

#include "base/preload.h"
#include "base/slice.h"
#include "host/daemon.h"
#include "proto/proto.h"

#include <ctype.h>
#include <string.h>

#define REGISTER_TIMEOUT_MS 2000 /* then the program starts without us */
#define DAEMON_TIMEOUT_MS   3000

struct run_options {
    const char *name; /* NULL: made from the command line */
    long threads;     /* 0: not given */
    json_t *terms;    /* NULL: none */
};

enum { OPT_THREADS = 256 };

static bool name_char(char c)
{
    return isalnum((unsigned char)c) || (c && strchr("._+:@-", c));
}

static int check_name(const char *name)
{
    size_t n = 0;

    while (name_char(name[n]))
        n++;
    if (n == 0 || n >= PROTO_NAME_MAX || name[n] || *name == '-')
        return cli_usage(
            &command_run,
            "--name: '%s' is no name for a job (1 %s %d letters, digits and . _ + : @ -, "
            "no - at the front)",
            name, cli_glyph(CLI_DOTS), PROTO_NAME_MAX - 1);
    return CLI_OK;
}

static int check(const struct run_options *o, int argc, char **argv)
{
    const struct command *cmd = &command_run;
    long min = member_long(o->terms, "min"), max = member_long(o->terms, "max");
    int r = terms_check(cmd, o->terms);

    if (r != CLI_OK)
        return r;
    if (o->threads && max && o->threads > max)
        return cli_usage(cmd, "--threads %ld is above --max %ld", o->threads, max);
    if (o->threads && min && o->threads < min)
        return cli_usage(cmd, "--threads %ld is below --min %ld", o->threads, min);
    if (optind == argc)
        return cli_usage(cmd, "there is no program to run");
    if (!*argv[optind])
        return cli_usage(cmd, "the name of the program is empty");
    return CLI_OK;
}

/* Returns CLI_OK, CLI_USAGE, or -1: help was printed, nothing is to be run. */
static int parse(int argc, char **argv, struct run_options *o)
{
    static const struct option options[] = {
        {"name", required_argument, NULL, 'n'},
        {"threads", required_argument, NULL, OPT_THREADS},
        {"placement", required_argument, NULL, TERM_PLACEMENT},
        TERM_OPTIONS,
        {"help", no_argument, NULL, 'h'},
        {0},
    };
    const struct command *cmd = &command_run;
    int r = CLI_OK;
    bool term;
    int c;

    while (r == CLI_OK && (c = option_next(cmd, argc, argv, options, true)) != -1) {
        r = terms_take(cmd, c, &o->terms, &term);
        if (term)
            continue;
        switch (c) {
        case 'n':
            o->name = optarg;
            r = check_name(optarg);
            break;
        case OPT_THREADS:
            r = option_number(cmd, optarg, "--threads", 1, PROTO_THREADS_MAX, &o->threads);
            break;
        case 'h':
            cli_help(cmd);
            return -1;
        default:
            return CLI_USAGE;
        }
    }
    return r == CLI_OK ? check(o, argc, argv) : r;
}

/*
 * A name for people: of the script if there is one ("python3 -u dir/train.py" → "train"), else of
 * the program; characters that a job's name cannot have become "-".
 */
static void name_command(char *const *argv, char *buf, size_t size)
{
    const char *from = argv[0];
    const char *base;
    size_t n;

    for (char *const *a = argv + 1; *a; a++) {
        size_t len = strlen(*a);

        if (len > 3 && strcmp(*a + len - 3, ".py") == 0) {
            from = *a;
            break;
        }
    }
    base = strrchr(from, '/');
    base = base ? base + 1 : from;
    n = strlen(base);
    if (n > 3 && strcmp(base + n - 3, ".py") == 0)
        n -= 3;
    snprintf(buf, size, "%.*s", (int)n, base);
    for (char *p = buf; *p; p++)
        if (!name_char(*p))
            *p = '-';
    if (*buf == '-') /* would be read as an option */
        *buf = '_';
}

static json_t *request_body(const struct run_options *o, const char *name)
{
    json_t *body = json_object();

    json_object_set_new(body, "name", json_string(name));
    if (o->threads)
        json_object_set_new(body, "threads", json_integer(o->threads));
    if (o->terms)
        json_object_update(body, o->terms);
    return body;
}

static int start_daemon(struct error *err)
{
    char program[PATH_MAX];
    char dir[RUNDIR_PATH_MAX];
    struct error why;

    if (rundir_user(dir) < 0)
        return error_set(err, -ENAMETOOLONG, "the daemon's directory has too long a name");
    if (daemon_find_program(program, sizeof(program), &why) < 0)
        return error_set(err, why.code, "no daemon runs, and %s", why.text);
    return daemon_start(dir, program, DAEMON_TIMEOUT_MS, err);
}

/* One registration, with the daemon started when there is none. 0 or -errno. */
static int register_as(const struct run_options *o, const char *name, struct api_answer *ret,
                       struct error *err)
{
    _cleanup_json_ json_t *body = request_body(o, name);
    int r = api_try("POST", "/v1/jobs", body, REGISTER_TIMEOUT_MS, ret, err);

    if (r != -ENOENT && r != -EACCES)
        return r;
    r = start_daemon(err);
    if (r < 0)
        return r;
    return api_try("POST", "/v1/jobs", body, REGISTER_TIMEOUT_MS, ret, err);
}

static int register_job(const struct run_options *o, char *const *argv, struct api_answer *ret,
                        struct error *err)
{
    char name[PROTO_NAME_MAX - 16];
    char unique[PROTO_NAME_MAX];
    int r;

    if (o->name)
        return register_as(o, o->name, ret, err);
    name_command(argv, name, sizeof(name));
    r = register_as(o, name, ret, err);
    if (r < 0 || (ret->status != 409 && ret->status != 400))
        return r;
    /* Another job has that name, or it is not fit for one; a pid in it makes it ours. */
    api_answer_done(ret);
    snprintf(unique, sizeof(unique), "%s-%d", name, (int)getpid());
    return register_as(o, unique, ret, err);
}

/* 0 or -ENOMEM: nothing that we set for a job is half there. */
static int set_environment(const struct run_options *o, const json_t *job, const char *agent_dir)
{
    _cleanup_free_ char *preload = NULL;
    long limit = member_long(o->terms, "max");
    char max[16];

    snprintf(max, sizeof(max), "%ld", limit);
    unsetenv("TIDE_MAX"); /* of a job that we may be running in */
    if (setenv("TIDE_SOCKET", member_text(job, "socket"), 1) < 0 ||
        setenv("TIDE_TOKEN", member_text(job, "token"), 1) < 0 ||
        setenv("TIDE_JOB_ID", member_text(job, "id"), 1) < 0 ||
        setenv("TIDE_JOB_NAME", member_text(job, "name"), 1) < 0 ||
        (limit && setenv("TIDE_MAX", max, 1) < 0))
        return -ENOMEM;
    if (!agent_dir)
        return 0;
    if (preload_value(getenv("LD_PRELOAD"), agent_dir, &preload) < 0 ||
        setenv("LD_PRELOAD", preload, 1) < 0)
        return -ENOMEM;
    return 0;
}

/*
 * Makes this process a job. Returns CLI_OK also when that cannot be had (after one line that says
 * so); anything else means that the user asked for something impossible: do not run.
 */
static int become_job(const struct run_options *o, char *const *argv)
{
    const struct command *cmd = &command_run;
    _cleanup_answer_ struct api_answer answer = {0};
    char agent_dir[PATH_MAX];
    struct error err = {0};
    bool agent;

    if (register_job(o, argv, &answer, &err) < 0) {
        cli_note(cmd, "running without control: %s", err.text);
        return CLI_OK;
    }
    if (api_exit_code(answer.status) == CLI_USAGE)
        return api_refused(cmd, &answer);
    if (answer.status >= 400) {
        cli_note(cmd, "running without control: %s",
                 member_text(json_object_get(answer.body, "error"), "message"));
        return CLI_OK;
    }
    slice_set(SLICE_LONG_NS); /* jobs that share cores take turns less often */
    agent = preload_find(agent_dir, sizeof(agent_dir), &err) == 0;
    if (!agent)
        cli_note(cmd, "running with a fixed number of threads: %s", err.text);
    if (set_environment(o, answer.body, agent ? agent_dir : NULL) < 0)
        cli_note(cmd, "running without control: out of memory");
    else if (*member_text(answer.body, "note"))
        cli_note(cmd, "%s", member_text(answer.body, "note"));
    return CLI_OK;
}

static int run_run(int argc, char **argv)
{
    struct run_options o = {0};
    int r = parse(argc, argv, &o);

    if (r == CLI_OK)
        r = become_job(&o, argv + optind);
    json_decref(o.terms);
    if (r != CLI_OK)
        return r == -1 ? CLI_OK : r;
    argv += optind;
    execvp(argv[0], argv);
    r = errno;
    return cli_error(&command_run, r == ENOENT ? CLI_NO_PROGRAM : CLI_CANNOT_RUN, NULL, "%s: %s",
                     argv[0], strerror(r));
}

const struct command command_run = {
    .name = "run",
    .usage = "[OPTION...] [--] PROGRAM [ARGUMENT...]",
    .brief = "run a program as a job whose threads can change while it runs",
    .help = "The program runs in place of tide: same pid, terminal and exit status. If no\n"
            "daemon runs, one is started for you; it ends with its last job. Without daemon\n"
            "or agent the program runs all the same, and one line says so.\n"
            "\n"
            "Options:\n"
            "  -n, --name NAME    what to call the job (default: after the script or program)\n"
            "      --min K        at least K threads, also when the machine is full\n"
            "      --max K        at most K threads; may exceed the machine's cores\n"
            "      --threads K    exactly K threads, until 'tide set JOB --auto'\n"
            "      --weight W     share among jobs, 1 to 10000 (default 100)\n" TERM_HELP
                TERM_PLACEMENT_HELP "\n"
            "Examples:\n"
            "  tide run -- python train.py\n"
            "  tide run --name cnn --max 8 -- python train.py --epochs 10\n"
            "  tide run --weight 300 -- python urgent.py    three times the usual share\n"
            "\n"
            "Exit status: that of the program; 2 wrong options (nothing was run), 126 the\n"
            "program cannot be executed, 127 there is no such program.\n",
    .run = run_run,
};

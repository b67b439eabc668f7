/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/launch/launch.h"

#include "base/preload.h"
#include "base/slice.h"
#include "host/net/daemon.h"
#include "proto/proto.h"

#include <ctype.h>
#include <string.h>

#define ERROR_WORD "job-refused"

#define REGISTER_TIMEOUT_MS 2000 /* after that the program starts without a daemon */
#define DAEMON_TIMEOUT_MS   3000
#define SIZED               "sized"
#define SLICES              "TIDE_SLICES" /* "0": as --no-slices */

/* ---- options ---- */

static bool name_char(char c)
{
    return isalnum((unsigned char)c) || (c && strchr("._+:@-", c));
}

static int check_name(const struct command *cmd, const char *name)
{
    size_t n = 0;

    while (name_char(name[n]))
        n++;
    if (n == 0 || n >= PROTO_NAME_MAX || name[n] || *name == '-')
        return cli_usage_as(
            cmd, "bad-name",
            "--name: '%s' is no name for a job (1 %s %d letters, digits and . _ + : @ -, "
            "no - at the front)",
            name, cli_glyph(CLI_DOTS), PROTO_NAME_MAX - 1);
    return CLI_OK;
}

int launch_take(struct launch *l, int option)
{
    const struct command *cmd = l->cmd;
    bool mine;
    int r = terms_take(cmd, option, &l->terms, &mine);

    if (mine)
        return r;
    if (option == LAUNCH_THREADS)
        return option_number(cmd, optarg, "--threads", 1, PROTO_THREADS_MAX, &l->threads);
    l->no_slices |= option == LAUNCH_NO_SLICES;
    l->spin |= option == LAUNCH_SPIN;
    l->sockets |= option == LAUNCH_SOCKETS;
    if (option != 'n')
        return CLI_OK;
    l->name = optarg;
    return check_name(cmd, optarg);
}

int launch_command(struct launch *l, int argc, char **argv)
{
    const struct command *cmd = l->cmd;
    long min = member_long(l->terms, "min"), max = member_long(l->terms, "max");
    int r = terms_check(cmd, l->terms);

    if (r != CLI_OK)
        return r;
    if (l->threads && max && l->threads > max)
        return cli_usage(cmd, "--threads %ld is above --max %ld", l->threads, max);
    if (l->threads && min && l->threads < min)
        return cli_usage(cmd, "--threads %ld is below --min %ld", l->threads, min);
    if (optind == argc)
        return cli_usage(cmd, "there is no program to run");
    if (!*argv[optind])
        return cli_usage(cmd, "the name of the program is empty");
    l->argv = argv + optind;
    return CLI_OK;
}

void launch_done(struct launch *l)
{
    json_decref(l->terms);
    l->terms = NULL;
}

/* ---- registration ---- */

/*
 * Makes a readable name: of the script if there is one ("python3 -u dir/train.py" → "train"), else
 * of the program. Characters that a job's name cannot have become "-".
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
    if (*buf == '-') /* would look like an option */
        *buf = '_';
}

static json_t *request_body(const struct launch *l, const char *name)
{
    unsigned sized = launch_sized(l);
    json_t *body = json_object();

    json_object_set_new(body, "name", json_string(name));
    if (l->pid)
        json_object_set_new(body, "pid", json_integer(l->pid));
    if (l->threads)
        json_object_set_new(body, "threads", json_integer(l->threads));
    if (sized)
        json_object_set_new(body, SIZED, json_integer(sized));
    if (l->terms)
        json_object_update(body, l->terms);
    if (l->script)
        json_object_set_new(body, "script", json_true());
    if (l->queue)
        json_object_set_new(body, "queue", json_true());
    if (l->held)
        json_object_set_new(body, "held", json_true());
    return body;
}

int launch_start_daemon(const char *cpus, struct error *err)
{
    char program[PATH_MAX];
    char dir[RUNDIR_PATH_MAX];
    struct error why;

    if (rundir_user(dir) < 0)
        return error_word(err,
                          error_set(err, -ENAMETOOLONG,
                                    "the path of the daemon's directory is too long for a socket: "
                                    "set TIDE_DIR to a shorter one"),
                          "directory-too-long");
    if (daemon_find_program(program, sizeof(program), &why) < 0)
        return error_word(err, error_set(err, why.code, "no daemon runs, and %s", why.text),
                          why.word);
    return daemon_start(dir, program, cpus, DAEMON_TIMEOUT_MS, err);
}

/* A daemon that has run since before an update may not know how the program is started. */
static int post(json_t *body, struct api_answer *ret, struct error *err)
{
    int r = api_try("POST", "/v1/jobs", body, REGISTER_TIMEOUT_MS, ret, err);

    if (r < 0 || ret->status != 400 || json_object_del(body, SIZED) < 0)
        return r;
    api_answer_done(ret);
    return api_try("POST", "/v1/jobs", body, REGISTER_TIMEOUT_MS, ret, err);
}

/* Registers once, and starts the daemon if there is none. 0 or -errno. */
static int register_as(const struct launch *l, const char *name, struct api_answer *ret,
                       struct error *err)
{
    _cleanup_json_ json_t *body = request_body(l, name);
    int r = post(body, ret, err);

    if (r != -ENOENT && r != -EACCES)
        return r;
    r = launch_start_daemon(l->cpus, err);
    if (r < 0)
        return r;
    return post(body, ret, err);
}

int launch_register(const struct launch *l, struct api_answer *ret, struct error *err)
{
    char name[PROTO_NAME_MAX - 16];
    char unique[PROTO_NAME_MAX];
    int r;

    if (l->name)
        return register_as(l, l->name, ret, err);
    name_command(l->argv, name, sizeof(name));
    r = register_as(l, name, ret, err);
    if (r < 0 || (ret->status != 409 && ret->status != 400))
        return r;
    /* Another job has that name, or it is not a valid one: a pid appended makes it ours. */
    api_answer_done(ret);
    snprintf(unique, sizeof(unique), "%s-%d", name, (int)getpid());
    return register_as(l, unique, ret, err);
}

/* ---- the program's environment ---- */

/* Returns 0 or -ENOMEM; either all or none of a job's variables are set. */
static int set_environment(const struct launch *l, const json_t *job, const char *agent_dir)
{
    _cleanup_free_ char *preload = NULL;

    if (setenv("TIDE_SOCKET", member_text(job, "socket"), 1) < 0 ||
        setenv("TIDE_TOKEN", member_text(job, "token"), 1) < 0 ||
        setenv("TIDE_JOB_ID", member_text(job, "id"), 1) < 0 ||
        setenv("TIDE_JOB_NAME", member_text(job, "name"), 1) < 0 ||
        (l->sockets && setenv("TIDE_REQUESTS", "sockets", 1) < 0) || launch_size(l) < 0)
        return -ENOMEM;
    if (!agent_dir)
        return 0;
    if (preload_value(getenv("LD_PRELOAD"), agent_dir, &preload) < 0 ||
        setenv("LD_PRELOAD", preload, 1) < 0)
        return -ENOMEM;
    return 0;
}

static bool wants_slices(const struct launch *l)
{
    const char *value = getenv(SLICES);

    return !l->no_slices && !(value && strcmp(value, "0") == 0);
}

void launch_prepare(const struct launch *l, const json_t *job)
{
    char agent_dir[PATH_MAX];
    struct error err = {0};
    bool agent = preload_find(agent_dir, sizeof(agent_dir), &err) == 0;

    if (l->pid == 0 && wants_slices(l))
        slice_set(SLICE_LONG_NS); /* jobs that share cores take turns less often */
    if (!agent)
        cli_note_as(l->cmd, err.word, "the program runs with a fixed number of threads: %s",
                    err.text);
    if (set_environment(l, job, agent ? agent_dir : NULL) < 0)
        cli_note_as(l->cmd, "out-of-memory", "the program runs, but not as a job: out of memory");
    else if (*member_text(job, "note"))
        cli_note(l->cmd, "%s", member_text(job, "note"));
}

/* SPDX-License-Identifier: Apache-2.0 */
/* `tide cancel`: ends jobs that wait or run, and says what became of them. */
#include "cli/api.h"
#include "cli/views/job_text.h"

#include "base/clock.h"

#include <pwd.h>
#include <string.h>

#define END_MS  3000 /* how long a program may take to clean up before tide stops looking */
#define POLL_NS (20 * NS_PER_MS)

/* A job that was asked to end; @job is the daemon's answer, NULL when it refused. */
struct asked {
    json_t *job;
    bool waited, gone;
};

static int ask(const char *name, struct asked *ret)
{
    char path[API_PATH_MAX];
    int r = api_job_path(&command_cancel, name, "", path);

    if (r == CLI_OK)
        r = api_request(&command_cancel, "DELETE", path, NULL, API_TIMEOUT_MS, &ret->job);
    ret->waited = job_text_waits(ret->job);
    return r;
}

/* A daemon that ended meanwhile says nothing about its jobs. */
static bool is_gone(const json_t *job)
{
    _cleanup_answer_ struct api_answer answer = {0};
    struct error err;
    char path[API_PATH_MAX];

    return api_job_path(&command_cancel, member_text(job, "id"), "", path) == CLI_OK &&
           api_try("GET", path, NULL, API_TIMEOUT_MS, &answer, &err) == 0 && answer.status == 404;
}

/* The engine kills a container when its grace is over. */
static long patience_ms(const struct asked *asked)
{
    return END_MS + 1000 * member_long(asked->job, "grace_s");
}

/* Polls until all jobs have ended or their time is over. */
static void watch(struct asked *asked, size_t n)
{
    uint64_t begin = clock_now_ns();
    bool left = true;

    while (left) {
        uint64_t ms = (clock_now_ns() - begin) / NS_PER_MS;

        left = false;
        for (size_t i = 0; i < n; i++) {
            if (asked[i].job && !asked[i].gone)
                asked[i].gone = is_gone(asked[i].job);
            left |= asked[i].job && !asked[i].gone && ms < (uint64_t)patience_ms(&asked[i]);
        }
        if (left)
            nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
    }
}

static int say(const struct asked *asked)
{
    const char *id = member_text(asked->job, "id"), *name = member_text(asked->job, "name");

    if (asked->gone) {
        printf("%s %s: %s\n", id, name, asked->waited ? "cancelled before it began" : "ended");
        return CLI_OK;
    }
    if (member_long(asked->job, "signalled") == 0 && member_long(asked->job, "grace_s") == 0)
        return cli_error_as(
            &command_cancel, CLI_PARTIAL, "mixed-rights",
            "'tide ps' shows its processes: end them with 'kill', or with 'sudo kill'.",
            "%s %s: still runs, and was not asked to end: its processes have the "
            "rights of another user (a setuid program, as sudo is)",
            id, name);
    return cli_error_as(&command_cancel, CLI_PARTIAL, "still-runs",
                        "It may be cleaning up; 'tide ps' shows why it runs on, and its processes: "
                        "kill -KILL ends them.",
                        "%s %s: was asked to end, and still runs after %ld s", id, name,
                        patience_ms(asked) / 1000);
}

static int cancel(char **names, size_t n)
{
    _cleanup_free_ struct asked *asked = calloc(n, sizeof(*asked));
    int result = CLI_OK;

    if (!asked)
        return cli_no_memory(&command_cancel);
    for (size_t i = 0; i < n; i++) {
        int r = ask(names[i], &asked[i]);

        result = result == CLI_OK ? r : result;
    }
    watch(asked, n);
    for (size_t i = 0; i < n; i++) {
        int r = asked[i].job ? say(&asked[i]) : CLI_OK;

        result = result == CLI_OK ? r : result;
        json_decref(asked[i].job);
    }
    return result;
}

/* The daemon shows users of /etc/passwd by name, others by number. */
static bool is_mine(const json_t *job)
{
    const struct passwd *entry = getpwuid(getuid());
    const char *owner = member_text(job, "owner");
    char number[16];

    snprintf(number, sizeof(number), "%u", (unsigned)getuid());
    return strcmp(owner, number) == 0 || (entry && strcmp(owner, entry->pw_name) == 0);
}

/* A user sits before each job of `tide run`, so --all leaves these jobs alone. */
static int cancel_all(void)
{
    _cleanup_json_ json_t *jobs = NULL;
    _cleanup_free_ char **names = NULL;
    const json_t *job;
    size_t n = 0;
    size_t i;
    int r = api_request(&command_cancel, "GET", "/v1/jobs", NULL, API_TIMEOUT_MS, &jobs);

    if (r != CLI_OK)
        return r;
    names = calloc(json_array_size(jobs) + 1, sizeof(*names));
    if (!names)
        return cli_no_memory(&command_cancel);
    json_array_foreach (jobs, i, job)
        if (member_bool(job, "submitted") && is_mine(job))
            names[n++] = (char *)member_text(job, "id");
    if (n == 0)
        printf("Nothing to cancel: 'tide submit' started none of your jobs.\n");
    return n ? cancel(names, n) : CLI_OK;
}

static int cancel_run(int argc, char **argv)
{
    static const struct option options[] = {{"all", no_argument, NULL, 'a'}, {0}};
    const struct command *cmd = &command_cancel;
    bool all = false;
    int c;

    while ((c = option_next(cmd, argc, argv, options, false)) != -1) {
        all = true;
    }
    if (all && optind < argc)
        return cli_usage(cmd, "--all or JOB: choose one");
    if (all && api_host_name())
        return cli_usage(cmd, "--all: which jobs of another machine are yours is not known here: "
                              "name them");
    if (all)
        return cancel_all();
    option_operands(cmd, argc, argv, 1, argc);
    return cancel(argv + optind, (size_t)(argc - optind));
}

const struct command command_cancel = {
    .name = "cancel",
    .usage = "(JOB... | --all)",
    .brief = "end jobs that wait or run",
    .help = "JOB is an id (j1), a name, or the pid of one of its processes. A job that waits\n"
            "leaves the queue; the processes of one that runs get SIGTERM, as from kill(1).\n"
            "After three seconds tide lists jobs that still run, and ends with status 6.\n"
            "\n"
            "Options:\n"
            "  -a, --all  all of your jobs that 'tide submit' started\n"
            "\n"
            "Examples:\n"
            "  tide cancel j5 cnn\n"
            "  tide cancel --all\n",
    .far = FAR_GOES,
    .run = cancel_run,
};

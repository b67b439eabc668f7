/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `tide submit`: a job that waits for its turn. A forked child, the runner, has a session of its
 * own and the submitter's user, groups, environment, directory and limits. It registers itself,
 * waits (runner.h), then becomes the program. It prints to the terminal until the job is in the
 * queue, and to the output file afterwards.
 */
#include "cli/launch/launch.h"
#include "cli/launch/runner.h"
#include "cli/remote/any.h"

#include "base/moment.h"
#include "base/older.h"
#include "proto/proto.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define ERROR_WORD "output-failed"

#define OUTPUT_STD "tide-%j.out" /* sbatch has slurm-%j.out */
#define REPORT_FD  3 /* the runner's descriptor, above the three that every program has */

enum { OPT_HOLD = 768, OPT_PATIENCE, OPT_ANY, OPT_INVENTORY };

struct submit {
    struct launch launch;
    const char *output;
    uint64_t patience_ms;
    bool wait, quiet;
    bool any;              /* some machine of an inventory takes it … */
    const char *inventory; /* … of this one; NULL: the usual one */
};

/* The runner's report to the submitter. A runner that sends none has failed and printed why. */
struct report {
    char id[PROTO_ID_MAX]; /* empty: no daemon, and the program has begun */
    char name[PROTO_NAME_MAX];
    char output[PATH_MAX];
};

/* ---- output ---- */

/* Expands %j (the job's id), %x (its name), %% (a percent sign). 0 or -ENAMETOOLONG. */
static int output_path(const char *pattern, const char *id, const char *name, char *buf,
                       size_t size)
{
    size_t n = 0;

    for (const char *p = pattern; *p; p++) {
        const char *part = p;
        size_t len = 1;

        if (p[0] == '%' && (p[1] == 'j' || p[1] == 'x')) {
            part = p[1] == 'j' ? id : name;
            len = strlen(part);
            p++;
        } else if (p[0] == '%' && p[1] == '%') {
            p++;
        }
        if (n + len >= size)
            return -ENAMETOOLONG;
        memcpy(buf + n, part, len);
        n += len;
    }
    buf[n] = '\0';
    return 0;
}

/*
 * Ids are easy to guess, and every user can write to /tmp. Another user must not plant a link or a
 * file there that diverts or reads the output.
 */
static int output_open(const char *path, struct error *err)
{
    _cleanup_fd_ int fd = open(
        path, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666);
    struct stat st;

    if (fd < 0 && errno == ELOOP)
        return error_set(err, -ELOOP, "%.150s is a symbolic link", path);
    if (fd < 0 || fstat(fd, &st) < 0)
        return error_set(err, -errno, "%.150s: %s", path, strerror(errno));
    if (S_ISREG(st.st_mode) && st.st_uid != geteuid())
        return error_set(err, -EPERM, "%.150s belongs to another user", path);
    if (fcntl(fd, F_SETFL, O_APPEND) < 0)
        return error_set(err, -errno, "%.150s: %s", path, strerror(errno));
    return TAKE_FD(fd);
}

/* Sends the runner's messages to the file from here on. CLI_OK, or CLI_FAILED. */
static int take_output(const struct submit *s, struct report *report)
{
    _cleanup_fd_ int fd = -1;
    struct error err = {0};
    char pid[16];
    int r;

    snprintf(pid, sizeof(pid), "%d", (int)getpid());
    r = output_path(s->output, *report->id ? report->id : pid, *report->id ? report->name : pid,
                    report->output, sizeof(report->output));
    if (r < 0)
        error_set(&err, r, "the output file's name is too long");
    else
        fd = output_open(report->output, &err);
    if (fd < 0)
        return cli_error(s->launch.cmd, CLI_FAILED,
                         "Choose another with --output; /dev/null for none.",
                         "cannot write the output: %s", err.text);
    if (dup2(fd, STDOUT_FILENO) < 0 || dup2(fd, STDERR_FILENO) < 0)
        return cli_error(s->launch.cmd, CLI_FAILED, NULL, "cannot write the output: %s",
                         strerror(errno));
    return CLI_OK;
}

/* ---- the runner ---- */

/* Closes the terminal and all descriptors whose other end a program may wait on for days. */
static int leave_terminal(int report_fd)
{
    int null = open("/dev/null", O_RDONLY);

    setsid();
    if (null < 0 || dup2(null, STDIN_FILENO) < 0)
        return -errno;
    if (report_fd != REPORT_FD && dup2(report_fd, REPORT_FD) < 0)
        return -errno;
    if (fcntl(REPORT_FD, F_SETFD, FD_CLOEXEC) < 0)
        return -errno;
    older_close_range(REPORT_FD + 1, ~0u);
    return 0;
}

/* A submitter that has ended misses the report. */
static void tell(const struct report *report)
{
    send(REPORT_FD, report, sizeof(*report), MSG_NOSIGNAL);
    close(REPORT_FD);
}

/*
 * Queues the job, opens the output and tells the submitter. Returns CLI_OK also without a daemon:
 * the program then begins at once.
 */
static int enqueue(const struct submit *s, struct runner *r)
{
    const struct command *cmd = s->launch.cmd;
    struct report report = {0};
    struct error err = {0};
    bool alone = launch_register(&s->launch, &r->job, &err) < 0;
    int code;

    if (!alone && r->job.status >= 400)
        return api_refused(cmd, &r->job);
    if (!alone) {
        snprintf(report.id, sizeof(report.id), "%s", member_text(r->job.body, "id"));
        snprintf(report.name, sizeof(report.name), "%s", member_text(r->job.body, "name"));
    }
    if (alone)
        cli_note_as(cmd, err.word, "the program begins at once, but not as a job: %s", err.text);
    else if (*member_text(r->job.body, "note"))
        cli_note(cmd, "%s", member_text(r->job.body, "note"));
    code = take_output(s, &report);
    if (code != CLI_OK)
        return code;
    if (alone) /* repeats the message in the output file, where the user looks later */
        cli_note_as(cmd, err.word, "the program begins at once, but not as a job: %s", err.text);
    tell(&report);
    return CLI_OK;
}

static int await_turn(struct runner *r)
{
    const struct command *cmd = r->launch->cmd;
    struct error err = {0};
    int e = runner_wait(r, &err);
    const char *id = member_text(r->job.body, "id"), *name = member_text(r->job.body, "name");

    if (e == -ECANCELED) {
        cli_note(cmd, "job %s (%s) was cancelled while it waited", id, name);
        runner_end(r);
        signal(SIGTERM, SIG_DFL); /* ends the job as it would a running program */
        raise(SIGTERM);
        return 128 + SIGTERM;
    }
    if (e < 0)
        cli_note_as(cmd, error_why(&err),
                    "job %s (%s) begins before its turn: no daemon answered for %.3g s: %s", id,
                    name, (double)r->patience_ms / 1000, err.text);
    return CLI_OK;
}

static int run(struct submit *s, int report_fd)
{
    struct runner r = {.launch = &s->launch, .patience_ms = s->patience_ms};
    int code;

    if (leave_terminal(report_fd) < 0)
        return cli_error_as(s->launch.cmd, CLI_FAILED, "system-refused", NULL, "cannot detach: %s",
                            strerror(errno));
    runner_begin(&r);
    code = enqueue(s, &r);
    if (code == CLI_OK && r.job.body)
        code = await_turn(&r);
    if (code != CLI_OK)
        return code;
    if (r.job.body)
        launch_prepare(&s->launch, r.job.body);
    api_answer_done(&r.job);
    runner_end(&r);
    return launch_exec(&s->launch);
}

/* ---- the submitter ---- */

static int status_of(int status)
{
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static int reap(pid_t runner)
{
    int status;

    while (waitpid(runner, &status, 0) < 0)
        if (errno != EINTR)
            return CLI_FAILED;
    return status_of(status);
}

static bool ignored(int number)
{
    struct sigaction action;

    return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

/* With --wait, signals are kept for wait_for() from here on. */
static void keep_signals(sigset_t *ret_set)
{
    static const int interrupts[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

    sigemptyset(ret_set);
    sigaddset(ret_set, SIGCHLD);
    for (size_t i = 0; i < ARRAY_LEN(interrupts); i++)
        if (!ignored(interrupts[i])) /* under nohup the job stays deaf to the signal */
            sigaddset(ret_set, interrupts[i]);
    sigprocmask(SIG_BLOCK, ret_set, NULL);
}

/* A signal that interrupts the wait does not end the job. */
static int wait_for(const struct submit *s, pid_t runner, const struct report *report,
                    const sigset_t *set)
{
    const char *what = *report->id ? report->id : "the program";
    int status;

    while (waitpid(runner, &status, WNOHANG) == 0) {
        int number = sigwaitinfo(set, NULL);

        if (number <= 0 || number == SIGCHLD)
            continue;
        cli_note(s->launch.cmd, *report->id ? "%s goes on; 'tide cancel %s' ends it" : "%s goes on",
                 what, report->id);
        return 128 + number;
    }
    if (WIFSIGNALED(status))
        cli_note(s->launch.cmd, "%s was ended by signal %d (%s)", what, WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    return status_of(status);
}

/* Keeps the next opened file from taking a closed standard stream's number. */
static void fill_standard(void)
{
    int fd;

    do
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    while (fd >= 0 && fd <= STDERR_FILENO);
    close_fd(fd);
}

/* Returns true with the runner's report; false: the runner has failed. */
static bool receive(int fd, struct report *ret)
{
    ssize_t n;

    do
        n = recv(fd, ret, sizeof(*ret), 0);
    while (n < 0 && errno == EINTR);
    return n == sizeof(*ret);
}

static int submit(struct submit *s)
{
    struct report report;
    sigset_t set;
    int fds[2];
    pid_t runner;

    fill_standard();
    signal(SIGCHLD, SIG_DFL); /* if ignored, the kernel would discard the runner's status */
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
        return cli_error_as(s->launch.cmd, CLI_FAILED, "system-refused", NULL,
                            "cannot make a socket: %s", strerror(errno));
    runner = fork();
    if (runner < 0)
        return cli_error_as(s->launch.cmd, CLI_FAILED, "system-refused", NULL, "cannot fork: %s",
                            strerror(errno));
    if (runner == 0)
        _exit(run(s, fds[1]));
    close(fds[1]);
    if (!receive(fds[0], &report))
        return reap(runner);
    if (s->wait)
        keep_signals(&set);
    if (s->quiet && *report.id)
        printf("%s\n", report.id);
    else if (!s->quiet && *report.id)
        printf("Submitted job %s (%s), output in %s\n", report.id, report.name, report.output);
    else if (!s->quiet)
        printf("Started process %d, output in %s\n", (int)runner, report.output);
    fflush(stdout);
    if (s->wait)
        return wait_for(s, runner, &report, &set);
    /* There is no id: the script that asked for one must not go on with an empty one. */
    return s->quiet && !*report.id ? CLI_UNREACHABLE : CLI_OK;
}

/* ---- command line ---- */

/* Returns CLI_OK, CLI_USAGE, or -1 after printing the help: nothing is to run. */
static int parse(int argc, char **argv, struct submit *s)
{
    static const struct option own[] = {
        LAUNCH_OPTIONS,
        {"hold", no_argument, NULL, OPT_HOLD},
        {"patience", required_argument, NULL, OPT_PATIENCE},
        {"output", required_argument, NULL, 'o'},
        {"wait", no_argument, NULL, 'w'},
        {"quiet", no_argument, NULL, 'q'},
        {"any", no_argument, NULL, OPT_ANY},
        {"inventory", required_argument, NULL, OPT_INVENTORY},
        {0},
    };
    const struct command *cmd = s->launch.cmd;
    struct option options[TERMS_OPTIONS_MAX];
    int c, before = 1;

    terms_options(cmd, own, options);
    while ((c = option_next(cmd, argc, argv, options, true)) != -1) {
        if (c == OPT_ANY || c == OPT_INVENTORY) {
            s->any |= c == OPT_ANY;
            if (c == OPT_INVENTORY)
                s->inventory = optarg;
            for (; before < optind; before++)
                argv[before] = NULL; /* the machine that takes the job has no use for them */
        }
        before = optind;
        if (launch_take(&s->launch, c) != CLI_OK)
            return CLI_USAGE;
        s->launch.held |= c == OPT_HOLD;
        s->wait |= c == 'w';
        s->quiet |= c == 'q';
        if (c == 'o')
            s->output = optarg;
        if (c == OPT_PATIENCE && moment_duration(optarg, &s->patience_ms) < 0)
            return cli_usage(cmd, "--patience: '%s' is no time like 30s, 10min or 2h", optarg);
    }
    if (!*s->output)
        return cli_usage(cmd, "--output: the file's name is empty");
    if (s->inventory && !s->any)
        return cli_usage(cmd, "--inventory goes with --any alone");
    return launch_command(&s->launch, argc, argv);
}

/* The words of the command line but for --any and --inventory, for `tide submit` there. */
static int submit_there(const struct submit *s, int argc, char **argv)
{
    _cleanup_free_ char **word = calloc((size_t)argc + 1, sizeof(*word));
    size_t n = 0;

    if (!word)
        return cli_no_memory(s->launch.cmd);
    for (int i = 1; i < argc; i++)
        if (argv[i])
            word[n++] = argv[i];
    return any_submit(&(struct any){.cmd = s->launch.cmd,
                                    .inventory = s->inventory,
                                    .request = member_long(s->launch.terms, "request"),
                                    .quiet = s->quiet,
                                    .word = word});
}

static int submit_run(int argc, char **argv)
{
    struct submit s = {.launch = {.cmd = &command_submit, .queue = true},
                       .output = OUTPUT_STD,
                       .patience_ms = RUNNER_PATIENCE_MS};
    int r = parse(argc, argv, &s);

    if (r == CLI_OK && s.any) {
        r = submit_there(&s, argc, argv);
        launch_done(&s.launch);
        return r;
    }
    if (r == CLI_OK)
        r = launch_find(&s.launch);
    if (r == CLI_OK)
        r = submit(&s);
    launch_done(&s.launch);
    return r;
}

const struct command command_submit = {
    .name = "submit",
    .usage = "[OPTION...] [--] PROGRAM [ARGUMENT...]",
    .brief = "queue a program, to run in the background when the policy starts it",
    .help = "The program waits for its turn and then runs as with 'tide run': as you, with\n"
            "your environment, directory and limits as they are now. It needs no terminal:\n"
            "its standard input is empty, its output goes to a file. 'tide queue' shows what\n"
            "waits, 'tide policy' how turns are given; with the policy 'equal' no job waits.\n"
            "\n"
            "Options:\n" LAUNCH_HELP "      --hold         wait for 'tide release' first\n"
            "      --patience TIME\n"
            "                     begin without its turn when no daemon has been there for so\n"
            "                     long (default 30s)\n"
            "  -o, --output FILE  append the output there (default tide-%j.out; %j is the\n"
            "                     job's id, %x its name)\n"
            "  -w, --wait         stay until the job ends, and end with its exit status\n"
            "  -q, --quiet        print the job's id and nothing else; status 5 when there is\n"
            "                     none, since no daemon can be had and the program has begun\n"
            "      --any          the machine of the inventory with the fewest jobs for each\n"
            "                     core takes it, in a directory of the same path there; see\n"
            "                     tide-fleet(1)\n"
            "      --inventory FILE\n"
            "                     with --any: these machines\n"
            "\n"
            "Examples:\n"
            "  tide submit --any --request 4 -- python train.py\n"
            "  tide submit --request 4 -- python train.py\n"
            "  tide submit --name cnn --output cnn.log -- python train.py --epochs 10\n"
            "  id=$(tide submit -q --hold -- ./night.sh) && tide release $id\n"
            "  tide submit --request 2 -- docker run --rm mytraining   one job: the container\n"
            "\n"
            "Exit status: 0 when the job is in the queue (with --wait, that of the program;\n"
            "128 and the signal's number if one ended it), 1 the output file or the\n"
            "daemon's record of the job could not be written: nothing is queued, 2 wrong\n"
            "options, 126 the program cannot be executed, 127 there is no such program.\n",
    .takes = ATTRIBUTES_OF_START,
    .run = submit_run,
};

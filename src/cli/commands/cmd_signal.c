/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `tide signal`: the resize signal without the daemon's help. The signal kills a process that has
 * no handler for it, so tide looks for the handler first. A descriptor, taken before the look,
 * keeps the signal from another process that was meanwhile given the same pid.
 */
#include "cli/api.h"

#include "host/proc/file.h"
#include "host/proc/proc.h"
#include "proto/proto.h"

#include <signal.h>
#include <string.h>

#define ERROR_WORD "process-unreadable"

#define SIGNAL_OFFSET_STD 7 /* SIGRTMIN+7 */

enum sent { SENT, SENT_NO_HANDLER, SENT_GONE, SENT_DENIED, SENT_MAX };

/* Reads $TIDE_SIGNAL of the process: an offset from SIGRTMIN, 0 when switched off. */
static int signal_of(int root, pid_t pid)
{
    _cleanup_free_ char *text = NULL;
    long offset = SIGNAL_OFFSET_STD;

    if (proc_read_environ(root, pid, "TIDE_SIGNAL", &text) == 0)
        offset = strtol(text, NULL, 10);
    if (offset <= 0 || SIGRTMIN + offset > SIGRTMAX)
        return 0;
    return SIGRTMIN + (int)offset;
}

static enum sent send_one(int root, pid_t pid, long threads)
{
    _cleanup_fd_ int pidfd = proc_pidfd_open(pid);
    struct proc_status status;
    int number;
    int r;

    if (pidfd < 0)
        return SENT_GONE;
    r = proc_read_status(root, pid, &status);
    if (r < 0)
        return r == -ESRCH ? SENT_GONE : SENT_DENIED;
    number = signal_of(root, pid);
    if (!number || !proc_has_handler(&status, number))
        return SENT_NO_HANDLER;
    r = proc_pidfd_queue(pidfd, number, (int)threads);
    if (r < 0)
        return r == -ESRCH ? SENT_GONE : SENT_DENIED;
    return SENT;
}

/* Asks the daemon for the job's processes; a plain pid needs no daemon. */
static int find_pids(const char *job, json_t **ret_pids)
{
    const struct command *cmd = &command_signal;
    _cleanup_answer_ struct api_answer answer = {0};
    char path[API_PATH_MAX];
    struct error err = {0};
    char *end;
    long pid = strtol(job, &end, 10);
    int r;

    if (pid > 0 && pid <= INT_MAX && *end == '\0') {
        *ret_pids = json_pack("[I]", (json_int_t)pid);
        return *ret_pids ? CLI_OK : cli_no_memory(cmd);
    }
    r = api_job_path(cmd, job, "", path);
    if (r != CLI_OK)
        return r;
    r = api_try("GET", path, NULL, API_TIMEOUT_MS, &answer, &err);
    if (r < 0)
        return api_unreachable(cmd, r, &err);
    if (answer.status >= 400)
        return api_refused(cmd, &answer);
    *ret_pids = json_incref(json_object_get(answer.body, "pids"));
    return CLI_OK;
}

static int report(const char *job, const unsigned n[SENT_MAX], long threads)
{
    const struct command *cmd = &command_signal;

    if (n[SENT])
        printf("%s: %u process%s signalled to use %ld thread%s\n", job, n[SENT],
               n[SENT] == 1 ? "" : "es", threads, threads == 1 ? "" : "s");
    if (n[SENT_DENIED])
        return cli_error_as(cmd, n[SENT] ? CLI_PARTIAL : CLI_DENIED, "not-your-job",
                            "Ask its owner, or run as root.",
                            "%u process%s of %s: another user's, not signalled", n[SENT_DENIED],
                            n[SENT_DENIED] == 1 ? "" : "es", job);
    if (n[SENT])
        return CLI_OK;
    if (n[SENT_NO_HANDLER])
        return cli_error_as(cmd, CLI_NOT_FOUND, "no-signal-handler",
                            "The handler comes with the first thread pool of a program started by "
                            "'tide run', unless TIDE_SIGNAL=0.",
                            "no signal sent: %s has no handler for it, and would be killed", job);
    return cli_error_as(cmd, CLI_NOT_FOUND, "no-such-process",
                        "'tide ps' lists the jobs and their processes.", "there is no process %s",
                        job);
}

static int signal_run(int argc, char **argv)
{
    _cleanup_json_ json_t *pids = NULL;
    _cleanup_fd_ int root = -1;
    unsigned n[SENT_MAX] = {0};
    const json_t *pid;
    long threads;
    size_t i;
    int r;

    option_none(&command_signal, argc, argv, 2, 2);
    if (option_number(&command_signal, argv[optind + 1], "K", 1, PROTO_THREADS_MAX, &threads) !=
        CLI_OK)
        return CLI_USAGE;
    r = find_pids(argv[optind], &pids);
    if (r != CLI_OK)
        return r;
    root = file_open_root();
    if (root < 0)
        return cli_error(&command_signal, CLI_FAILED, NULL, "cannot open /: %s", strerror(-root));
    json_array_foreach (pids, i, pid)
        n[send_one(root, (pid_t)json_integer_value(pid), threads)]++;
    return report(argv[optind], n, threads);
}

const struct command command_signal = {
    .name = "signal",
    .usage = "JOB K",
    .brief = "set a job's threads with the resize signal, as kill(1) could",
    .help = "Queues SIGRTMIN+7 with the value K to each process of the job that has a\n"
            "handler for it; one that has none would be killed by the signal and is left\n"
            "alone. K holds until 'tide set JOB --auto'. With a pid, no daemon is needed.\n"
            "\n"
            "The same without tide, once you have made sure that the handler is there:\n"
            "  grep SigCgt /proc/PID/status        bit 40 (SIGRTMIN+7 is 41) must be set\n"
            "  /bin/kill -s RTMIN+7 -q 4 PID       the program, not the shell's own kill\n"
            "\n"
            "TIDE_SIGNAL in the environment of 'tide run' chooses another offset; 0 switches\n"
            "the signal off.\n"
            "\n"
            "Examples:\n"
            "  tide signal cnn 4\n"
            "  tide signal 48213 1\n",
    .run = signal_run,
};

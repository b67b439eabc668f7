/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/power/calibrate.h"

#include "cli/api.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define ERROR_WORD "not-calibrated"

#define STEPS        5
#define BUSY_PERCENT 20 /* with more load of others, the machine is seen at few other loads */

/* The children that keep cores busy. */
struct load {
    pid_t *child;
    unsigned n;
};

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    interrupted = 1;
}

static _Noreturn void spin(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    /* Others come first; a core that is busy for us draws as much. */
    if (setpriority(PRIO_PROCESS, 0, 19) < 0)
        _exit(1);
    for (;;)
        __asm__ volatile("");
}

static void shrink(struct load *load, unsigned n)
{
    while (load->n > n) {
        kill(load->child[--load->n], SIGKILL);
        waitpid(load->child[load->n], NULL, 0);
    }
}

static int grow(struct load *load, unsigned n)
{
    while (load->n < n) {
        pid_t pid = fork();

        if (pid < 0)
            return -1;
        if (pid == 0)
            spin();
        load->child[load->n++] = pid;
    }
    return 0;
}

/* Each look has the daemon read its source. */
static int look(const struct command *cmd, unsigned seconds)
{
    for (unsigned s = 0; s < seconds && !interrupted; s++) {
        _cleanup_json_ json_t *cap = NULL;
        int r;

        sleep(1);
        r = api_request(cmd, "GET", "/v1/power/cap", NULL, API_TIMEOUT_MS, &cap);
        if (r != CLI_OK)
            return r;
    }
    return CLI_OK;
}

static bool any_used(const json_t *sources)
{
    const json_t *source;
    size_t i;

    json_array_foreach (sources, i, source)
        if (member_bool(source, "used"))
            return true;
    return false;
}

/* A source, and a machine that is idle enough. */
static int check(const struct command *cmd, unsigned cores, bool force)
{
    _cleanup_json_ json_t *power = NULL, *sources = NULL;
    long load;
    int r = api_request(cmd, "GET", "/v1/power/sources", NULL, API_TIMEOUT_MS, &sources);

    if (r == CLI_OK)
        r = api_request(cmd, "GET", "/v1/power", NULL, API_TIMEOUT_MS, &power);
    if (r != CLI_OK)
        return r;
    if (!any_used(sources))
        return cli_error_as(
            cmd, CLI_FAILED, "no-watts", "Name a source with power= in tide.conf(5).",
            "nothing tells this machine's watts, so there is nothing to learn from");
    load = member_long(json_object_get(power, "load"), "mcpu");
    if (load > (long)cores * 10 * BUSY_PERCENT && !force)
        return cli_error_as(
            cmd, CLI_FAILED, "machine-in-use", "Calibrate when it is idle, or add --force.",
            "the machine is in use: %ld of %u cores are busy", (load + 999) / 1000, cores);
    return CLI_OK;
}

static int steps(const struct command *cmd, struct load *load, unsigned cores, unsigned seconds)
{
    int r = CLI_OK;

    for (unsigned i = 0; i < STEPS && r == CLI_OK && !interrupted; i++) {
        unsigned busy = (cores * i + STEPS - 2) / (STEPS - 1);

        cli_note(cmd, "%u of %u cores busy", busy, cores);
        if (grow(load, busy) < 0)
            return cli_error(cmd, CLI_FAILED, "", "cannot make a process that computes");
        r = look(cmd, seconds / STEPS);
    }
    return r;
}

static int report(const struct command *cmd, bool json)
{
    _cleanup_json_ json_t *cap = NULL;
    const json_t *model, *point;
    size_t i;
    int r = api_request(cmd, "GET", "/v1/power/cap", NULL, API_TIMEOUT_MS, &cap);

    if (r != CLI_OK)
        return r;
    model = json_object_get(cap, "model");
    if (strncmp(member_text(model, "source"), "learnt", 6) != 0)
        return cli_error(cmd, CLI_FAILED, "Calibrate when other programs compute less.",
                         "the machine was not seen at three different loads");
    if (json)
        return api_print(model);
    printf("%s (%s, 90 %% of readings within %ld %%)\n", member_text(model, "source"),
           member_text(model, "basis"), (member_long(model, "error_permille") + 9) / 10);
    json_array_foreach (json_object_get(model, "points"), i, point)
        printf("  %5.1f cores  %7.1f W\n", json_number_value(json_array_get(point, 0)) / 1e3,
               json_number_value(json_array_get(point, 1)) / 1e6);
    return CLI_OK;
}

int power_calibrate(const struct command *cmd, unsigned seconds, bool force, bool json)
{
    unsigned cores = (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
    _cleanup_free_ pid_t *child = calloc(cores, sizeof(*child));
    struct load load = {child, 0};
    int r = child ? check(cmd, cores, force) : CLI_FAILED;

    if (r != CLI_OK)
        return r;
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    r = steps(cmd, &load, cores, seconds);
    shrink(&load, 0);
    if (interrupted)
        return cli_error(cmd, CLI_FAILED, "All that was read until then is kept.", "interrupted");
    return r == CLI_OK ? report(cmd, json) : r;
}

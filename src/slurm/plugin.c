/* SPDX-License-Identifier: Apache-2.0 */
/*
 * threadtide.so, a SPANK plugin of Slurm: `srun --malleable=2-8` makes each task a job of tided.
 *
 * In srun, sbatch and salloc it checks the option. On the node it acts in a task's own process
 * alone, after slurmstepd became the user and before it executes the program: tide-slurm (a
 * program, so that nothing of ours runs in slurmstepd, which is root's) registers the task and
 * says which variables it gets. Whatever fails, the task begins as without us. docs/slurm.md.
 */
#include "base/cleanup.h"
#include "base/error.h"
#include "base/slice.h"
#include "slurm/helper.h"
#include "slurm/range.h"
#include "slurm/record.h"

#include <inttypes.h>
#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <stdarg.h>
#include <string.h>

#define ERROR_WORD "usage"

#define OPTION     "malleable"
#define TIMEOUT_MS 10000 /* then the task begins without us; tide-slurm takes some 10 ms */
#define PATH_OF    "helper="
#define NAME_SIZE  48

SPANK_PLUGIN(threadtide, 1)

static int take_option(int value, const char *text, int remote);

static struct spank_option option = {
    .name = OPTION,
    .arginfo = "MIN-MAX",
    .usage = "keep MIN to MAX active threads in each task, as the cores allow (Threadtide)",
    .has_arg = 1,
    .cb = take_option,
};

static struct range asked; /* max is 0: the user has not asked */
static const char *helper = TIDE_SLURM_HELPER;

/* Prints a line for the user, among those of Slurm: hence the prefix. */
#define tell(...) slurm_spank_log("threadtide: " __VA_ARGS__)

/* On the node, where srun has checked it already, a wrong value must not end the step. */
static int take_option(int value, const char *text, int remote)
{
    int r = range_parse(text, &asked);

    if (r == 0 || remote)
        return 0;
    if (r == -ERANGE)
        tell("--" OPTION ": '%s' is no range of threads: 1 <= MIN <= MAX <= %d" ERROR_WHY, text,
             RANGE_MAX);
    else
        tell("--" OPTION ": '%s' is no range of threads such as 2-8" ERROR_WHY, text ? text : "");
    return -1;
}

/* The arguments are those of plugstack.conf, which is root's. */
int slurm_spank_init(spank_t spank, int argc, char **argv)
{
    for (int i = 0; i < argc; i++) {
        if (strncmp(argv[i], PATH_OF, strlen(PATH_OF)) == 0 && argv[i][strlen(PATH_OF)] == '/')
            helper = strdup(argv[i] + strlen(PATH_OF));
        else
            slurm_error("threadtide: plugstack.conf: unknown argument '%s'" ERROR_WHY, argv[i]);
        if (!helper)
            helper = TIDE_SLURM_HELPER;
    }
    if (spank_context() != S_CTX_SLURMD && spank_context() != S_CTX_JOB_SCRIPT &&
        spank_option_register(spank, &option) != ESPANK_SUCCESS)
        slurm_error("threadtide: cannot register --" OPTION " (tide why system-refused)");
    return 0;
}

/*
 * "slurm-12.0.3" of a task. A script is a job as well, so that programs which it starts itself
 * follow; it keeps no threads for itself. False: neither a task nor a script.
 */
static bool name_task(spank_t spank, char name[NAME_SIZE], bool *ret_script)
{
    uint32_t job, step, task = 0;

    if (spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS)
        return false;
    *ret_script = step == SLURM_BATCH_SCRIPT || step == SLURM_INTERACTIVE_STEP;
    if (*ret_script) {
        snprintf(name, NAME_SIZE, "slurm-%" PRIu32 ".%s", job,
                 step == SLURM_BATCH_SCRIPT ? "batch" : "interactive");
        return true;
    }
    if (step == SLURM_EXTERN_CONT ||
        spank_get_item(spank, S_TASK_GLOBAL_ID, &task) != ESPANK_SUCCESS)
        return false;
    snprintf(name, NAME_SIZE, "slurm-%" PRIu32 ".%" PRIu32 ".%" PRIu32, job, step, task);
    return true;
}

static void change_environment(spank_t spank, char *records)
{
    char *at = records, *name, *value;

    while (record_next(&at, &name, &value)) {
        if (value)
            spank_setenv(spank, name, value, 1);
        else
            spank_unsetenv(spank, name);
    }
}

static void make_job(spank_t spank, const char *name, bool script, char *const *envp)
{
    _cleanup_free_ char *answer = malloc(RECORD_BYTES_MAX);
    char pid[16], min[16], max[16], slices[4] = "";
    char *argv[] = {(char *)helper, pid, (char *)name, min, max, NULL};
    long r;

    snprintf(pid, sizeof(pid), "%d", (int)getpid());
    snprintf(min, sizeof(min), "%u", script ? 0 : asked.min);
    snprintf(max, sizeof(max), "%u", asked.max);
    r = answer ? helper_run(argv, envp, TIMEOUT_MS, answer, RECORD_BYTES_MAX) : -ENOMEM;
    if (r == -ECHILD) {
        if (access(helper, X_OK) < 0)
            tell("the task runs, but not as a job: %s: %s (tide why job-refused)", helper,
                 strerror(errno));
        return; /* else it has said why */
    }
    if (r < 0 || !record_whole(answer, (size_t)r)) {
        tell("the task runs, but not as a job: %s %s (tide why job-refused)", helper,
             r == -ETIMEDOUT ? "took too long"
             : r < 0         ? strerror((int)-r)
                             : "gave half an answer");
        return;
    }
    change_environment(spank, answer);
    if (spank_getenv(spank, "TIDE_SLICES", slices, sizeof(slices)) != ESPANK_SUCCESS ||
        strcmp(slices, "0") != 0)
        slice_set(SLICE_LONG_NS); /* as `tide run` does; execve() keeps it */
}

int slurm_spank_task_init(spank_t spank, int argc, char **argv)
{
    char name[NAME_SIZE];
    char **envp = NULL;
    bool script;

    if (asked.max == 0 || !name_task(spank, name, &script))
        return 0;
    if (spank_get_item(spank, S_JOB_ENV, &envp) != ESPANK_SUCCESS || !envp)
        return 0;
    make_job(spank, name, script, envp);
    return 0;
}

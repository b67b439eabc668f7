/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tide-slurm, which the plugin threadtide.so runs in each task of a step (src/slurm/plugin.c):
 *
 *   tide-slurm PID NAME MIN MAX        MIN 0: a script, which keeps no threads for itself
 *
 * It makes a job of the task, the process PID, as `tide run` makes one of itself, and writes the
 * changes of the task's environment, which is its own (slurm/record.h). The job's daemon is the
 * system's, or one of the user and the allocation. Exit status: 0, or 1 after a line on stderr.
 */
#include "cli/launch/launch.h"
#include "cli/launch/slurm_folders.h"

#include "base/fnv.h"
#include "host/cgroup/cgroup.h"
#include "host/proc/file.h"
#include "host/proc/topology.h"
#include "proto/proto.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>

#define ERROR_WORD "job-refused"

#define PROBE_MS   1000
#define CLAIMS_DIR "TIDE_CLAIMS_DIR"

extern char **environ;

static const struct command self = {.name = "slurm"};

/* ---- the allocation's CPUs on this node ---- */

/* Where Slurm fences jobs (ConstrainCores): the CPUs of the job's group, which all steps share. */
static bool fenced(uint32_t job, struct cpuset *ret)
{
    _cleanup_fd_ int root = file_open_root();
    struct cgroup_settings settings;
    struct cgroup_place place;
    struct cgroup *cg = NULL;
    char part[24];
    bool found;

    snprintf(part, sizeof(part), "job_%" PRIu32, job);
    if (root < 0 || cgroup_new(root, &cg) < 0)
        return false;
    found = cgroup_find(cg, 0, part, &place) == 0 && *place.cpuset &&
            cgroup_read_place(cg, &place, &settings) == 0 && cpuset_count(&settings.cpus) > 0;
    cgroup_free(cg);
    if (found)
        *ret = settings.cpus;
    return found;
}

/*
 * Elsewhere the task's own CPUs, if they are as many as the job has on each of its nodes. A task
 * with fewer does not tell which the others are.
 */
static bool bound(struct cpuset *ret)
{
    const char *text = getenv("SLURM_JOB_CPUS_PER_NODE"); /* "8", "8(x3)", "8(x3),4" */
    unsigned long cpus;
    char *end;

    if (!text || strchr(text, ','))
        return false;
    cpus = strtoul(text, &end, 10);
    return (*end == '\0' || *end == '(') && topology_usable(ret) == 0 && cpuset_count(ret) == cpus;
}

/* ---- the daemon ---- */

/*
 * Daemons of allocations divide CPUs among each other only when they have the very same ones: each
 * set has a folder of claims. Without a known set no other allocation's claim counts.
 */
static int set_claims(const char *dir, const char *cpus)
{
    char path[RUNDIR_PATH_MAX + 16];

    if (*cpus)
        snprintf(path, sizeof(path), "/dev/shm/tide-claims-%016" PRIx64, fnv_text(FNV_START, cpus));
    else
        snprintf(path, sizeof(path), "%s/claims", dir);
    return setenv(CLAIMS_DIR, path, 1);
}

static bool system_answers(void)
{
    _cleanup_answer_ struct api_answer answer = {0};
    struct error err;

    return access(RUNDIR_SYSTEM "/" RUNDIR_API_SOCKET, F_OK) == 0 &&
           api_try("GET", "/v1/machine", NULL, PROBE_MS, &answer, &err) == 0 &&
           answer.status == 200 && strcmp(answer.dir, RUNDIR_SYSTEM) == 0;
}

/*
 * Chooses the daemon by $TIDE_DIR, which the task gets, too: the user's own choice, the system's
 * (no $TIDE_DIR), or the allocation's. @cpus: the latter's CPUs, empty if they are not known.
 */
static int choose_daemon(uint32_t job, char cpus[CPUSET_TEXT_MAX], struct error *err)
{
    char parent[32], dir[RUNDIR_PATH_MAX];
    struct cpuset allocation;
    const char *named = getenv("TIDE_DIR");
    int r;

    snprintf(parent, sizeof(parent), "/tmp/tide-%u", (unsigned)getuid());
    snprintf(dir, sizeof(dir), "%s/" SLURM_FOLDER "%" PRIu32, parent, job);
    if (named && *named && strcmp(named, dir) != 0)
        return 0;
    unsetenv("TIDE_DIR"); /* of the script that started this step, perhaps on another node */
    if (system_answers())
        return 0;
    r = rundir_open(parent, err);
    if (r < 0)
        return r;
    if (access(dir, F_OK) < 0) /* once for an allocation */
        slurm_folders_remove_old(r);
    close_fd(r);
    if (fenced(job, &allocation) || bound(&allocation))
        cpuset_format(&allocation, cpus, CPUSET_TEXT_MAX);
    if (setenv("TIDE_DIR", dir, 1) < 0 || set_claims(dir, cpus) < 0)
        return error_set(err, -ENOMEM, "out of memory");
    return 0;
}

/* ---- the answer ---- */

static const char *value_in(char *const *list, const char *entry)
{
    size_t n = strcspn(entry, "=");

    for (; *list; list++)
        if (strncmp(*list, entry, n) == 0 && (*list)[n] == '=')
            return *list + n + 1;
    return NULL;
}

static char **copy_environment(void)
{
    size_t n = 0;
    char **copy;

    while (environ[n])
        n++;
    copy = calloc(n + 1, sizeof(*copy));
    for (size_t i = 0; copy && i < n; i++) {
        copy[i] = strdup(environ[i]);
        if (!copy[i])
            return NULL; /* the program ends */
    }
    return copy;
}

static void write_changes(char *const *before)
{
    for (char **e = environ; *e; e++) {
        const char *former = value_in(before, *e);

        if (strchr(*e, '=') && (!former || strcmp(former, strchr(*e, '=') + 1) != 0))
            fwrite(*e, 1, strlen(*e) + 1, stdout);
    }
    for (char *const *e = before; *e; e++)
        if (strchr(*e, '=') && !value_in(environ, *e))
            printf("%.*s%c", (int)strcspn(*e, "="), *e, '\0');
    putchar('\0');
}

/* ---- the job ---- */

static int not_a_job(const char *why)
{
    cli_note_as(&self, ERROR_WORD, "the task runs, but not as a job: %s", why);
    return CLI_FAILED;
}

static int make_job(struct launch *l, char *const *before)
{
    _cleanup_answer_ struct api_answer answer = {0};
    static char unique[PROTO_NAME_MAX]; /* in use until the end */
    struct error err = {0};
    int r = launch_register(l, &answer, &err);

    if (r == 0 &&
        answer.status == 409) { /* the job was requeued, and its former task has not ended */
        api_answer_done(&answer);
        snprintf(unique, sizeof(unique), "%s-%d", l->name, (int)l->pid);
        l->name = unique;
        r = launch_register(l, &answer, &err);
    }
    if (r < 0)
        return not_a_job(err.text);
    if (answer.status >= 400)
        return not_a_job(member_text(json_object_get(answer.body, "error"), "message"));
    unsetenv(CLAIMS_DIR);
    launch_prepare(l, answer.body);
    write_changes(before);
    return cli_end(&self, CLI_OK);
}

static bool read_number(const char *text, long most, long *ret)
{
    char *end;

    errno = 0;
    *ret = strtol(text, &end, 10);
    return end != text && *end == '\0' && errno == 0 && *ret >= 0 && *ret <= most;
}

int main(int argc, char **argv)
{
    char cpus[CPUSET_TEXT_MAX] = "";
    struct launch l = {.cmd = &self};
    char **before = copy_environment();
    const char *id = getenv("SLURM_JOB_ID");
    long pid, min, max, job;
    struct error err;
    int r;

    if (argc != 5 || !read_number(argv[1], INT_MAX, &pid) ||
        !read_number(argv[3], PROTO_THREADS_MAX, &min) ||
        !read_number(argv[4], PROTO_THREADS_MAX, &max) || !id || !read_number(id, UINT32_MAX, &job))
        return cli_error_as(&self, CLI_FAILED, "usage",
                            "It is for Slurm's plugin: srun --malleable=2-8 PROGRAM",
                            "wrong arguments, or no $SLURM_JOB_ID");
    if (!before)
        return not_a_job("out of memory");
    if (choose_daemon((uint32_t)job, cpus, &err) < 0)
        return not_a_job(err.text);
    l.name = argv[2];
    l.pid = (pid_t)pid;
    l.cpus = *cpus ? cpus : NULL;
    /* Slurm has chosen the task's CPUs: no other placement may move it to others. */
    l.terms = json_pack("{s:I,s:s}", "max", (json_int_t)max, "placement", "shared");
    l.script = min == 0;
    if (min > 0)
        json_object_set_new(l.terms, "min", json_integer(min));
    r = make_job(&l, before);
    launch_done(&l);
    return r;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/doctor/doctor.h"

#include "base/cleanup.h"
#include "base/preload.h"
#include "base/rundir.h"
#include "cli/api.h"
#include "host/net/daemon.h"
#include "host/proc/file.h"
#include "host/proc/proc.h"
#include "host/proc/topology.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROBE_OUTPUT_MAX (256u << 10) /* /proc/self/maps of a small program is a few KiB */

extern char **environ;

__attribute__((format(printf, 5, 6))) static void add(struct checks *checks, const char *name,
                                                      enum check_level level, const char *fix,
                                                      const char *fmt, ...)
{
    struct check *check = &checks->check[checks->n++];
    va_list ap;

    check->name = name;
    check->level = level;
    snprintf(check->fix, sizeof(check->fix), "%s", fix);
    va_start(ap, fmt);
    vsnprintf(check->text, sizeof(check->text), fmt, ap);
    va_end(ap);
}

/* ---- the agent ---- */

/* The environment with LD_PRELOAD replaced; the caller frees the array (not the strings). */
static char **environment_with(char *preload)
{
    size_t n = 0, kept = 0;
    char **envp;

    while (environ[n])
        n++;
    envp = calloc(n + 2, sizeof(*envp));
    for (size_t i = 0; envp && i < n; i++) {
        if (strncmp(environ[i], "LD_PRELOAD=", strlen("LD_PRELOAD=")) != 0)
            envp[kept++] = environ[i];
    }
    if (envp)
        envp[kept] = preload;
    return envp;
}

static size_t read_all(int fd, char *buf, size_t size)
{
    size_t len = 0;

    while (len < size - 1) {
        ssize_t n = read(fd, buf + len, size - 1 - len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        len += (size_t)n;
    }
    buf[len] = '\0';
    return len;
}

/* Returns the output of `cat /proc/self/maps`, with the dynamic linker's messages. */
static int probe(char *preload, char *buf, size_t size)
{
    _cleanup_free_ char **envp = environment_with(preload);
    posix_spawn_file_actions_t actions;
    char *argv[] = {(char *)"cat", (char *)"/proc/self/maps", NULL};
    int fds[2], r;
    pid_t pid;

    if (!envp)
        return -ENOMEM;
    if (pipe2(fds, O_CLOEXEC) < 0)
        return -errno;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fds[1], 1);
    posix_spawn_file_actions_adddup2(&actions, fds[1], 2);
    r = -posix_spawnp(&pid, argv[0], &actions, NULL, argv, envp);
    posix_spawn_file_actions_destroy(&actions);
    close_fd(fds[1]);
    if (r == 0) {
        read_all(fds[0], buf, size);
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    close_fd(fds[0]);
    return r;
}

static void check_agent(struct checks *checks)
{
    static const char fix[] = "reinstall threadtide, or set TIDE_AGENT_DIR to the directory "
                              "that holds lib/";
    _cleanup_free_ char *preload = NULL;
    _cleanup_free_ char *output = malloc(PROBE_OUTPUT_MAX);
    char dir[PATH_MAX];
    struct error err = {0};
    int r = preload_find(dir, sizeof(dir), &err);

    if (r < 0) {
        add(checks, "agent", CHECK_PROBLEM, fix, "%s", err.text);
        return;
    }
    if (!output || asprintf(&preload, "LD_PRELOAD=%s/$LIB/" PRELOAD_FILE, dir) < 0) {
        preload = NULL;
        add(checks, "agent", CHECK_PROBLEM, "", "out of memory");
        return;
    }
    r = probe(preload, output, PROBE_OUTPUT_MAX);
    if (r < 0)
        add(checks, "agent", CHECK_PROBLEM, "", "%s: cannot try the agent on 'cat': %s", dir,
            strerror(-r));
    else if (strstr(output, "/" PRELOAD_FILE "\n"))
        add(checks, "agent", CHECK_OK, "", "%s: loads", dir);
    else
        add(checks, "agent", CHECK_PROBLEM, fix, "%s: programs cannot load the agent: %.*s", dir,
            (int)strcspn(output, "\n"), output);
}

/* ---- run directory and daemon ---- */

/* Says why `tide` talks to the daemon in @dir, or would. */
static const char *reason(const char *dir)
{
    const char *told = getenv("TIDE_DIR");

    if (told && *told)
        return "set by TIDE_DIR";
    if (strcmp(dir, RUNDIR_SYSTEM) == 0)
        return "the system's daemon, preferred to your own";
    return access(RUNDIR_SYSTEM "/" RUNDIR_API_SOCKET, F_OK) == 0
               ? "your own; the system's tided left a socket in " RUNDIR_SYSTEM ", but does not run"
               : "your own; the system's tided does not run";
}

/* Tries to write a page: a full disk accepts an empty file, but no page. */
static int try_to_write(const char *dir)
{
    _cleanup_fd_ int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    static const char page[4096];
    ssize_t n;

    if (fd < 0)
        return errno == EOPNOTSUPP || errno == EISDIR ? 0 : -errno;
    n = write(fd, page, sizeof(page));
    return n < 0 ? -errno : n < (ssize_t)sizeof(page) ? -ENOSPC : 0;
}

static void check_directory(struct checks *checks, char dir[RUNDIR_PATH_MAX])
{
    struct error err = {0};
    int r;

    if (rundir_find(dir) < 0) {
        dir[0] = '\0';
        add(checks, "directory", CHECK_PROBLEM, "set TIDE_DIR to a shorter path",
            "the path of the run directory is too long for a socket");
    } else if (strcmp(dir, RUNDIR_SYSTEM) != 0 && rundir_check(dir, &err) < 0) {
        add(checks, "directory", CHECK_PROBLEM, "set TIDE_DIR to a directory of your own", "%s",
            err.text);
    } else if (access(dir, F_OK) == 0 && (r = try_to_write(dir)) < 0 && r != -EACCES) {
        add(checks, "directory", CHECK_PROBLEM,
            "make room, or set TIDE_DIR to a directory on another disk",
            "cannot write to %s: %s; a restarted daemon would not know your jobs", dir,
            strerror(-r));
    } else {
        add(checks, "directory", CHECK_OK, "", "%s%s", dir,
            access(dir, F_OK) < 0 ? ": 'tide run' will make it" : "");
    }
}

static void check_daemon(struct checks *checks, const char *dir)
{
    _cleanup_answer_ struct api_answer answer = {0};
    char program[PATH_MAX];
    struct error err = {0};
    int r;

    if (!*dir) /* the check of the directory has said so */
        return;
    r = api_try("GET", "/v1/machine", NULL, API_TIMEOUT_MS, &answer, &err);
    if (r == 0 && answer.status == 200) {
        add(checks, "daemon", CHECK_OK, "",
            "tided %s in %s (%s), pid %ld, policy %s, placement %s, %ld job%s",
            member_text(answer.body, "version"), answer.dir, reason(answer.dir),
            member_long(answer.body, "pid"), member_text(answer.body, "policy"),
            member_text(answer.body, "placement"), member_long(answer.body, "jobs"),
            member_long(answer.body, "jobs") == 1 ? "" : "s");
    } else if (r == 0) {
        add(checks, "daemon", CHECK_PROBLEM, "", "the daemon answers with HTTP status %d",
            answer.status);
    } else if (r == -EACCES) {
        add(checks, "daemon", CHECK_PROBLEM, "set TIDE_DIR to a directory of your own", "%s",
            err.text);
    } else if (r != -ENOENT) {
        add(checks, "daemon", CHECK_PROBLEM, "once it has ended, 'tide run' starts another one",
            "%s", err.text);
    } else if (daemon_find_program(program, sizeof(program), &err) < 0) {
        add(checks, "daemon", CHECK_PROBLEM,
            getenv("TIDE_DAEMON") ? "unset TIDE_DAEMON, or let it name a tided"
                                  : "reinstall threadtide: tided lies beside tide",
            "no daemon runs, and %s", err.text);
    } else if (api_cannot_start(&err) < 0) {
        add(checks, "daemon", CHECK_PROBLEM, "", "no daemon runs, and none can be started: %s",
            err.text);
    } else {
        add(checks, "daemon", CHECK_OK, "", "no daemon runs; 'tide run' starts %s", program);
    }
}

/* Sources of the machine's watts. Without a daemon there is nothing to say. */
static void check_power(struct checks *checks)
{
    _cleanup_answer_ struct api_answer answer = {0};
    const json_t *source, *bad = NULL;
    char used[160] = "";
    struct error err;
    size_t i;

    if (api_try("GET", "/v1/power/sources", NULL, API_TIMEOUT_MS, &answer, &err) < 0 ||
        answer.status != 200)
        return;
    json_array_foreach (answer.body, i, source) {
        size_t len = strlen(used);

        if (member_bool(source, "used"))
            snprintf(used + len, sizeof(used) - len, "%s%s", len ? ", " : "",
                     member_text(source, "name"));
        else if (*member_text(source, "problem") && !bad)
            bad = source;
    }
    if (*used)
        add(checks, "power", CHECK_OK, "", "watts are told by %s", used);
    else if (bad)
        add(checks, "power", CHECK_NOTE, "'tide power --sources' lists all", "%s: %s",
            member_text(bad, "name"), member_text(bad, "problem"));
    else
        add(checks, "power", CHECK_OK, "",
            "nothing tells the machine's watts; power= in tide.conf(5) names a source, "
            "power-model= a model");
}

/* ---- limits of the machine ---- */

static void check_cores(struct checks *checks, int root, const struct cgroup *cg)
{
    struct topology topology;
    struct cpuset usable;
    struct cgroup_limits limits = {.quota_mcpu = CGROUP_NO_QUOTA};
    char quota[48] = "", slow[48] = "";

    if (topology_read(root, &topology) < 0 || topology_usable(&usable) < 0) {
        add(checks, "cores", CHECK_PROBLEM, "", "sysfs does not list the CPUs");
        return;
    }
    if (cg)
        cgroup_read_limits(cg, 0, &limits);
    if (limits.quota_mcpu != CGROUP_NO_QUOTA)
        snprintf(quota, sizeof(quota), "; a quota of %u.%03u cores", limits.quota_mcpu / 1000,
                 limits.quota_mcpu % 1000);
    if (topology.slow)
        snprintf(slow, sizeof(slow), ", %u of the CPUs slower than the others", topology.slow);
    add(checks, "cores", CHECK_OK, "", "%u CPUs (%u cores, %u NUMA node%s%s), %u usable here%s",
        topology.cpus, topology.cores, topology.nodes, topology.nodes == 1 ? "" : "s", slow,
        cpuset_count(&usable), quota);
}

static void check_cgroups(struct checks *checks, const struct cgroup *cg)
{
    bool cpu = false, cpuset = false;
    struct error err = {0};

    if (!cg) {
        add(checks, "cgroups", CHECK_NOTE, "", "control groups unreadable: no weights, no quotas");
        return;
    }
    if (cgroup_writable(cg, &cpu, &cpuset, &err))
        add(checks, "cgroups", CHECK_OK, "", "cpu %s, cpuset %s: weights, quotas, exclusive cores",
            cgroup_version_name(cgroup_version_cpu(cg)),
            cgroup_version_name(cgroup_version_cpuset(cg)));
    else
        add(checks, "cgroups", CHECK_NOTE, "",
            "cpu %s%s, cpuset %s%s: %s. Without them the daemon sets thread counts, "
            "and CPU affinity where asked; no weights, no quotas",
            cgroup_version_name(cgroup_version_cpu(cg)), cpu ? "" : " (not writable)",
            cgroup_version_name(cgroup_version_cpuset(cg)), cpuset ? "" : " (not writable)",
            err.text);
}

static void check_privileges(struct checks *checks)
{
    if (geteuid() == 0)
        add(checks, "privileges", CHECK_OK, "", "root: tide can change every user's jobs");
    else
        add(checks, "privileges", CHECK_OK, "",
            "uid %u: tide can change your own jobs; other users' daemons share the machine with "
            "yours",
            (unsigned)geteuid());
}

static void check_kernel(struct checks *checks, int root)
{
    _cleanup_fd_ int pidfd = proc_pidfd_open(getpid());
    _cleanup_fd_ int schedstat = file_open(root, "proc/self/schedstat", O_RDONLY);

    bool wakes = pidfd >= 0 && proc_pidfd_wakes(pidfd);

    if (wakes && schedstat >= 0)
        add(checks, "kernel", CHECK_OK, "", "has pidfd and the waiting times of threads");
    else
        add(checks, "kernel", CHECK_NOTE, "", "%s%s%s",
            wakes ? ""
                  : "no pidfd (before Linux 5.3, or a container's filter refuses it): the daemon "
                    "looks for ends of jobs four times a second, and may miss how they ended",
            !wakes && schedstat < 0 ? "; " : "",
            schedstat < 0 ? "no schedstat: tide estimates how long threads wait" : "");
}

void doctor_check_installation(int root, const struct cgroup *cg, struct checks *ret)
{
    char dir[RUNDIR_PATH_MAX];

    ret->n = 0;
    check_agent(ret);
    check_directory(ret, dir);
    check_daemon(ret, dir);
    check_power(ret);
    check_privileges(ret);
    check_cgroups(ret, cg);
    check_cores(ret, root, cg);
    check_kernel(ret, root);
}

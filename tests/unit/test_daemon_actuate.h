/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The world of test_daemon_actuate.c: kernel and guardian, whose functions --wrap sends here, and
 * the engine of a container, whose job gets remote_confine. It writes down each change in order,
 * refuses what a test names, and keeps what is in force.
 */
#pragma once

#include "base/clock.h"
#include "daemon/confine/guardian.h"
#include "daemon/daemon.h"
#include "daemon/job/confine.h"
#include "daemon/job/job.h"
#include "daemon/link/agent_socket.h"
#include "daemon/plan/machine_share.h"
#include "daemon/plan/plan.h"
#include "host/proc/proc.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define ERROR_WORD "usage"

#define CPUS  4
#define JOBS  2
#define PROCS 2
#define ALL   ((1u << CPUS) - 1)

enum call {
    NO_CALL,
    OWNER,
    NOTE,
    AFFINITY,
    CREATE,
    MOVE,
    CPUS_OF_GROUP,
    QUOTA,
    WEIGHT,
    IDLE,
    MEMBERS,
    FREEZE,
    THAW,
    SEND,
    CALLS
};

static const char *const call_names[CALLS] = {"none",     "owner",  "note",  "affinity", "create",
                                              "move",     "cpus",   "quota", "weight",   "idle",
                                              "freezing", "freeze", "thaw",  "send"};

/* Limits in force, by job and by process. */
static struct {
    struct daemon daemon;
    struct job_table table;
    struct job job[JOBS];
    struct process process[JOBS][PROCS];
    uint64_t now_ns;
    char tape[4096]; /* changes in order, each with ';' behind it */
    unsigned lines;  /* of the log */
    char line[512];  /* the last one */
    enum call refused;
    pid_t refused_pid; /* 0: of any process */
    int error;
    unsigned refusals;
    unsigned affinity[JOBS][PROCS];
    bool noted[JOBS][PROCS], moved[JOBS][PROCS];
    unsigned cpus[JOBS]; /* of its group; 0: none was written */
    uint32_t quota[JOBS], weight[JOBS];
    bool idle[JOBS], frozen[JOBS];
    struct cpuset remote; /* what the container's engine was asked for */
    bool busy;
    char scene[64];
} world;

static struct connection peer;

/* ---- the tape ---- */

__attribute__((format(printf, 1, 2))) static void tell(const char *fmt, ...)
{
    size_t n = strlen(world.tape);
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(world.tape + n, sizeof(world.tape) - n, fmt, ap);
    va_end(ap);
    n = strlen(world.tape);
    assert_true(n + 2 < sizeof(world.tape));
    strcpy(world.tape + n, ";");
}

static void expect_tape(const char *text)
{
    assert_string_equal(world.tape, text);
    world.tape[0] = '\0';
}

static int answer(enum call call, pid_t pid)
{
    if (world.refused != call || (world.refused_pid && pid && world.refused_pid != pid))
        return 0;
    world.refusals++;
    tell("%s refused", call_names[call]);
    return world.error;
}

static unsigned mask_of(const struct cpuset *set)
{
    return (unsigned)set->word[0];
}

static struct cpuset set_of(unsigned mask)
{
    struct cpuset set;

    cpuset_zero(&set);
    set.word[0] = mask;
    return set;
}

/* Pids are 10 times the job's number and the process's. */
static unsigned job_index(pid_t pid)
{
    return (unsigned)pid / 10 - 1;
}

static unsigned process_index(pid_t pid)
{
    return (unsigned)pid % 10;
}

static unsigned group_index(const char *name)
{
    return (unsigned)name[strlen(name) - 1] - '1';
}

/* ---- the kernel and the guardian ---- */

#define WRAP(type, name, ...)                                                                      \
    type __wrap_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__)

WRAP(int, clock_gettime, clockid_t clock, struct timespec *ret)
{
    *ret = (struct timespec){.tv_sec = (time_t)(world.now_ns / NS_PER_S),
                             .tv_nsec = (long)(world.now_ns % NS_PER_S)};
    return 0;
}

WRAP(void, daemon_log, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(world.line, sizeof(world.line), fmt, ap);
    va_end(ap);
    world.lines++;
}

WRAP(void, daemon_log_as, const char *word, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(world.line, sizeof(world.line), fmt, ap);
    va_end(ap);
    world.lines++;
}

WRAP(void, machine_share_publish, struct machine_share *m, uint32_t jobs, uint32_t used,
     const struct cpuset *held)
{
}

WRAP(int, connection_send, struct connection *c, const union proto_message *m)
{
    tell("target %u", m->target.intra);
    return answer(SEND, 0);
}

WRAP(int, proc_pidfd_signal, int pidfd, int signal)
{
    return 0;
}

WRAP(int, proc_check_owner, int root, int pidfd, pid_t pid, uid_t uid)
{
    return answer(OWNER, pid);
}

WRAP(int, proc_get_affinity, pid_t pid, struct cpuset *ret)
{
    *ret = set_of(world.affinity[job_index(pid)][process_index(pid)]);
    return 0;
}

WRAP(int, proc_set_affinity, int root, pid_t pid, const struct cpuset *set, struct error *err)
{
    int r = mask_of(set) == ALL ? 0 : answer(AFFINITY, pid);

    if (r < 0)
        return r;
    if (!world.noted[job_index(pid)][process_index(pid)])
        fail_msg("the affinity of %d is set, and no guardian knows the original", (int)pid);
    world.affinity[job_index(pid)][process_index(pid)] = mask_of(set);
    tell("affinity %d %x", (int)pid, mask_of(set));
    return 0;
}

WRAP(int, guardian_note, struct guardian *g, pid_t pid, uint64_t start, const struct cpuset *set)
{
    int r = answer(NOTE, pid);

    assert_int_equal(mask_of(set), ALL);
    if (r == 0)
        world.noted[job_index(pid)][process_index(pid)] = true;
    return r;
}

WRAP(void, guardian_forget, struct guardian *g, pid_t pid, uint64_t start)
{
    world.noted[job_index(pid)][process_index(pid)] = false;
}

WRAP(int, cgroup_create, const struct cgroup *cg, const char *name, unsigned controllers,
     struct error *err)
{
    int r = answer(CREATE, 0);

    if (r < 0)
        return error_set(err, r, "cannot make it");
    tell("create %c %x", name[strlen(name) - 1], controllers);
    return 0;
}

WRAP(int, cgroup_move, const struct cgroup *cg, const char *name, unsigned controllers, pid_t pid,
     struct error *err)
{
    int r = answer(MOVE, pid);

    if (r < 0)
        return error_set(err, r, "cannot move it");
    tell("move %d %x", (int)pid, controllers);
    world.moved[job_index(pid)][process_index(pid)] |= (controllers & CGROUP_CPUSET) > 0;
    return 0;
}

WRAP(int, cgroup_move_home, const struct cgroup *cg, unsigned controllers, pid_t pid,
     struct error *err)
{
    tell("home %d %x", (int)pid, controllers);
    if (controllers & CGROUP_CPUSET)
        world.moved[job_index(pid)][process_index(pid)] = false;
    return 0;
}

WRAP(int, cgroup_remove, const struct cgroup *cg, const char *name, struct error *err)
{
    unsigned i = group_index(name);

    tell("remove %u", i + 1);
    for (unsigned k = 0; k < PROCS; k++)
        world.moved[i][k] = false;
    world.cpus[i] = 0;
    world.frozen[i] = false;
    return 0;
}

WRAP(int, cgroup_set_cpus, const struct cgroup *cg, const char *name, const struct cpuset *cpus,
     struct error *err)
{
    int r = answer(CPUS_OF_GROUP, 0);

    if (r < 0)
        return error_set(err, r, "cannot write the cores");
    world.cpus[group_index(name)] = mask_of(cpus);
    tell("cpus %u %x", group_index(name) + 1, mask_of(cpus));
    return 0;
}

WRAP(int, cgroup_set_quota, const struct cgroup *cg, const char *name, uint32_t mcpu,
     struct error *err)
{
    int r = answer(QUOTA, 0);

    if (r < 0)
        return error_set(err, r, "cannot write the quota");
    world.quota[group_index(name)] = mcpu;
    tell("quota %u %u", group_index(name) + 1, mcpu);
    return 0;
}

WRAP(int, cgroup_set_weight, const struct cgroup *cg, const char *name, uint32_t weight,
     struct error *err)
{
    int r = answer(WEIGHT, 0);

    assert_false(world.idle[group_index(name)]); /* the kernel would take none */
    if (r < 0)
        return error_set(err, r, "cannot write the weight");
    world.weight[group_index(name)] = weight;
    tell("weight %u %u", group_index(name) + 1, weight);
    return 0;
}

WRAP(int, cgroup_set_idle, const struct cgroup *cg, const char *name, bool idle, struct error *err)
{
    int r = answer(IDLE, 0);

    if (r < 0)
        return r;
    world.idle[group_index(name)] = idle;
    tell("idle %u %d", group_index(name) + 1, idle);
    return 0;
}

WRAP(bool, cgroup_freezable, const struct cgroup *cg, struct error *err)
{
    return true;
}

WRAP(int, cgroup_each_freezable, const struct cgroup *cg, const char *name,
     int (*fn)(void *arg, pid_t pid), void *arg)
{
    return answer(MEMBERS, 0);
}

WRAP(int, cgroup_freeze, const struct cgroup *cg, const char *name, bool frozen, struct error *err)
{
    int r = answer(frozen ? FREEZE : THAW, 0);

    if (r < 0)
        return error_set(err, r, "cannot freeze it");
    world.frozen[group_index(name)] = frozen;
    tell("%s %u", frozen ? "freeze" : "thaw", group_index(name) + 1);
    return 0;
}

WRAP(int, cgroup_read_frost, const struct cgroup *cg, const char *name, enum cgroup_frost *ret)
{
    *ret = world.frozen[group_index(name)] ? CGROUP_FROZEN : CGROUP_THAWED;
    return 0;
}

/* ---- the container's table ---- */

static int remote_cores(struct job *j, const struct cpuset *cores)
{
    tell("engine cores %x", mask_of(cores));
    world.remote = *cores;
    world.busy = true;
    return 0;
}

static int remote_quota(struct job *j, uint32_t mcpu)
{
    tell("engine quota %u", mcpu);
    j->placed.quota_mcpu = mcpu;
    world.busy = true;
    return 0;
}

static void remote_weight(struct job *j, uint32_t weight)
{
    tell("engine weight %u", weight);
    j->placed.weight = weight;
}

static int remote_paused(struct job *j, bool paused)
{
    if (paused == j->placed.freezer.want)
        return 0;
    tell("engine %s", paused ? "pause" : "unpause");
    j->placed.freezer.want = world.busy = paused;
    return 0;
}

static bool remote_is_paused(const struct job *j)
{
    return j->placed.freezer.paused;
}

static bool remote_is_busy(const struct job *j)
{
    return world.busy;
}

static bool remote_can(const struct job *j)
{
    return true;
}

static uint64_t remote_look(const struct job *j, uint64_t now_ns)
{
    return UINT64_MAX;
}

static const struct confine remote_confine = {.kind = "container",
                                              .is_remote = true,
                                              .any_uid = true,
                                              .set_cores = remote_cores,
                                              .set_quota = remote_quota,
                                              .set_weight = remote_weight,
                                              .set_paused = remote_paused,
                                              .can_limit = remote_can,
                                              .is_paused = remote_is_paused,
                                              .next_look = remote_look,
                                              .is_busy = remote_is_busy,
                                              .is_behind = remote_is_busy};

/* The engine carries out what it was asked for. */
static void engine_answers(struct job *j)
{
    world.busy = false;
    j->placed.cores = world.remote;
    j->placed.freezer.paused = j->placed.freezer.want;
    plan_advance(&world.daemon);
}

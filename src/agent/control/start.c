/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the agent: reads the environment, starts the control thread, and again after a fork. */
#include "agent/agent.h"
#include "agent/compat.h"
#include "agent/process/limit.h"
#include "agent/process/objects.h"

#include "base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#define SIGNAL_OFFSET_DEFAULT 7 /* SIGRTMIN + 7 */
#define START_TRIES           1000
#define START_PAUSE_US        100

enum agent_phase { AGENT_IDLE, AGENT_STARTING, AGENT_STARTED, AGENT_PHASE_MAX };

struct agent_config agent_config;

static const struct agent_backend *const none[] = {NULL};
const struct agent_backend *const *agent_backends = none;

static char socket_path[108];
static _Atomic int phase; /* enum agent_phase */

/* Parses @text as a decimal number up to @max. Returns -1 if it is anything else. */
static long parse_number(const char *text, long max)
{
    long value = 0;

    if (!text || !*text)
        return -1;
    for (; *text; text++) {
        if (*text < '0' || *text > '9')
            return -1;
        value = value * 10 + (*text - '0');
        if (value > max)
            return -1;
    }
    return value;
}

static void copy_env(char *to, size_t size, const char *name)
{
    const char *value = getenv(name);

    snprintf(to, size, "%s", value ? value : "");
}

/* Before constructors without a number, which may start the agent. */
__attribute__((constructor(101))) static void configure(void)
{
    const char *disable = getenv("TIDE_DISABLE");
    const char *openmp = getenv("TIDE_OPENMP");
    const char *requests = getenv("TIDE_REQUESTS");
    const char *stalls = getenv("TIDE_STALLS");

    /* Only reads the environment: the agent is in bash and git too, and must not disturb them. */
    if (getauxval(AT_SECURE) || (disable && strcmp(disable, "0") != 0) || !dlsym || !dlopen ||
        !dladdr)
        return;
    agent_config.enabled = true;
    agent_config.openmp = openmp && strcmp(openmp, "on") == 0;
    agent_config.sockets = requests && strcmp(requests, "sockets") == 0;
    agent_config.stalls = stalls && strcmp(stalls, "keep") == 0;
}

static void load_config(void)
{
    long offset = parse_number(getenv("TIDE_SIGNAL"), SIGRTMAX - SIGRTMIN);
    long max = parse_number(getenv("TIDE_MAX"), PROTO_THREADS_MAX);

    agent_config.signal =
        offset == 0 ? 0 : SIGRTMIN + (offset > 0 ? (int)offset : SIGNAL_OFFSET_DEFAULT);
    agent_config.cpus = limit_machine_cpus("/");
    agent_config.max = max > 0 ? (uint32_t)max : agent_config.cpus;
    copy_env(socket_path, sizeof(socket_path), "TIDE_SOCKET");
    agent_config.socket = socket_path[0] ? socket_path : NULL;
    copy_env(agent_config.token, sizeof(agent_config.token), "TIDE_TOKEN");
    copy_env(agent_config.job_id, sizeof(agent_config.job_id), "TIDE_JOB_ID");
    copy_env(agent_config.job_name, sizeof(agent_config.job_name), "TIDE_JOB_NAME");
}

/* In the child of a fork the control thread and every worker are gone; only this thread lives. */
static void after_fork(void)
{
    core_after_fork();
    wake_after_fork();
    control_after_fork();
    requests_after_fork();
    for (each_backend(b))
        (*b)->after_fork();
    atomic_store(&phase, AGENT_IDLE);
}

bool agent_start(void)
{
    static _Atomic bool forks_watched;
    int expected = AGENT_IDLE;
    int saved = errno;

    if (!agent_config.enabled)
        return false;
    if (!atomic_compare_exchange_strong(&phase, &expected, AGENT_STARTING)) {
        /* Another thread reads the configuration. The wait has an end, because after a fork() at
         * this moment that thread does not exist in the child. The pool is then built as stock. */
        for (int i = 0; i < START_TRIES && atomic_load(&phase) == AGENT_STARTING; i++)
            usleep(START_PAUSE_US);
        errno = saved;
        return atomic_load(&phase) == AGENT_STARTED && agent_config.enabled;
    }
    load_config();
    core_set_allowed(limit_read_mcpu("/"), clock_now_ns());
    if (!atomic_exchange(&forks_watched, true))
        pthread_atfork(NULL, NULL, after_fork);
    if (!control_start())
        agent_config.enabled = false; /* without its thread the agent must govern nothing */
    atomic_store(&phase, AGENT_STARTED);
    errno = saved;
    return agent_config.enabled;
}

/* NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp): glibc's name */
__attribute__((visibility("default"))) void __gmon_start__(void);

/*
 * Each object's _init, which glibc's crti.o brings, calls this function if somebody defines it. It
 * is meant for profilers; a program made for one has its own, and the agent does not hear of what
 * it loads.
 */
void __gmon_start__(void)
{
    int saved = errno;
    struct object o;

    if (!agent_config.enabled || !object_at(__builtin_return_address(0), &o))
        return;
    for (each_backend(b))
        if ((*b)->loaded)
            (*b)->loaded(&o);
    errno = saved;
}
/* NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */

/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/daemon.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "daemon/api/api.h"
#include "daemon/api/events.h"
#include "daemon/api/metrics.h"
#include "daemon/confine/actuate.h"
#include "daemon/confine/balance.h"
#include "daemon/confine/guardian.h"
#include "daemon/confine/job_group.h"
#include "daemon/containers/container.h"
#include "daemon/energy/backstop.h"
#include "daemon/energy/cap.h"
#include "daemon/energy/meter.h"
#include "daemon/job/confine.h"
#include "daemon/link/agent_socket.h"
#include "daemon/peers/agent.h"
#include "daemon/peers/control.h"
#include "daemon/plan/decision.h"
#include "daemon/plan/external.h"
#include "daemon/plan/idle.h"
#include "daemon/plan/machine_share.h"
#include "daemon/plan/plan.h"
#include "daemon/plan/promises.h"
#include "daemon/plan/wait.h"
#include "daemon/record/chronicle.h"
#include "daemon/record/curves.h"
#include "daemon/record/energy_file.h"
#include "daemon/record/energy_history.h"
#include "daemon/record/history.h"
#include "daemon/record/promised.h"
#include "daemon/record/store.h"
#include "host/proc/file.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#define ERROR_WORD "run-directory"

#define TICK_US      1000000ull
#define AUTO_EXIT_US 2000000ull  /* after the last job … */
#define FIRST_JOB_US 10000000ull /* … and before the first one */
#define USAGE_PAUSE  25          /* times the CPU time of a look at all processes: 4 % of a core */
#define LOCK_TRIES   100 /* 10 ms each: a daemon that is ending releases the lock in that time */

/* State of the composition root itself. */
struct top {
    struct daemon daemon; /* first: what the modules see */
    struct job_table jobs;
    sd_event_source *tick, *exit, *directory;
    int lock_fd;
    bool auto_exit, had_jobs;
    bool policy_ordered;                /* set on the command line */
    const struct config_source *source; /* of daemon.config; borrowed */
    uint64_t usage_ns;                  /* next look at all processes */
};

/* Called in this order. Containers get their own limits back after all of them. */
static const struct job_observer *const observers[] = {&chronicle_observer,
                                                       &store_observer,
                                                       &agent_socket_observer,
                                                       &actuate_observer,
                                                       &wait_observer,
                                                       &containers_observer,
                                                       &metrics_observer,
                                                       &meter_observer,
                                                       &energy_history_observer,
                                                       &curves_observer,
                                                       NULL};

static struct top *top_of(struct daemon *d)
{
    return (struct top *)d;
}

/* ---- wake-ups ---- */

static void arm_exit(struct top *t, uint64_t delay_us)
{
    if (!t->auto_exit)
        return;
    sd_event_source_set_time_relative(t->exit, delay_us);
    sd_event_source_set_enabled(t->exit, SD_EVENT_ONESHOT);
}

/* Runs from the end of the last job; the first job has more time to come. */
static void watch_last_job(struct top *t)
{
    bool jobs = t->daemon.jobs->n > 0;

    if (jobs)
        sd_event_source_set_enabled(t->exit, SD_EVENT_OFF);
    else if (t->had_jobs)
        arm_exit(t, AUTO_EXIT_US);
    t->had_jobs = jobs;
}

static void on_decide(struct daemon *d)
{
    plan_make(d);
    watch_last_job(top_of(d));
}

/* Each decision ends here, also one made at once for an order. */
static void on_store(struct daemon *d)
{
    plan_finish(d);
    chronicle_look(d);
    curves_look(d);
    promised_look(d);
    store_save(d);
    sd_event_source_set_enabled(top_of(d)->tick, d->jobs->n || containers_pending(d->containers) ||
                                                         chronicle_pending(d)
                                                     ? SD_EVENT_ON
                                                     : SD_EVENT_OFF);
    meter_rest(d->meter, d->jobs->n == 0);
}

static const struct wake_handlers wake_handlers = {on_decide, on_store, store_save};

/*
 * A look reads all processes of the machine: with many of them, it runs less often. The jobs' CPU
 * time that it found divides the machine's energy since the look before.
 */
static bool look_at_usage(struct daemon *d, uint64_t now)
{
    uint64_t began = clock_now_ns(), cpu = clock_thread_ns();
    bool changed;

    if (began < top_of(d)->usage_ns) {
        meter_tick(d->meter, false);
        return false;
    }
    changed = usage_look(d, now);
    meter_tick(d->meter, true);
    top_of(d)->usage_ns = began + USAGE_PAUSE * (clock_thread_ns() - cpu);
    return changed;
}

/* Looks for changes that no event reports: limits, deaths of other users' daemons, age of jobs. */
static int on_tick(sd_event_source *s, uint64_t usec, void *arg)
{
    struct daemon *d = arg;
    uint64_t now = clock_now_ns();
    bool changed = false;

    for (struct job *j = d->jobs->first; j; j = j->next) {
        bool young = now - j->met_ns < JOB_YOUNG_NS;

        changed |= j->confine->look_at_drift(j);
        changed |= j->observed.young != young;
        j->observed.young = young;
    }
    changed |= look_at_usage(d, now);
    changed |= devices_look(d, now);
    power_caps_tick(d->power_caps);
    if (machine_share_shared(d->machine_share))
        changed |= machine_share_refresh(d->machine_share);
    changed |= now >= decision_next(d->decision);
    agent_socket_tick(d->agent_socket);
    balance_look(d->balance, now);
    idle_tick(d->idle);
    promises_tick(d);
    containers_tick(d->containers);
    chronicle_look(d);
    curves_look(d);
    promised_look(d);
    store_tick(d);
    energy_file_tick(d->energy_file);
    energy_history_tick(d, false);
    if (changed)
        daemon_changed(d);
    sd_event_source_set_time_relative(s, TICK_US);
    return 0;
}

static int on_auto_exit(sd_event_source *s, uint64_t usec, void *arg)
{
    struct daemon *d = arg;

    if (d->jobs->n == 0 && chronicle_pending(d)) {
        arm_exit(arg, AUTO_EXIT_US);
    } else if (d->jobs->n == 0) {
        daemon_log("no job left; exiting");
        sd_event_exit(d->event, 0);
    }
    return 0;
}

static void on_happening(void *arg, const char *type, json_t *data)
{
    const struct daemon *d = arg;

    events_tell(d->events, type, data);
}

/* ---- start ---- */

static int open_directory(struct daemon *d, const struct daemon_options *o, struct error *err)
{
    int r = o->dir[0] ? 0 : rundir_user(d->dir);

    if (o->dir[0])
        memcpy(d->dir, o->dir, sizeof(d->dir));
    if (r < 0)
        return error_set(
            err, r,
            "TIDE_DIR or XDG_RUNTIME_DIR is too long for a socket: set TIDE_DIR to a shorter path");
    d->dir_fd = r = rundir_open(d->dir, err);
    if (r < 0)
        return r;
    if (d->uid == 0 && strcmp(d->dir, RUNDIR_SYSTEM) == 0 && fchmod(d->dir_fd, 0755) < 0)
        return error_set(err, -errno, "cannot make %s accessible to all users: %s", d->dir,
                         strerror(errno));
    return 0;
}

static int take_lock(struct top *t, struct error *err)
{
    const struct daemon *d = &t->daemon;
    char text[24];

    t->lock_fd = openat(d->dir_fd, RUNDIR_LOCK, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (t->lock_fd < 0)
        return error_set(err, -errno, "cannot write in %s: %s", d->dir, strerror(errno));
    for (unsigned i = 0; flock(t->lock_fd, LOCK_EX | LOCK_NB) < 0; i++) {
        if (errno != EWOULDBLOCK || i == LOCK_TRIES)
            return error_word(err,
                              error_set(err, -EBUSY,
                                        "another tided runs in %s (its pid is in " RUNDIR_LOCK ")",
                                        d->dir),
                              "daemon-runs");
        usleep(10000);
    }
    snprintf(text, sizeof(text), "%d\n", (int)getpid());
    if (ftruncate(t->lock_fd, 0) < 0 || write(t->lock_fd, text, strlen(text)) < 0)
        daemon_err("cannot write the pid into %s/" RUNDIR_LOCK ": %s", d->dir, strerror(errno));
    return 0;
}

static int find_machine(struct daemon *d, const struct daemon_options *o, struct error *err)
{
    struct cpuset usable;
    int r = topology_read(d->root, &d->topology);

    if (r < 0)
        return error_word(err,
                          error_set(err, r, "cannot read the machine's CPUs: %s", strerror(-r)),
                          "system-refused");
    d->cpus = d->topology.online;
    /* A daemon in a container or a batch job has the CPUs of its own cpuset. */
    if (topology_usable(&usable) == 0) {
        cpuset_and(&usable, &usable, &d->cpus);
        if (cpuset_count(&usable) > 0)
            d->cpus = usable;
    }
    if (cpuset_count(&o->config.cpus) > 0) {
        cpuset_and(&usable, &o->config.cpus, &d->topology.online);
        if (cpuset_count(&usable) == 0)
            return error_word(err, error_set(err, -EINVAL, "cpus: none of these CPUs is online"),
                              "config-error");
        d->cpus = o->config.cpus;
        d->cpus_made_up = !cpuset_equal(&usable, &d->cpus);
    }
    d->usable = d->cpus;
    return 0;
}

static void find_privileges(struct daemon *d)
{
    struct error why = {0};

    cgroup_daemon_name(d->uid, d->epoch, d->group);
    if (cgroup_new(d->root, &d->cgroup) < 0 ||
        !cgroup_writable(d->cgroup, &d->weights, &d->cpusets, &why)) {
        snprintf(d->weights_note, sizeof(d->weights_note), "weights not set: %.*s",
                 ERROR_TEXT_MAX - 20, why.text[0] ? why.text : "no control groups");
        if (d->uid != 0)
            d->weights = d->cpusets = false;
    }
}

/* Thousands of connections, and a pidfd for each process, exceed the usual 1024 descriptors. */
static void raise_descriptor_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return;
    limit.rlim_cur = limit.rlim_max < 8192 ? limit.rlim_max : 8192;
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* ---- configuration ---- */

/* The policy: from `tide policy set` until the configured one changes, else the configured one. */
static int choose_policy(struct daemon *d, const struct daemon_options *o, struct error *err)
{
    struct policy_spec spec = o->config.policy;
    bool ordered = o->policy_ordered || store_load_policy(d, &spec) != 0;

    if (!spec.policy)
        return 0;
    if (ordered && decision_check_policy(d, &spec, err) < 0)
        return -ENODATA;
    decision_set_policy(d->decision, &spec);
    return 0;
}

static void take_config(struct daemon *d, const struct config *c)
{
    d->config = *c;
    if (top_of(d)->policy_ordered) /* overrides every file's */
        d->config.policy = (struct policy_spec){0};
    d->placement = c->placement;
    d->heartbeat_ms = c->heartbeat_ms;
    d->admin_gid = config_group(c->admin_group);
    d->power_gid = config_group(c->power_group);
}

static bool same_policy(const struct policy_spec *a, const struct policy_spec *b)
{
    return a->policy == b->policy && memcmp(a->params, b->params, sizeof(a->params)) == 0;
}

/* A policy of `tide policy set` stays in force unless the file now names another one. */
static void reconfigure(struct daemon *d, const struct config *c)
{
    const struct config before = d->config;
    struct error why = {0};
    struct policy_spec spec;

    take_config(d, c);
    d->memory_bytes = usage_machine_memory(d);
    devices_count(d, clock_now_ns());
    spec = d->config.policy;
    if (!same_policy(&spec, &before.policy)) {
        if (!spec.policy)
            policy_spec_parse(policy_at(0)->name, &spec, NULL);
        if (decision_check_policy(d, &spec, &why) == 0)
            decision_set_policy(d->decision, &spec);
        else
            daemon_log_as(error_why(&why), "%s; the previous one stays in force", why.text);
    }
    if (strcmp(c->power, before.power) != 0 || strcmp(c->power_root, before.power_root) != 0)
        daemon_log("tide.conf: the new 'power' or 'power-root' takes effect when tided is "
                   "restarted");
    if (c->power_cap_uw != before.power_cap_uw || strcmp(c->power_model, before.power_model) != 0)
        power_caps_configure(d->power_caps);
    if (strcmp(c->decider, before.decider) != 0 || c->decider_uid != before.decider_uid ||
        strcmp(c->decider_user, before.decider_user) != 0)
        external_configure(d->external);
    if (c->heartbeat_ms != before.heartbeat_ms)
        agent_welcome_all(d);
    if (!cpuset_equal(&c->cpus, &before.cpus) || c->engines_said != before.engines_said ||
        c->n_engines != before.n_engines ||
        memcmp(c->engines, before.engines, c->n_engines * sizeof(c->engines[0])) != 0)
        daemon_log("tide.conf: new 'cpus' or engines take effect when tided is restarted");
    if (c->history_mib != before.history_mib)
        daemon_log("tide.conf: the new 'history' takes effect when tided is restarted");
    daemon_log("configuration reloaded");
    daemon_changed(d);
}

static void reload(struct daemon *d)
{
    struct error err = {0};
    struct config c;

    sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%llu",
               (unsigned long long)(clock_now_ns() / NS_PER_US));
    if (config_load(top_of(d)->source, &c, &err) < 0)
        daemon_log_as(error_why(&err), "%s; the previous configuration stays in force", err.text);
    else
        reconfigure(d, &c);
    sd_notify(0, "READY=1");
}

static int on_signal(sd_event_source *s, const struct signalfd_siginfo *info, void *arg)
{
    struct daemon *d = arg;

    if (info->ssi_signo == SIGHUP && top_of(d)->source->file) {
        reload(d);
        return 0;
    }
    daemon_log("received signal %u; exiting", info->ssi_signo);
    sd_event_exit(d->event, 0);
    return 0;
}

/* Without its directory the daemon cannot be reached, and another one would start beside it. */
static int on_directory(sd_event_source *s, const struct inotify_event *event, void *arg)
{
    struct daemon *d = arg;
    struct stat ours, there;

    bool gone = stat(d->dir, &there) < 0
                    ? errno == ENOENT
                    : fstat(d->dir_fd, &ours) == 0 &&
                          (ours.st_ino != there.st_ino || ours.st_dev != there.st_dev);

    if (gone || (faccessat(d->dir_fd, RUNDIR_API_SOCKET, F_OK, 0) < 0 && errno == ENOENT)) {
        daemon_err("%s or a socket in it was removed; exiting, so that another tided can start",
                   d->dir);
        sd_event_exit(d->event, 0);
    }
    return 0;
}

static int watch_directory(struct top *t)
{
    struct daemon *d = &t->daemon;

    return sd_event_add_inotify(d->event, &t->directory, d->dir, IN_DELETE | IN_MOVE_SELF,
                                on_directory, d);
}

static int add_source_off(int r, sd_event_source *s, int64_t priority)
{
    if (r < 0)
        return r;
    r = sd_event_source_set_enabled(s, SD_EVENT_OFF);
    return r < 0 ? r : sd_event_source_set_priority(s, priority);
}

static int add_sources(struct top *t)
{
    struct daemon *d = &t->daemon;
    sd_event *e = d->event;
    int r = sd_event_add_signal(e, NULL, SIGTERM, on_signal, d);

    if (r >= 0)
        r = sd_event_add_signal(e, NULL, SIGINT, on_signal, d);
    if (r >= 0)
        r = sd_event_add_signal(e, NULL, SIGHUP, on_signal, d);
    if (r >= 0)
        r = sd_event_add_time_relative(e, &t->tick, CLOCK_MONOTONIC, TICK_US, 50000, on_tick, d);
    r = add_source_off(r, t->tick, SD_EVENT_PRIORITY_NORMAL + 5);
    if (r >= 0)
        r = sd_event_add_time_relative(e, &t->exit, CLOCK_MONOTONIC, FIRST_JOB_US, 0, on_auto_exit,
                                       d);
    r = add_source_off(r, t->exit, SD_EVENT_PRIORITY_IDLE);
    if (r >= 0)
        r = wake_new(d, e, &wake_handlers, &d->wake);
    if (r >= 0)
        r = plan_new(d, &d->plan);
    if (r >= 0)
        r = external_new(d, plan_make, &d->external);
    if (r >= 0)
        r = idle_new(d, &d->idle);
    if (r >= 0)
        r = job_groups_new(d, &d->job_groups);
    return r < 0 ? r : waits_new(d, &d->waits);
}

/* The directory for state that outlives a reboot. */
static const char *state_directory(const struct daemon *d)
{
    const char *dir = getenv("STATE_DIRECTORY"); /* set by systemd */

    if (!dir || dir[0] != '/' || strchr(dir, ':'))
        dir = strcmp(d->dir, RUNDIR_SYSTEM) == 0 ? HISTORY_STATE_DIR : d->dir;
    if (strcmp(dir, HISTORY_STATE_DIR) == 0)
        mkdir(dir, 0700);
    return dir;
}

/* Where it cannot be had, the run directory stands in. */
static int open_state(struct daemon *d, struct error *err)
{
    snprintf(d->state_dir, sizeof(d->state_dir), "%s", state_directory(d));
    d->state_fd = open(d->state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d->state_fd >= 0)
        return 0;
    memcpy(d->state_dir, d->dir, sizeof(d->state_dir));
    d->state_fd = fcntl(d->dir_fd, F_DUPFD_CLOEXEC, 0);
    return d->state_fd < 0 ? error_set(err, -errno, "cannot open %s: %s", d->dir, strerror(errno))
                           : 0;
}

/* Jobs run without both: if memory is short there is no record. */
static void begin_record(struct daemon *d)
{
    uint32_t mib = d->config.history_mib;

    if (events_new(d, &d->events) < 0)
        daemon_log_as("out-of-memory", "out of memory: no events are recorded");
    if (mib && history_new(state_directory(d), mib, &d->history) < 0)
        daemon_log_as("out-of-memory", "out of memory: no history of jobs is recorded");
    if (curves_new(state_directory(d), &d->curves) < 0)
        daemon_log_as("out-of-memory", "out of memory: no speed-up curves are kept");
    if (promised_new(d->state_fd, &d->promised) < 0)
        daemon_log_as("out-of-memory", "out of memory: nothing is known of earlier promises");
}

/* After the account of energy of the earlier daemon was read: its energy has a row already. */
static void begin_energy_history(struct daemon *d)
{
    if (d->config.history_mib && energy_history_new(d, state_directory(d), &d->energy_history) < 0)
        daemon_log_as("out-of-memory", "out of memory: the history of energy is not recorded");
}

static int begin(struct top *t, const struct daemon_options *o, struct error *err)
{
    struct daemon *d = &t->daemon;
    struct error why = {0};
    char earlier[CGROUP_NAME_MAX] = "";
    uint64_t before;
    int r = open_directory(d, o, err);

    if (r == 0)
        r = take_lock(t, err);
    if (r == 0)
        r = open_state(d, err);
    if (r == 0)
        r = find_machine(d, o, err);
    if (r == 0 && (store_new(&d->store) < 0 || chronicle_new(on_happening, d, &d->chronicle) < 0))
        r = error_set(err, -ENOMEM, "out of memory");
    if (r < 0)
        return r;
    d->epoch = store_next_epoch(d, &before);
    store_engines(d);
    find_privileges(d);
    d->memory_bytes = usage_machine_memory(d);
    devices_count(d, clock_now_ns());
    r = sd_event_new(&d->event);
    if (r >= 0)
        r = add_sources(t);
    if (r < 0)
        return error_word(err, error_set(err, r, "cannot make an event loop: %s", strerror(-r)),
                          "system-refused");
    r = balance_new(d, &d->balance, err);
    if (r == 0)
        r = meter_new(d, &d->meter, err);
    if (r == 0)
        r = power_caps_new(d, &d->power_caps, err);
    if (r == 0)
        r = decision_new(&d->decision, err);
    if (r < 0)
        return r;
    r = choose_policy(d, o, err);
    if (r < 0)
        return r;
    if (before)
        cgroup_daemon_name(d->uid, before, earlier);
    r = guardian_new(d->event, d->dir_fd, d->config.n_engines ? state_directory(d) : NULL, d->group,
                     d->cgroup, earlier, &d->guardian, err);
    if (r < 0)
        return r;
    if (backstop_new(d, &d->backstop) < 0) /* the earlier daemon's limits have been put back */
        return error_set(err, -ENOMEM, "out of memory");
    begin_record(d);
    if (machine_share_new(d, &d->machine_share, &why) < 0)
        daemon_log_as(error_why(&why), "%s", why.text);
    r = agent_socket_new(d, &agent_role, &control_role, &d->agent_socket, err);
    for (unsigned i = 0; r == 0 && i < d->config.n_engines; i++) {
        r = containers_new(d, d->config.engines[i], &d->containers, err);
        if (r == -ELIBACC) { /* processes are governed without it */
            daemon_log_as(error_why(err), "containers are left as they are: %s", err->text);
            r = 0;
        }
    }
    if (r == 0)
        r = api_new(d, routes_handle, &d->api, err);
    return r;
}

/* ---- end ---- */

/* Agents first: they stop waiting at once, and use their own cores again. */
static void end(struct top *t)
{
    struct daemon *d = &t->daemon;

    d->ending = true;
    sd_notify(0, "STOPPING=1");
    if (d->agent_socket)
        agent_release_all(d);
    if (d->wake) {
        d->energy_file = energy_file_free(d->energy_file);
        store_save(d);
        store_forget_engines(d);
    }
    if (d->guardian)
        actuate_restore_all(d);
    if (d->api)
        unlinkat(d->dir_fd, RUNDIR_AGENT_SOCKET, 0);
    if (d->chronicle)
        chronicle_done(d);
    events_end_streams(d->events);
    d->api = api_free(d->api);
    d->events = events_free(d->events);
    if (d->meter)
        energy_history_tick(d, true);
    while (d->jobs->first)
        job_free(d->jobs->first);
    d->energy_history = energy_history_free(d->energy_history);
    d->history = history_free(d->history);
    d->curves = curves_free(d->curves);
    d->promised = promised_free(d->promised);
    d->containers = containers_free(d->containers);
    d->agent_socket = agent_socket_free(d->agent_socket);
    d->machine_share = machine_share_free(d->machine_share);
    d->balance = balance_free(d->balance);
    d->power_caps = power_caps_free(d->power_caps);
    d->backstop = backstop_free(d->backstop);
    d->meter = meter_free(d->meter);
    d->guardian = guardian_free(d->guardian);
    d->job_groups = job_groups_free(d->job_groups);
    d->external = external_free(d->external);
    d->decision = decision_free(d->decision);
    d->cgroup = cgroup_free(d->cgroup);
    d->chronicle = chronicle_free(d->chronicle);
    d->store = store_free(d->store);
    d->waits = waits_free(d->waits);
    d->idle = idle_free(d->idle);
    d->plan = plan_free(d->plan);
    d->wake = wake_free(d->wake);
    sd_event_source_disable_unref(t->tick);
    sd_event_source_disable_unref(t->exit);
    sd_event_source_disable_unref(t->directory);
    sd_event_unref(d->event);
    close_fd(t->lock_fd);
    close_fd(d->dir_fd);
    close_fd(d->state_fd);
    close_fd(d->root);
}

int daemon_run(const struct daemon_options *options, struct error *err)
{
    _cleanup_free_ struct top *t = calloc(1, sizeof(*t));
    struct daemon *d = &t->daemon;
    sigset_t mask;
    int r;

    if (!t)
        return error_set(err, -ENOMEM, "out of memory");
    sigemptyset(&mask);
    sigaddset(&mask, SIGTERM);
    sigaddset(&mask, SIGINT);
    sigaddset(&mask, SIGHUP);
    sigprocmask(SIG_BLOCK, &mask, NULL);
    signal(SIGPIPE, SIG_IGN);
    raise_descriptor_limit();
    d->dir_fd = d->state_fd = t->lock_fd = -1;
    t->jobs = (struct job_table){.observers = observers, .confine = &process_confine};
    d->jobs = &t->jobs;
    d->uid = geteuid();
    t->auto_exit = options->auto_exit;
    t->policy_ordered = options->policy_ordered;
    t->source = options->source;
    take_config(d, &options->config);
    d->root = r = file_open_root();
    if (r >= 0)
        r = begin(t, options, err);
    if (r == 0) {
        daemon_log("version " TIDE_VERSION " in %s, cpus: %u%s%s", d->dir, cpuset_count(&d->cpus),
                   d->weights_note[0] ? ", " : "", d->weights_note);
        store_load(d);
        if (energy_file_new(d, &d->energy_file) < 0)
            daemon_log_as("out-of-memory",
                          "out of memory: the energy counted so far is lost when tided ends");
        begin_energy_history(d);
        power_caps_tick(d->power_caps);
        daemon_changed(d);
        arm_exit(t, FIRST_JOB_US);
        if (watch_directory(t) < 0)
            daemon_log_as("system-refused", "cannot watch %s: its removal will go unnoticed",
                          d->dir);
        sd_notify(0, "READY=1");
        if (sd_event_set_watchdog(d->event, true) < 0) /* 0: no watchdog is configured */
            daemon_log_as("system-refused",
                          "cannot report to systemd's watchdog: systemd may restart tided");
        r = sd_event_loop(d->event);
    }
    end(t);
    return r;
}

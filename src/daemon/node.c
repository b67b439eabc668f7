/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/node.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "daemon/api/api.h"
#include "daemon/api/events.h"
#include "daemon/api/metrics.h"
#include "daemon/confine/actuate.h"
#include "daemon/confine/groups.h"
#include "daemon/confine/guardian.h"
#include "daemon/containers/container.h"
#include "daemon/job/confine.h"
#include "daemon/link/link.h"
#include "daemon/peers/agent.h"
#include "daemon/peers/control.h"
#include "daemon/plan/claims.h"
#include "daemon/plan/decision.h"
#include "daemon/plan/plan.h"
#include "daemon/plan/wait.h"
#include "daemon/record/chronicle.h"
#include "daemon/record/history.h"
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

#define TICK_US      1000000ull
#define AUTO_EXIT_US 2000000ull  /* after the last job … */
#define FIRST_JOB_US 10000000ull /* … and for the first one to come */
#define USAGE_PAUSE  25          /* times what a look at all processes has taken: 4 % of a core */
#define LOCK_TRIES   100         /* 10 ms each: a daemon that is ending lets go within them */

/* The composition root's own. */
struct top {
    struct node node; /* first: what the modules know */
    sd_event_source *tick, *exit, *directory;
    int lock_fd;
    bool auto_exit, had_jobs;
    bool policy_ordered;                /* on the command line */
    const struct config_source *source; /* of node.config; borrowed */
    uint64_t usage_ns;                  /* when the next look at all processes is due */
};

/* Told in this order. A container's own limits are put back after all of them. */
static const struct job_observer *const observers[] = {
    &chronicle_observer, &store_observer,      &link_observer,    &actuate_observer,
    &wait_observer,      &containers_observer, &metrics_observer, NULL};

static struct top *top_of(struct node *n)
{
    return (struct top *)n;
}

/* ---- wake-ups ---- */

static void arm_exit(struct top *t, uint64_t delay_us)
{
    if (!t->auto_exit)
        return;
    sd_event_source_set_time_relative(t->exit, delay_us);
    sd_event_source_set_enabled(t->exit, SD_EVENT_ONESHOT);
}

/* Runs from the moment that the last job is gone; the first may take its time. */
static void watch_last_job(struct top *t)
{
    bool jobs = t->node.jobs.n > 0;

    if (jobs)
        sd_event_source_set_enabled(t->exit, SD_EVENT_OFF);
    else if (t->had_jobs)
        arm_exit(t, AUTO_EXIT_US);
    t->had_jobs = jobs;
}

static void on_decide(struct node *n)
{
    plan_make(n);
    watch_last_job(top_of(n));
}

/* Each decision ends here: also those for which an order could not wait. */
static void on_store(struct node *n)
{
    plan_finish(n);
    chronicle_look(n);
    store_save(n);
    sd_event_source_set_enabled(top_of(n)->tick, n->jobs.n || containers_pending(n->containers) ||
                                                         chronicle_pending(n)
                                                     ? SD_EVENT_ON
                                                     : SD_EVENT_OFF);
}

static const struct wake_handlers wake_handlers = {on_decide, on_store, store_save};

/* It reads of all processes of the machine: where they are many, or it is slow, more rarely. */
static bool look_at_usage(struct node *n, uint64_t now)
{
    uint64_t began = clock_now_ns();
    bool changed;

    if (began < top_of(n)->usage_ns)
        return false;
    changed = usage_look(n, now);
    top_of(n)->usage_ns = began + USAGE_PAUSE * (clock_now_ns() - began);
    return changed;
}

/* What nobody reports: limits changed from outside, deaths of other users' daemons, age. */
static int on_tick(sd_event_source *s, uint64_t usec, void *arg)
{
    struct node *n = arg;
    uint64_t now = clock_now_ns();
    bool changed = false;

    for (struct job *j = n->jobs.first; j; j = j->next) {
        bool young = now - j->met_ns < JOB_GRACE_NS;

        changed |= j->confine->look_at_drift(j);
        changed |= j->young != young;
        j->young = young;
    }
    changed |= look_at_usage(n, now);
    if (claims_shared(n->claims))
        changed |= claims_refresh(n->claims);
    changed |= now >= decision_next(n->decision);
    link_tick(n->link);
    groups_look(n->groups, now);
    containers_tick(n->containers);
    chronicle_look(n);
    store_tick(n);
    if (changed)
        node_changed(n);
    sd_event_source_set_time_relative(s, TICK_US);
    return 0;
}

static int on_auto_exit(sd_event_source *s, uint64_t usec, void *arg)
{
    struct node *n = arg;

    if (n->jobs.n == 0 && chronicle_pending(n)) {
        arm_exit(arg, AUTO_EXIT_US);
    } else if (n->jobs.n == 0) {
        node_log("no job left: ending");
        sd_event_exit(n->event, 0);
    }
    return 0;
}

static void on_happening(void *arg, const char *type, json_t *data)
{
    const struct node *n = arg;

    events_tell(n->events, type, data);
}

/* ---- start ---- */

static int open_directory(struct node *n, const struct node_options *o, struct error *err)
{
    int r = o->dir[0] ? 0 : rundir_user(n->dir);

    if (o->dir[0])
        memcpy(n->dir, o->dir, sizeof(n->dir));
    if (r < 0)
        return error_set(err, r, "the run directory's path is too long for a socket");
    n->dir_fd = r = rundir_open(n->dir, err);
    if (r < 0)
        return r;
    if (n->uid == 0 && strcmp(n->dir, RUNDIR_SYSTEM) == 0 && fchmod(n->dir_fd, 0755) < 0)
        return error_set(err, -errno, "cannot open %s to all users: %s", n->dir, strerror(errno));
    return 0;
}

static int take_lock(struct top *t, struct error *err)
{
    const struct node *n = &t->node;
    char text[24];

    t->lock_fd = openat(n->dir_fd, RUNDIR_LOCK, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (t->lock_fd < 0)
        return error_set(err, -errno, "cannot write in %s: %s", n->dir, strerror(errno));
    for (unsigned i = 0; flock(t->lock_fd, LOCK_EX | LOCK_NB) < 0; i++) {
        if (errno != EWOULDBLOCK || i == LOCK_TRIES)
            return error_set(err, -EBUSY,
                             "another tided runs in %s (its pid is in " RUNDIR_LOCK ")", n->dir);
        usleep(10000);
    }
    snprintf(text, sizeof(text), "%d\n", (int)getpid());
    if (ftruncate(t->lock_fd, 0) < 0 || write(t->lock_fd, text, strlen(text)) < 0)
        node_log("cannot write the pid into " RUNDIR_LOCK ": %s", strerror(errno));
    return 0;
}

static int find_machine(struct node *n, const struct node_options *o, struct error *err)
{
    struct cpuset usable;
    int r = topology_read(n->root, &n->topology);

    if (r < 0)
        return error_set(err, r, "cannot read the machine's processors: %s", strerror(-r));
    n->cpus = n->topology.online;
    /* A container's or a batch job's daemon has what its own cpuset leaves. */
    if (topology_usable(&usable) == 0) {
        cpuset_and(&usable, &usable, &n->cpus);
        if (cpuset_count(&usable) > 0)
            n->cpus = usable;
    }
    if (cpuset_count(&o->config.cpus) > 0) {
        cpuset_and(&usable, &o->config.cpus, &n->topology.online);
        if (cpuset_count(&usable) == 0)
            return error_set(err, -EINVAL, "cpus: none of these processors is online");
        n->cpus = o->config.cpus;
        n->cpus_made_up = !cpuset_equal(&usable, &n->cpus);
    }
    n->usable = n->cpus;
    return 0;
}

static void find_privileges(struct node *n)
{
    struct error why = {0};

    cgroup_daemon_name(n->uid, n->epoch, n->group);
    if (cgroup_new(n->root, &n->cgroup) < 0 ||
        !cgroup_writable(n->cgroup, &n->weights, &n->cpusets, &why)) {
        snprintf(n->weights_note, sizeof(n->weights_note), "no weights: %.*s", ERROR_TEXT_MAX - 20,
                 why.text[0] ? why.text : "no control groups");
        if (n->uid != 0)
            n->weights = n->cpusets = false;
    }
}

/* Thousands of connections and a pidfd per process need more than the usual 1024 descriptors. */
static void raise_descriptor_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return;
    limit.rlim_cur = limit.rlim_max < 8192 ? limit.rlim_max : 8192;
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* ---- configuration ---- */

/* What is configured, by `tide policy set` until that changes, or the usual one. */
static void choose_policy(struct node *n, const struct node_options *o)
{
    struct policy_spec spec = o->config.policy;

    if (o->policy_ordered || store_load_policy(n, &spec) == 0 || spec.policy)
        decision_set_policy(n->decision, &spec);
}

static void take_config(struct node *n, const struct config *c)
{
    n->config = *c;
    if (top_of(n)->policy_ordered) /* then no file's counts */
        n->config.policy = (struct policy_spec){0};
    n->placement = c->placement;
    n->heartbeat_ms = c->heartbeat_ms;
    n->admin_gid = config_group(c->admin_group);
}

static bool same_policy(const struct policy_spec *a, const struct policy_spec *b)
{
    return a->policy == b->policy && memcmp(a->params, b->params, sizeof(a->params)) == 0;
}

/* A policy of `tide policy set` stays in force unless the file names another one than before. */
static void reconfigure(struct node *n, const struct config *c)
{
    const struct config before = n->config;
    struct policy_spec spec;

    take_config(n, c);
    n->memory_bytes = usage_machine_memory(n);
    spec = n->config.policy;
    if (!same_policy(&spec, &before.policy)) {
        if (!spec.policy)
            policy_spec_parse(policy_at(0)->name, &spec, NULL);
        decision_set_policy(n->decision, &spec);
    }
    if (c->heartbeat_ms != before.heartbeat_ms)
        agent_welcome_all(n);
    if (!cpuset_equal(&c->cpus, &before.cpus) || c->engines_said != before.engines_said ||
        c->n_engines != before.n_engines ||
        memcmp(c->engines, before.engines, c->n_engines * sizeof(c->engines[0])) != 0)
        node_log("other cpus or engines are used when tided is started again");
    node_log("configuration read again");
    node_changed(n);
}

static void reload(struct node *n)
{
    struct error err = {0};
    struct config c;

    sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%llu",
               (unsigned long long)(clock_now_ns() / NS_PER_US));
    if (config_load(top_of(n)->source, &c, &err) < 0)
        node_log("%s; everything stays as it was", err.text);
    else
        reconfigure(n, &c);
    sd_notify(0, "READY=1");
}

static int on_signal(sd_event_source *s, const struct signalfd_siginfo *info, void *arg)
{
    struct node *n = arg;

    if (info->ssi_signo == SIGHUP && top_of(n)->source->file) {
        reload(n);
        return 0;
    }
    node_log("signal %u: ending", info->ssi_signo);
    sd_event_exit(n->event, 0);
    return 0;
}

/* Nobody can reach a daemon whose directory is gone, and the next one would be a second one. */
static int on_directory(sd_event_source *s, const struct inotify_event *event, void *arg)
{
    struct node *n = arg;
    struct stat ours, there;

    bool gone = stat(n->dir, &there) < 0
                    ? errno == ENOENT
                    : fstat(n->dir_fd, &ours) == 0 &&
                          (ours.st_ino != there.st_ino || ours.st_dev != there.st_dev);

    if (gone || (faccessat(n->dir_fd, RUNDIR_API_SOCKET, F_OK, 0) < 0 && errno == ENOENT)) {
        node_log("%s was removed, or its sockets: ending, so that another daemon can begin",
                 n->dir);
        sd_event_exit(n->event, 0);
    }
    return 0;
}

static int watch_directory(struct top *t)
{
    struct node *n = &t->node;

    return sd_event_add_inotify(n->event, &t->directory, n->dir, IN_DELETE | IN_MOVE_SELF,
                                on_directory, n);
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
    struct node *n = &t->node;
    sd_event *e = n->event;
    int r = sd_event_add_signal(e, NULL, SIGTERM, on_signal, n);

    if (r >= 0)
        r = sd_event_add_signal(e, NULL, SIGINT, on_signal, n);
    if (r >= 0)
        r = sd_event_add_signal(e, NULL, SIGHUP, on_signal, n);
    if (r >= 0)
        r = sd_event_add_time_relative(e, &t->tick, CLOCK_MONOTONIC, TICK_US, 50000, on_tick, n);
    r = add_source_off(r, t->tick, SD_EVENT_PRIORITY_NORMAL + 5);
    if (r >= 0)
        r = sd_event_add_time_relative(e, &t->exit, CLOCK_MONOTONIC, FIRST_JOB_US, 0, on_auto_exit,
                                       n);
    r = add_source_off(r, t->exit, SD_EVENT_PRIORITY_IDLE);
    if (r >= 0)
        r = wake_new(n, e, &wake_handlers, &n->wake);
    if (r >= 0)
        r = plan_new(n, &n->plan);
    return r < 0 ? r : waits_new(n, &n->waits);
}

/* For what outlives a reboot. */
static const char *state_directory(const struct node *n)
{
    const char *dir = getenv("STATE_DIRECTORY"); /* systemd's word */

    if (!dir || dir[0] != '/' || strchr(dir, ':'))
        dir = strcmp(n->dir, RUNDIR_SYSTEM) == 0 ? HISTORY_STATE_DIR : n->dir;
    if (strcmp(dir, HISTORY_STATE_DIR) == 0)
        mkdir(dir, 0700);
    return dir;
}

/* Neither is needed to run jobs: without memory for them there is no record. */
static void begin_record(struct node *n)
{
    uint32_t mib = n->config.history_mib;

    if (events_new(n, &n->events) < 0 ||
        (mib && history_new(state_directory(n), mib, &n->history) < 0))
        node_log("out of memory: what happens to jobs is not recorded");
}

static int begin(struct top *t, const struct node_options *o, struct error *err)
{
    struct node *n = &t->node;
    struct error why = {0};
    char earlier[CGROUP_NAME_MAX] = "";
    uint64_t before;
    int r = open_directory(n, o, err);

    if (r == 0)
        r = take_lock(t, err);
    if (r == 0)
        r = find_machine(n, o, err);
    if (r == 0 && (store_new(&n->store) < 0 || chronicle_new(on_happening, n, &n->chronicle) < 0))
        r = error_set(err, -ENOMEM, "out of memory");
    if (r < 0)
        return r;
    n->epoch = store_next_epoch(n, &before);
    store_engines(n);
    find_privileges(n);
    n->memory_bytes = usage_machine_memory(n);
    r = sd_event_new(&n->event);
    if (r >= 0)
        r = add_sources(t);
    if (r < 0)
        return error_set(err, r, "no event loop: %s", strerror(-r));
    r = groups_new(n, &n->groups, err);
    if (r == 0)
        r = decision_new(&n->decision, err);
    if (r < 0)
        return r;
    choose_policy(n, o);
    if (before)
        cgroup_daemon_name(n->uid, before, earlier);
    r = guardian_new(n->event, n->dir_fd, n->config.n_engines ? state_directory(n) : NULL, n->group,
                     n->cgroup, earlier, &n->guardian, err);
    if (r < 0)
        return r;
    begin_record(n);
    if (claims_new(n, &n->claims, &why) < 0)
        node_log("%s", why.text);
    r = link_new(n, &agent_role, &control_role, &n->link, err);
    for (unsigned i = 0; r == 0 && i < n->config.n_engines; i++)
        r = containers_new(n, n->config.engines[i], &n->containers, err);
    if (r == 0)
        r = api_new(n, routes_handle, &n->api, err);
    return r;
}

/* ---- end ---- */

/* Agents first: they stop waiting for us at once, and their cores are theirs again. */
static void end(struct top *t)
{
    struct node *n = &t->node;

    n->ending = true;
    sd_notify(0, "STOPPING=1");
    if (n->link)
        agent_release_all(n);
    if (n->wake) {
        store_save(n);
        store_forget_engines(n);
    }
    if (n->guardian)
        actuate_restore_all(n);
    if (n->api)
        unlinkat(n->dir_fd, RUNDIR_AGENT_SOCKET, 0);
    if (n->chronicle)
        chronicle_done(n);
    events_end_streams(n->events);
    n->api = api_free(n->api);
    n->events = events_free(n->events);
    while (n->jobs.first)
        job_free(n->jobs.first);
    n->history = history_free(n->history);
    n->containers = containers_free(n->containers);
    n->link = link_free(n->link);
    n->claims = claims_free(n->claims);
    n->groups = groups_free(n->groups);
    n->guardian = guardian_free(n->guardian);
    n->decision = decision_free(n->decision);
    n->cgroup = cgroup_free(n->cgroup);
    n->chronicle = chronicle_free(n->chronicle);
    n->store = store_free(n->store);
    n->waits = waits_free(n->waits);
    n->plan = plan_free(n->plan);
    n->wake = wake_free(n->wake);
    sd_event_source_disable_unref(t->tick);
    sd_event_source_disable_unref(t->exit);
    sd_event_source_disable_unref(t->directory);
    sd_event_unref(n->event);
    close_fd(t->lock_fd);
    close_fd(n->dir_fd);
    close_fd(n->root);
}

int node_run(const struct node_options *options, struct error *err)
{
    _cleanup_free_ struct top *t = calloc(1, sizeof(*t));
    struct node *n = &t->node;
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
    n->dir_fd = t->lock_fd = -1;
    n->jobs.observers = observers;
    n->jobs.confine = &process_confine;
    n->uid = geteuid();
    t->auto_exit = options->auto_exit;
    t->policy_ordered = options->policy_ordered;
    t->source = options->source;
    take_config(n, &options->config);
    n->root = r = file_open_root();
    if (r >= 0)
        r = begin(t, options, err);
    if (r == 0) {
        node_log("version " TIDE_VERSION " in %s, cpus: %u%s%s", n->dir, cpuset_count(&n->cpus),
                 n->weights_note[0] ? ", " : "", n->weights_note);
        store_load(n);
        node_changed(n);
        arm_exit(t, FIRST_JOB_US);
        if (watch_directory(t) < 0)
            node_log("%s cannot be watched: its removal will go unseen", n->dir);
        sd_notify(0, "READY=1");
        r = sd_event_loop(n->event);
    }
    end(t);
    return r;
}

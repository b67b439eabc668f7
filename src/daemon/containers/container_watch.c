/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/containers/container.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/container.h"
#include "base/failpoint.h"
#include "daemon/confine/guardian.h"
#include "daemon/confine/journal.h"
#include "daemon/containers/container_state.h"
#include "daemon/containers/labels.h"
#include "daemon/daemon.h"
#include "daemon/link/agent_socket.h"
#include "host/cgroup/cgroup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>

#define ERROR_WORD "engine-fault"

void container_free(struct container *c)
{
    struct container **at = &c->set->first;

    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    if (c->ticket > 0)
        engine_cancel(c->set->engine, c->ticket);
    container_memory_gone(c);
    if (c->job)
        container_unbind(c->job);
    agent_socket_unlisten(c->listener);
    free(c);
}

static void on_oom(struct container *c)
{
    struct job *j = c->job;

    if (!j) {
        job_announce_out_of_memory(c->set->daemon, c->id);
        return;
    }
    j->observed.out_of_memory = true;
    snprintf(j->placed.note, sizeof(j->placed.note), "a process was killed: out of memory");
}

static bool killed_for_memory(const struct container *c, pid_t pid)
{
    const struct cgroup *cg = container_daemon(c)->cgroup;
    struct cgroup_place place = c->place;
    uint64_t kills;

    return cg && (*place.cpu || cgroup_find(cg, pid, c->id, &place) == 0) &&
           cgroup_read_oom_kills(cg, &place, &kills) == 0 && kills > 0;
}

/*
 * The engine's word of it may come after the container's end, or not at all: its runtime watches
 * a file that it also removes. The group is there until the engine has seen the end.
 */
static void process_gone(struct process *p)
{
    struct container *c = p->job->container;

    if (c && killed_for_memory(c, p->pid))
        on_oom(c);
}

const struct job_observer containers_observer = {.process_gone = process_gone,
                                                 .gone = container_job_gone};

static void log_refused(const struct engine_container *seen, const char *why)
{
    daemon_err("container %.12s (%.40s) cannot become a job: %s", seen->id, seen->name, why);
}

static bool elastic(const struct containers *set, const struct engine_container *seen)
{
    const struct container *c = container_find(set, seen->id);
    _cleanup_fd_ int fd = -1;

    if (labels_elastic(seen->labels, seen->n_labels) || (c && c->origin == CONTAINER_ADOPTED))
        return true;
    if (labels_refuse(seen->labels, seen->n_labels))
        return false;
    fd = container_dir_open(set->daemon, seen->id); /* tide-runc made the directory */
    return fd >= 0;
}

/* An answer of the engine was lost: the tick asks for the whole list again. */
static void miss(struct containers *set)
{
    set->missed = true;
    daemon_changed(set->daemon);
}

static void on_put_back(void *arg, const struct engine_result *result);

/* Returns true if an earlier daemon's limits are still on the container: they are not its own. */
static bool put_back(struct containers *set, const char *id)
{
    struct journal *journal = guardian_journal(set->daemon->guardian);
    struct engine_then then = {.done = on_put_back, .arg = set};
    int r = 0;

    if (set->up)
        r = journal_put_back(journal, set->engine, id, then);
    else if (journal_left(journal, id))
        r = -ENOTCONN;
    if (r < 0)
        miss(set);
    return r != 0;
}

static void inspect(struct containers *set, const char *id);

static void on_put_back(void *arg, const struct engine_result *result)
{
    struct containers *set = arg;

    if (!journal_settle(guardian_journal(set->daemon->guardian), result)) {
        if (result->code == -EREMOTEIO)
            miss(set); /* not at once: the engine has a problem */
        else
            put_back(set, result->target);
    } else {
        inspect(set, result->target);
    }
}

static bool runs_now(const struct engine_container *seen)
{
    return seen->state == ENGINE_RUNNING || seen->state == ENGINE_PAUSED;
}

static void take(struct container *c, const struct engine_container *seen)
{
    struct error err = {0};

    if (container_take(c, seen, NULL, &err) == 0)
        return;
    c->set->crowded |= err.code == -ENOSPC;
    log_refused(seen, err.text);
}

/* The job ended with its first process, unless the engine reports that before the kernel does. */
static void died(struct container *c)
{
    struct job *j = c->job;

    if (j && !container_leave(c))
        job_end(j);
    if (j)
        daemon_changed(c->set->daemon);
    failpoint(FAILPOINT_CONTAINER_ENDED);
    c->origin = CONTAINER_BY_LABEL;
    container_reset(c);
}

static void on_answer(void *arg, const struct engine_result *result)
{
    struct container *c = arg;
    struct containers *set = c->set;
    const struct engine_container *seen = result->n_containers ? result->containers : NULL;

    c->ticket = 0;
    if (!container_counts(&c->state)) {
        container_happens(c, CONTAINER_UNREAD);
        return;
    }
    if (result->code == -ENOENT)
        miss(set); /* the container vanished without an event */
    if (result->code < 0) {
        c->drift.known = false;
        container_happens(c, CONTAINER_LOST);
    }
    if (seen && c->job && runs_now(seen) && !container_runs(c->job))
        died(c); /* the engine describes a new run: inspected again */
    if (put_back(set, c->id) || result->code < 0 || !seen || !container_counts(&c->state) ||
        (c->job && !runs_now(seen)))
        container_happens(c, CONTAINER_UNREAD);
    else if (c->job || (runs_now(seen) && elastic(set, seen)))
        take(c, seen);
    else
        container_found_free(c, seen);
}

/* Takes the answer about a container that was unknown when the question was sent. */
static void on_inspected(void *arg, const struct engine_result *result)
{
    struct containers *set = arg;
    const struct engine_container *seen = result->n_containers ? result->containers : NULL;
    struct container *c = container_find(set, result->target);

    if (c) {
        container_happens(c, CONTAINER_NEWS);
        return;
    }
    if (result->code < 0 && result->code != -ENOENT)
        miss(set);
    if (put_back(set, result->target) || result->code < 0 || !seen || !runs_now(seen) ||
        !elastic(set, seen))
        return;
    c = container_add(set, seen->id, labels_key(seen->labels, seen->n_labels));
    if (c)
        take(c, seen);
    else
        log_refused(seen, "out of memory, or its id is too long");
}

static void inspect(struct containers *set, const char *id)
{
    struct engine_then then = {.done = on_inspected, .arg = set};
    struct container *c = container_find(set, id);

    if (c)
        container_happens(c, CONTAINER_NEWS);
    else if (set->up && engine_inspect(set->engine, id, then) < 0)
        miss(set);
}

/* ---- the engine's news ---- */

static void destroyed(struct container *c)
{
    const struct daemon *d = c->set->daemon;
    char key[CONTAINER_KEY_MAX + 1];
    struct container *heir;

    if (c->job)
        died(c);
    journal_forget(guardian_journal(d->guardian), c->id);
    memcpy(key, c->key, sizeof(key));
    container_free(c);
    heir = container_of_key(d, NULL, key, false);
    if (!heir)
        container_dir_remove(d, key);
    else if (heir->job)
        container_listen(heir);
}

/* For a container that is no job: it refused, or ended before the inspection. */
static void remove_directory(const struct daemon *d, const struct engine_event *event)
{
    const char *key = engine_event_attribute(event, CONTAINER_LABEL ".key");

    key = key && labels_key_valid(key) ? key : event->id;
    if (!container_of_key(d, NULL, key, false))
        container_dir_remove(d, key);
}

static void on_listed(void *arg, const struct engine_result *result)
{
    struct containers *set = arg;

    set->listing = 0;
    if (result->code < 0) {
        daemon_err("%s", result->text);
        miss(set);
        return;
    }
    for (size_t i = 0; i < result->n_containers; i++) {
        const struct engine_container *seen = &result->containers[i];
        bool runs = runs_now(seen);
        struct container *c = container_find(set, seen->id);

        if (c && !runs && c->heard != set->lists)
            died(c);
        if (c)
            c->heard = set->lists;
        if (!put_back(set, seen->id) && runs && elastic(set, seen))
            inspect(set, seen->id);
    }
    journal_sweep(guardian_journal(set->daemon->guardian), set->path, result);
    for (struct container *c = set->first, *next; c; c = next) {
        next = c->next;
        if (c->heard != set->lists)
            destroyed(c);
    }
    daemon_changed(set->daemon); /* the tick may rest */
}

/* An event after the question is newer than the answer. */
static void list(struct containers *set)
{
    if (set->listing > 0)
        engine_cancel(set->engine, set->listing);
    set->lists++;
    for (struct container *c = set->first; c; c = c->next)
        c->echoes = 0; /* their events may have been lost */
    set->listing =
        engine_list(set->engine, NULL, (struct engine_then){.done = on_listed, .arg = set});
    set->missed = set->listing < 0;
    set->crowded = false;
}

/*
 * Each update of ours causes one event, which does not say what changed. An event beyond these is
 * another program's, whichever comes first.
 */
static bool our_update(struct container *c)
{
    if (c->echoes == 0)
        return false;
    c->echoes--;
    return true;
}

/* An event between our request and the engine's answer is our own pause or unpause. */
static bool our_pause(const struct container *c, const struct engine_event *event)
{
    const struct pause_call *call = &c->pause_call;
    uint64_t ms = event->time_ns / NS_PER_MS;

    return call->phase ==
               (event->action == ENGINE_PAUSE ? CONTAINER_PAUSING : CONTAINER_UNPAUSING) &&
           ms >= call->asked_ms && ms <= call->answered_ms;
}

/* Another program's pause. One that is older than our last pause says nothing about ours. */
static void on_pause(struct container *c, const struct engine_event *event)
{
    bool later = c->state.phase < CONTAINER_PAUSING &&
                 event->time_ns / NS_PER_MS > c->pause_call.answered_ms;

    container_happens(c, event->action == ENGINE_UNPAUSE && later ? CONTAINER_WENT_ON
                                                                  : CONTAINER_NEWS);
}

/* The `die` of the previous run may arrive after the `start` of this one. */
static void on_die(struct container *c, const struct engine_event *event)
{
    bool earlier = job_announce_exited(c->set->daemon, c->id, event->exit_code);

    if (c->job && (earlier || container_runs(c->job)))
        return;
    if (c->job) {
        c->job->observed.exited = true;
        c->job->observed.exit = event->exit_code;
    }
    died(c);
}

static void on_event(struct containers *set, const struct engine_event *event)
{
    struct container *c = container_find(set, event->id);

    switch (event->action) {
    case ENGINE_START:
        inspect(set, event->id);
        break;
    case ENGINE_UPDATE:
        if (c && !our_update(c))
            inspect(set, event->id); /* container_found() repairs the change */
        break;
    case ENGINE_PAUSE:
    case ENGINE_UNPAUSE:
        if (c && !our_pause(c, event))
            on_pause(c, event);
        break;
    case ENGINE_OOM:
        if (c)
            on_oom(c);
        break;
    case ENGINE_RENAME:
        if (c && c->job && c->origin != CONTAINER_JOINED)
            container_rename(c->job, event->name);
        break;
    case ENGINE_DIE:
        if (c)
            on_die(c, event);
        break;
    case ENGINE_DESTROY:
        if (c)
            destroyed(c);
        else
            remove_directory(set->daemon, event);
        break;
    default:
        break;
    }
}

static void on_news(void *arg, const struct engine_news *news)
{
    struct containers *set = arg;

    switch (news->kind) {
    case ENGINE_LOST:
        if (set->up) {
            daemon_err("%s: %s", set->path, news->text);
            snprintf(set->away, sizeof(set->away), "%.*s", JOB_REASON_MAX - 1, news->text);
        }
        set->up = false;
        break;
    case ENGINE_RESYNC:
        if (!set->up)
            daemon_log("%s: %s", set->path, engine_version(set->engine));
        set->up = true;
        *set->away = '\0';
        list(set);
        break;
    case ENGINE_BACK:
        set->up = true;
        *set->away = '\0';
        for (struct container *c = set->first; c; c = c->next)
            container_happens(c, CONTAINER_WANT);
        break;
    case ENGINE_NEWS:
        on_event(set, news->event);
        break;
    }
}

static bool to_be_listed(const struct containers *set)
{
    return set->up && (set->missed || (set->crowded && set->daemon->jobs->n < PROTO_JOBS_MAX));
}

void containers_tick(struct containers *all)
{
    if (all)
        container_adopt_tick(all->daemon);
    for (struct containers *set = all; set; set = set->next) {
        if (to_be_listed(set))
            list(set);
        for (struct container *c = set->first; c; c = c->next)
            container_tick(c);
    }
}

bool containers_pending(const struct containers *all)
{
    if (all && all->daemon->adoptions)
        return true;
    for (; all; all = all->next) {
        if (to_be_listed(all))
            return true;
        for (const struct container *c = all->first; c; c = c->next)
            if (c->state.phase == CONTAINER_DOUBTED || (!c->job && container_unsettled(c)))
                return true;
    }
    return false;
}

static int on_readable(sd_event_source *s, int fd, uint32_t events, void *arg)
{
    const struct containers *set = arg;

    engine_dispatch(set->engine);
    failpoint(FAILPOINT_ENGINE_SERVED);
    return 0;
}

static int on_flush(sd_event_source *s, void *arg)
{
    containers_flush(arg);
    return 0;
}

void containers_notes(const struct containers *all, json_t *ret_notes)
{
    for (; all; all = all->next)
        if (*all->away)
            json_array_append_new(ret_notes,
                                  json_sprintf("%s does not answer, its containers stay as they "
                                               "are: %s",
                                               all->path, all->away));
}

/* ---- beginning and end ---- */

static int make_directory(const struct daemon *d)
{
    if (mkdirat(d->dir_fd, CONTAINER_RUN_DIR, 0711) < 0 && errno != EEXIST)
        return -errno;
    /* Container users need to pass through the directory, whatever the umask is. */
    return fchmodat(d->dir_fd, CONTAINER_RUN_DIR, 0711, 0) < 0 ? -errno : 0;
}

static struct containers *free_one(struct containers *set)
{
    while (set->first)
        container_free(set->first);
    sd_event_source_disable_unref(set->io);
    sd_event_source_disable_unref(set->flush);
    engine_free(set->engine);
    free(set);
    return NULL;
}

int containers_new(struct daemon *d, const char *socket_path, struct containers **others,
                   struct error *err)
{
    struct containers *set = calloc(1, sizeof(*set));
    int r;

    if (!set)
        return error_set(err, -ENOMEM, "out of memory");
    set->daemon = d;
    if (d->cgroup && cgroup_version_cpu(d->cgroup) == CGROUP_V2)
        set->shares = CGROUP_SHARES_LINEAR; /* until the first container shows another conversion */
    snprintf(set->path, sizeof(set->path), "%s", socket_path);
    set->inspected = on_answer;
    r = make_directory(d);
    if (r < 0)
        error_set(err, r, "cannot make %s/" CONTAINER_RUN_DIR ": %s", d->dir, strerror(-r));
    if (r == 0)
        r = engine_new(socket_path, on_news, set, &set->engine, err);
    if (r == 0)
        r = sd_event_add_io(d->event, &set->io, engine_fd(set->engine), EPOLLIN, on_readable, set);
    if (r >= 0)
        r = sd_event_add_defer(d->event, &set->flush, on_flush, set);
    if (r >= 0)
        r = sd_event_source_set_enabled(set->flush, SD_EVENT_OFF);
    if (r < 0) {
        free_one(set);
        return r;
    }
    set->next = *others;
    *others = set;
    return 0;
}

struct containers *containers_free(struct containers *all)
{
    while (all) {
        struct containers *next = all->next;

        free_one(all);
        all = next;
    }
    return NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/job/job.h"
#include "base/failpoint.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "daemon/daemon.h"
#include "daemon/job/apportion.h"
#include "daemon/job/confine.h"
#include "daemon/job/limits.h"
#include "daemon/job/owner.h"
#include "host/proc/exit_watch.h"
#include "host/proc/proc.h"

#include <ctype.h>
#include <pwd.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>

#define ERROR_WORD "system-refused"

#define ANCESTORS_MAX 64        /* longest way up the parents of a process */
#define NUMBER_MAX    999999999 /* in an id */

/* NOLINTBEGIN(bugprone-macro-parentheses): it declares @o */
#define for_each_observer(o, n)                                                                    \
    for (const struct job_observer *const *o = (n)->jobs->observers; o && *o; o++)
/* NOLINTEND(bugprone-macro-parentheses) */

/* ---- names ---- */

/* "j17" → 17; 0 for anything else. */
static uint32_t id_number(const char *text)
{
    char *end;
    unsigned long number;

    if (text[0] != 'j' || text[1] < '1' || text[1] > '9')
        return 0;
    number = strtoul(text + 1, &end, 10);
    return *end || number > NUMBER_MAX ? 0 : (uint32_t)number;
}

bool job_name_valid(const char *name)
{
    size_t len = strlen(name);

    /* A pid, an id or an option could not be told from such a name on a command line. */
    if (len == 0 || len >= PROTO_NAME_MAX || strspn(name, "0123456789") == len || id_number(name) ||
        *name == '-')
        return false;
    for (const char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("._+:@-", *c))
            return false;
    return true;
}

struct job *job_find(const struct daemon *d, const char *text)
{
    char *end;
    long pid = strtol(text, &end, 10);

    for (struct job *j = d->jobs->first; j; j = j->next)
        if (strcmp(j->id, text) == 0 || strcmp(j->name, text) == 0)
            return j;
    if (*end || pid <= 0)
        return NULL;
    for (struct job *j = d->jobs->first; j; j = j->next)
        for (struct process *p = j->processes; p; p = p->next)
            if (p->pid == pid)
                return j;
    return NULL;
}

struct job *job_of_number(const struct daemon *d, uint64_t number)
{
    for (struct job *j = d->jobs->first; j; j = j->next)
        if (j->number == number)
            return j;
    return NULL;
}

struct job *job_find_token(const struct daemon *d, const char *token)
{
    for (struct job *j = d->jobs->first; *token && j; j = j->next)
        if (strcmp(j->token, token) == 0)
            return j;
    return NULL;
}

struct job *job_find_pid(const struct daemon *d, pid_t pid, uid_t uid)
{
    struct proc_stat stat;

    for (unsigned depth = 0; pid > 1 && depth < ANCESTORS_MAX; depth++) {
        for (struct job *j = d->jobs->first; j; j = j->next)
            for (struct process *p = j->processes; p; p = p->next)
                if (p->pid == pid)
                    return j->uid == uid ? j : NULL;
        if (proc_read_stat(d->root, pid, &stat) < 0)
            return NULL;
        pid = stat.parent;
    }
    return NULL;
}

/* ---- table ---- */

static void table_insert(struct daemon *d, struct job *j)
{
    struct job **at = &d->jobs->first;

    while (*at && (*at)->number < j->number)
        at = &(*at)->next;
    j->next = *at;
    *at = j;
}

static void table_remove(struct daemon *d, struct job *j)
{
    struct job **at = &d->jobs->first;

    while (*at && *at != j)
        at = &(*at)->next;
    if (*at)
        *at = j->next;
    j->next = NULL;
}

/* Any agent may say that its job has the last number: behind it come those that are free. */
static uint32_t next_number(const struct daemon *d)
{
    uint32_t *last = &d->jobs->last_number;

    do
        *last = *last % NUMBER_MAX + 1;
    while (job_of_number(d, *last));
    return *last;
}

static int make_token(char ret_token[PROTO_TOKEN_MAX])
{
    unsigned char bytes[16];

    if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
        return -EIO;
    for (size_t i = 0; i < sizeof(bytes); i++)
        snprintf(ret_token + 2 * i, 3, "%02x", bytes[i]);
    return 0;
}

/* Reads /etc/passwd itself: a name service on the network could block the loop. */
static void find_owner(uid_t uid, char *buf, size_t size)
{
    FILE *f = fopen("/etc/passwd", "re");
    const struct passwd *entry;

    snprintf(buf, size, "%u", (unsigned)uid);
    while (f && (entry = fgetpwent(f)))
        if (entry->pw_uid == uid) {
            snprintf(buf, size, "%s", entry->pw_name);
            break;
        }
    if (f)
        fclose(f);
}

static int check_request(const struct daemon *d, uid_t uid, const struct job_request *req,
                         struct error *err)
{
    const struct job *other;
    /* Only the daemon's own limit applies to a recovered job, as to the daemon's user. */
    int r = limits_check_job(d, req->again ? d->uid : uid, err);

    if (r < 0)
        return r;
    if (!req->name)
        return 0;
    if (!job_name_valid(req->name))
        return error_word(
            err,
            error_set(err, -EINVAL,
                      "name is '%.80s': use 1 to %d of A-Z a-z 0-9 . _ + : @ -, not only digits, "
                      "not like an id (j1) and no - at the front",
                      req->name, PROTO_NAME_MAX - 1),
            "bad-name");
    other = job_find(d, req->name);
    if (other)
        return error_word(
            err, error_set(err, -EEXIST, "name '%s' is taken by job %s", req->name, other->id),
            "name-taken");
    return 0;
}

int job_new(struct daemon *d, uid_t uid, const struct job_request *req, struct job **ret,
            struct error *err)
{
    struct job *j;
    int r = check_request(d, uid, req, err);

    if (r < 0)
        return r;
    j = fault(FAULT_JOB_MEMORY) < 0 ? NULL : calloc(1, sizeof(*j));
    if (!j)
        return error_set(err, -ENOMEM, "out of memory");
    r = make_token(j->token);
    if (r < 0) {
        free(j);
        return error_set(err, r, "cannot get random numbers for the job's token");
    }
    j->daemon = d;
    j->confine = d->jobs->confine;
    j->service = "";
    j->number = next_number(d);
    snprintf(j->id, sizeof(j->id), "j%u", j->number);
    snprintf(j->name, sizeof(j->name), "%s", req->name ? req->name : j->id);
    j->uid = uid;
    find_owner(uid, j->owner, sizeof(j->owner));
    j->created_ns = j->met_ns = clock_now_ns();
    j->created_ms = clock_real_ms();
    j->asked.attributes = req->asked;
    j->asked.pinned = req->pinned;
    j->asked.pinned_by = PROTO_SOURCE_DAEMON;
    j->asked.sized = req->sized;
    j->asked.script = req->script;
    j->asked.granted = req->granted;
    j->placed.quota_mcpu = j->wanted.quota_mcpu = CGROUP_NO_QUOTA;
    admission_init(j, req->submitted, j->created_ns);
    j->admission.held = req->held;
    j->admission.held_since_ns = j->created_ns;
    j->dirty = true;
    table_insert(d, j);
    d->jobs->n++;
    *ret = j;
    return 0;
}

struct job_request job_request_usual(const struct daemon *d)
{
    struct job_request req = {.asked = attributes_usual()};

    req.asked.placement = d->placement;
    return req;
}

void job_request_promise(const struct daemon *d, uid_t uid, struct job_request *req, size_t len)
{
    char name[PROTO_NAME_MAX] = "";

    if (!req->name || req->asked.slo_us)
        return;
    snprintf(name, sizeof(name), "%.*s", (int)len, req->name);
    req->asked.slo_us = config_slo(&d->config, uid, name);
}

struct job_request job_request_of(const struct job *j)
{
    return (struct job_request){.asked = j->asked.attributes, .sized = j->asked.sized};
}

void job_ask(struct job *j, const struct attributes *asked)
{
    j->asked.attributes = *asked;
    j->dirty = true;
}

int job_set_id(struct job *j, const char *id)
{
    struct daemon *d = j->daemon;
    uint32_t number = id_number(id);
    bool named_by_id = strcmp(j->name, j->id) == 0;

    if (number == 0)
        return -EINVAL;
    if (job_find(d, id))
        return -EEXIST;
    table_remove(d, j);
    j->number = number;
    snprintf(j->id, sizeof(j->id), "j%u", number);
    if (named_by_id)
        snprintf(j->name, sizeof(j->name), "%s", j->id);
    table_insert(d, j);
    if (d->jobs->last_number < number)
        d->jobs->last_number = number;
    return 0;
}

/*
 * A submitted job's first process leads a group: processes that a script started end with it. The
 * group's number is not recycled while the leader exists, which its descriptor guarantees.
 */
static bool ask_to_end(const struct job *j, const struct process *p)
{
    pid_t group = j->admission.submitted ? getpgid(p->pid) : -1;

    if (group == p->pid && proc_pidfd_signal(p->pidfd, 0) == 0)
        return owner_signal_group(j, group, SIGTERM) > 0;
    for (const struct process *leader = j->processes; leader; leader = leader->next)
        if (leader->pid == group && leader != p)
            return true; /* signalled with its leader: a second signal could mean "at once" */
    return owner_agrees(p) && proc_pidfd_signal(p->pidfd, SIGTERM) == 0;
}

unsigned job_terminate(const struct job *j)
{
    unsigned asked = 0;

    for (const struct process *p = j->processes; p; p = p->next)
        asked += ask_to_end(j, p);
    return asked;
}

void job_free(struct job *j)
{
    struct daemon *d = j->daemon;

    table_remove(d, j);
    d->jobs->n--;
    while (j->processes)
        process_free(j->processes);
    for_each_observer(o, d) if ((*o)->gone)(*o)->gone(j);
    admission_gone(j);
    free(j);
}

void job_end(struct job *j)
{
    struct daemon *d = j->daemon;

    daemon_log("job %s (%s) ended", j->id, j->name);
    for_each_observer(o, d) if ((*o)->ended)(*o)->ended(j);
    job_free(j);
    daemon_store_later(d);
}

/* ---- processes ---- */

static int on_exit_of_process(sd_event_source *s, int fd, uint32_t events, void *arg)
{
    struct process *p = arg;
    struct job *j = p->job;
    struct daemon *d = j->daemon;

    if (!exit_watch_ended(fd, p->pidfd))
        return 0;
    if (p->leads && proc_exit_status(d->root, p->pidfd, p->pid, p->start, &j->observed.exit) == 0)
        j->observed.exited = true;
    process_free(p);
    if (!j->processes)
        job_end(j);
    daemon_store_later(d);
    daemon_changed(d);
    return 0;
}

static struct process *process_known(struct job *j, pid_t pid)
{
    for (struct process *p = j->processes; p; p = p->next)
        if (p->pid == pid)
            return p;
    return NULL;
}

void job_leave(struct daemon *d, pid_t pid, const struct job *but)
{
    for (struct job *j = d->jobs->first; j; j = j->next) {
        struct process *p = j == but ? NULL : process_known(j, pid);

        if (!p)
            continue;
        process_free(p);
        if (!j->processes)
            job_end(j);
        return;
    }
}

static void process_link(struct job *j, struct process *p)
{
    struct process **at = &j->processes;

    while (*at)
        at = &(*at)->next;
    *at = p;
    p->job = j;
    j->n_processes++;
    j->dirty = true;
}

int process_add(struct job *j, pid_t pid, uint64_t start, struct process **ret)
{
    struct daemon *d = j->daemon;
    struct process *p = process_known(j, pid);
    struct proc_stat stat;
    int r;

    if (p && start && p->start != start)
        return -ESRCH; /* the process ended, and its pid was recycled */
    if (p) {
        *ret = p;
        return 0;
    }
    if (j->n_processes >= JOB_PROCESSES_MAX)
        return -ENOSPC;
    p = fault(FAULT_PROCESS_MEMORY) < 0 ? NULL : calloc(1, sizeof(*p));
    if (!p)
        return -ENOMEM;
    /*
     * Opens the descriptor first, so that stat describes that process, unless the descriptor says
     * that it has ended.
     */
    p->pidfd = proc_pidfd_open(pid);
    r = p->pidfd < 0 ? p->pidfd : proc_read_stat(d->root, pid, &stat);
    if (r >= 0 && ((start && stat.start != start) || stat.state == 'Z'))
        r = -ESRCH;
    if (r >= 0)
        r = owner_check(j, p->pidfd, pid);
    if (r >= 0)
        r = exit_watch_add(d->event, &p->exit_source, p->pidfd, on_exit_of_process, p);
    if (r < 0) {
        close_fd(p->pidfd);
        free(p);
        return r;
    }
    p->pid = pid;
    p->start = stat.start;
    snprintf(p->comm, sizeof(p->comm), "%.*s", (int)sizeof(p->comm) - 1, stat.comm);
    p->outside = !j->confine->holds(j, pid);
    p->leads = !j->processes && !j->container_id;
    process_link(j, p);
    j->confine->enter(p);
    *ret = p;
    return 0;
}

/* The process comes from another job of the same user: the user has no process more. */
static bool is_the_users(const struct job *j, pid_t pid)
{
    for (struct job *other = j->daemon->jobs->first; other; other = other->next)
        if (other->uid == j->uid && process_known(other, pid))
            return true;
    return false;
}

static int check_newcomer(const struct job *j, pid_t pid)
{
    if (j->n_processes >= JOB_PROCESSES_MAX ||
        (!is_the_users(j, pid) && limits_check_process(j) < 0))
        return -ENOSPC;
    return owner_check_pid(j, pid);
}

int process_join(struct job *j, pid_t pid, uint64_t start, struct process **ret)
{
    int r = process_known(j, pid) ? 0 : check_newcomer(j, pid);

    if (r < 0)
        return r;
    job_leave(j->daemon, pid, j);
    return process_add(j, pid, start, ret);
}

/* Targets that the process set itself end with it. */
static void drop_local(struct job *j, const struct process *p)
{
    bool others = false;

    for (const struct process *q = j->processes; q; q = q->next)
        others |= q->local.intra > 0;
    if (p->local.intra && !others && j->asked.pinned_by != PROTO_SOURCE_DAEMON) {
        j->asked.pinned = (struct threads){0};
        j->asked.granted = false;
    }
}

void process_free(struct process *p)
{
    struct job *j = p->job;
    struct process **at = &j->processes;

    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    j->n_processes--;
    j->dirty = true;
    drop_local(j, p);
    for_each_observer(o, j->daemon) if ((*o)->process_gone)(*o)->process_gone(p);
    sd_event_source_disable_unref(p->exit_source);
    close_fd(p->pidfd);
    free(p);
}

bool process_malleable(const struct process *p)
{
    for (unsigned i = 0; p->connection && i < p->n_backends; i++)
        if (p->backend[i].known && p->backend[i].malleable)
            return true;
    return false;
}

uint32_t process_max(const struct process *p)
{
    uint32_t max = 0;

    for (unsigned i = 0; i < p->n_backends; i++)
        if (p->backend[i].known && p->backend[i].max.intra > max)
            max = p->backend[i].max.intra;
    return max;
}

/* ---- views ---- */

/* Its threads are as many as at the start, and how many of them work is to be measured. */
static bool is_moldable(const struct backend *b)
{
    return !b->malleable && strncmp(b->note, "moldable", strlen("moldable")) == 0;
}

bool job_malleable(const struct job *j)
{
    for (const struct process *p = j->processes; p; p = p->next)
        if (process_malleable(p))
            return true;
    return false;
}

/* The first runtime that a connected agent has reported and that is moldable, or is not. */
static const struct backend *first_reported(const struct job *j, bool moldable)
{
    for (const struct process *p = j->processes; p; p = p->next)
        for (unsigned i = 0; p->connection && i < p->n_backends; i++)
            if (p->backend[i].known && moldable == is_moldable(&p->backend[i]))
                return &p->backend[i];
    return NULL;
}

bool job_reported(const struct job *j)
{
    return first_reported(j, false) != NULL;
}

bool job_reported_any(const struct job *j)
{
    return first_reported(j, false) || first_reported(j, true);
}

bool job_tells_use(const struct job *j)
{
    return job_reported(j) ||
           (j->asked.attributes.placement != PLACEMENT_SHARED && job_reported_any(j));
}

bool job_waits(const struct job *j)
{
    for (const struct process *p = j->processes; p; p = p->next)
        if (p->connection && p->waits)
            return true;
    return false;
}

const char *job_state(const struct job *j, uint64_t now_ns)
{
    if (j->admission.phase == JOB_QUEUED)
        return j->admission.held ? "held" : "queued";
    if (j->admission.phase == JOB_PAUSED || j->observed.frozen)
        return "paused";
    if (job_malleable(j))
        return "running";
    if (!job_reported(j) && !j->adopted && now_ns - j->met_ns < JOB_START_NS)
        return "starting";
    return j->asked.sized ? "moldable" : "rigid";
}

static void add_note(char note[JOB_NOTE_MAX], const char *more)
{
    size_t len = strlen(note);

    snprintf(note + len, JOB_NOTE_MAX - len, "%s%s", len && *more ? "; " : "", more);
}

void job_note(const struct job *j, uint64_t now_ns, char ret_note[JOB_NOTE_MAX])
{
    bool running = j->admission.phase == JOB_RUNNING;
    char few[JOB_REASON_MAX];

    ret_note[0] = '\0';
    add_note(ret_note, j->placed.note);
    add_note(ret_note, j->confine->note(j, now_ns));
    if (apportion_short(j)) {
        snprintf(few, sizeof(few), "%u processes have a thread each: more than its target",
                 apportion_count(j));
        add_note(ret_note, few);
    }
    if (running && job_waits(j))
        add_note(ret_note, "waiting for a safe point: its threads change when the program comes to "
                           "one, such as the end of its parallel region or of a long call");
    if (!running)
        return;
    if (strcmp(job_state(j, now_ns), "moldable") == 0) {
        snprintf(few, sizeof(few),
                 job_reported_any(j)
                     ? "moldable: its runtimes were started with %u thread%s, which stay; "
                       "it uses %.1f cores"
                     : "moldable: runtimes that are sized at start have %u thread%s; no "
                       "agent reports one yet, it uses %.1f cores",
                 j->asked.sized, j->asked.sized == 1 ? "" : "s", j->observed.usage.busy);
        add_note(ret_note, few);
        return;
    }
    if (job_reported(j))
        return;
    if (j->adopted)
        add_note(ret_note, "malleable: no (adopted): its cores change, its threads only if it "
                           "looks at its cores again");
    else if (first_reported(j, true)) {
        add_note(ret_note, first_reported(j, true)->note);
    } else if (now_ns - j->met_ns >= JOB_START_NS) {
        snprintf(few, sizeof(few),
                 "no agent reports (no thread pool yet, or a static program), "
                 "it uses %.1f cores",
                 j->observed.usage.busy);
        add_note(ret_note, few);
        add_note(ret_note, "its threads cannot be changed until one does");
    }
}

bool job_settled(const struct job *j)
{
    if (j->confine->is_behind(j))
        return false;
    for (const struct process *p = j->processes; p; p = p->next) {
        if (!process_malleable(p) || p->want.intra == 0)
            continue;
        if (p->want.intra != p->sent.intra || p->want.inter != p->sent.inter || p->unsent ||
            p->acked_generation < p->sent_generation)
            return false;
    }
    return true;
}

uint32_t job_max(const struct job *j)
{
    uint32_t max = 0;

    for (const struct process *p = j->processes; p; p = p->next)
        max += process_max(p);
    return max;
}

uint32_t job_active(const struct job *j)
{
    uint32_t active = 0;

    for (const struct process *p = j->processes; p; p = p->next)
        if (p->connection && p->beat)
            active += p->active;
    return active;
}

uint32_t job_target(const struct job *j)
{
    uint32_t target = 0;

    if (j->wanted.threads.intra)
        return j->wanted.threads.intra;
    for (const struct process *p = j->processes; p; p = p->next)
        if (p->connection && p->beat)
            target += p->target;
    return target;
}

double job_rate(const struct job *j)
{
    double rate = 0;

    for (const struct process *p = j->processes; p; p = p->next)
        if (p->connection)
            rate += p->rate;
    return rate;
}

void job_progress(const struct job *j, struct job_progress *ret)
{
    *ret = (struct job_progress){.unit = "tasks"};
    for (const struct process *p = j->processes; p; p = p->next) {
        if (p->progress_done > 0)
            ret->unit = p->unit;
        ret->done += p->progress_done ? p->progress_done : p->tasks;
        ret->total += p->progress_total;
    }
}

void job_cores(const struct job *j, struct cpuset *ret)
{
    const struct daemon *d = j->daemon;

    cpuset_zero(ret);
    if (cpuset_count(&j->placed.cores) > 0) {
        *ret = j->placed.cores;
        return;
    }
    if (j->asked.attributes.placement == PLACEMENT_EXCLUSIVE && !j->placed.unfenceable)
        return; /* waits for its cores: it owns none yet */
    for (const struct process *p = j->processes; p; p = p->next)
        for (int c = cpuset_next(&p->original, 0); c >= 0; c = cpuset_next(&p->original, c + 1))
            cpuset_add(ret, (unsigned)c);
    /* Cores that are the whole machine limit nothing, also where its size is made up (--cpus). */
    if (cpuset_equal(ret, &d->topology.online))
        *ret = d->cpus;
    cpuset_and(ret, ret, &d->cpus);
    if (cpuset_count(ret) == 0)
        *ret = d->cpus;
}

uint32_t job_allowed_mcpu(const struct job *j)
{
    struct cpuset cores;
    uint32_t mcpu;

    job_cores(j, &cores);
    mcpu = 1000 * (cpuset_count(&cores) ? cpuset_count(&cores) : cpuset_count(&j->daemon->cpus));
    if (j->observed.allowed_mcpu && j->observed.allowed_mcpu < mcpu)
        mcpu = j->observed.allowed_mcpu;
    return j->placed.quota_mcpu < mcpu ? j->placed.quota_mcpu : mcpu;
}

bool job_oversubscribed(const struct job *j)
{
    /* At least one thread, whatever fraction of a core the job may use. */
    return j->placed.late || (j->wanted.overlaps && j->wanted.share > 0) ||
           (j->wanted.threads.intra > 1 &&
            1000ull * j->wanted.threads.intra > job_allowed_mcpu(j) + 999ull);
}

/* ---- announcements ---- */

void job_announce_settled(struct job *j)
{
    if (!job_settled(j))
        return;
    for_each_observer(o, j->daemon) if ((*o)->settled)(*o)->settled(j);
}

void job_announce_resized(struct job *j, uint64_t latency_ns)
{
    for_each_observer(o, j->daemon) if ((*o)->resized)(*o)->resized(j, latency_ns);
}

bool job_announce_exited(struct daemon *d, const char *container_id, int exit)
{
    for_each_observer(o, d) if ((*o)->exited && (*o)->exited(d, container_id, exit)) return true;
    return false;
}

void job_announce_out_of_memory(struct daemon *d, const char *container_id)
{
    for_each_observer(o, d) if ((*o)->out_of_memory)(*o)->out_of_memory(d, container_id);
}

/* ---- changes ---- */

void job_record(struct job *j, uint32_t from, uint32_t to, const char *reason)
{
    struct change *c = &j->changes[j->n_changes++ % JOB_CHANGES_MAX];
    char text[CPUSET_TEXT_MAX];
    struct cpuset cores;

    if (cpuset_count(&j->wanted.cores) > 0)
        cores = j->wanted.cores;
    else
        job_cores(j, &cores);
    memset(c, 0, sizeof(*c));
    c->time_ms = clock_real_ms();
    c->from = from;
    c->to = to;
    if (cpuset_format(&cores, text, sizeof(text)) >= 0)
        snprintf(c->cores, sizeof(c->cores), "%.*s", JOB_CORES_MAX - 1, text);
    snprintf(c->reason, sizeof(c->reason), "%s", reason);
}

void job_record_extras(struct job *j, uint32_t from, uint32_t to, const char *reason)
{
    if (j->n_changes && job_last_change(j)->lends)
        j->n_changes--;
    job_record(j, from, to, reason);
    j->changes[(j->n_changes - 1) % JOB_CHANGES_MAX].lends = true;
}

const struct change *job_last_change(const struct job *j)
{
    return j->n_changes ? &j->changes[(j->n_changes - 1) % JOB_CHANGES_MAX] : NULL;
}

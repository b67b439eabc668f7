/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/launch/recorder.h"

#include "base/clock.h"
#include "cli/doctor/observe.h"
#include "host/proc/file.h"
#include "host/proc/proc.h"
#include "proto/proto.h"

#include <poll.h>
#include <string.h>
#include <time.h>

#define ERROR_WORD "nothing-recorded"

#define PROCESSES_MAX 256 /* per job, as in the daemon */
#define LOOK_MS       100 /* between two looks at processes that wake nobody */

struct process {
    pid_t pid;
    int fd;     /* see proc_pidfd_open(); -1: the process has ended */
    bool wakes; /* fd does; else it is looked at */
    bool known;
    struct proc_threads threads; /* threads at the last look */
};

struct watched {
    struct watched *next;
    struct recording_job *job;
    char id[PROTO_ID_MAX];
    bool present; /* in the daemon's last answer */
    bool ended;
    bool begun;       /* the job has left the queue */
    uint64_t exit_ns; /* end of the process that ended last */
    uint64_t done, counted, cpu_ns;
    double wait_ns; /* time waiting for CPUs that other programs use */
    struct process *process;
    size_t n, room;
};

struct recorder {
    struct recording recording;
    struct watched *watched;
    uint64_t begin_ns;
    uint64_t busy_begin_ns, busy_ns; /* the machine's, first and last look; 0: unknown */
    double busy_step_ns;             /* busy time since the look before */
    unsigned long last_number;       /* the highest id so far */
    size_t missed;
    bool looked;
    int root;
    char placement[16], policy[POLICY_SPEC_TEXT_MAX], recorded[32];
};

/* ---- making and freeing ---- */

struct recorder *recorder_new(struct error *err)
{
    struct recorder *r = calloc(1, sizeof(*r));
    time_t now = time(NULL);
    struct tm tm;

    if (!r || !(r->recording.job = calloc(RECORDING_JOBS_MAX, sizeof(struct recording_job *)))) {
        free(r);
        error_set(err, -ENOMEM, "out of memory");
        return NULL;
    }
    r->root = file_open_root();
    if (r->root < 0) {
        error_set(err, r->root, "cannot open /: %s", strerror(-r->root));
        return recorder_free(r);
    }
    r->begin_ns = clock_now_ns();
    if (proc_read_busy(r->root, &r->busy_begin_ns) < 0)
        r->busy_begin_ns = 0;
    r->busy_ns = r->busy_begin_ns;
    localtime_r(&now, &tm);
    strftime(r->recorded, sizeof(r->recorded), "%FT%T%z", &tm);
    r->recording.placement = r->placement;
    r->recording.policy = r->policy;
    r->recording.recorded = r->recorded;
    return r;
}

struct recorder *recorder_free(struct recorder *r)
{
    while (r && r->watched) {
        struct watched *w = r->watched;

        for (size_t i = 0; i < w->n; i++) {
            close_fd(w->process[i].fd);
            proc_threads_done(&w->process[i].threads);
        }
        r->watched = w->next;
        free(w->process);
        free(w);
    }
    if (!r)
        return NULL;
    for (size_t i = 0; i < r->recording.jobs; i++)
        recording_job_free(r->recording.job[i]);
    free(r->recording.job);
    close_fd(r->root);
    free(r);
    return NULL;
}

void recorder_machine(struct recorder *r, const json_t *machine, const json_t *policy)
{
    r->recording.cores = (uint32_t)member_long(machine, "cpus");
    snprintf(r->placement, sizeof(r->placement), "%s", member_text(machine, "placement"));
    snprintf(r->policy, sizeof(r->policy), "%s", member_text(policy, "policy"));
}

/* ---- one job ---- */

static struct process *process_of(struct watched *w, pid_t pid)
{
    struct process *bigger;

    for (size_t i = 0; i < w->n; i++)
        if (w->process[i].pid == pid)
            return &w->process[i];
    if (w->n == PROCESSES_MAX)
        return NULL;
    if (w->n == w->room) {
        bigger = reallocarray(w->process, w->room + 8, sizeof(*bigger));
        if (!bigger)
            return NULL;
        w->process = bigger;
        w->room += 8;
    }
    w->process[w->n] = (struct process){.pid = pid, .fd = proc_pidfd_open(pid)};
    w->process[w->n].wakes = proc_pidfd_wakes(w->process[w->n].fd);
    return &w->process[w->n++];
}

/* Adds the CPU time of the job's threads, unless another user's process hides it. */
static void look_at_process(const struct recorder *r, struct watched *w, pid_t pid,
                            struct thread_use *sum)
{
    struct process *p = process_of(w, pid);
    struct proc_threads now = {0};
    struct thread_use use;

    if (!p || p->fd < 0 || proc_read_threads(r->root, pid, &now) < 0)
        return;
    use = observe_use(&p->threads, &now);
    if (p->known || !w->job->early) {
        sum->cpu_ns += use.cpu_ns;
        sum->wait_ns += use.wait_ns;
    }
    p->known = true;
    proc_threads_done(&p->threads);
    p->threads = now;
}

/*
 * A thread that waits for a CPU waits for the threads that run there. Some of these are the job's
 * own. In proportion to their part of all that ran, the waiting is the job's own affair.
 */
static void look_at_threads(const struct recorder *r, struct watched *w, const json_t *view)
{
    struct thread_use sum = {0};
    double own = 0;
    const json_t *pid;
    size_t i;

    json_array_foreach (json_object_get(view, "pids"), i, pid)
        look_at_process(r, w, (pid_t)json_integer_value(pid), &sum);
    if (r->busy_step_ns > 0)
        own = (double)sum.cpu_ns / r->busy_step_ns;
    w->cpu_ns += sum.cpu_ns;
    w->wait_ns += own < 1 ? (1 - own) * (double)sum.wait_ns : 0;
}

/* An ending process takes its count with it, and a program that reports begins a new one. */
static void count_work(struct watched *w, const json_t *view)
{
    const json_t *progress = json_object_get(view, "progress");
    const char *unit = member_text(progress, "unit");
    uint64_t done = (uint64_t)member_long(progress, "done");

    if (strcmp(unit, w->job->unit) != 0) {
        snprintf(w->job->unit, sizeof(w->job->unit), "%s", unit);
        w->job->looks = 0;
        w->done = w->counted = 0;
    }
    if (done > w->counted)
        w->done += done - w->counted;
    w->counted = done;
    w->job->sized |= member_long(progress, "total") > 0;
}

static void take_terms(struct recording_job *job, const json_t *view, uint64_t now_ns)
{
    double left_s = member_number(view, "deadline") - (double)clock_real_ms() / 1000;
    const json_t *backend;
    size_t i;

    json_array_foreach (json_object_get(view, "backends"), i, backend)
        job->malleable |= member_bool(backend, "malleable");
    job->min = (uint32_t)member_long(view, "min");
    job->max = (uint32_t)member_long(view, "limit");
    if (job->looks > 0 && (long)job->pinned != member_long(view, "pinned"))
        job->pinned = 0;
    else if (job->looks == 0)
        job->pinned = (uint32_t)member_long(view, "pinned");
    job->request = (uint32_t)member_long(view, "request");
    job->class = (uint32_t)member_long(view, "class");
    job->weight = (uint32_t)member_long(view, "weight");
    job->priority = (int32_t)member_long(view, "priority");
    job->deadline_ns = POLICY_NEVER;
    if (member_number(view, "deadline") > 0)
        job->deadline_ns = left_s > 0 ? now_ns + (uint64_t)(left_s * 1e9) : now_ns;
    if (member_long(view, "max") > job->pool)
        job->pool = (uint32_t)member_long(view, "max");
}

/* Pauses count as waiting; a job that has not begun has none. */
static void look_at_turn(struct watched *w, const json_t *view)
{
    const char *state = member_text(view, "state");

    if (w->begun)
        return;
    w->begun = strcmp(state, "queued") != 0 && strcmp(state, "held") != 0;
    if (!w->job->early)
        w->job->queued_ns = (uint64_t)(member_number(view, "wait_s") * 1e9);
}

static int look_at(struct recorder *r, struct watched *w, const json_t *view)
{
    struct recording_look look = {0};

    w->present = true;
    look_at_turn(w, view);
    count_work(w, view);
    look_at_threads(r, w, view);
    look.at_ns = clock_now_ns();
    look.done = w->done;
    look.cpu_ns = w->cpu_ns;
    look.wait_ns = (uint64_t)w->wait_ns;
    if (member_long(view, "max"))
        look.threads = (uint32_t)member_long(view, "active");
    take_terms(w->job, view, look.at_ns);
    return recording_look(w->job, &look);
}

static struct watched *find(const struct recorder *r, const char *id)
{
    struct watched *w = r->watched;

    while (w && (w->ended || strcmp(w->id, id) != 0))
        w = w->next;
    return w;
}

static struct watched *meet(struct recorder *r, const json_t *view)
{
    uint64_t age_ns = (uint64_t)(member_number(view, "elapsed_s") * 1e9);
    uint64_t now_ns = clock_now_ns();
    uint64_t arrival_ns = age_ns < now_ns ? now_ns - age_ns : 0;
    struct watched *w = calloc(1, sizeof(*w));

    if (!w || !(w->job = calloc(1, sizeof(*w->job)))) {
        free(w);
        return NULL;
    }
    snprintf(w->id, sizeof(w->id), "%s", member_text(view, "id"));
    snprintf(w->job->name, sizeof(w->job->name), "%s", member_text(view, "name"));
    w->job->early = arrival_ns < r->begin_ns;
    w->job->arrival_ns = w->job->early ? r->begin_ns : arrival_ns;
    w->next = r->watched;
    r->watched = w;
    r->recording.job[r->recording.jobs++] = w->job;
    return w;
}

/* ---- all jobs ---- */

/* Ids grow by one: missing ids belong to jobs that began and ended between two looks. */
static void count_missed(struct recorder *r, const json_t *view)
{
    const char *id = member_text(view, "id");
    unsigned long number = *id ? strtoul(id + 1, NULL, 10) : 0;

    if (r->looked && number > r->last_number + 1)
        r->missed += number - r->last_number - 1;
    if (number > r->last_number)
        r->last_number = number;
}

static void look_at_machine(struct recorder *r)
{
    uint64_t busy_ns;

    r->busy_step_ns = 0;
    if (r->busy_begin_ns == 0 || proc_read_busy(r->root, &busy_ns) < 0)
        return;
    r->busy_step_ns = (double)(busy_ns - r->busy_ns);
    r->busy_ns = busy_ns;
}

static void end_absent(struct recorder *r, uint64_t now_ns)
{
    for (struct watched *w = r->watched; w; w = w->next) {
        if (w->present || w->ended)
            continue;
        w->ended = true;
        w->job->end_ns = w->exit_ns ? w->exit_ns : now_ns;
    }
}

int recorder_look(struct recorder *r, const json_t *jobs)
{
    const json_t *view;
    size_t i;
    int e = 0;

    look_at_machine(r);
    for (struct watched *w = r->watched; w; w = w->next)
        w->present = false;
    json_array_foreach (jobs, i, view) {
        struct watched *w = find(r, member_text(view, "id"));

        if (!w && r->recording.jobs == RECORDING_JOBS_MAX)
            continue; /* counted as missed when there is room again, or at the end */
        if (!w) {
            count_missed(r, view);
            w = meet(r, view);
        }
        e = w ? look_at(r, w, view) : -ENOMEM;
        if (e < 0)
            return e;
    }
    r->looked = true;
    end_absent(r, clock_now_ns());
    return 0;
}

static size_t count_processes(const struct recorder *r)
{
    size_t n = 0;

    for (const struct watched *w = r->watched; w; w = w->next)
        n += w->n;
    return n;
}

/* Fills in @fds, one for each process. Returns the number of processes that have to be looked at.
 */
static size_t await_processes(const struct recorder *r, struct pollfd *fds, size_t *ret_n)
{
    size_t looks = 0;

    *ret_n = 0;
    for (struct watched *w = r->watched; w; w = w->next)
        for (size_t i = 0; i < w->n; i++) {
            const struct process *p = &w->process[i];

            looks += p->fd >= 0 && !p->wakes;
            fds[(*ret_n)++] = (struct pollfd){.fd = p->wakes ? p->fd : -1, .events = POLLIN};
        }
    return looks;
}

static bool has_ended(const struct process *p, const struct pollfd *woken)
{
    return p->wakes ? woken->revents != 0 : p->fd >= 0 && proc_pidfd_ended(p->fd);
}

void recorder_sleep(struct recorder *r, uint64_t until_ns)
{
    size_t room = count_processes(r);
    _cleanup_free_ struct pollfd *fds = calloc(room + 1, sizeof(*fds));
    uint64_t now_ns = clock_now_ns();

    while (now_ns < until_ns) {
        size_t n = 0, looks = fds ? await_processes(r, fds, &n) : 0;
        int left_ms = (int)((until_ns - now_ns) / NS_PER_MS) + 1;

        if (poll(fds, n, looks && left_ms > LOOK_MS ? LOOK_MS : left_ms) < 0)
            return;
        now_ns = clock_now_ns();
        n = 0;
        for (struct watched *w = r->watched; fds && w; w = w->next)
            for (size_t i = 0; i < w->n; i++)
                if (has_ended(&w->process[i], &fds[n++])) {
                    w->process[i].fd = close_fd(w->process[i].fd);
                    w->exit_ns = now_ns;
                }
    }
}

/* Returns how many cores programs outside of all jobs keep busy: a replay leaves them out. */
static double busy_others(const struct recorder *r, uint64_t now_ns)
{
    double jobs_ns = 0;
    uint64_t busy_ns;

    if (r->busy_begin_ns == 0 || proc_read_busy(r->root, &busy_ns) < 0 || now_ns <= r->begin_ns)
        return 0;
    for (const struct watched *w = r->watched; w; w = w->next)
        jobs_ns += (double)w->cpu_ns;
    jobs_ns = (double)(busy_ns - r->busy_begin_ns) - jobs_ns;
    return jobs_ns > 0 ? jobs_ns / (double)(now_ns - r->begin_ns) : 0;
}

json_t *recorder_scenario(struct recorder *r, struct recorder_sum *ret_sum, struct error *err)
{
    struct recorder_sum sum = {.missed = r->missed};
    uint64_t now_ns = clock_now_ns();
    json_t *scenario;

    for (struct watched *w = r->watched; w; w = w->next) {
        if (w->ended)
            continue;
        /* The job's processes may have ended before the daemon says so. */
        w->job->cut = w->n == 0;
        for (size_t i = 0; i < w->n; i++)
            w->job->cut |= w->process[i].fd >= 0;
        w->job->end_ns = w->job->cut ? now_ns : w->exit_ns;
        sum.cut += w->job->cut;
    }
    r->recording.others = busy_others(r, now_ns);
    scenario = recording_scenario(&r->recording, &sum.left_out, err);
    sum.jobs = json_array_size(json_object_get(scenario, "jobs"));
    *ret_sum = sum;
    return scenario;
}

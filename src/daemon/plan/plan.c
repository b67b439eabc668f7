/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/plan/plan.h"

#include "base/clock.h"
#include "base/failpoint.h"
#include "base/grow.h"
#include "daemon/daemon.h"
#include "daemon/job/confine.h"
#include "daemon/job/job.h"
#include "daemon/link/target.h"
#include "daemon/plan/decision.h"
#include "daemon/plan/machine_share.h"
#include "daemon/plan/settle.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_WORD "no-control-groups"

/* NOLINTNEXTLINE(misc-redundant-expression): equal today, and to stay so */
static_assert(SETTLE_GRACE_NS == JOB_GRACE_NS, "one grace for threads and pauses");

struct plan {
    sd_event_source *deadline; /* of the first unacknowledged shrink */
    struct settle_job *jobs;   /* all arrays: of one settle(), grown as needed */
    struct job **job;
    struct settle_process *processes;
    struct process **process; /* same index */
    struct settle_actions actions;
    size_t job_room, process_room;
};

/* ---- what is in place ---- */

static int reserve(struct plan *p, size_t jobs, size_t processes)
{
    if (jobs <= p->job_room && processes <= p->process_room)
        return 0;
    jobs = 2 * (jobs > p->job_room ? jobs : p->job_room);
    processes = 2 * (processes > p->process_room ? processes : p->process_room) + 1;
    if (grow(&p->jobs, jobs, sizeof(*p->jobs)) < 0 || grow(&p->job, jobs, sizeof(*p->job)) < 0 ||
        grow(&p->processes, processes, sizeof(*p->processes)) < 0 ||
        grow(&p->process, processes, sizeof(*p->process)) < 0 ||
        grow(&p->actions.action, SETTLE_ACTIONS_MAX(jobs, processes), sizeof(*p->actions.action)) <
            0)
        return -ENOMEM;
    p->job_room = jobs;
    p->process_room = processes;
    return 0;
}

static struct settle_process describe_process(const struct process *p)
{
    return (struct settle_process){.malleable = process_malleable(p),
                                   .commanded = p->sent_generation > 0,
                                   .max = process_max(p),
                                   .held = p->held,
                                   .waits = p->waits,
                                   .want = {p->want.intra, p->want.inter},
                                   .sent = {p->sent.intra, p->sent.inter},
                                   .shrink_since_ns = p->shrink_since_ns};
}

static struct settle_job describe_job(const struct job *j)
{
    return (struct settle_job){.want_cores = j->wanted.cores,
                               .want_quota_mcpu = j->wanted.quota_mcpu,
                               .wanted = j->admission.wanted,
                               .exclusive = j->asked.attributes.placement == PLACEMENT_EXCLUSIVE,
                               .weighed = j->confine->can_limit(j) && j->placed.weight > 0,
                               .urgent = j->asked.urgent,
                               .cores = j->placed.cores,
                               .quota_mcpu = j->placed.quota_mcpu,
                               .running = j->admission.phase == JOB_RUNNING,
                               .paused = j->admission.phase == JOB_PAUSED,
                               .frozen = j->observed.frozen,
                               .busy = j->confine->is_busy(j),
                               .behind = j->confine->is_behind(j),
                               .remote = j->confine->is_remote,
                               .quota_refused = j->placed.quota_failed};
}

/* A job stuck in the last pass stays so in this one. */
static int describe(struct daemon *d, bool again, struct settle_state *ret)
{
    struct plan *plan = d->plan;
    size_t count = 0, k = 0, i = 0;

    for (const struct job *j = d->jobs->first; j; j = j->next)
        count += j->n_processes;
    if (reserve(plan, d->jobs->n, count) < 0)
        return -ENOMEM;
    for (struct job *j = d->jobs->first; j; j = j->next, i++) {
        bool stuck = again && plan->jobs[i].stuck;

        plan->job[i] = j;
        plan->jobs[i] = describe_job(j);
        plan->jobs[i].stuck = stuck;
        plan->jobs[i].processes = &plan->processes[k];
        plan->jobs[i].n_processes = j->n_processes;
        for (struct process *p = j->processes; p; p = p->next) {
            plan->process[k] = p;
            plan->processes[k++] = describe_process(p);
        }
    }
    *ret = (struct settle_state){
        .now_ns = clock_now_ns(), .cpus = d->cpus, .jobs = plan->jobs, .n_jobs = (unsigned)i};
    return 0;
}

/* ---- carrying out ---- */

/* The outcome of an action. */
enum outcome { AS_EXPECTED, OTHERWISE, FAILED };

/* An engine may be away or have nothing to do; settle() expects its answer later. */
static enum outcome check_remote(const struct plan *p, unsigned index, bool changed)
{
    const struct job *j = p->job[index];

    if (!j->confine->is_remote || j->confine->is_busy(j))
        return AS_EXPECTED;
    p->jobs[index].stuck = !changed;
    return OTHERWISE;
}

static enum outcome set_cores(const struct plan *p, const struct settle_action *a)
{
    struct job *j = p->job[a->job];
    struct cpuset before = j->placed.cores;
    int r = j->confine->set_cores(j, &a->cores);

    failpoint(a->verb == SETTLE_NARROW ? FAILPOINT_CORES_NARROWED : FAILPOINT_CORES_WIDENED);
    if (r == 0)
        return check_remote(p, a->job, !cpuset_equal(&j->placed.cores, &before));
    daemon_err("job %s (%s): %s", j->id, j->name, j->placed.note);
    j->placed.unfenceable = true;
    cpuset_zero(&j->wanted.cores);
    j->confine->set_cores(j, &j->wanted.cores);
    return FAILED;
}

static enum outcome set_quota(const struct plan *p, const struct settle_action *a)
{
    struct job *j = p->job[a->job];

    if (j->confine->set_quota(j, j->wanted.quota_mcpu) < 0) {
        daemon_err("job %s (%s): quota not set: %s", j->id, j->name, j->placed.note);
        j->placed.quota_failed = true;
    }
    failpoint(FAILPOINT_QUOTA_SET);
    return check_remote(p, a->job, true);
}

static enum outcome send_target(const struct plan *p, const struct settle_action *a)
{
    target_send(p->process[p->jobs[a->job].processes - p->processes + a->process]);
    failpoint(a->verb == SETTLE_LOWER ? FAILPOINT_TARGET_LOWERED : FAILPOINT_TARGET_RAISED);
    return AS_EXPECTED;
}

/* Returns true if settle() is to be asked again. */
static bool carry_out(const struct plan *p)
{
    bool again = false;

    for (size_t i = 0; i < p->actions.n; i++) {
        const struct settle_action *a = &p->actions.action[i];
        enum outcome outcome = AS_EXPECTED;

        if (a->verb == SETTLE_LOWER || a->verb == SETTLE_RAISE)
            outcome = send_target(p, a);
        else if (a->verb == SETTLE_NARROW || a->verb == SETTLE_WIDEN)
            outcome = set_cores(p, a);
        else if (a->verb == SETTLE_QUOTA)
            outcome = set_quota(p, a);
        else
            admission_start(p->job[a->job]);
        if (outcome == FAILED)
            return true; /* the rest was decided for another state */
        again |= outcome == OTHERWISE;
    }
    return again;
}

static void mark_late(const struct plan *p, unsigned n_jobs)
{
    for (unsigned i = 0; i < n_jobs; i++) {
        struct job *j = p->job[i];

        if (p->jobs[i].late && !j->placed.late)
            daemon_log_as(
                "threads-not-parked",
                "job %s (%s) did not park its threads in time: it has more threads than cores now",
                j->id, j->name);
        j->placed.late = p->jobs[i].late;
    }
}

/* ---- the whole ---- */

/* @next_ns: when the first shrink expires. */
static void arm_deadline(struct daemon *d, uint64_t next_ns)
{
    uint64_t now = clock_now_ns();

    for (const struct job *j = d->jobs->first; j; j = j->next) {
        uint64_t look = j->confine->next_look(j, now);

        next_ns = look < next_ns ? look : next_ns;
    }
    if (next_ns != UINT64_MAX)
        sd_event_source_set_time(d->plan->deadline, next_ns / NS_PER_US + 1);
    sd_event_source_set_enabled(d->plan->deadline,
                                next_ns == UINT64_MAX ? SD_EVENT_OFF : SD_EVENT_ONESHOT);
}

void plan_advance(struct daemon *d)
{
    struct settle_state s;
    bool again = false;

    if (d->ending) /* limits are put back, and nobody would be told of a job that starts */
        return;
    admission_stop(d);
    for (unsigned i = 0; i <= 2 * d->jobs->n + 1;
         i++) { /* each further pass has one more job stuck or without fence */
        if (describe(d, again, &s) < 0) {
            daemon_log_as("out-of-memory", "out of memory: threads and cores stay as they are");
            return;
        }
        settle(&s, &d->plan->actions);
        mark_late(d->plan, s.n_jobs);
        again = carry_out(d->plan);
        if (!again)
            break;
    }
    for (struct job *j = d->jobs->first; j; j = j->next)
        if (job_settled(j)) /* an order that changed nothing gets no acknowledgement */
            j->asked.urgent = false;
    arm_deadline(d, d->plan->actions.next_ns);
}

static void tell_resized(struct job *j, uint64_t latency_ns)
{
    speed_resized(j, latency_ns);
    job_announce_resized(j, latency_ns);
}

void plan_acknowledged(struct job *j)
{
    struct daemon *d = j->daemon;
    struct change *last;

    if (d->ending)
        return;
    plan_advance(d);
    if (!job_settled(j))
        return;
    last = j->n_changes ? &j->changes[(j->n_changes - 1) % JOB_CHANGES_MAX] : NULL;
    if (last && last->latency_ns == 0 && last->to == j->wanted.threads.intra) {
        uint64_t sent = 0;

        for (const struct process *p = j->processes; p; p = p->next)
            sent = p->sent_ns > sent ? p->sent_ns : sent;
        last->latency_ns = sent ? clock_now_ns() - sent : 0;
        if (sent)
            tell_resized(j, last->latency_ns);
    }
    job_announce_settled(j);
}

void plan_give_up(struct job *j)
{
    uint64_t now = clock_now_ns();

    for (struct process *p = j->processes; p; p = p->next)
        if (p->shrink_since_ns && p->shrink_since_ns + SETTLE_GRACE_NS > now)
            p->shrink_since_ns = now > SETTLE_GRACE_NS ? now - SETTLE_GRACE_NS : 1;
    plan_advance(j->daemon);
}

void plan_finish(struct daemon *d)
{
    struct cpuset held;
    uint64_t now = clock_now_ns();
    uint32_t jobs = 0, used = 0;

    cpuset_zero(&held);
    for (struct job *j = d->jobs->first; j; j = j->next) {
        bool yields = j->wanted.yields != j->placed.yields && !j->confine->is_remote;

        if (j->confine->can_limit(j) && (j->wanted.weight != j->placed.weight || yields)) {
            j->confine->set_weight(j, j->wanted.weight);
            failpoint(FAILPOINT_WEIGHT_SET);
        }
        jobs += decision_counts(j, now);
        used += j->wanted.share;
        for (unsigned w = 0;
             j->asked.attributes.placement == PLACEMENT_EXCLUSIVE && w < CPUSET_WORDS; w++)
            held.word[w] |= j->placed.cores.word[w] | j->wanted.cores.word[w];
    }
    machine_share_publish(d->machine_share, jobs, used, &held);
}

static void carry_on(struct daemon *d)
{
    plan_advance(d);
    for (struct job *j = d->jobs->first; j; j = j->next)
        job_announce_settled(j);
    daemon_store_later(d);
}

static void make(struct daemon *d, bool at_once)
{
    struct error err = {0};

    if (d->ending)
        return;
    d->generation++;
    if (decision_make(d, clock_now_ns(), at_once, &err) < 0)
        daemon_log_as(error_why(&err), "no decision: %s; threads and cores stay as they are",
                      err.text);
    carry_on(d);
}

void plan_retarget(struct daemon *d)
{
    d->generation++;
    carry_on(d);
}

void plan_make(struct daemon *d)
{
    make(d, false);
}

void plan_make_now(struct daemon *d)
{
    make(d, true);
}

static int on_deadline(sd_event_source *s, uint64_t usec, void *arg)
{
    plan_advance(arg);
    return 0;
}

int plan_new(struct daemon *d, struct plan **ret)
{
    struct plan *p = calloc(1, sizeof(*p));
    int r;

    if (!p)
        return -ENOMEM;
    r = sd_event_add_time(d->event, &p->deadline, CLOCK_MONOTONIC, 0, 1000, on_deadline, d);
    if (r >= 0)
        r = sd_event_source_set_enabled(p->deadline, SD_EVENT_OFF);
    if (r < 0) {
        plan_free(p);
        return r;
    }
    *ret = p;
    return 0;
}

struct plan *plan_free(struct plan *p)
{
    if (!p)
        return NULL;
    sd_event_source_disable_unref(p->deadline);
    free(p->jobs);
    free(p->job);
    free(p->processes);
    free(p->process);
    free(p->actions.action);
    free(p);
    return NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/job/admission.h"

#include "base/clock.h"
#include "base/failpoint.h"
#include "daemon/daemon.h"
#include "daemon/job/confine.h"
#include "daemon/job/job.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_WORD "cannot-be-paused"

struct admission_wait {
    struct admission_wait *next;
    admission_fn fn;
    void *arg;
};

void admission_init(struct job *j, bool submitted, uint64_t now)
{
    struct admission *a = &j->admission;

    *a = (struct admission){.submitted = submitted, .since_ns = now};
    a->phase = submitted ? JOB_QUEUED : JOB_RUNNING;
    a->wanted = !submitted;
    a->begun_ns = submitted ? 0 : now;
}

bool admission_preemptible(const struct job *j, const char **ret_why)
{
    *ret_why = "only submitted jobs can be paused";
    if (!j->admission.submitted && !j->container)
        return false;
    *ret_why = "it was cancelled";
    if (j->admission.ending || !j->confine->can_pause(j, ret_why))
        return false;
    *ret_why = "";
    return true;
}

uint64_t admission_waited_ns(const struct job *j, uint64_t now)
{
    const struct admission *a = &j->admission;
    uint64_t held = a->held_ns + (a->held && now > a->held_since_ns ? now - a->held_since_ns : 0);
    struct policy_job turn;

    admission_describe(j, now, &turn);
    return turn.wait_ns > held ? turn.wait_ns - held : 0;
}

bool admission_held_back(const struct job *j)
{
    return j->admission.held && j->admission.begun_ns;
}

/* ---- for the policy ---- */

/* A deadline before the boot becomes 1; POLICY_NEVER stands for no deadline. */
static uint64_t deadline_of(const struct job *j, uint64_t now)
{
    int64_t left_ms = (int64_t)(j->asked.attributes.deadline_ms - clock_real_ms());
    uint64_t ago_ns = left_ms < 0 ? (uint64_t)-left_ms * NS_PER_MS : 0;

    if (j->asked.attributes.deadline_ms == 0)
        return POLICY_NEVER;
    if (left_ms >= 0)
        return now + (uint64_t)left_ms * NS_PER_MS;
    return ago_ns < now ? now - ago_ns : 1;
}

void admission_describe(const struct job *j, uint64_t now, struct policy_job *ret)
{
    const struct admission *a = &j->admission;
    uint64_t here = now > a->since_ns ? now - a->since_ns : 0;
    bool running = a->phase == JOB_RUNNING;
    const char *why;

    if (a->wanted)
        ret->state = POLICY_RUNNING;
    else if (a->begun_ns)
        ret->state = POLICY_PAUSED;
    else
        ret->state = a->held ? POLICY_HELD : POLICY_QUEUED;
    ret->start_ns = a->begun_ns;
    ret->deadline_ns = deadline_of(j, now);
    ret->run_ns = a->run_ns + (running ? here : 0);
    ret->wait_ns = a->wait_ns + (running ? 0 : here);
    ret->preemptible = admission_preemptible(j, &why);
}

bool admission_can(const struct job *j, uint32_t verb)
{
    const struct admission *a = &j->admission;
    const char *why;

    switch (verb) {
    case POLICY_VERB_KEEP:
    case POLICY_VERB_RESIZE:
        return a->wanted;
    case POLICY_VERB_START:
        return !a->wanted && !a->begun_ns && !a->held;
    case POLICY_VERB_PAUSE:
        return a->wanted && admission_preemptible(j, &why);
    case POLICY_VERB_RESUME:
        return !a->wanted && a->begun_ns;
    case POLICY_VERB_HOLD:
    case POLICY_VERB_INFEASIBLE:
        return !a->wanted;
    default:
        return false;
    }
}

void admission_want(struct job *j, uint32_t verb, uint32_t cores)
{
    struct admission *a = &j->admission;

    if (verb == POLICY_VERB_PAUSE) {
        a->wanted = false;
        a->cores = j->wanted.share; /* told to the policy while the job is paused */
        j->dirty = true;
    } else if (verb == POLICY_VERB_START || verb == POLICY_VERB_RESUME) {
        a->wanted = true;
        a->cores = cores;
        if (a->phase == JOB_RUNNING) /* its pause is still under way */
            j->confine->set_paused(j, false);
    }
}

/* ---- bringing it about ---- */

static void tell(struct job *j, int result)
{
    struct admission_wait *w = j->admission.waits;

    j->admission.waits = NULL; /* a callback may return here */
    while (w) {
        struct admission_wait *next = w->next;

        w->fn(w->arg, result);
        free(w);
        w = next;
    }
}

static void enter(struct job *j, enum job_phase phase, uint64_t now)
{
    struct admission *a = &j->admission;
    uint64_t spent = now > a->since_ns ? now - a->since_ns : 0;

    if (a->phase == JOB_RUNNING)
        a->run_ns += spent;
    else
        a->wait_ns += spent;
    a->phase = phase;
    a->since_ns = now;
    j->dirty = true;
}

static void begin(struct job *j)
{
    uint64_t now = clock_now_ns();

    enter(j, JOB_RUNNING, now);
    j->admission.begun_ns = now;
    failpoint(FAILPOINT_JOB_BEGUN);
    j->met_ns = now; /* it is young from the program's start on */
    daemon_log("job %s (%s) leaves the queue and starts with %u cores", j->id, j->name,
               j->admission.cores);
    job_record(j, 0, j->admission.cores, j->wanted.reason);
    daemon_store_later(j->daemon);
    tell(j, 0);
}

void admission_began(struct job *j)
{
    if (j->admission.phase != JOB_QUEUED)
        return;
    j->admission.wanted = true;
    j->admission.held = false;
    j->admission.cores = 1; /* until the next decision */
    snprintf(j->wanted.reason, sizeof(j->wanted.reason), "started ahead of its turn in the queue");
    begin(j);
}

void admission_runs(struct job *j)
{
    if (j->admission.phase == JOB_PAUSED)
        enter(j, JOB_RUNNING, clock_now_ns());
}

/* A person's hold ends, or its pause has failed. */
static void end_hold(struct job *j)
{
    struct admission *a = &j->admission;
    uint64_t now = clock_now_ns();

    if (!a->held)
        return;
    a->held = false;
    a->held_ns += now > a->held_since_ns ? now - a->held_since_ns : 0;
    j->dirty = true;
    daemon_store_later(j->daemon);
}

/* A pause failed that the policy counted on: corrects what it is told, and has it decide anew. */
static void runs_on(struct job *j, int error)
{
    daemon_err("job %s (%s) cannot be paused: %s", j->id, j->name, strerror(-error));
    j->admission.wanted = true;
    end_hold(j);
    daemon_changed(j->daemon);
}

void admission_stop(struct daemon *d)
{
    for (struct job *j = d->jobs->first; j; j = j->next) {
        struct admission *a = &j->admission;
        int r;

        if (a->phase != JOB_RUNNING)
            continue;
        if (a->wanted) {
            if (!j->observed.frozen) /* a pause that is not wanted any more may be under way */
                j->confine->set_paused(j, false);
            continue;
        }
        r = j->confine->set_paused(j, true);
        if (r < 0) {
            runs_on(j, r);
        } else if (j->confine->is_paused(j)) {
            enter(j, JOB_PAUSED, clock_now_ns());
            job_record(j, a->cores, 0, j->wanted.reason);
        }
    }
}

static void resume(struct job *j)
{
    int r = j->confine->set_paused(j, false);

    if (r < 0 && !j->admission.told)
        daemon_err("job %s (%s) cannot be resumed: %s; trying again", j->id, j->name, strerror(-r));
    j->admission.told = r < 0;
    if (j->confine->is_paused(j))
        return; /* the engine's answer or plan.c's timer calls this again */
    enter(j, JOB_RUNNING, clock_now_ns());
    job_record(j, 0, j->admission.cores, j->wanted.reason);
}

void admission_start(struct job *j)
{
    if (j->admission.phase == JOB_QUEUED)
        begin(j);
    else if (j->admission.phase == JOB_PAUSED)
        resume(j);
}

void admission_end(struct job *j)
{
    struct admission *a = &j->admission;

    a->ending = true;
    if (a->phase == JOB_QUEUED)
        return;
    a->wanted = true;
    end_hold(j);
    if (a->phase == JOB_PAUSED)
        resume(j);
    else
        j->confine->set_paused(j, false); /* ends a person's pause, or one under way */
    daemon_changed(j->daemon);
}

/* ---- waiting ---- */

int admission_wait(struct job *j, admission_fn fn, void *arg)
{
    struct admission_wait *w;

    if (j->admission.phase != JOB_QUEUED) {
        fn(arg, 0);
        return 0;
    }
    w = malloc(sizeof(*w));
    if (!w)
        return -ENOMEM;
    *w = (struct admission_wait){j->admission.waits, fn, arg};
    j->admission.waits = w;
    return 0;
}

void admission_forget(struct job *j, void *arg)
{
    for (struct admission_wait **at = &j->admission.waits; *at;) {
        struct admission_wait *w = *at;

        if (w->arg != arg) {
            at = &w->next;
            continue;
        }
        *at = w->next;
        free(w);
    }
}

/* A daemon that ends cancels nothing: runners lose their connection and ask the next one. */
void admission_gone(struct job *j)
{
    tell(j, j->daemon->ending ? -ESHUTDOWN : -ECANCELED);
}

/* Begins a person's pause of a job that runs. */
static int pause_by_hand(struct job *j, struct error *err)
{
    const char *why = "it was cancelled";
    bool ready = !j->admission.ending;
    int r = -EBUSY;

    if (ready && (j->container || j->observed.frozen))
        ready = j->confine->can_pause(j, &why);
    if (ready) /* processes that could not be paused before may be others now */
        r = j->confine->set_paused(j, true);
    if (r == 0)
        return 0;
    if (ready && j->confine->can_pause(j, &why))
        why = strerror(-r);
    return error_word(err,
                      error_set(err, -EBUSY, "job %s runs and cannot be paused: %s", j->id, why),
                      "cannot-be-paused");
}

int admission_hold(struct job *j, bool held, struct error *err)
{
    struct admission *a = &j->admission;

    if (held) {
        if (a->phase == JOB_RUNNING && pause_by_hand(j, err) < 0)
            return err->code;
        if (a->wanted) /* a waiting job may be about to start, while others make room */
            a->cores = j->wanted.share ? j->wanted.share : 1;
        j->wanted.share = 0;
        a->held = true;
        a->held_since_ns = clock_now_ns();
    } else {
        end_hold(j);
    }
    /* A job that nobody submitted has no turn to wait for. */
    a->wanted = !held && a->begun_ns && !a->submitted;
    j->dirty = true;
    daemon_changed(j->daemon);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/plan/idle.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/grow.h"
#include "daemon/daemon.h"
#include "daemon/job/job.h"
#include "daemon/plan/beyond.h"
#include "daemon/plan/decision.h"
#include "daemon/plan/machine_share.h"
#include "daemon/plan/plan.h"
#include "daemon/plan/users.h"
#include "host/proc/file.h"
#include "host/proc/proc.h"
#include "policy/model/curve.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS_MAX 1024                  /* of one process; with more, nothing is lent */
#define COST_MAX_NS (EXTRAS_LOOK_NS / 25) /* of one look: 4 % of a core … */
#define PAUSE_NS    (60 * NS_PER_S)       /* … else none for so long */
#define USES        0.3                   /* of its share: maybe all of it */
#define AWAKE       0.05                  /* cores: who uses less waits for none */
#define IDLE_MCPU   300                   /* with less there is nothing to lend */

struct idle {
    struct daemon *d;
    sd_event_source *timer;
    int root;       /* of /proc: the daemon's own, or that of a test */
    bool root_made; /* a test's: also lends CPUs that are made up */
    bool wakes;     /* the timer runs */
    struct extras extras;
    uint64_t looked_ns, idle_ns; /* last look; 0: none */
    uint64_t until_ns;           /* looks cost too much until then */
    uint32_t lent;               /* threads, of all jobs */
    /* of one look: room for `room` jobs */
    size_t room;
    struct job **job;
    struct extras_job *jobs;
    struct extras_user *users;
    uid_t *uids;
    uint32_t *tables;
    struct policy_curve *curves;
};

/* ---- storage ---- */

static int reserve(struct idle *i)
{
    size_t n = i->d->jobs->n + 8;

    if (i->d->jobs->n <= i->room)
        return 0;
    if (grow(&i->job, n, sizeof(*i->job)) < 0 || grow(&i->jobs, n, sizeof(*i->jobs)) < 0 ||
        grow(&i->users, n, sizeof(*i->users)) < 0 || grow(&i->uids, n, sizeof(*i->uids)) < 0 ||
        grow(&i->curves, n, sizeof(*i->curves)) < 0 ||
        grow(&i->tables, n * cpuset_count(&i->d->cpus), sizeof(*i->tables)) < 0)
        return -ENOMEM;
    i->room = n;
    return 0;
}

/* ---- what is measured ---- */

/* CPUs that jobs share: none of a job that has its own. */
static void shared_cpus(const struct daemon *d, struct cpuset *ret)
{
    *ret = d->usable;
    for (const struct job *j = d->jobs->first; j; j = j->next)
        for (unsigned w = 0; w < CPUSET_WORDS; w++) {
            if (j->asked.attributes.placement == PLACEMENT_EXCLUSIVE)
                ret->word[w] &= ~(j->placed.cores.word[w] | j->wanted.cores.word[w]);
            if (j->asked.kept)
                ret->word[w] &= ~j->asked.kept_cores.word[w];
        }
}

/* Idle cores since the last look, in mcpu; -EAGAIN: there was none. */
static int measure_idle(struct idle *i, uint64_t now, int64_t *ret_mcpu)
{
    struct cpuset cpus;
    uint64_t idle_ns, span_ns = now - i->looked_ns;
    bool first = i->looked_ns == 0 || span_ns > 3 * EXTRAS_LOOK_NS || i->idle_ns == 0;
    int64_t kept;
    int r;

    shared_cpus(i->d, &cpus);
    r = proc_read_idle(i->root, &cpus, &idle_ns);
    if (r < 0)
        return r;
    first |= idle_ns < i->idle_ns; /* other CPUs than before */
    *ret_mcpu = first ? 0 : (int64_t)((idle_ns - i->idle_ns) * 1000 / span_ns);
    i->looked_ns = now;
    i->idle_ns = idle_ns;
    kept = (int64_t)cpuset_count(&i->d->usable) - decision_capacity(i->d->decision);
    *ret_mcpu -= kept > 0 ? 1000 * kept : 0; /* other daemons' part, or a quota */
    return first ? -EAGAIN : 0;
}

/* Time of all its threads, run and waited. */
static int read_load(const struct idle *i, const struct job *j, struct proc_load *ret)
{
    const struct usage *u = &j->observed.usage;
    struct proc_load sum = {0}, load;

    if (u->n_pids > USAGE_PIDS_MAX)
        return -E2BIG;
    for (unsigned k = 0; k < u->n_pids; k++) {
        int r = proc_read_load(i->root, u->pids[k], THREADS_MAX, &load);

        if (r < 0 && r != -ESRCH)
            return r;
        if (r < 0)
            continue;
        sum.cpu_ns += load.cpu_ns;
        sum.wait_ns += load.wait_ns;
        sum.threads += load.threads;
    }
    *ret = sum;
    return sum.threads ? 0 : -ESRCH;
}

static int64_t since(uint64_t now, uint64_t before, uint64_t span_ns)
{
    return now > before ? (int64_t)((now - before) * 1000 / span_ns) : 0;
}

/* Progress per second, in thousandths; heartbeats come in between looks. */
static uint64_t rate(struct job *j)
{
    struct job_extras *x = &j->extras;
    uint64_t ns, units = speed_count(j, &ns);

    if (ns > x->units_ns) {
        x->rate = x->units_ns && units > x->units
                      ? (units - x->units) * 1000 * NS_PER_S / (ns - x->units_ns)
                      : 0;
        x->units = units;
        x->units_ns = ns;
    }
    return x->rate;
}

/* Without two looks at the job nothing is known of it: it gets no extra threads. */
static int measure(struct idle *i, struct job *j, uint64_t now, struct extras_job *ret)
{
    struct job_extras *x = &j->extras;
    uint64_t span_ns = now - x->looked_ns;
    bool again = x->looked_ns && span_ns <= 3 * EXTRAS_LOOK_NS;
    struct proc_load load;
    int r;

    *ret = (struct extras_job){.id = j->number,
                               .share = j->wanted.share,
                               .weight = (uint32_t)j->asked.attributes.weight,
                               .class = (uint32_t)j->asked.attributes.class,
                               .busy_mcpu = (int64_t)(1000 * j->observed.usage.busy),
                               .loan = x->loan};
    if (j->admission.phase != JOB_RUNNING || j->observed.frozen)
        ret->share = 0;
    if (ret->share == 0 ||
        (j->observed.usage.busy < AWAKE && x->loan.extra == 0 && !i->root_made)) {
        x->looked_ns = 0;
        return 0;
    }
    r = read_load(i, j, &load);
    if (r == -ESRCH) {
        x->looked_ns = 0;
        return 0;
    }
    if (r < 0)
        return r;
    ret->rate = rate(j);
    if (again) {
        ret->busy_mcpu = since(load.cpu_ns, x->cpu_ns, span_ns);
        ret->wait_mcpu = since(load.wait_ns, x->wait_ns, span_ns);
        ret->most = decision_most_threads(j);
    } else {
        ret->most = ret->share + extras_of(&x->loan, ret->share);
    }
    x->looked_ns = now;
    x->cpu_ns = load.cpu_ns;
    x->wait_ns = load.wait_ns;
    return 0;
}

static void add_curve(const struct idle *i, const struct job *j, uint32_t at,
                      struct extras_job *ret)
{
    uint32_t cpus = cpuset_count(&i->d->cpus), *table = i->tables + (size_t)at * cpus;
    const struct speed *s = &j->observed.speed;

    if (!s->known || ret->most <= ret->share)
        return;
    fit_table(&s->model, cpus, table);
    i->curves[at] = (struct policy_curve){.speedup_permille = table,
                                          .count = cpus,
                                          .confidence_permille = s->model.confidence_permille};
    ret->curve = &i->curves[at];
}

static uint32_t user_of(const struct idle *i, uid_t uid, uint32_t *count)
{
    uint32_t u = 0;

    while (u < *count && i->uids[u] != uid)
        u++;
    if (u == *count) {
        i->uids[(*count)++] = uid;
        i->users[u] = (struct extras_user){.most = users_most(i->d, uid)};
    }
    return u;
}

/* ---- lending ---- */

static bool may_lend(const struct idle *i)
{
    const struct daemon *d = i->d;

    return d->config.lend_idle && !d->ending && (!d->cpus_made_up || i->root_made) &&
           !machine_share_shared(d->machine_share) && !decision_keeps_idle(d);
}

/* Whether some job seems to use its share and may have more. */
static bool could_lend(const struct idle *i, uint64_t now)
{
    if (now < i->until_ns)
        return false;
    for (const struct job *j = i->d->jobs->first; j; j = j->next)
        if (j->wanted.share && decision_most_threads(j) > j->wanted.share &&
            (i->root_made || j->observed.usage.busy >= USES * j->wanted.share))
            return true;
    return false;
}

/* Takes over what the stage decided for a job. Returns true if its threads change. */
static bool take_up(struct job *j, const struct extras_job *x)
{
    uint32_t before = extras_of(&j->extras.loan, j->wanted.share), now;
    char reason[JOB_REASON_MAX];

    j->extras.loan = x->loan;
    now = extras_of(&j->extras.loan, j->wanted.share);
    if (now == before)
        return false;
    if (now > before)
        snprintf(reason, sizeof(reason), "+%u from idle cores", now);
    else if (now)
        snprintf(reason, sizeof(reason), "+%u from idle cores: %s", now, extras_end_text(x->end));
    else
        snprintf(reason, sizeof(reason), "idle cores taken back: %s", extras_end_text(x->end));
    decision_lend(j, reason);
    return true;
}

static void take_back(struct idle *i)
{
    bool changed = false;

    i->extras.idle_before = false;
    for (struct job *j = i->d->jobs->first; j && i->lent; j = j->next) {
        struct extras_job none = {.loan = j->extras.loan, .end = EXTRAS_BOUND};

        none.loan.extra = 0;
        changed |= take_up(j, &none);
    }
    i->lent = 0;
    if (changed && !i->d->ending)
        plan_retarget(i->d);
}

static void lend(struct idle *i, uint64_t now, int64_t idle_mcpu, uint32_t count, uint32_t users)
{
    struct extras_machine machine = {.now_ns = now, .idle_mcpu = idle_mcpu};
    bool changed = false;

    extras_look(&i->extras, &machine, i->jobs, count, i->users, users);
    i->lent = 0;
    for (uint32_t k = 0; k < count; k++) {
        changed |= take_up(i->job[k], &i->jobs[k]);
        i->lent += i->jobs[k].loan.extra;
    }
    if (changed)
        plan_retarget(i->d);
}

/* Returns 0 or -errno: what cannot be measured is not lent. */
static int look(struct idle *i, uint64_t now)
{
    uint32_t count = 0, users = 0;
    int64_t idle_mcpu = 0;
    int r = reserve(i);

    if (r == 0)
        r = measure_idle(i, now, &idle_mcpu);
    if (r < 0 && r != -EAGAIN)
        return r;
    if (i->lent == 0 && r == 0 && idle_mcpu < IDLE_MCPU) {
        i->extras.idle_before = false;
        return 0;
    }
    for (struct job *j = i->d->jobs->first; j; j = j->next) {
        int failed = measure(i, j, now, &i->jobs[count]);

        if (failed < 0)
            return failed;
        add_curve(i, j, count, &i->jobs[count]);
        i->jobs[count].user = user_of(i, j->uid, &users);
        i->job[count++] = j;
    }
    if (r == 0)
        lend(i, now, idle_mcpu, count, users);
    return 0;
}

static void set_timer(struct idle *i, bool on)
{
    if (on)
        sd_event_source_set_time_relative(i->timer, EXTRAS_LOOK_NS / NS_PER_US);
    sd_event_source_set_enabled(i->timer, on ? SD_EVENT_ONESHOT : SD_EVENT_OFF);
    i->wakes = on;
    if (!on)
        i->looked_ns = 0;
}

static int on_timer(sd_event_source *s, uint64_t usec, void *arg)
{
    struct idle *i = arg;
    uint64_t now = clock_now_ns(), cpu = clock_thread_ns();
    int r = 0;

    if (!may_lend(i) || (i->lent == 0 && !could_lend(i, now))) {
        take_back(i);
        set_timer(i, false);
        return 0;
    }
    r = look(i, now);
    cpu = clock_thread_ns() - cpu;
    if (r < 0 || cpu > COST_MAX_NS) {
        if (i->until_ns == 0)
            daemon_log_as("system-refused", "idle cores are not lent for a minute: %s",
                          r < 0 && r != -E2BIG
                              ? strerror(-r)
                              : "there are too many processes or threads to look at");
        i->until_ns = now + PAUSE_NS;
        take_back(i);
    }
    set_timer(i, true);
    return 0;
}

void idle_tick(struct idle *i)
{
    if (!i->wakes && may_lend(i) && could_lend(i, clock_now_ns()))
        set_timer(i, true);
}

/* ---- begin and end ---- */

int idle_new(struct daemon *d, struct idle **ret)
{
    const char *made = getenv("TIDE_IDLE_ROOT");
    struct idle *i = calloc(1, sizeof(*i));
    int r;

    if (!i)
        return -ENOMEM;
    i->d = d;
    i->root = d->root;
    if (made) {
        i->root = open(made, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        i->root_made = i->root >= 0;
    }
    r = i->root < 0
            ? -errno
            : sd_event_add_time(d->event, &i->timer, CLOCK_MONOTONIC, 0, 20000, on_timer, i);
    if (r >= 0)
        r = sd_event_source_set_enabled(i->timer, SD_EVENT_OFF);
    if (r < 0) {
        idle_free(i);
        return r;
    }
    *ret = i;
    return 0;
}

struct idle *idle_free(struct idle *i)
{
    if (!i)
        return NULL;
    sd_event_source_disable_unref(i->timer);
    if (i->root_made)
        close_fd(i->root);
    free(i->job);
    free(i->jobs);
    free(i->users);
    free(i->uids);
    free(i->tables);
    free(i->curves);
    free(i);
    return NULL;
}

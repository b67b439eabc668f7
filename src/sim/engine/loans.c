/* SPDX-License-Identifier: Apache-2.0 */
/* Lends idle cores as extra threads: measures the running jobs as tided does, and asks the same
 * stage. */
#include "sim/engine/engine.h"

#include <errno.h>
#include <stdlib.h>

int loans_grow(struct engine *e, uint32_t room)
{
    struct extras_job *jobs = reallocarray(e->extras_jobs, room, sizeof(*jobs));
    struct extras_user *users;

    if (!jobs)
        return -ENOMEM;
    e->extras_jobs = jobs;
    users = reallocarray(e->extras_users, room, sizeof(*users));
    if (!users)
        return -ENOMEM;
    e->extras_users = users;
    return 0;
}

void loans_done(struct engine *e)
{
    free(e->extras_jobs);
    free(e->extras_users);
}

void loans_begin(struct engine *e)
{
    e->looked_ns = e->now_ns;
    e->busy_looked = e->busy;
    e->extras.idle_before = false;
}

/* A sum of 32 fractional bits over @span_ns, as @unit times its mean. */
static uint64_t mean(sim_sum sum, uint64_t span_ns, uint64_t unit)
{
    return (uint64_t)(((sum >> 16) * unit / span_ns) >> 16);
}

static void measure(struct engine *e, struct live *l, uint64_t span_ns, struct extras_job *ret)
{
    const struct policy_job *job = &e->jobs[l->index];
    const struct policy_curve *curve = &job->curve[POLICY_MCPU];
    uint32_t share = (uint32_t)(l->mcpu / POLICY_CORE_MCPU);
    bool can = !l->starting && l->job.malleability == POLICY_MALLEABLE && !l->server;

    live_settle(l, e->now_ns);
    *ret = (struct extras_job){
        .id = l->job.id,
        .user = job->user,
        .share = share,
        .most = !can         ? 0
                : l->job.max ? l->job.max
                             : e->machine.cores,
        .weight = l->job.weight,
        .class = l->job.class,
        .busy_mcpu = (int64_t)mean(l->busy - l->busy_looked, span_ns, POLICY_CORE_MCPU),
        .wait_mcpu = (int64_t)mean(l->waited - l->waited_looked, span_ns, POLICY_CORE_MCPU),
        .rate = l->left < l->left_looked ? mean(l->left_looked - l->left, span_ns, 1000000) : 0,
        .curve = curve->speedup_permille ? curve : NULL,
        .loan = l->loan,
    };
    l->busy_looked = l->busy;
    l->waited_looked = l->waited;
    l->left_looked = l->left;
}

int loans_look(struct engine *e)
{
    uint64_t span_ns = e->now_ns - e->looked_ns;
    struct extras_machine machine = {
        .now_ns = e->now_ns + SIM_CLOCK_START_NS,
        .idle_mcpu = (int64_t)e->machine.cores * POLICY_CORE_MCPU - e->reserve_mcpu -
                     (int64_t)mean(e->busy - e->busy_looked, span_ns, POLICY_CORE_MCPU),
    };
    uint32_t count = 0, users = 0;

    for (uint32_t i = 0; i < e->count; i++)
        if (e->live[i]->state == POLICY_RUNNING) {
            measure(e, e->live[i], span_ns, &e->extras_jobs[count]);
            users = e->jobs[i].user < users ? users : e->jobs[i].user + 1;
            count++;
        }
    for (uint32_t u = 0; u < users; u++)
        e->extras_users[u].most = UINT32_MAX;
    e->looked_ns = e->now_ns;
    e->busy_looked = e->busy;
    extras_look(&e->extras, &machine, e->extras_jobs, count, e->extras_users, users);
    count = 0;
    for (uint32_t i = 0; i < e->count; i++) {
        struct live *l = e->live[i];
        uint32_t before = l->loan.extra;

        if (l->state != POLICY_RUNNING)
            continue;
        l->loan = e->extras_jobs[count++].loan;
        if (l->loan.extra != before) {
            int r = live_lend(e, l);

            if (r < 0)
                return r;
        }
    }
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policy `equal`: every job gets the same number of cores, or one in proportion to its weight, as
 * share.h says; older jobs go first where shares are alike. Policy `weighted`: every job gets its
 * minimum, and the rest in proportion to its weight.
 *
 * Pinned, rigid and started moldable jobs are taken as given before the rest is shared. Lent cores
 * are taken off a share, not below the minimum; borrowed cores are added where lending has left
 * room. Where cores differ in speed, speeds.h counts speed instead. Every job starts and resumes at
 * once, unless memory, parameter servers or workers lack.
 */
#include "policy/division/layout.h"
#include "policy/division/order.h"
#include "policy/division/share.h"
#include "policy/division/speeds.h"
#include "policy/rules/policies.h"

enum equal_param { EQUAL_RESERVE, EQUAL_HYBRID, EQUAL_PARAM_MAX };

/* A copy, because the sort would miss the cache at each comparison. */
struct age {
    uint64_t arrival_ns;
    uint64_t id;
};

/* All members lie within the plan's scratch. */
struct equal {
    const struct policy_snapshot *snapshot;
    struct layout layout;
    struct sharing sharing;
    struct age *age;
    uint32_t *by_age;
};

/* Adds the job with the cores that it must have, or as one that shares. */
static void join(struct equal *e, uint32_t j)
{
    const struct policy_job *job = &e->snapshot->jobs[j];
    int64_t fixed = policy_job_fixed(job, POLICY_MCPU);

    if (fixed < 0) {
        sharing_join(&e->sharing, j, job->weight, policy_job_least(job, POLICY_MCPU),
                     policy_job_most(job, POLICY_MCPU));
        return;
    }
    layout_use(&e->layout, layout_place(&e->layout, j), POLICY_MCPU, fixed);
    layout_fixed_reason(&e->layout, j);
}

/* Starts a queued job if there is room for all but cores, of which it always gets some. */
static void admit(struct equal *e, uint32_t j)
{
    uint32_t place = e->snapshot->jobs[j].home;
    struct policy_vector need;

    layout_need(&e->layout, j, place, &need);
    if (layout_lacks(&e->layout, place, &need) != POLICY_RESOURCE_MAX) {
        layout_refuse(&e->layout, j, place, &need);
        return;
    }
    layout_start(&e->layout, j, place, &need);
    join(e, j);
}

static void take_in(struct equal *e)
{
    for (uint32_t j = 0; j < e->snapshot->job_count; j++) {
        uint32_t state = e->snapshot->jobs[j].state;

        if (state != POLICY_RUNNING && state != POLICY_PAUSED)
            continue;
        layout_present(&e->layout, j);
        layout_tasks(&e->layout, j, 1);
    }
    for (uint32_t i = 0; i < e->snapshot->job_count; i++) {
        uint32_t j = e->by_age[i];
        const struct policy_job *job = &e->snapshot->jobs[j];

        e->sharing.share[j].rank = i;
        if (job->state == POLICY_HELD) {
            e->layout.plan->decisions[j].verb = POLICY_VERB_HOLD;
            layout_reason(&e->layout, j, POLICY_REASON_HELD, 0, 0, 0, 0);
        } else if (job->state == POLICY_QUEUED) {
            admit(e, j);
        } else {
            join(e, j);
        }
    }
}

/* Only jobs that will run have no verb yet. */
static void conclude(struct equal *e)
{
    for (uint32_t j = 0; j < e->snapshot->job_count; j++) {
        if (e->layout.plan->decisions[j].verb != POLICY_VERB_NONE)
            continue;
        layout_run(&e->layout, j,
                   e->sharing.share[j].joined
                       ? sharing_mcpu(&e->sharing, j)
                       : policy_job_fixed(&e->snapshot->jobs[j], POLICY_MCPU));
    }
}

static bool older(uint32_t a, uint32_t b, const void *arg)
{
    const struct age *age = arg;

    if (age[a].arrival_ns != age[b].arrival_ns)
        return age[a].arrival_ns < age[b].arrival_ns;
    return age[a].id < age[b].id;
}

static void equal_room(const struct policy_snapshot *snapshot, struct policy_room *ret_room)
{
    *ret_room = (struct policy_room){
        .amounts = layout_amounts(snapshot),
        .scratch_bytes = layout_bytes(snapshot) + sharing_bytes(snapshot) +
                         snapshot->job_count * (sizeof(struct age) + sizeof(uint32_t)),
    };
}

static int decide(const struct policy *policy, const struct policy_snapshot *snapshot,
                  struct policy_plan *plan, bool minima_first)
{
    struct equal e = {.snapshot = snapshot, .age = plan->scratch};
    char *rest = (char *)(e.age + snapshot->job_count);

    layout_init(&e.layout, snapshot, plan, rest);
    rest += layout_bytes(snapshot);
    sharing_init(&e.sharing, &e.layout, rest);
    e.sharing.minima_first = minima_first;
    e.by_age = (uint32_t *)(rest + sharing_bytes(snapshot));
    for (uint32_t j = 0; j < snapshot->job_count; j++) {
        e.age[j] = (struct age){snapshot->jobs[j].arrival_ns, snapshot->jobs[j].id};
        e.by_age[j] = j;
    }
    order_sort(e.by_age, snapshot->job_count, older, e.age);
    plan->reserve_mcpu = policy_param(policy, snapshot, EQUAL_RESERVE);
    layout_use(&e.layout, 0, POLICY_MCPU, plan->reserve_mcpu);
    take_in(&e);
    sharing_fill(&e.sharing);
    sharing_lend(&e.sharing, e.by_age);
    conclude(&e);
    return 0;
}

static int equal_decide(const struct policy *policy, const struct policy_snapshot *snapshot,
                        struct policy_plan *plan)
{
    return decide(policy, snapshot, plan, false);
}

static int weighted_decide(const struct policy *policy, const struct policy_snapshot *snapshot,
                           struct policy_plan *plan)
{
    return decide(policy, snapshot, plan, true);
}

static const struct policy_param equal_params[EQUAL_PARAM_MAX] = {
    [EQUAL_RESERVE] = {.name = "reserve",
                       .min = 0,
                       .max = POLICY_CORES_MAX * POLICY_CORE_MCPU,
                       .def = 0,
                       .unit = "mcpu",
                       .text = "cores kept for programs that are not jobs",
                       .open = true},
    [EQUAL_HYBRID] = SPEEDS_PARAM,
};

const struct policy policy_equal = {
    .name = "equal",
    .brief = "the same number of cores for everyone, in proportion to weights",
    .params = equal_params,
    .param_count = EQUAL_PARAM_MAX,
    .room = equal_room,
    .decide = equal_decide,
};

const struct policy policy_weighted = {
    .name = "weighted",
    .brief = "everyone's minimum, and the rest in proportion to weights",
    .params = equal_params,
    .param_count = EQUAL_PARAM_MAX,
    .room = equal_room,
    .decide = weighted_decide,
};

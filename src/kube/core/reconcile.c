/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/core/reconcile.h"

#include "kube/core/life.h"

#include <errno.h>
#include <string.h>

#define SOONEST_NS (NS_PER_S / 20) /* least time until the next reconcile */

void kube_settings_init(struct kube_settings *settings)
{
    *settings = (struct kube_settings){
        .batch_ns = NS_PER_S / 2,
        .settle_ns = 5 * NS_PER_S,
        .pending_ns = 60 * NS_PER_S,
        .drain_ns = 30 * NS_PER_S,
        .silent_ns = 60 * NS_PER_S,
        .node_lost_ns = 40 * NS_PER_S,
        .worker_gain_permille = 100,
        .ps_gain_permille = 30,
        .gpus = {"nvidia.com/gpu", "amd.com/gpu"},
        .gpu_count = 2,
    };
    policy_spec_parse("throughput", &settings->policy, NULL);
}

static void view(struct core *c)
{
    room_build(c);
    view_build(c);
    if (c->error)
        return;
    for (uint32_t j = 0; j < c->job_count; j++) {
        life_aim(c, &c->jobs[j]);
        learn(c, &c->jobs[j]);
    }
    demand_build(c);
    if (c->error)
        return;
    room_count_trainings(c);
    budget_build(c);
}

static void share(struct core *c)
{
    foreign_pods_serve(c);
    room_count_elastic(c);
    scale_choose_zones(c);
    counts_decide(c);
}

static void act(struct core *c)
{
    for (uint32_t j = 0; j < c->job_count && !c->error; j++)
        if (!c->jobs[j].held)
            life_act(c, &c->jobs[j]);
}

static int decide(struct core *c)
{
    static void (*const phases[])(struct core *) = {view, share, act};

    for (size_t i = 0; i < sizeof(phases) / sizeof(phases[0]); i++) {
        phases[i](c);
        if (c->error)
            return c->error;
    }
    return memory_store(c);
}

int kube_reconcile(const struct kube_settings *settings, const struct kube_world *world,
                   struct kube_memory *memory, struct kube_plan *ret_plan)
{
    struct kube_plan plan = {0};
    struct core c = {
        .settings = settings,
        .world = world,
        .memory = memory,
        .plan = &plan,
        .now_ns = world->now_ns,
        .wakeup_ns = FOREVER,
    };

    if (decide(&c)) {
        kube_plan_done(&plan);
        return -ENOMEM;
    }
    if (c.wakeup_ns < c.now_ns + SOONEST_NS)
        c.wakeup_ns = c.now_ns + SOONEST_NS;
    plan.wakeup_ns = c.wakeup_ns;
    *ret_plan = plan;
    return 0;
}

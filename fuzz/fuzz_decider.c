/* SPDX-License-Identifier: Apache-2.0 */
/* An answer of a decider: whatever it says, the plan is one that the snapshot allows. */
#include "decider/answer.h"
#include "input.h"

#define JOBS 3

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct policy_domain root;
    struct policy_job jobs[JOBS];
    struct policy_user users[2] = {{.id = 1000, .weight = 100, .most_mcpu = POLICY_UNLIMITED},
                                   {.id = 1001, .weight = 100, .most_mcpu = POLICY_UNLIMITED}};
    struct policy_snapshot s = {.now_ns = 1000,
                                .epoch = 1,
                                .generation = 7,
                                .domains = &root,
                                .domain_count = 1,
                                .jobs = jobs,
                                .job_count = JOBS,
                                .users = users,
                                .user_count = 2};
    struct policy_decision decisions[JOBS];
    struct policy_domain_use use;
    struct policy_room room;
    struct policy_plan plan = {.decisions = decisions, .domains = &use};
    int64_t cores[JOBS] = {0};
    char *line = input_text(data, size);
    struct error err;
    int read;

    policy_machine_init(&root, 8000, 0);
    for (uint32_t i = 0; i < JOBS; i++) {
        policy_job_init(&jobs[i], i + 1);
        jobs[i].user = i / 2;
    }
    policy_room(decider_fallback(), &s, &room);
    plan.amounts = malloc((plan.amount_room = room.amounts) * sizeof(*plan.amounts) + 1);
    plan.scratch = malloc((plan.scratch_room = room.scratch_bytes) + 1);
    CHECK(plan.amounts && plan.scratch);
    read = decider_read(line, size, &s, cores, &err);
    if (decider_apply(&s, read == 0 ? cores : NULL, &plan, &err) == 0 && read == 0)
        for (uint32_t i = 0; i < JOBS; i++)
            CHECK(policy_decision_total(&plan, i, POLICY_MCPU) == cores[i] * POLICY_CORE_MCPU);
    CHECK(policy_plan_check(&s, &plan, NULL) == 0);
    CHECK(policy_decision_total(&plan, 2, POLICY_MCPU) <= 4000);
    free(plan.amounts);
    free(plan.scratch);
    free(line);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/division/worth.h"

#include <string.h>

static int64_t whole_cores(int64_t mcpu)
{
    int64_t cores = mcpu / POLICY_CORE_MCPU;

    return cores < POLICY_CORES_MAX ? cores : POLICY_CORES_MAX;
}

static uint64_t speed_permille(const struct policy_curve *curve, int64_t cores)
{
    const uint32_t *table =
        curve->envelope_permille ? curve->envelope_permille : curve->speedup_permille;

    if (curve->count == 0)
        return (uint64_t)cores * 1000;
    return cores ? table[(cores < curve->count ? cores : curve->count) - 1] : 0;
}

/* Worth of one more core to a job that has @has. */
static uint64_t step_worth(const struct policy_job *job, int64_t has)
{
    const struct policy_curve *curve = &job->curve[POLICY_MCPU];
    int64_t fixed = policy_job_fixed(job, POLICY_MCPU);
    int64_t least = whole_cores(policy_job_least(job, POLICY_MCPU) + POLICY_CORE_MCPU - 1);
    int64_t most = whole_cores(policy_job_most(job, POLICY_MCPU));
    uint64_t each, step, now, then;

    least = least > 0 ? least : 1;
    most = fixed >= 0 || most < least ? least : most;
    if (job->state == POLICY_HELD || has >= most)
        return 0;
    each = job->weight * speed_permille(curve, least) / (uint64_t)least;
    if (has < least)
        return each;
    now = speed_permille(curve, has);
    then = speed_permille(curve, has + 1);
    step = then > now ? job->weight * (then - now) : 0;
    return step < each ? step : each;
}

void worth_of_cores(const struct policy_snapshot *snapshot, uint32_t cores, uint32_t *scratch,
                    uint64_t *ret_worth)
{
    if (snapshot->job_count)
        memset(scratch, 0, snapshot->job_count * sizeof(*scratch));
    ret_worth[0] = 0;
    for (uint32_t k = 1; k <= cores; k++) {
        uint64_t best_worth = 0;
        uint32_t best = 0;

        for (uint32_t j = 0; j < snapshot->job_count; j++) {
            uint64_t worth = step_worth(&snapshot->jobs[j], scratch[j]);

            if (worth > best_worth) {
                best_worth = worth;
                best = j;
            }
        }
        if (best_worth)
            scratch[best]++;
        ret_worth[k] = ret_worth[k - 1] + best_worth;
    }
}

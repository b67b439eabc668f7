/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/plan/beyond.h"

#include "daemon/job/job.h"

bool beyond_allowed(const struct job *j)
{
    return job_malleable(j) && j->asked.pinned.intra == 0 && j->asked.lent == 0 &&
           j->wanted.borrowed == 0 && j->asked.attributes.placement == PLACEMENT_SHARED &&
           j->admission.wanted && j->admission.phase == JOB_RUNNING && !j->observed.frozen &&
           !j->adopted;
}

uint32_t beyond_by_promise(const struct job *j)
{
    uint32_t share = j->wanted.share;

    return share && j->promise.threads > share ? j->promise.threads - share : 0;
}

uint32_t beyond_lent(const struct job *j)
{
    return beyond_by_promise(j) ? 0 : extras_of(&j->extras.loan, j->wanted.share);
}

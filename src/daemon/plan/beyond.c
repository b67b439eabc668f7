/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/plan/beyond.h"

#include "daemon/job/job.h"

#include <stdio.h>

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

    return share && j->promise.room.threads > share ? j->promise.room.threads - share : 0;
}

uint32_t beyond_lent(const struct job *j)
{
    return beyond_by_promise(j) ? 0 : extras_of(&j->extras.loan, j->wanted.share);
}

static bool has_some(const struct job *j)
{
    return j->wanted.threads.intra > j->wanted.share;
}

uint32_t beyond_extra(const struct job *j)
{
    return has_some(j) ? beyond_lent(j) : 0;
}

struct job *beyond_yields_to(const struct job *j)
{
    struct job *server =
        j->promise.room.yields_to ? job_of_number(j->daemon, j->promise.room.yields_to) : NULL;

    return server && has_some(server) && beyond_by_promise(server) ? server : NULL;
}

void beyond_reason(const struct job *j, char ret_reason[BEYOND_REASON_MAX])
{
    size_t len = (size_t)snprintf(ret_reason, BEYOND_REASON_MAX, "%s", j->wanted.reason);
    const struct job *server = beyond_yields_to(j);

    if (beyond_extra(j))
        snprintf(ret_reason + len, BEYOND_REASON_MAX - len, "; +%u from idle cores",
                 beyond_extra(j));
    else if (server)
        snprintf(ret_reason + len, BEYOND_REASON_MAX - len, "; yields to %s for its promise",
                 server->name);
}

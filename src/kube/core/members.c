/* SPDX-License-Identifier: Apache-2.0 */
/* Tells the chief its replicas. Each list has a generation, which the status stores before the
 * chief sees it: so a chief never sees two different lists of one generation. */
#include "kube/core/life.h"

#include "base/fnv.h"

#include <string.h>

static bool is_member(const struct replica *replica)
{
    if (replica->role == KUBE_CHIEF || !replica->pod || !replica->pod->ip)
        return false;
    return replica->state == POD_STARTING || replica->state == POD_UP ||
           replica->state == POD_LEAVING || (replica->state == POD_LOST && !replica->gone);
}

static uint64_t hash_of(const struct kube_members *members)
{
    uint64_t hash = FNV_START;
    int32_t head[] = {members->slots, members->mode, members->suspend};

    hash = fnv_bytes(hash, head, sizeof(head));
    for (uint32_t i = 0; i < members->count; i++) {
        const struct kube_member *m = &members->at[i];
        uint32_t numbers[] = {m->index, m->threads, m->role, m->leave};

        hash = fnv_bytes(fnv_bytes(hash, numbers, sizeof(numbers)), m->host, strlen(m->host) + 1);
    }
    return hash & INT64_MAX;
}

void members_tell(struct core *c, struct job *job)
{
    struct members_record *r = &job->record->members;
    int64_t *sent = &job->record->sent.members;
    bool drains = job->aim == AIM_SUSPEND || job->aim == AIM_REMOVE;
    struct kube_member *at = core_alloc(c, job->replica_count, sizeof(*at));
    struct kube_members *members = core_alloc(c, 1, sizeof(*members));
    uint64_t hash;

    if (c->error)
        return;
    *members = (struct kube_members){
        .slots = job->etj->slots, .mode = job->etj->mode, .suspend = drains, .at = at};
    for (uint32_t i = 0; i < job->replica_count; i++) {
        const struct replica *replica = &job->replicas[i];

        if (is_member(replica))
            at[members->count++] = (struct kube_member){
                .host = replica->pod->ip,
                .index = replica->index,
                .threads =
                    replica->told_threads ? replica->told_threads : start_threads(job, replica),
                .role = replica->role,
                .leave = drains || replica->drops || replica->state == POD_LEAVING,
            };
    }
    hash = hash_of(members);
    if (r->generation == 0) {
        r->generation = job->etj->status.members_generation;
        r->hash = job->etj->status.members_hash;
    }
    if (job->etj->status.members_generation > r->generation) /* another controller led meanwhile */
        r->generation = job->etj->status.members_generation;
    if (hash != r->hash || r->generation == 0) {
        r->generation++;
        r->hash = hash;
    }
    job->status.members_generation = r->generation;
    job->status.members_hash = r->hash;
    members->generation = r->generation;
    if (*sent == r->generation)
        return;
    *sent = r->generation;
    core_act(c, job, KUBE_SET_MEMBERS, NULL)->members = members;
}

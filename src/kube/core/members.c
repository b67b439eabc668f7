/* SPDX-License-Identifier: Apache-2.0 */
/* What the chief is told: its nodes, each with a generation that is in the status before it is
 * given out, so that a chief never sees two different ones of the same number. */
#include "kube/core/core.h"

#include <string.h>

static bool is_member(const struct seat *seat)
{
    if (seat->role == KUBE_CHIEF || !seat->pod || !seat->pod->ip)
        return false;
    return seat->state == POD_STARTING || seat->state == POD_UP || seat->state == POD_LEAVING ||
           (seat->state == POD_LOST && !seat->gone);
}

static uint64_t mix(uint64_t hash, const void *data, size_t size)
{
    const unsigned char *byte = data;

    for (size_t i = 0; i < size; i++)
        hash = (hash ^ byte[i]) * UINT64_C(1099511628211);
    return hash;
}

static uint64_t hash_of(const struct kube_members *members)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    int32_t head[] = {members->slots, members->mode, members->suspend};

    hash = mix(hash, head, sizeof(head));
    for (uint32_t i = 0; i < members->count; i++) {
        const struct kube_member *m = &members->at[i];
        uint32_t numbers[] = {m->index, m->threads, m->role, m->leave};

        hash = mix(mix(hash, numbers, sizeof(numbers)), m->host, strlen(m->host) + 1);
    }
    return hash & INT64_MAX;
}

void members_tell(struct core *c, struct job *job)
{
    struct record *r = job->record;
    bool drains = job->aim == AIM_SUSPEND || job->aim == AIM_REMOVE;
    struct kube_member *at = core_alloc(c, job->seat_count, sizeof(*at));
    struct kube_members *members = core_alloc(c, 1, sizeof(*members));
    uint64_t hash;

    *members = (struct kube_members){
        .slots = job->etj->slots, .mode = job->etj->mode, .suspend = drains, .at = at};
    for (uint32_t i = 0; i < job->seat_count; i++) {
        const struct seat *seat = &job->seats[i];

        if (is_member(seat))
            at[members->count++] = (struct kube_member){
                .host = seat->pod->ip,
                .index = seat->index,
                .threads = seat->told_threads,
                .role = seat->role,
                .leave = drains || seat->drops || seat->state == POD_LEAVING,
            };
    }
    hash = hash_of(members);
    if (r->generation == 0) {
        r->generation = job->etj->status.members_generation;
        r->hash = job->etj->status.members_hash;
    }
    if (job->etj->status.members_generation > r->generation) /* another controller was here */
        r->generation = job->etj->status.members_generation;
    if (hash != r->hash || r->generation == 0) {
        r->generation++;
        r->hash = hash;
    }
    job->status.members_generation = r->generation;
    job->status.members_hash = r->hash;
    members->generation = r->generation;
    if (r->told == r->generation)
        return;
    r->told = r->generation;
    core_act(c, job, KUBE_SET_MEMBERS, NULL)->members = members;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/core/promise_room.h"

#include <string.h>

/* The jobs of a snapshot, and the cores that they may have. */
struct jobs {
    struct promise_room *const *room;
    struct policy_job *policy; /* same index */
    uint32_t count;
    int64_t capacity;
};

static int64_t lesser(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t greater(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Cores that another promise of the same user needs, beyond its least, and that it leaves to it. */
static int64_t leaves(const struct jobs *s, uint32_t at, uint32_t k, int64_t insists)
{
    const struct promise_room *j = s->room[at], *other = s->room[k];

    if (k < at || j->presses || other->user != j->user || !other->promised || !other->binds ||
        other->alone || promise_is_given_up(other->why))
        return 0;
    return greater(lesser(other->need, other->most) - insists, 0);
}

/*
 * Finds the cores that it may have: some are its own, further ones it shares with jobs that yield.
 * Returns how many nobody else could use.
 */
static int64_t find_room(const struct jobs *s, uint32_t at)
{
    struct promise_room *j = s->room[at];
    int64_t share = (j->user_mcpu + POLICY_CORE_MCPU - 1) / POLICY_CORE_MCPU;
    int64_t least = s->policy[at].min.of[POLICY_MCPU] / POLICY_CORE_MCPU;
    int64_t most = s->policy[at].max.of[POLICY_MCPU] / POLICY_CORE_MCPU;
    int64_t room = s->capacity, users = share && !j->may_share ? share : room;
    int64_t spare = room, yielded = 0, left = 0;

    for (uint32_t k = 0; k < s->count; k++) {
        const struct promise_room *other = s->room[k];
        int64_t insists = policy_job_least(&s->policy[k], POLICY_MCPU) / POLICY_CORE_MCPU;
        int64_t could = policy_job_fixed(&s->policy[k], POLICY_MCPU);

        if (k == at || !other->wanted)
            continue;
        left += leaves(s, at, k, insists);
        room -= insists;
        users -= other->user == j->user ? insists : 0;
        yielded += j->may_share && other->may_yield && !other->yields_to ? insists : 0;
        could = could >= 0 ? could : policy_job_most(&s->policy[k], POLICY_MCPU);
        spare -= could / POLICY_CORE_MCPU;
    }
    room = lesser(room, users);
    j->least = (uint32_t)least;
    j->left = (uint32_t)lesser(left, greater(lesser(room, most) - least, 0));
    room -= left;
    j->own = (uint32_t)lesser(greater(room, least), most);
    j->most = (uint32_t)lesser(greater(room + yielded, least), most);
    j->alone = spare >= most;
    return lesser(greater(spare, 0), most);
}

static void bound(const struct jobs *s, uint32_t at)
{
    struct promise_room *j = s->room[at];
    struct policy_job *p = &s->policy[at];
    int64_t spare = find_room(s, at), need, own;

    if (!j->binds || j->alone) /* alone: a job that comes finds no minimum */
        return;
    need = lesser(greater(j->need, j->least), j->most);
    own = lesser(need, j->own);
    p->min.of[POLICY_MCPU] = own * POLICY_CORE_MCPU;
    if (promise_is_given_up(j->why))
        return;
    p->max.of[POLICY_MCPU] = greater(own, spare) * POLICY_CORE_MCPU;
    if (need == own)
        return;
    j->threads = (uint32_t)need;
    for (uint32_t k = 0; k < s->count; k++)
        if (k != at && s->room[k]->may_yield && !s->room[k]->yields_to)
            s->room[k]->yields_to = j->id;
}

void promise_room_divide(struct promise_room *const *room, struct policy_job *policy,
                         uint32_t count, int64_t mcpu)
{
    const struct jobs jobs = {room, policy, count, greater(mcpu, 0) / POLICY_CORE_MCPU};

    for (uint32_t i = 0; i < count; i++) {
        room[i]->threads = 0;
        room[i]->yields_to = 0;
    }
    for (uint32_t i = 0; i < count; i++)
        if (room[i]->promised)
            bound(&jobs, i);
        else
            room[i]->need = room[i]->most = 0;
}

void promise_room_need(struct promise_room *room, struct promise_state *state,
                       struct promise_look *look)
{
    if (state->stage != PROMISE_TRIAL)
        room->presses = false;
    look->least = room->least;
    look->most = room->most;
    look->own = room->own;
    if (room->alone) {
        memset(state, 0, sizeof(*state));
        room->need = look->has;
        room->presses = false;
    } else {
        if (room->left && promise_is_short(state, look)) {
            room->presses = true;
            promise_press(state, look->now_ns);
            look->most += room->left;
        }
        room->need = promise_need(state, look);
    }
    room->why = state->why;
}

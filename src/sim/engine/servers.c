/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All servers of a run, their requests and promises of latency: looks at each as often as tided
 * does, and asks the same stage. Its answer is in place after the time that tided and the agents
 * take.
 */
#include "sim/engine/engine.h"
#include "sim/engine/server.h"

#include <stdlib.h>

#define LAG_NS UINT64_C(20000000) /* from the answer to cores and threads in place */

/* ---- in the snapshot ------------------------------------------------------------------------- */

static bool is_promised(const struct live *l)
{
    return l->server && l->job.slo_ns && l->job.malleability == POLICY_MALLEABLE;
}

/* As tided does: shared cores that nobody keeps unused, and no other user. */
static bool may_share(const struct engine *e, const struct live *l)
{
    if (l->state != POLICY_RUNNING || l->starting || e->machine.placement != SIM_SHARED ||
        e->reserve_mcpu > 0 || e->machine.cap_uw > 0)
        return false;
    for (uint32_t i = 0; i < e->count; i++)
        if (e->live[i] && e->live[i]->state == POLICY_RUNNING &&
            e->live[i]->job.user != l->job.user)
            return false;
    return true;
}

static bool may_yield(const struct live *l)
{
    return l->state == POLICY_RUNNING && !l->starting && l->job.malleability == POLICY_MALLEABLE &&
           l->job.min <= 1 && l->job.slo_ns == 0;
}

void servers_bound(struct engine *e)
{
    if (!e->promises || e->server_count == 0)
        return;
    for (uint32_t i = 0; i < e->count; i++) {
        struct live *l = e->live[i];
        struct promise_room *room = &l->room;

        room->id = l->job.id;
        room->user = l->job.user;
        room->wanted = l->state == POLICY_RUNNING;
        room->promised = is_promised(l) && room->wanted && !l->starting;
        room->binds = room->promised && room->need > 0;
        room->may_share = room->promised && may_share(e, l);
        room->may_yield = may_yield(l);
        e->rooms[i] = room;
    }
    promise_room_divide(e->rooms, e->jobs, e->count,
                        (int64_t)e->machine.cores * POLICY_CORE_MCPU - e->reserve_mcpu);
}

static struct live *of_id(const struct engine *e, uint64_t id)
{
    for (uint32_t i = 0; i < e->count; i++)
        if (e->live[i] && e->live[i]->job.id == id)
            return e->live[i];
    return NULL;
}

/* Threads beyond their shares, for servers that still may have them. */
static int give_threads(struct engine *e)
{
    for (uint32_t i = 0; i < e->count; i++) {
        struct live *l = e->live[i];
        uint32_t share, beyond;
        int r;

        if (!l)
            continue;
        if (l->room.threads && !may_share(e, l))
            l->room.threads = 0;
        share = (uint32_t)(l->mcpu / POLICY_CORE_MCPU);
        beyond = share && l->room.threads > share ? l->room.threads - share : 0;
        if (beyond == l->beyond)
            continue;
        l->beyond = beyond;
        r = live_lend(e, l);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Jobs that yield have a smaller weight, and the server has in addition what they lose. */
static void weigh(struct engine *e)
{
    for (uint32_t i = 0; i < e->count; i++)
        if (e->live[i])
            e->live[i]->weigh = 0;
    for (uint32_t i = 0; i < e->count; i++) {
        struct live *l = e->live[i];
        struct live *server = l && l->room.yields_to ? of_id(e, l->room.yields_to) : NULL;
        int64_t yielded;

        if (!server || !server->beyond || l->mcpu == 0)
            continue;
        yielded = promise_yielded((uint32_t)l->mcpu);
        l->weigh -= yielded;
        server->weigh += yielded;
    }
    for (uint32_t i = 0; i < e->count; i++) {
        struct live *l = e->live[i];

        if (l && l->weigh != l->weighs) {
            l->weighs = l->weigh;
            if (l->state == POLICY_RUNNING)
                live_hold(e, l);
        }
    }
}

int servers_apply(struct engine *e, bool began)
{
    int r;

    if (!e->promises || e->server_count == 0)
        return 0;
    r = give_threads(e);
    weigh(e);
    if (began) /* it counts from the next decision on */
        servers_decide_soon(e);
    return r;
}

/* ---- looks ----------------------------------------------------------------------------------- */

void servers_decide_soon(struct engine *e)
{
    if (e->next_decide_ns > e->now_ns + LAG_NS)
        e->next_decide_ns = e->now_ns + LAG_NS;
}

/* Instances × threads of its processes, as tided asks; in place at once. */
static void choose_shape(struct engine *e, struct live *l, const struct promise_look *look,
                         uint64_t p50_ns)
{
    struct server *s = l->server;
    uint32_t before = s->shape.threads;
    const struct instances_look now = {.now_ns = look->now_ns,
                                       .cores = look->has,
                                       .processes = s->processes,
                                       .at_work = s->served,
                                       .service_ns = p50_ns,
                                       .window_ns = look->window_ns,
                                       .ended = look->ended};

    if (s->processes < 2)
        return;
    if (l->room.need && !promise_is_given_up(l->room.why)) {
        s->shape = instances_choose(&s->instances, &now);
    } else {
        s->instances = (struct instances_state){0};
        s->shape = (struct instances_shape){0};
    }
    if (s->shape.threads != before && l->state == POLICY_RUNNING && !l->starting)
        live_hold(e, l);
}

static void ask(struct engine *e, struct live *l, uint32_t in_flight)
{
    struct server *s = l->server;
    uint32_t before = l->room.need, share = (uint32_t)(l->mcpu / POLICY_CORE_MCPU);
    struct latency_window w;
    struct promise_look look;

    if (!e->promises || l->room.most == 0 ||
        !latency_seconds_view(&s->seconds, in_flight, e->now_ns + SIM_CLOCK_START_NS, &w)) {
        l->room.need = 0;
        return;
    }
    look = (struct promise_look){.now_ns = e->now_ns + SIM_CLOCK_START_NS,
                                 .promise_ns = l->job.slo_ns,
                                 .p99_ns = w.p99_ns,
                                 .window_ns = w.window_ns,
                                 .ended = w.ended,
                                 .in_flight = w.in_flight,
                                 .most_in_flight = s->most_in_flight,
                                 .has = share ? share + l->beyond : 1};
    promise_room_need(&l->room, &s->state, &look);
    choose_shape(e, l, &look, w.p50_ns);
    if (l->room.need != before && !l->room.alone)
        servers_decide_soon(e);
}

static void look(struct engine *e, struct live *l)
{
    struct server *s = l->server;
    uint32_t in_flight = server_in_flight(s);
    bool moves = in_flight || s->ended != s->ended_then || s->most_in_flight;

    latency_seconds_roll(&s->seconds, l->job.slo_ns, in_flight, e->now_ns + SIM_CLOCK_START_NS);
    ask(e, l, in_flight);
    s->told = s->most_in_flight = in_flight;
    s->ended_then = s->ended;
    s->next_look_ns = e->now_ns + (moves ? PROMISE_LOOK_NS : PROMISE_IDLE_NS);
    e->progress++;
}

/* Requests come; the first one after a pause is told soon, many more at once. */
static void arrive(struct engine *e, struct live *l)
{
    struct server *s = l->server;
    uint32_t served = s->served;

    if (server_next_ns(s) > e->now_ns)
        return;
    live_settle(l, e->now_ns); /* what is served had its service without them */
    server_arrive(s, e->now_ns);
    e->progress++;
    if (s->served != served && l->state == POLICY_RUNNING && !l->starting)
        live_hold(e, l);
    if (s->next_look_ns > e->now_ns + PROMISE_LOOK_NS)
        s->next_look_ns = e->now_ns + PROMISE_LOOK_NS;
    if (promise_jumped(s->most_in_flight, s->told))
        s->next_look_ns = e->now_ns;
}

void servers_turn(struct engine *e)
{
    e->next_request_ns = POLICY_NEVER;
    for (uint32_t i = 0; e->server_count && i < e->count; i++) {
        struct live *l = e->live[i];
        uint64_t next_ns;

        if (!l || !l->server)
            continue;
        arrive(e, l);
        if (l->server->next_look_ns <= e->now_ns)
            look(e, l);
        next_ns = server_next_ns(l->server);
        next_ns = l->server->next_look_ns < next_ns ? l->server->next_look_ns : next_ns;
        if (next_ns < e->next_request_ns)
            e->next_request_ns = next_ns;
    }
}

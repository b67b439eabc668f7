/* SPDX-License-Identifier: Apache-2.0 */
/* The part of a job's file that describes its container, for the next daemon. */
#include "daemon/containers/container_state.h"
#include "daemon/containers/labels.h"
#include "daemon/daemon.h"
#include "daemon/job/job.h"

#include <errno.h>
#include <string.h>

static json_t *limits_to_json(const struct limits *l)
{
    char cpus[CPUSET_TEXT_MAX];

    cpuset_format(&l->cpus, cpus, sizeof(cpus));
    return json_pack("{s:s,s:I,s:I,s:I,s:I,s:b}", "cpus", cpus, "shares", (json_int_t)l->shares,
                     "nano_cpus", (json_int_t)l->quota.nano_cpus, "quota_us",
                     (json_int_t)l->quota.quota_us, "period_us", (json_int_t)l->quota.period_us,
                     "fenced", (int)l->fenced);
}

static int limits_from_json(json_t *json, struct limits *ret)
{
    json_int_t shares, nano_cpus, quota_us, period_us;
    const char *cpus;
    int fenced;

    if (json_unpack(json, "{s:s,s:I,s:I,s:I,s:I,s:b}", "cpus", &cpus, "shares", &shares,
                    "nano_cpus", &nano_cpus, "quota_us", &quota_us, "period_us", &period_us,
                    "fenced", &fenced) < 0 ||
        cpuset_parse(cpus, &ret->cpus) < 0 || shares < 0 || shares > UINT32_MAX || nano_cpus < 0 ||
        period_us < 0)
        return -EINVAL;
    ret->shares = (uint32_t)shares;
    ret->quota = (struct engine_quota){(uint64_t)nano_cpus, quota_us, (uint64_t)period_us};
    ret->fenced = fenced;
    return 0;
}

static bool paused_by_us(const struct container_state *s)
{
    return (s->want_paused || container_stands(s)) && s->pause != PAUSE_PERSON;
}

/* A limit that we have asked for is not the container's own, which the next daemon has to know. */
static void memory_to_json(const struct container_memory *m, json_t *json)
{
    if (!m->asks)
        return;
    json_object_set_new(json, "memory_own", json_integer((json_int_t)m->own));
    json_object_set_new(json, "memory_asked", json_integer((json_int_t)m->asked));
    json_object_set_new(json, "memory_limit", json_integer((json_int_t)m->limit));
}

static void memory_from_json(const json_t *json, struct container_memory *ret)
{
    json_int_t own, asked, limit;

    if (json_unpack((json_t *)json, "{s:I,s:I,s:I}", "memory_own", &own, "memory_asked", &asked,
                    "memory_limit", &limit) < 0 ||
        own < 0 || asked < 0 || limit < 0)
        return; /* none was asked for */
    ret->asks = true;
    ret->own = (uint64_t)own;
    ret->asked = (uint64_t)asked;
    ret->limit = (uint64_t)limit;
}

json_t *container_to_json(const struct job *j)
{
    const struct container *c = j->container;
    json_t *json;

    if (!c)
        return NULL;
    json = json_pack("{s:s,s:s,s:s,s:i,s:b,s:b,s:b,s:o,s:o}", "engine", c->set->path, "id", c->id,
                     "key", c->key, "accepted", (int)c->accepted, "adopted",
                     (int)(c->origin == CONTAINER_ADOPTED), "joined",
                     (int)(c->origin == CONTAINER_JOINED), "paused", (int)paused_by_us(&c->state),
                     "own", limits_to_json(&c->own), "placed",
                     limits_to_json(c->state.phase == CONTAINER_UPDATING ? &c->sent : &c->placed));
    memory_to_json(&c->memory, json);
    return json;
}

int container_from_json(struct job *j, json_t *json)
{
    const char *engine, *id, *key;
    json_t *own, *placed;
    struct container *c;
    struct containers *set = j->daemon->containers;
    int paused = 0, adopted = 0, joined = 0, accepted = 0; /* absent in a file by an older tided */

    if (json_unpack(json, "{s:s,s:s,s:s,s?i,s?b,s?b,s?b,s:o,s:o}", "engine", &engine, "id", &id,
                    "key", &key, "accepted", &accepted, "adopted", &adopted, "joined", &joined,
                    "paused", &paused, "own", &own, "placed", &placed) < 0)
        return -EINVAL;
    while (set && strcmp(set->path, engine) != 0)
        set = set->next;
    if (!set || !labels_key_valid(key) || container_find(set, id))
        return -EINVAL; /* that engine is not watched any more */
    c = container_add(set, id, key);
    if (!c)
        return -EINVAL;
    if (limits_from_json(own, &c->own) < 0 || limits_from_json(placed, &c->placed) < 0) {
        container_free(c);
        return -EINVAL;
    }
    memory_from_json(json, &c->memory);
    c->accepted = (unsigned)accepted;
    c->origin = adopted ? CONTAINER_ADOPTED : joined ? CONTAINER_JOINED : CONTAINER_BY_LABEL;
    c->want = c->own;
    c->sent = c->placed;
    c->state.phase = CONTAINER_KNOWN;
    c->state.want_paused = paused || j->admission.phase == JOB_PAUSED;
    c->state.pause = c->state.want_paused ? PAUSE_INHERITED : PAUSE_NONE;
    c->pause_call.answered_ms = UINT64_MAX;
    c->job = j;
    container_bind(c, j);
    container_listen(c);
    return 0;
}

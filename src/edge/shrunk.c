/* SPDX-License-Identifier: Apache-2.0 */
#include "edge/shrunk.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fnv.h"

static const char *text_of(const json_t *row, const char *name)
{
    const char *text = json_string_value(json_object_get(row, name));

    return text ? text : "";
}

static void add_row(const json_t *row, bool users, struct payload_shrunk *ret)
{
    json_int_t cores = json_integer_value(json_object_get(row, "cores"));
    struct payload_shrunk_node *node = &ret->node[0];
    struct payload_shrunk_job *job = &ret->job[ret->jobs];

    if (cores <= 0 || cores > UINT16_MAX)
        return;
    ret->nodes = 1;
    node->jobs++;
    node->cores += (uint32_t)cores;
    if (!users || ret->jobs == PAYLOAD_SHRUNK_JOBS)
        return;
    memcpy(job->node, node->name, sizeof(job->node));
    snprintf(job->name, sizeof(job->name), "%s", text_of(row, "name"));
    snprintf(job->user, sizeof(job->user), "%s", text_of(row, "user"));
    job->cores = (uint32_t)cores;
    ret->jobs++;
}

int shrunk_read(const char *body, const char *node, bool users, struct payload_shrunk *ret)
{
    json_t *answer = json_loads(body, 0, NULL), *row;
    const json_t *list = json_object_get(answer, "jobs");
    int r = json_is_array(list) ? 0 : -EBADMSG;
    size_t i;

    memset(ret, 0, sizeof(*ret));
    snprintf(ret->node[0].name, sizeof(ret->node[0].name), "%s", node);
    json_array_foreach (list, i, row)
        add_row(row, users, ret);
    json_decref(answer);
    return r;
}

/* ---- a parent's sum ---- */

static void drop_jobs(struct payload_shrunk *all, const char *node)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < all->jobs; i++)
        if (strcmp(all->job[i].node, node) != 0)
            all->job[kept++] = all->job[i];
    all->jobs = kept;
}

static void drop_node(struct shrunk_sum *s, uint32_t i)
{
    uint32_t last = --s->all.nodes;

    drop_jobs(&s->all, s->all.node[i].name);
    s->all.node[i] = s->all.node[last];
    s->heard_ns[i] = s->heard_ns[last];
}

/* Adds without overflow, also what a broken child has sent. */
static uint32_t add_count(uint32_t a, uint32_t b)
{
    uint64_t sum = (uint64_t)a + b;

    return sum < INT32_MAX ? (uint32_t)sum : INT32_MAX;
}

void shrunk_add(struct payload_shrunk_node *sum, const struct payload_shrunk *told)
{
    for (uint32_t i = 0; i < told->nodes; i++) {
        sum->jobs = add_count(sum->jobs, told->node[i].jobs);
        sum->cores = add_count(sum->cores, told->node[i].cores);
    }
}

void shrunk_take(struct shrunk_sum *s, const char *child, const struct payload_shrunk *told,
                 uint64_t now_ns)
{
    struct payload_shrunk *all = &s->all;
    struct payload_shrunk_node sum = {0};

    for (uint32_t i = all->nodes; i-- > 0;)
        if (strcmp(all->node[i].name, child) == 0)
            drop_node(s, i);
    if (told->nodes == 0 || all->nodes == PAYLOAD_NODES_MAX)
        return;
    snprintf(sum.name, sizeof(sum.name), "%s", child);
    shrunk_add(&sum, told);
    s->heard_ns[all->nodes] = now_ns;
    all->node[all->nodes++] = sum;
    for (uint32_t i = 0; i < told->jobs && all->jobs < PAYLOAD_SHRUNK_JOBS; i++) {
        struct payload_shrunk_job *job = &all->job[all->jobs++];

        *job = told->job[i];
        memcpy(job->node, sum.name, sizeof(job->node));
    }
}

void shrunk_age(struct shrunk_sum *s, uint64_t now_ns)
{
    for (uint32_t i = s->all.nodes; i-- > 0;)
        if (now_ns - s->heard_ns[i] >= PAYLOAD_SHRUNK_OLD_S * NS_PER_S)
            drop_node(s, i);
}

/* ---- telling ---- */

void shrunk_tell(struct shrunk_told *t, const struct payload_shrunk *now, uint64_t now_ns,
                 int (*send)(void *arg, enum topic_leaf leaf, char *text), void *arg)
{
    char *text = payload_shrunk_text(now);
    uint64_t hash = text ? fnv_text(FNV_START, text) : 0;
    bool again = now->nodes && now_ns - t->told_ns >= PAYLOAD_SHRUNK_AGAIN_S * NS_PER_S;

    if (!text || (hash == t->hash && !again) || (t->hash == 0 && now->nodes == 0)) {
        free(text);
        return;
    }
    if (send(arg, TOPIC_SHRUNK, text) == 0)
        *t = (struct shrunk_told){hash, now_ns};
}

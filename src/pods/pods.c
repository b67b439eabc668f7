/* SPDX-License-Identifier: Apache-2.0 */
#include "pods/pods.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct event {
    char *text;
    uint64_t time_ns;
};

struct pods {
    const struct choice *choice;
    pods_news_fn *news;
    void *arg;
    struct pod_container *first;
    unsigned n;
    uint64_t lists, events; /* how many so far */
    uint64_t last_ns;       /* time of the newest event */
    struct event ring[PODS_EVENTS_MAX];
};

struct pods *pods_new(const struct choice *choice, pods_news_fn *news, void *arg)
{
    struct pods *p = calloc(1, sizeof(*p));

    if (!p)
        return NULL;
    p->choice = choice;
    p->news = news;
    p->arg = arg;
    return p;
}

static void drop(struct pods *p, struct pod_container *c)
{
    struct pod_container **at = &p->first;

    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    p->n--;
    json_decref(c->labels);
    free(c);
}

struct pods *pods_free(struct pods *p)
{
    if (!p)
        return NULL;
    while (p->first)
        drop(p, p->first);
    for (size_t i = 0; i < PODS_EVENTS_MAX; i++)
        free(p->ring[i].text);
    free(p);
    return NULL;
}

struct pod_container *pods_find(const struct pods *p, const char *id)
{
    struct pod_container *c = p->first;

    while (c && strcmp(c->id, id) != 0)
        c = c->next;
    return c;
}

struct pod_container *pods_first(const struct pods *p)
{
    return p->first;
}

/* ---- events ---- */

uint64_t pods_oldest(const struct pods *p)
{
    return p->events > PODS_EVENTS_MAX ? p->events - PODS_EVENTS_MAX : 0;
}

uint64_t pods_next(const struct pods *p)
{
    return p->events;
}

const char *pods_event(const struct pods *p, uint64_t number)
{
    const char *text = p->ring[number % PODS_EVENTS_MAX].text;

    return text ? text : "\n";
}

uint64_t pods_since(const struct pods *p, uint64_t since_ns)
{
    uint64_t number = pods_oldest(p);

    while (number < p->events && p->ring[number % PODS_EVENTS_MAX].time_ns < since_ns)
        number++;
    return number;
}

/* Each has a time of its own, by which a reader that comes back knows the last one again. */
static uint64_t event_time(struct pods *p)
{
    struct timespec ts;
    uint64_t now;

    clock_gettime(CLOCK_REALTIME, &ts);
    now = (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
    p->last_ns = now > p->last_ns ? now : p->last_ns + 1;
    return p->last_ns;
}

static void tell(struct pods *p, const struct pod_container *c, const char *action)
{
    struct event *e = &p->ring[p->events++ % PODS_EVENTS_MAX];
    char code[16];
    json_t *json;
    char *text;

    free(e->text);
    e->text = NULL;
    e->time_ns = event_time(p);
    snprintf(code, sizeof(code), "%d", c->exit_code);
    json = json_pack("{s:s,s:s,s:{s:s,s:{s:s,s:s}},s:I}", "Type", "container", "Action", action,
                     "Actor", "ID", c->id, "Attributes", "name", c->name, "exitCode", code,
                     "timeNano", (json_int_t)e->time_ns);
    text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    if (text && asprintf(&e->text, "%s\n", text) < 0)
        e->text = NULL;
    free(text);
    json_decref(json);
    p->news(p->arg);
}

/* ---- what the runtime tells ---- */

static struct pod_container *add(struct pods *p, const char *id)
{
    struct pod_container *c = p->n < PODS_CONTAINERS_MAX ? calloc(1, sizeof(*c)) : NULL;

    if (!c)
        return NULL;
    snprintf(c->id, sizeof(c->id), "%s", id);
    c->next = p->first;
    p->first = c;
    p->n++;
    return c;
}

struct pod_container *pods_learn(struct pods *p, const struct nri_pod *pod,
                                 const struct nri_container *said, struct chosen *ret)
{
    struct chosen chosen = choose(p->choice, pod, said->name);
    struct pod_container *c = pods_find(p, said->id);
    json_t *labels;

    if (ret)
        *ret = chosen;
    if (chosen.ours)
        return NULL;
    if (!c)
        c = add(p, said->id);
    if (!c)
        return NULL;
    labels = choose_labels(&chosen, pod);
    if (labels) {
        json_decref(c->labels);
        c->labels = labels;
    }
    choose_name(pod, said->name, c->name);
    span_text(said->image, c->image, sizeof(c->image));
    if (said->state != NRI_UNKNOWN)
        c->state = said->state;
    if (said->pid > 0)
        c->pid = said->pid;
    if (said->started_ns > 0)
        c->started_ns = said->started_ns;
    if (said->has_limits)
        c->limits = said->limits;
    c->heard = p->lists;
    return c;
}

static bool same(const struct nri_limits *a, const struct nri_limits *b)
{
    return strcmp(a->cpus, b->cpus) == 0 && a->quota_us == b->quota_us &&
           a->period_us == b->period_us && a->shares == b->shares &&
           a->memory_bytes == b->memory_bytes;
}

void pods_resize(struct pods *p, struct pod_container *c, const struct nri_limits *now)
{
    if (same(&c->limits, now))
        return;
    c->limits = *now;
    c->unseen = true;
    tell(p, c, "update");
}

void pods_started(struct pods *p, struct pod_container *c)
{
    c->state = NRI_RUNNING;
    tell(p, c, "start");
}

void pods_stopped(struct pods *p, struct pod_container *c, int exit_code)
{
    if (c->state == NRI_STOPPED)
        return;
    c->state = NRI_STOPPED;
    c->exit_code = exit_code;
    c->pid = 0;
    tell(p, c, "die");
}

void pods_removed(struct pods *p, struct pod_container *c)
{
    pods_stopped(p, c, c->exit_code);
    tell(p, c, "destroy");
    drop(p, c);
}

void pods_updated(struct pods *p, struct pod_container *c, const char *cpus)
{
    if (cpus)
        snprintf(c->limits.cpus, sizeof(c->limits.cpus), "%s", cpus);
    tell(p, c, "update");
}

void pods_list_begins(struct pods *p)
{
    p->lists++;
}

void pods_list_ends(struct pods *p)
{
    for (struct pod_container *c = p->first, *next; c; c = next) {
        next = c->next;
        if (c->heard != p->lists)
            drop(p, c); /* readers list anew when the runtime is back */
    }
}

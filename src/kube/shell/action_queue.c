/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/shell/action_queue.h"

#include "base/cleanup.h"

#include <string.h>

struct item {
    struct item *next;
    uint64_t due_ns; /* begins no earlier; 0: at any time */
    unsigned failures;
    bool busy, wanted;
    char key[WORK_KEY_MAX];
};

struct work_queue {
    struct item *first;
    uint64_t base_ns, cap_ns;
};

struct work_queue *work_new(uint64_t base_ns, uint64_t cap_ns)
{
    struct work_queue *q = calloc(1, sizeof(*q));

    if (!q)
        return NULL;
    q->base_ns = base_ns;
    q->cap_ns = cap_ns;
    return q;
}

struct work_queue *work_free(struct work_queue *q)
{
    while (q && q->first) {
        struct item *item = q->first;

        q->first = item->next;
        free(item);
    }
    free(q);
    return NULL;
}

/* The link of the list that holds the key or would hold it. */
static struct item **find(struct work_queue *q, const char *key)
{
    struct item **at = &q->first;

    while (*at && strncmp((*at)->key, key, WORK_KEY_MAX - 1) != 0)
        at = &(*at)->next;
    return at;
}

static void drop(struct item **at)
{
    struct item *item = *at;

    *at = item->next;
    free(item);
}

bool work_begin(struct work_queue *q, const char *key, uint64_t now)
{
    struct item **at = find(q, key), *item = *at;

    if (!item) {
        item = calloc(1, sizeof(*item));
        if (!item)
            return false;
        snprintf(item->key, sizeof(item->key), "%s", key);
        *at = item;
    }
    item->wanted = item->busy || now < item->due_ns;
    if (item->wanted)
        return false;
    item->busy = true;
    return true;
}

bool work_may_begin(const struct work_queue *q, const char *key, uint64_t now)
{
    const struct item *item = *find((struct work_queue *)q, key);

    return !item || (!item->busy && now >= item->due_ns);
}

bool work_end(struct work_queue *q, const char *key, bool good, uint64_t now)
{
    struct item **at = find(q, key), *item = *at;
    uint64_t pause = q->base_ns;
    bool wanted;

    if (!item)
        return false;
    wanted = item->wanted;
    if (good) {
        drop(at);
        return wanted;
    }
    for (unsigned i = 0; i < item->failures && pause < q->cap_ns; i++)
        pause *= 2;
    item->due_ns = now + (pause < q->cap_ns ? pause : q->cap_ns);
    item->failures++;
    item->busy = false;
    item->wanted = true; /* failed work is still to be done */
    return wanted;
}

void work_settle(struct work_queue *q, uint64_t now)
{
    struct item **at = &q->first;

    while (*at)
        if (!(*at)->busy && (*at)->due_ns <= now)
            drop(at);
        else
            at = &(*at)->next;
}

void work_forget(struct work_queue *q, const char *key)
{
    struct item **at = find(q, key);

    if (*at)
        drop(at);
}

uint64_t work_next_ns(const struct work_queue *q)
{
    uint64_t next = UINT64_MAX;

    for (const struct item *item = q->first; item; item = item->next)
        if (item->wanted && !item->busy && item->due_ns < next)
            next = item->due_ns;
    return next;
}

unsigned work_busy(const struct work_queue *q)
{
    unsigned n = 0;

    for (const struct item *item = q->first; item; item = item->next)
        n += item->busy;
    return n;
}

unsigned work_failures(const struct work_queue *q, const char *key)
{
    const struct item *item = *find((struct work_queue *)q, key);

    return item ? item->failures : 0;
}

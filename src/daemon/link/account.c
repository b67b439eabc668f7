/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/link/account.h"

#include <stdlib.h>

bool account_take(const struct accounts *t, struct account *a)
{
    return bucket_take(&a->budget, ACCOUNT_RATE, t->burst, clock_now_ns());
}

bool account_has(const struct accounts *t, struct account *a)
{
    uint64_t now = clock_now_ns();

    return bucket_has(&a->budget, ACCOUNT_RATE, t->burst, now) &&
           (!a->sum || bucket_has(&a->sum->budget, a->sum->rate, a->sum->burst, now));
}

void account_charge(struct account *a, uint64_t ns)
{
    int64_t tokens = (int64_t)(ns * (NS_PER_S / ACCOUNT_TOKEN_NS));

    a->budget.tokens -= tokens;
    if (a->sum)
        a->sum->budget.tokens -= tokens;
}

static bool owes(const struct accounts *t, const struct account *a, uint64_t now)
{
    struct bucket b = a->budget;

    bucket_has(&b, ACCOUNT_RATE, t->burst, now);
    return b.tokens < (int64_t)(t->burst * NS_PER_S);
}

/* Forgets those that have no connection and are full. */
struct account *account_find(struct accounts *t, uint64_t key, unsigned most)
{
    uint64_t now = clock_now_ns();
    struct account *found = NULL;
    unsigned n = 0;

    for (struct account **at = &t->first; *at;) {
        struct account *a = *at;

        if (a->key == key)
            found = a;
        if (a->key == key || a->connections || owes(t, a, now)) {
            at = &a->next;
            n++;
            continue;
        }
        *at = a->next;
        free(a);
    }
    if (found || (most && n >= most))
        return found;
    found = calloc(1, t->size);
    if (!found)
        return NULL;
    *found = (struct account){.next = t->first, .key = key};
    t->first = found;
    return found;
}

void account_last(struct accounts *t, struct account *a)
{
    struct account **at = &t->first;

    while (*at != a)
        at = &(*at)->next;
    *at = a->next;
    a->next = NULL;
    while (*at)
        at = &(*at)->next;
    *at = a;
}

void accounts_free(struct accounts *t)
{
    while (t->first) {
        struct account *a = t->first;

        t->first = a->next;
        free(a);
    }
}

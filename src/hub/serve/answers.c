/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/serve/answers.h"

#include "base/clock.h"
#include "base/fnv.h"

#include <stdio.h>
#include <string.h>

static void drop_old(struct answers *a, uint64_t now_ns)
{
    for (int i = 0; i < ANSWERS_KEPT; i++)
        if (now_ns >= a->kept[i].until_ns) {
            json_decref(a->kept[i].answer);
            a->kept[i].answer = NULL;
        }
}

json_t *answers_get(struct answers *a, const char *key, uint64_t now_ns)
{
    drop_old(a, now_ns);
    for (int i = 0; i < ANSWERS_KEPT; i++)
        if (a->kept[i].answer && strcmp(a->kept[i].key, key) == 0)
            return json_incref(a->kept[i].answer);
    return NULL;
}

void answers_put(struct answers *a, const char *key, json_t *answer, uint64_t began_ns,
                 uint64_t now_ns)
{
    uint64_t good_ns = (now_ns - began_ns) * ANSWERS_TIMES;
    int first = 0;

    for (int i = 1; i < ANSWERS_KEPT; i++)
        if (a->kept[i].until_ns < a->kept[first].until_ns)
            first = i;
    json_decref(a->kept[first].answer);
    a->kept[first].answer = json_incref(answer);
    a->kept[first].until_ns = now_ns + (good_ns < ANSWERS_MOST_NS ? good_ns : ANSWERS_MOST_NS);
    snprintf(a->kept[first].key, ANSWERS_KEY_MAX, "%s", key);
}

void answers_forget(struct answers *a)
{
    for (int i = 0; i < ANSWERS_KEPT; i++)
        json_decref(a->kept[i].answer);
    memset(a->kept, 0, sizeof(a->kept));
}

/* ---- accounts ---- */

static size_t account(const char *user)
{
    return (size_t)(fnv_text(FNV_START, user) % ANSWERS_USERS);
}

bool answers_may(const struct answers *a, const char *user, uint64_t now_ns, unsigned *ret_wait_s)
{
    uint64_t paid_ns = a->paid_ns[account(user)],
             most_ns = now_ns + ANSWERS_BURST_NS * ANSWERS_SHARE;

    if (paid_ns <= most_ns)
        return true;
    *ret_wait_s = (unsigned)((paid_ns - most_ns) / NS_PER_S) + 1;
    return false;
}

void answers_took(struct answers *a, const char *user, uint64_t began_ns, uint64_t now_ns)
{
    uint64_t *paid_ns = &a->paid_ns[account(user)];

    *paid_ns = (*paid_ns > now_ns ? *paid_ns : now_ns) + (now_ns - began_ns) * ANSWERS_SHARE;
}

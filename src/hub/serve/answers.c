/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/serve/answers.h"

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
    *a = (struct answers){0};
}

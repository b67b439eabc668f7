/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers that were dear: each is given again for ten times as long as it took to make, so that one
 * question takes at most a tenth of the loop's time, however many people look at the same page.
 * Only for what all who may ask see alike. Event loop's thread; private to this room.
 */
#pragma once

#include <jansson.h>
#include <stdint.h>

#define ANSWERS_KEPT    16
#define ANSWERS_KEY_MAX 256
#define ANSWERS_TIMES   10
#define ANSWERS_MOST_NS UINT64_C(60000000000)

struct answers {
    struct {
        char key[ANSWERS_KEY_MAX];
        json_t *answer; /* NULL: free */
        uint64_t until_ns;
    } kept[ANSWERS_KEPT];
};

/* A new reference; NULL: none is kept. Lets go what is too old. */
json_t *answers_get(struct answers *a, const char *key, uint64_t now_ns);

/* Keeps a reference to what was made from @began_ns on, in place of what ends first. */
void answers_put(struct answers *a, const char *key, json_t *answer, uint64_t began_ns,
                 uint64_t now_ns);

void answers_forget(struct answers *a); /* something that they tell was erased or changed */

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers that were dear: each is given again for ten times as long as it took to make, so that one
 * question takes at most a tenth of the loop's time, however many people look at the same page.
 * Only for what all who may ask see alike. Questions that nobody else asked cost their user: a
 * third of the loop's time, and some seconds at once. Event loop's thread; private to this room,
 * and for its test.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define ANSWERS_KEPT    16
#define ANSWERS_KEY_MAX 256
#define ANSWERS_TIMES   10
#define ANSWERS_MOST_NS UINT64_C(60000000000)

#define ANSWERS_USERS      256 /* users with the same hash share an account */
#define ANSWERS_SHARE      3   /* of the loop's time one user has such a part … */
#define ANSWERS_BURST_NS   UINT64_C(20000000000) /* … and so much of it at once */
#define ANSWERS_LONGEST_NS UINT64_C(20000000000) /* for one question: leases last longer */

struct answers {
    struct {
        char key[ANSWERS_KEY_MAX];
        json_t *answer; /* NULL: free */
        uint64_t until_ns;
    } kept[ANSWERS_KEPT];
    uint64_t paid_ns[ANSWERS_USERS]; /* when what a user's answers took will be that part */
};

/* A new reference; NULL: none is kept. Lets go what is too old. */
json_t *answers_get(struct answers *a, const char *key, uint64_t now_ns);

/* Keeps a reference to what was made from @began_ns on, in place of what ends first. */
void answers_put(struct answers *a, const char *key, json_t *answer, uint64_t began_ns,
                 uint64_t now_ns);

void answers_forget(struct answers *a); /* something that they tell was erased or changed */

/* Whether an answer may be made for the user now; false: in *ret_wait_s seconds. */
bool answers_may(const struct answers *a, const char *user, uint64_t now_ns, unsigned *ret_wait_s);
void answers_took(struct answers *a, const char *user, uint64_t began_ns, uint64_t now_ns);

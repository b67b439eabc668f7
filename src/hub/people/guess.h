/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits against guessing passwords. Wrong ones are counted for each pair of user and address, for
 * each address and for each user; beyond a number of free ones, each further wrong one doubles the
 * time during which no password is looked at, from GUESS_FIRST_S to GUESS_LAST_S. A pair has few
 * free ones, so that somebody elsewhere does not lock a user out; a user has many, against many
 * addresses. And all together are so many a second: each costs the hub's time. Pure; any thread;
 * times are monotonic. Used by session.c.
 */
#pragma once

#include "base/bucket.h"

#include <stdint.h>

#define GUESS_FREE_PAIR    5
#define GUESS_FREE_ADDRESS 30
#define GUESS_FREE_USER    100
#define GUESS_FIRST_S      30
#define GUESS_LAST_S       900
#define GUESS_FORGET_S     3600 /* without a wrong one */
#define GUESS_RATE         4    /* passwords looked at in a second … */
#define GUESS_BURST        20   /* … after a quiet time */
#define GUESS_KEPT         4096

struct guess_entry {
    uint64_t key; /* a hash; 0: free */
    uint64_t last_ns, until_ns;
    uint32_t wrong;
};

struct guess {
    uint64_t seed; /* random, so that nobody chooses names whose hashes meet */
    struct bucket rate;
    struct guess_entry entry[GUESS_KEPT];
};

/*
 * Whether a password of @user (whether or not there is one) may be looked at now. Returns 0, or
 * after how many seconds. @address: 16 bytes; of IPv6 only the network counts.
 */
unsigned guess_wait_s(struct guess *g, const char *user, const unsigned char address[16],
                      uint64_t now_ns);

/* Whether the password was right. A right one forgets the pair's wrong ones. */
void guess_was(struct guess *g, const char *user, const unsigned char address[16], bool right,
               uint64_t now_ns);

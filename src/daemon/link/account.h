/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Budgets of the loop's time: an account for each user, or whoever else has one, on one socket. An
 * account that is in debt is not served until its bucket has filled again. It is kept until the
 * bucket is full, so that a new connection gains nothing. Accounts may have a budget together,
 * besides their own. Daemon's event loop only; called by agent_socket.c and api.c.
 */
#pragma once

#include "base/bucket.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ACCOUNT_RATE     100 /* tokens a second: a tenth of the loop's time */
#define ACCOUNT_TOKEN_NS 1000000ull

/* A budget of several accounts together. */
struct account_sum {
    struct bucket budget;
    unsigned rate, burst; /* tokens a second, tokens */
};

/* The first member of a larger struct, which the table allocates. */
struct account {
    struct account *next;
    uint64_t key;
    unsigned connections;
    struct bucket budget;
    struct account_sum *sum; /* that it takes from, too; NULL: none */
};

struct accounts {
    struct account *first;
    size_t size;    /* of that larger struct */
    unsigned burst; /* tokens */
};

/*
 * Finds @key's account or makes one, zeroed but for its key. Returns NULL if memory is short, or
 * if there are @most already (0: any number). Valid while it has connections.
 */
struct account *account_find(struct accounts *t, uint64_t key, unsigned most);
/* Puts @a behind the others, so that the one served longest ago comes first. */
void account_last(struct accounts *t, struct account *a);
void accounts_free(struct accounts *t);

/* Takes one token. Returns false if there is none. */
bool account_take(const struct accounts *t, struct account *a);
/* Whether there is a token, which is not taken, in its budget and in that of the sum. */
bool account_has(const struct accounts *t, struct account *a);
/* Charges @ns of the loop's time, to the sum too, which may leave a debt. */
void account_charge(struct account *a, uint64_t ns);

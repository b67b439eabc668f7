/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/people/guess.h"

#include "base/fnv.h"

#include <string.h>

enum kind { PAIR, ADDRESS, USER, KINDS };

static const uint32_t free_ones[KINDS] = {
    [PAIR] = GUESS_FREE_PAIR, [ADDRESS] = GUESS_FREE_ADDRESS, [USER] = GUESS_FREE_USER};

/* IPv4 stands in the last four bytes, with zeroes or ffff before it. */
static size_t network(const unsigned char address[16], unsigned char ret[16])
{
    static const unsigned char none[10];
    size_t len = memcmp(address, none, sizeof(none)) == 0 ? 16 : 8;

    memcpy(ret, address, len);
    return len;
}

static uint64_t key_of(const struct guess *g, enum kind kind, const char *user,
                       const unsigned char address[16])
{
    unsigned char bytes[17] = {(unsigned char)kind};
    size_t len = kind == USER ? 0 : network(address, bytes + 1);
    uint64_t hash = fnv_bytes(FNV_START ^ g->seed, bytes, 1 + len);

    if (kind != ADDRESS)
        hash = fnv_bytes(hash, user, strlen(user));
    return hash ? hash : 1;
}

static bool forgotten(const struct guess_entry *e, uint64_t now_ns)
{
    return e->key == 0 ||
           (now_ns >= e->until_ns && now_ns - e->last_ns > GUESS_FORGET_S * NS_PER_S);
}

static struct guess_entry *find(struct guess *g, uint64_t key)
{
    for (size_t i = 0; i < GUESS_KEPT; i++)
        if (g->entry[i].key == key)
            return &g->entry[i];
    return NULL;
}

/* A free entry, else the one with the fewest wrong ones: a flood of names frees no known guesser.
 */
static struct guess_entry *make(struct guess *g, uint64_t key, uint64_t now_ns)
{
    struct guess_entry *best = &g->entry[0];

    for (size_t i = 0; i < GUESS_KEPT; i++) {
        struct guess_entry *e = &g->entry[i];

        if (forgotten(e, now_ns)) {
            best = e;
            break;
        }
        if (e->wrong < best->wrong || (e->wrong == best->wrong && e->last_ns < best->last_ns))
            best = e;
    }
    *best = (struct guess_entry){.key = key};
    return best;
}

unsigned guess_wait_s(struct guess *g, const char *user, const unsigned char address[16],
                      uint64_t now_ns)
{
    uint64_t until_ns = now_ns;

    for (enum kind k = 0; k < KINDS; k++) {
        const struct guess_entry *e = find(g, key_of(g, k, user, address));

        if (e && e->until_ns > until_ns)
            until_ns = e->until_ns;
    }
    if (until_ns > now_ns)
        return (unsigned)((until_ns - now_ns + NS_PER_S - 1) / NS_PER_S);
    return bucket_take(&g->rate, GUESS_RATE, GUESS_BURST, now_ns) ? 0 : 1;
}

static void count_wrong(struct guess *g, enum kind kind, uint64_t key, uint64_t now_ns)
{
    struct guess_entry *e = find(g, key);
    uint64_t wait_s = GUESS_FIRST_S;

    if (e && forgotten(e, now_ns))
        *e = (struct guess_entry){.key = key};
    if (!e)
        e = make(g, key, now_ns);
    e->last_ns = now_ns;
    e->wrong += e->wrong < UINT32_MAX;
    if (e->wrong < free_ones[kind])
        return;
    for (uint32_t n = free_ones[kind]; n < e->wrong && wait_s < GUESS_LAST_S; n++)
        wait_s *= 2;
    e->until_ns = now_ns + (wait_s < GUESS_LAST_S ? wait_s : GUESS_LAST_S) * NS_PER_S;
}

void guess_was(struct guess *g, const char *user, const unsigned char address[16], bool right,
               uint64_t now_ns)
{
    struct guess_entry *pair = right ? find(g, key_of(g, PAIR, user, address)) : NULL;

    if (pair)
        *pair = (struct guess_entry){0};
    for (enum kind k = 0; !right && k < KINDS; k++)
        count_wrong(g, k, key_of(g, k, user, address), now_ns);
}

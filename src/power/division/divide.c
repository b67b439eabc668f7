/* SPDX-License-Identifier: Apache-2.0 */
#include "power/division/divide.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/muldiv.h"

#include "power/division/demand_shape.h"

/*
 * Slopes are sorted by a rounded key in three passes of 11 bits; where keys are equal, by an exact
 * comparison. The key is a floating-point number in 33 bits, and falls as the slope rises.
 */
#define RADIX_BITS    11
#define RADIX_SIZE    (1u << RADIX_BITS)
#define RADIX_PASSES  3
#define MANTISSA_BITS 26
#define KEY_MAX       ((UINT64_C(1) << RADIX_BITS * RADIX_PASSES) - 1)

/*
 * Slopes that differ by less than about a twentieth are alike: a step whose key is NEAR below the
 * threshold is served whole, one at the threshold not at all, and in between by its distance. So
 * shares move little when curves do, and machines that are alike get alike shares.
 */
#define NEAR (UINT64_C(1) << (MANTISSA_BITS - 4))

/* A merged curve is looked at in this many places, before eight are chosen. */
#define MERGE_POINTS 1024

/* One straight part of a child's curve, above its floor. */
struct step {
    uint64_t key;
    uint32_t child, point; /* the part ends at this point */
};

/* Widths of all steps before one, and their products with the keys; the high word first. */
struct sum {
    uint64_t uw[2], weighted[2];
};

struct scratch {
    uint32_t start[RADIX_PASSES][RADIX_SIZE];
    struct step step[];
};

static_assert(sizeof(struct scratch) % sizeof(uint64_t) == 0, "steps are aligned");

static size_t most_steps(uint32_t count)
{
    return (size_t)count * (DEMAND_POINTS - 1);
}

size_t divide_bytes(uint32_t count)
{
    return sizeof(struct scratch) + 2 * most_steps(count) * sizeof(struct step) +
           (most_steps(count) + 1) * sizeof(struct sum);
}

/* ---- slopes ---------------------------------------------------------------------------------- */

/* rest × 2^32 / divisor, rounded down, for rest < divisor and a divisor with its top bit set. */
static uint64_t fraction32(uint64_t rest, uint64_t divisor)
{
    uint64_t high = divisor >> 32, low = divisor & UINT32_MAX;
    uint64_t q = rest / high, r = rest % high;

    while (q >> 32 || q * low > r << 32) {
        q--;
        r += high;
        if (r >> 32)
            break;
    }
    return q;
}

/* Never larger for a steeper part. Both numbers are at least 1 and at most DEMAND_MAX. */
static uint64_t slope_key(uint64_t value, uint64_t uw)
{
    int value_zeros = __builtin_clzll(value), uw_zeros = __builtin_clzll(uw);
    uint64_t exponent = (uint64_t)(64 + uw_zeros - value_zeros);
    uint64_t above = value << value_zeros, below = uw << uw_zeros, rest;

    if (above >= below) {
        rest = above - below;
    } else {
        rest = above - (below - above); /* 2 × above − below */
        exponent--;
    }
    return KEY_MAX - (exponent << MANTISSA_BITS | fraction32(rest, below) >> (32 - MANTISSA_BITS));
}

static const struct demand_point *end_of(const struct divide_child *child, const struct step *s)
{
    return &child[s->child].demand->point[s->point];
}

/* The order in which steps are served: total, so that any sort gives the same. */
static bool goes_before(const struct divide_child *child, const struct step *a,
                        const struct step *b)
{
    const struct demand_point *x = end_of(child, a), *y = end_of(child, b);
    demand_wide left = (demand_wide)(x->value - x[-1].value) * (y->uw - y[-1].uw);
    demand_wide right = (demand_wide)(y->value - y[-1].value) * (x->uw - x[-1].uw);

    if (left != right)
        return left > right;
    return a->child != b->child ? a->child < b->child : a->point < b->point;
}

static void sift_down(const struct divide_child *child, struct step *s, size_t root, size_t n)
{
    struct step moving = s[root];

    for (size_t next; (next = 2 * root + 1) < n; root = next) {
        if (next + 1 < n && goes_before(child, &s[next], &s[next + 1]))
            next++;
        if (!goes_before(child, &moving, &s[next]))
            break;
        s[root] = s[next];
    }
    s[root] = moving;
}

/* Steps of one key, which are in order in nearly every case: their slopes are equal. */
static void sort_equal_keys(const struct divide_child *child, struct step *s, size_t n)
{
    bool sorted = true;

    for (size_t i = 1; i < n && sorted; i++)
        sorted = !goes_before(child, &s[i], &s[i - 1]);
    if (sorted)
        return;
    for (size_t i = n / 2; i-- > 0;)
        sift_down(child, s, i, n);
    for (size_t end = n; end-- > 1;) {
        struct step last = s[end];

        s[end] = s[0];
        s[0] = last;
        sift_down(child, s, 0, end);
    }
}

/* Returns the sorted steps, which lie in one of the two halves of the scratch. */
static struct step *sort_steps(const struct divide_child *child, struct scratch *scratch, size_t n,
                               size_t room)
{
    struct step *from = scratch->step, *to = from + room;

    memset(scratch->start, 0, sizeof(scratch->start));
    for (size_t i = 0; i < n; i++)
        for (unsigned pass = 0; pass < RADIX_PASSES; pass++)
            scratch->start[pass][from[i].key >> pass * RADIX_BITS & (RADIX_SIZE - 1)]++;
    for (unsigned pass = 0; pass < RADIX_PASSES; pass++) {
        uint32_t *start = scratch->start[pass], sum = 0;
        struct step *swap = from;

        for (uint32_t digit = 0; digit < RADIX_SIZE; digit++) {
            uint32_t count = start[digit];

            start[digit] = sum;
            sum += count;
        }
        for (size_t i = 0; i < n; i++)
            to[start[from[i].key >> pass * RADIX_BITS & (RADIX_SIZE - 1)]++] = from[i];
        from = to;
        to = swap;
    }
    for (size_t begin = 0, end; begin < n; begin = end) {
        for (end = begin + 1; end < n && from[end].key == from[begin].key;)
            end++;
        if (end - begin > 1)
            sort_equal_keys(child, from + begin, end - begin);
    }
    return from;
}

/* ---- children -------------------------------------------------------------------------------- */

static uint64_t bound_of(const struct divide_child *c)
{
    return c->most_uw ? smaller_u64(c->most_uw, DEMAND_MAX) : DEMAND_MAX;
}

/* The watts that the child is sure of. */
static uint64_t sure_of(const struct divide_child *c)
{
    return c->fixed_uw ? smaller_u64(c->fixed_uw, DEMAND_MAX)
                       : smaller_u64(c->floor_uw, bound_of(c));
}

/* The child's draw before a job's work begins; at least the watts that it is sure of. */
static uint64_t base_of(const struct divide_child *c)
{
    if (c->fixed_uw || !c->demand || !c->demand->count)
        return sure_of(c);
    return larger_u64(sure_of(c), smaller_u64(c->demand->point[0].uw, bound_of(c)));
}

/* The part of the step that lies between the child's base and its bound; 0: none. */
static uint64_t width_of(const struct divide_child *child, const struct step *s)
{
    const struct demand_point *end = end_of(child, s);
    uint64_t from = larger_u64(end[-1].uw, base_of(&child[s->child]));
    uint64_t to = smaller_u64(end->uw, bound_of(&child[s->child]));

    return to > from ? to - from : 0;
}

static size_t list_steps(const struct divide_child *child, uint32_t count, struct step *ret)
{
    size_t n = 0;

    for (uint32_t i = 0; i < count; i++) {
        const struct demand *d = child[i].demand;

        if (child[i].fixed_uw || !d)
            continue;
        for (uint32_t p = 1; p < d->count; p++) {
            struct step s = {.child = i, .point = p};

            if (width_of(child, &s) == 0)
                continue;
            s.key = slope_key(d->point[p].value - d->point[p - 1].value,
                              d->point[p].uw - d->point[p - 1].uw);
            ret[n++] = s;
        }
    }
    return n;
}

/* ---- the threshold --------------------------------------------------------------------------- */

static demand_wide wide(const uint64_t word[2])
{
    return (demand_wide)word[0] << 64 | word[1];
}

static void put_wide(uint64_t word[2], demand_wide value)
{
    word[0] = (uint64_t)(value >> 64);
    word[1] = (uint64_t)value;
}

static void add_up(const struct divide_child *child, const struct step *step, size_t n,
                   struct sum *ret)
{
    ret[0] = (struct sum){{0, 0}, {0, 0}};
    for (size_t i = 0; i < n; i++) {
        uint64_t width = width_of(child, &step[i]);

        put_wide(ret[i + 1].uw, wide(ret[i].uw) + width);
        put_wide(ret[i + 1].weighted, wide(ret[i].weighted) + (demand_wide)width * step[i].key);
    }
}

/* The number of steps whose key is below @key. */
static size_t steps_below(const struct step *step, size_t n, uint64_t key)
{
    size_t from = 0;

    while (n > from) {
        size_t middle = from + (n - from) / 2;

        if (step[middle].key < key)
            from = middle + 1;
        else
            n = middle;
    }
    return from;
}

/* The watts of all steps together under this threshold, rounded down. */
static demand_wide served(const struct step *step, const struct sum *sum, size_t n,
                          uint64_t threshold)
{
    const struct sum *whole = &sum[steps_below(step, n, sub_sat(threshold, NEAR))];
    const struct sum *some = &sum[steps_below(step, n, threshold)];
    demand_wide uw = wide(some->uw) - wide(whole->uw);
    demand_wide weighted = wide(some->weighted) - wide(whole->weighted);

    return wide(whole->uw) + (uw * threshold - weighted) / NEAR;
}

/* The highest threshold under which the steps get at most @left together. */
static uint64_t find_threshold(const struct step *step, const struct sum *sum, size_t n,
                               uint64_t left)
{
    uint64_t low = 0, high = KEY_MAX + NEAR;

    while (low < high) {
        uint64_t middle = low + (high - low + 1) / 2;

        if (served(step, sum, n, middle) <= left)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* ---- serving --------------------------------------------------------------------------------- */

static uint64_t part_of(const struct divide_child *child, const struct step *s, uint64_t threshold)
{
    uint64_t width = width_of(child, s);

    return s->key + NEAR <= threshold ? width : mul_div(width, threshold - s->key, NEAR);
}

static void give(uint64_t uw, uint64_t *left, uint64_t *ret_uw)
{
    uw = smaller_u64(uw, *left);
    *ret_uw += uw;
    *left -= uw;
}

/* Serves the steps up to the threshold. What rounding leaves goes to what is left of their widths,
 * by width: identical machines get equal amounts. Returns what no step wants. */
static uint64_t serve(const struct divide_child *child, const struct step *step, size_t n,
                      uint64_t threshold, uint64_t left, uint64_t *ret_uw)
{
    uint64_t room = 0, rest;

    for (size_t i = 0; i < n; i++) {
        uint64_t uw = part_of(child, &step[i], threshold);

        room = add_sat(room, width_of(child, &step[i]) - uw);
        give(uw, &left, &ret_uw[step[i].child]);
    }
    rest = left;
    for (size_t i = 0; i < n && rest && room; i++) {
        uint64_t width = width_of(child, &step[i]) - part_of(child, &step[i], threshold);

        give(rest < room ? mul_div(rest, width, room) : width, &left, &ret_uw[step[i].child]);
    }
    for (size_t i = 0; i < n && left && rest < room; i++) /* fewer than there are steps */
        if (width_of(child, &step[i]) > part_of(child, &step[i], threshold))
            give(1, &left, &ret_uw[step[i].child]);
    return left;
}

int divide_cap(uint64_t cap_uw, const struct divide_child *child, uint32_t count, void *scratch,
               uint64_t *ret_uw, uint64_t *ret_left_uw)
{
    struct scratch *room = scratch;
    struct sum *sum = (void *)(room->step + 2 * most_steps(count));
    uint64_t left = cap_uw, threshold;
    struct step *step;
    size_t n;

    for (uint32_t i = 0; i < count; i++) {
        if (sure_of(&child[i]) > left)
            return -ENOSPC;
        left -= sure_of(&child[i]);
    }
    for (uint32_t i = 0; i < count; i++) {
        uint64_t more = smaller_u64(base_of(&child[i]) - sure_of(&child[i]), left);

        ret_uw[i] = sure_of(&child[i]) + more;
        left -= more;
    }
    n = left ? list_steps(child, count, room->step) : 0;
    step = sort_steps(child, room, n, most_steps(count));
    add_up(child, step, n, sum);
    threshold = find_threshold(step, sum, n, left);
    /* Those at the threshold may get what rounding leaves. */
    n = steps_below(step, n, threshold + 1);
    *ret_left_uw = n ? serve(child, step, n, threshold, left, ret_uw) : left;
    return 0;
}

void divide_merge(const struct divide_child *child, uint32_t count, void *scratch,
                  struct demand *ret)
{
    struct scratch *room = scratch;
    struct demand_open open;
    uint64_t uw = 0, value = 0, width_all = 0, next;
    struct step *step;
    size_t n;

    for (uint32_t i = 0; i < count; i++)
        uw = smaller_u64(uw + base_of(&child[i]), DEMAND_MAX);
    open.count = 0;
    demand_open_add(&open, uw, 0);
    n = list_steps(child, count, room->step);
    step = sort_steps(child, room, n, most_steps(count));
    for (size_t i = 0; n > MERGE_POINTS && i < n; i++)
        width_all += width_of(child, &step[i]);
    next = uw;
    for (size_t i = 0; i < n; i++) {
        const struct demand_point *end = end_of(child, &step[i]);
        uint64_t width = width_of(child, &step[i]);

        uw += width;
        value += mul_div(end->value - end[-1].value, width, end->uw - end[-1].uw);
        if (uw > DEMAND_MAX || value > DEMAND_MAX)
            break;
        if (uw < next && i + 1 < n)
            continue; /* the straight line over it lies below the curve, and hardly so */
        demand_open_add(&open, uw, value);
        next = uw + width_all / MERGE_POINTS;
    }
    demand_open_close(&open, ret);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The histogram of durations. */
#include "base/latency.h"

#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SAMPLES 4000
#define LAST    (LATENCY_BUCKETS - 1)

static uint64_t seed;

static uint64_t draw(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return seed >> 33;
}

static void each_bucket_begins_where_the_one_before_ends(void **state)
{
    assert_int_equal(latency_bucket(0), 0);
    assert_int_equal(latency_bucket(1), 0);
    for (unsigned b = 0; b < LAST; b++) {
        assert_int_equal(latency_bucket(latency_most_ns(b)), b);
        assert_int_equal(latency_bucket(latency_most_ns(b) + 1), b + 1);
    }
    assert_int_equal(latency_bucket(UINT64_MAX), LAST);
    assert_true(latency_most_ns(LAST) == UINT64_MAX);
    assert_true(latency_most_ns(UINT32_MAX) == UINT64_MAX);
}

static void eight_buckets_are_a_doubling_from_100_us_to_100_s(void **state)
{
    assert_int_equal(latency_most_ns(0), 112500); /* 100 µs and an eighth */
    assert_int_equal(latency_most_ns(7), 200 * NS_PER_US);
    for (unsigned b = 8; b < LAST; b++)
        assert_true(latency_most_ns(b) == 2 * latency_most_ns(b - 8));
    assert_in_range(latency_most_ns(LAST - 1), 98 * NS_PER_S, 100 * NS_PER_S);
}

static void no_bucket_is_wider_than_an_eighth_of_its_durations(void **state)
{
    for (unsigned b = 1; b < LAST; b++) {
        uint64_t before = latency_most_ns(b - 1);

        assert_true((latency_most_ns(b) - before) * 8 <= before + 1);
    }
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* A duration from @least to @least << @octaves, each doubling as likely. */
static uint64_t draw_duration(uint64_t least, unsigned octaves)
{
    uint64_t from = least << draw() % octaves;

    return from + draw() % from;
}

static void a_quantile_is_less_than_an_eighth_from_that_of_the_sorted_samples(void **state)
{
    static uint64_t sample[SAMPLES];

    for (unsigned n = 1; n <= SAMPLES; n = n * 3 + 1) {
        uint32_t bucket[LATENCY_BUCKETS] = {0};

        seed = n;
        for (unsigned i = 0; i < n; i++) {
            sample[i] = draw_duration(113 * NS_PER_US, 19);
            bucket[latency_bucket(sample[i])]++;
        }
        qsort(sample, n, sizeof(*sample), by_size);
        for (uint32_t permille = 0; permille <= 1000; permille += 5) {
            uint64_t rank = ((uint64_t)n * permille + 999) / 1000;
            uint64_t exact = sample[rank ? rank - 1 : 0], got = latency_quantile(bucket, permille);

            assert_int_equal(latency_bucket(got), latency_bucket(exact));
            assert_true((got > exact ? got - exact : exact - got) * 8 < exact);
        }
    }
}

static void many_durations_in_one_bucket_are_taken_as_spread_over_it(void **state)
{
    uint32_t bucket[LATENCY_BUCKETS] = {0};
    uint64_t from = 40 * NS_PER_MS, wide;
    unsigned b = latency_bucket(from);

    from = latency_most_ns(b - 1);
    wide = latency_most_ns(b) - from;
    bucket[b] = 100;
    assert_true(latency_quantile(bucket, 10) == from + wide / 100);
    assert_true(latency_quantile(bucket, 500) == from + wide / 2);
    assert_true(latency_quantile(bucket, 1000) == from + wide);
    bucket[b] = 1; /* nothing is known of it but that it is not longer */
    assert_true(latency_quantile(bucket, 500) == from + wide);
}

static void quantiles_grow_with_their_permille(void **state)
{
    for (seed = 1; seed < 1000; seed += 7) {
        uint32_t bucket[LATENCY_BUCKETS] = {0};
        uint64_t before = 0;

        for (unsigned i = 0; i < 50; i++)
            bucket[draw() % LATENCY_BUCKETS] += (uint32_t)draw() % 1000;
        for (uint32_t permille = 0; permille <= 1000; permille++) {
            uint64_t q = latency_quantile(bucket, permille);

            assert_true(q >= before);
            before = q;
        }
        assert_true(latency_quantile(bucket, UINT32_MAX) == before);
    }
}

static void the_ends_take_what_is_shorter_or_longer(void **state)
{
    uint32_t bucket[LATENCY_BUCKETS] = {0};

    assert_true(latency_quantile(bucket, 990) == 0);
    bucket[0] = bucket[LAST] = UINT32_MAX; /* and no sum overflows */
    assert_in_range(latency_quantile(bucket, 0), 0, 1);
    assert_true(latency_quantile(bucket, 500) == latency_most_ns(0));
    assert_true(latency_quantile(bucket, 990) == latency_most_ns(LAST - 1) + 1);
    bucket[LAST - 1] = UINT32_MAX; /* the widest bucket: no product overflows */
    assert_in_range(latency_quantile(bucket, 666), latency_most_ns(LAST - 1) / 100 * 99,
                    latency_most_ns(LAST - 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_bucket_begins_where_the_one_before_ends),
        cmocka_unit_test(eight_buckets_are_a_doubling_from_100_us_to_100_s),
        cmocka_unit_test(no_bucket_is_wider_than_an_eighth_of_its_durations),
        cmocka_unit_test(a_quantile_is_less_than_an_eighth_from_that_of_the_sorted_samples),
        cmocka_unit_test(many_durations_in_one_bucket_are_taken_as_spread_over_it),
        cmocka_unit_test(quantiles_grow_with_their_permille),
        cmocka_unit_test(the_ends_take_what_is_shorter_or_longer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "base/muldiv.h"
#include "power/measure/counter.h"
#include "power/measure/range.h"
#include "test_random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define S UINT64_C(1000000000)
#define W UINT64_C(1000000)
#define J UINT64_C(1000000)

static uint64_t got; /* energy of the last reading */

static enum counter_news read_at(struct counter *c, uint64_t seconds, uint64_t raw_uj)
{
    return counter_read(c, seconds * S, raw_uj, &got);
}

/* ---- arithmetic ---- */

static void mul_div_is_exact(void **state)
{
    random_state = 1;
    for (unsigned i = 0; i < 200000; i++) {
        uint64_t a = random_next() >> random_below(64), b = random_next() >> random_below(64);
        uint64_t c = (random_next() >> random_below(64)) | 1, q = mul_div(a, b, c);
        muldiv_wide p = (muldiv_wide)a * b;

        if (q == UINT64_MAX) { /* does not fit, or is just that */
            assert_true(p >= (muldiv_wide)UINT64_MAX * c);
            continue;
        }
        assert_true((muldiv_wide)q * c <= p);
        assert_true(p - (muldiv_wide)q * c < c);
        assert_int_equal(mul_div_up(a, b, c), q + ((muldiv_wide)q * c != p));
    }
    assert_int_equal(mul_div(1, 1, 0), UINT64_MAX);
    assert_int_equal(mul_div(0, 0, 0), UINT64_MAX);
    assert_int_equal(mul_div(UINT64_MAX, UINT64_MAX, UINT64_MAX), UINT64_MAX);
}

static void an_unknown_energy_stays_out_of_a_sum(void **state)
{
    struct energy_range sum = {0}, unknown = {.uj = 7, .high_uj = 9};
    struct energy_range measured = energy_within(1000, 10, POWER_MEASURED);
    struct energy_range assumed = {10, 5, 20, POWER_ASSUMED};

    energy_add(&sum, &unknown);
    assert_int_equal(sum.basis, POWER_UNKNOWN);
    assert_int_equal(sum.high_uj, 0);
    energy_add(&sum, &measured);
    assert_int_equal(sum.basis, POWER_MEASURED);
    energy_add(&sum, &assumed);
    energy_add(&sum, &measured);
    assert_int_equal(sum.basis, POWER_ASSUMED); /* the worst of all */
    assert_int_equal(sum.uj, 2010);
    assert_int_equal(sum.low_uj, 2 * 990 + 5);
    assert_int_equal(sum.high_uj, 2 * 1010 + 20);
}

static void power_and_energy_convert_with_bounds_rounded_outwards(void **state)
{
    struct power_range p = {3, 1, 7, POWER_MODELLED}, back;
    struct energy_range e = energy_of(&p, S / 2);

    assert_int_equal(e.uj, 1);
    assert_int_equal(e.low_uj, 0);
    assert_int_equal(e.high_uj, 4);
    back = power_of(&e, S / 2);
    assert_true(back.low_uw <= p.low_uw && back.high_uw >= p.high_uw);
    assert_int_equal(power_of(&e, 0).basis, POWER_UNKNOWN);
    p.basis = POWER_UNKNOWN;
    assert_int_equal(energy_of(&p, S).high_uj, 0);
    assert_string_equal(power_basis_name(POWER_MEASURED), "measured");
    assert_string_equal(power_basis_name(POWER_UNKNOWN), "unknown");
    assert_string_equal(power_basis_name(POWER_BASIS_MAX), "?");
}

/* ---- counters ---- */

static void a_counter_begins_at_its_first_reading(void **state)
{
    struct counter c = {.most_uw = 100 * W};

    assert_int_equal(read_at(&c, 10, 500 * J), COUNTER_FIRST);
    assert_int_equal(got, 0);
    assert_int_equal(read_at(&c, 11, 530 * J), COUNTER_OK);
    assert_int_equal(got, 30 * J);
    assert_int_equal(c.total_uj, 30 * J);
    assert_int_equal(c.gaps, 0);
}

static void a_wrap_loses_nothing(void **state)
{
    struct counter c = {.most_uw = 100 * W, .wrap_uj = 1000 * J};

    read_at(&c, 10, 990 * J);
    assert_int_equal(read_at(&c, 11, 20 * J), COUNTER_WRAPPED);
    assert_int_equal(got, 30 * J);
    assert_int_equal(c.total_uj, 30 * J);
}

static void a_pause_in_which_it_may_have_wrapped_is_a_gap(void **state)
{
    struct counter c = {.most_uw = 100 * W, .wrap_uj = 1000 * J};

    assert_int_equal(counter_pause_ns(&c), 5 * S);
    read_at(&c, 10, 100 * J);
    assert_int_equal(read_at(&c, 15, 200 * J), COUNTER_OK);
    assert_int_equal(read_at(&c, 21, 300 * J), COUNTER_GAP);
    assert_int_equal(got, 0);
    assert_int_equal(c.total_uj, 100 * J);
    assert_int_equal(c.gap_ns, 6 * S);
    assert_int_equal(c.gaps, 1);
    assert_int_equal(read_at(&c, 22, 310 * J), COUNTER_OK);
}

static void without_a_wrap_a_long_pause_is_bridged(void **state)
{
    struct counter c = {.most_uw = 100 * W};

    assert_int_equal(counter_pause_ns(&c), UINT64_MAX);
    read_at(&c, 10, 100 * J);
    assert_int_equal(read_at(&c, 100000, 200 * J), COUNTER_OK);
    assert_int_equal(got, 100 * J);
}

static void a_fall_is_a_reset_and_its_interval_a_gap(void **state)
{
    struct counter c = {.most_uw = 100 * W};

    read_at(&c, 10, 100 * J);
    assert_int_equal(read_at(&c, 12, 1 * J), COUNTER_RESET);
    assert_int_equal(got, 0);
    assert_int_equal(c.gap_ns, 2 * S);
    assert_int_equal(read_at(&c, 13, 11 * J), COUNTER_OK);
    assert_int_equal(c.total_uj, 10 * J);

    c = (struct counter){.most_uw = 100 * W, .wrap_uj = 1000000 * J};
    read_at(&c, 10, 100 * J); /* a wrap would be 999,901 J in 2 s */
    assert_int_equal(read_at(&c, 12, 1 * J), COUNTER_RESET);
}

static void what_nothing_can_draw_is_a_lie(void **state)
{
    struct counter c = {.most_uw = 100 * W};

    read_at(&c, 10, 100 * J);
    assert_int_equal(read_at(&c, 11, 200 * J), COUNTER_OK); /* exactly the most */
    assert_int_equal(read_at(&c, 12, 300 * J + 1), COUNTER_LIE);
    assert_int_equal(got, 0);
    assert_int_equal(c.total_uj, 100 * J);
    assert_int_equal(c.gap_ns, 1 * S);

    c = (struct counter){.wrap_uj = 1000 * J, .most_uw = 100 * W};
    read_at(&c, 10, 999 * J);
    assert_int_equal(read_at(&c, 11, 1000 * J), COUNTER_LIE); /* beyond its own range */

    c = (struct counter){0}; /* a plug's lifetime counter after a reset */
    read_at(&c, 10, 0);
    assert_int_equal(read_at(&c, 11, UINT64_MAX), COUNTER_LIE);
}

static void a_coarse_counter_may_jump_after_it_stood_still(void **state)
{
    struct counter c = {.most_uw = 100 * W};

    read_at(&c, 10, 0);
    for (unsigned t = 11; t < 60; t++)
        assert_int_equal(read_at(&c, t, 0), COUNTER_OK);
    assert_int_equal(read_at(&c, 60, 3600 * J), COUNTER_OK); /* one step of 0.001 kWh: 72 W */
    assert_int_equal(c.total_uj, 3600 * J);
}

static void an_old_reading_changes_nothing(void **state)
{
    struct counter c = {.most_uw = 100 * W}, before;

    read_at(&c, 10, 100 * J);
    before = c;
    assert_int_equal(read_at(&c, 10, 150 * J), COUNTER_OK);
    assert_int_equal(read_at(&c, 9, 150 * J), COUNTER_OK);
    assert_int_equal(got, 0);
    assert_memory_equal(&c, &before, sizeof(c));
    read_at(&c, 11, 160 * J);
    assert_int_equal(c.total_uj, 60 * J);
}

/* Whatever comes, the total never falls, and is what was returned; time is known or a gap. */
static void any_readings_leave_a_true_account(void **state)
{
    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct counter c = {0};
        uint64_t now = 1 + random_below(1000), sum = 0, known_ns = 0, begin = 0, raw = 0;

        random_state = seed;
        c.wrap_uj = one_in(2) ? 1 + random_below(1u << 30) : 0;
        c.most_uw = one_in(3) ? 0 : 1 + random_below(1u << 28);
        for (unsigned i = 0; i < 300; i++) {
            uint64_t before = c.total_uj, last = c.time_ns;
            enum counter_news news;

            now += one_in(10) ? 0 : random_next() >> (20 + random_below(40));
            raw = one_in(4) ? random_next() >> random_below(64) : raw + random_below(1u << 20);
            news = counter_read(&c, now, raw, &got);
            assert_int_equal(c.total_uj, add_sat(before, got));
            sum = add_sat(sum, got);
            if (news == COUNTER_FIRST)
                begin = now;
            else if (news == COUNTER_OK || news == COUNTER_WRAPPED)
                known_ns += c.time_ns - last;
            else
                assert_int_equal(got, 0);
        }
        assert_int_equal(c.total_uj, sum);
        assert_int_equal(known_ns + c.gap_ns, now - begin);
    }
}

/* ---- watts ---- */

/* A broker that comes back hands over what it kept at once. */
static void readings_that_were_late_are_no_lie(void **state)
{
    struct counter c = {.most_uw = 1000 * W, .late_ns = 10 * S};

    counter_read(&c, 10 * S, 0, &got);
    assert_int_equal(counter_read(&c, 30 * S, 9000 * J, &got), COUNTER_OK);
    assert_int_equal(counter_read(&c, 30 * S + 1, 18000 * J, &got), COUNTER_OK);
    assert_int_equal(got, 9000 * J);
    assert_int_equal(counter_read(&c, 30 * S + 2, 29000 * J, &got), COUNTER_LIE);
}

static void watts_become_energy_by_trapezoids(void **state)
{
    struct counter c = {.most_uw = 1000 * W};

    assert_int_equal(counter_watts(&c, 10 * S, 50 * W, 0, 3 * S, &got), COUNTER_FIRST);
    assert_int_equal(counter_watts(&c, 12 * S, 70 * W, 50 * W, 3 * S, &got), COUNTER_OK);
    assert_int_equal(got, 120 * J);
    assert_int_equal(counter_watts(&c, 16 * S, 70 * W, 70 * W, 3 * S, &got), COUNTER_GAP);
    assert_int_equal(got, 0);
    assert_int_equal(counter_watts(&c, 17 * S, 2000 * W, 70 * W, 3 * S, &got), COUNTER_LIE);
    /* The interval after a lie has a lie at its begin. */
    assert_int_equal(counter_watts(&c, 18 * S, 70 * W, 2000 * W, 3 * S, &got), COUNTER_LIE);
    assert_int_equal(counter_watts(&c, 18 * S, 90 * W, 70 * W, 3 * S, &got), COUNTER_OK);
    assert_int_equal(got, 0);
    assert_int_equal(c.total_uj, 120 * J);
    assert_int_equal(c.gap_ns, 6 * S);
    assert_int_equal(c.gaps, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mul_div_is_exact),
        cmocka_unit_test(an_unknown_energy_stays_out_of_a_sum),
        cmocka_unit_test(power_and_energy_convert_with_bounds_rounded_outwards),
        cmocka_unit_test(a_counter_begins_at_its_first_reading),
        cmocka_unit_test(a_wrap_loses_nothing),
        cmocka_unit_test(a_pause_in_which_it_may_have_wrapped_is_a_gap),
        cmocka_unit_test(without_a_wrap_a_long_pause_is_bridged),
        cmocka_unit_test(a_fall_is_a_reset_and_its_interval_a_gap),
        cmocka_unit_test(what_nothing_can_draw_is_a_lie),
        cmocka_unit_test(a_coarse_counter_may_jump_after_it_stood_still),
        cmocka_unit_test(an_old_reading_changes_nothing),
        cmocka_unit_test(any_readings_leave_a_true_account),
        cmocka_unit_test(readings_that_were_late_are_no_lie),
        cmocka_unit_test(watts_become_energy_by_trapezoids),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A child's side of a power lease: the single rules of the tenure. test_power_lease.c is the whole.
 */
#include "power/division/tenure.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "power/cap/caps.h"

#define SECOND UINT64_C(1000000000)

static struct lease_message lease_at(uint64_t stamp_ns, uint64_t number, uint64_t uw)
{
    return (struct lease_message){.boot = 7,
                                  .stamp_ns = stamp_ns,
                                  .number = number,
                                  .uw = uw,
                                  .floor_uw = 10,
                                  .ttl_ms = LEASE_TTL_MS,
                                  .kind = CAP_BREAKER};
}

static void a_lease_ends_by_the_stamp_however_late_it_comes(void **arg)
{
    struct lease_message m = lease_at(SECOND, 1, 50);
    struct tenure t;
    uint64_t uw;

    tenure_begin(&t, 7, CAP_BREAKER, 10);
    assert_true(tenure_cap(&t, SECOND, &uw));
    assert_int_equal(uw, 10);
    assert_int_equal(tenure_take(&t, &m, 29 * SECOND), 0);
    assert_true(tenure_cap(&t, 31 * SECOND - 1, &uw));
    assert_int_equal(uw, 50);
    assert_true(tenure_cap(&t, 31 * SECOND, &uw));
    assert_int_equal(uw, 10);
    assert_int_equal(tenure_take(&t, &m, 31 * SECOND), -ESTALE);
}

static void an_overtaken_lease_is_refused(void **arg)
{
    struct lease_message new = lease_at(SECOND, 5, 50), old = lease_at(SECOND, 4, 90);
    struct lease_message other = new;
    struct tenure t;
    uint64_t uw;

    tenure_begin(&t, 7, CAP_BREAKER, 10);
    assert_int_equal(tenure_take(&t, &new, 2 * SECOND), 0);
    assert_int_equal(tenure_take(&t, &old, 2 * SECOND), -ESTALE);
    assert_int_equal(tenure_take(&t, &new, 3 * SECOND), 0); /* again: acknowledged again */
    other.boot = 8;
    other.number = 6;
    assert_int_equal(tenure_take(&t, &other, 3 * SECOND), -ESTALE);
    tenure_cap(&t, 3 * SECOND, &uw);
    assert_int_equal(uw, 50);
    /* a parent that lost its numbers begins again at 1 when the old lease has ended */
    other = lease_at(35 * SECOND, 1, 30);
    assert_int_equal(tenure_take(&t, &other, 36 * SECOND), 0);
}

static void a_lease_that_cannot_be_is_refused(void **arg)
{
    struct lease_message m = lease_at(SECOND, 1, 50);
    struct tenure t = {.boot = 7};
    uint64_t uw;

    m.ttl_ms = LEASE_TTL_MS + 1;
    assert_int_equal(tenure_take(&t, &m, 2 * SECOND), -EINVAL);
    m = lease_at(3 * SECOND, 1, 50);
    assert_int_equal(tenure_take(&t, &m, 2 * SECOND), -EINVAL);
    m = lease_at(SECOND, 1, UINT64_MAX);
    assert_int_equal(tenure_take(&t, &m, 2 * SECOND), -EINVAL);
    m = lease_at(SECOND, 1, 50);
    m.kind = CAP_KIND_MAX;
    assert_int_equal(tenure_take(&t, &m, 2 * SECOND), -EINVAL);
    assert_false(tenure_cap(&t, SECOND, &uw)); /* still no lease: free */
}

static void budget_and_advice_end_open(void **arg)
{
    struct lease_message m = lease_at(SECOND, 1, 50);
    struct tenure t;
    uint64_t uw;

    tenure_begin(&t, 7, CAP_BUDGET, 10);
    assert_false(tenure_cap(&t, SECOND, &uw));
    m.kind = CAP_ADVICE;
    assert_int_equal(tenure_take(&t, &m, 2 * SECOND), 0);
    assert_true(tenure_cap(&t, 2 * SECOND, &uw));
    assert_false(tenure_cap(&t, 31 * SECOND, &uw));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lease_ends_by_the_stamp_however_late_it_comes),
        cmocka_unit_test(an_overtaken_lease_is_refused),
        cmocka_unit_test(a_lease_that_cannot_be_is_refused),
        cmocka_unit_test(budget_and_advice_end_open),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The keeper of a cap beside load of no job that comes and goes. */
#include "keeper_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* Others take nearly all of the cap while jobs do nothing, so that growth out of the pause fails
 * again and again; or they come now and then. Then they are gone. */
static void jobs_go_on_soon_after_others_have_gone(void **state)
{
    struct watts curve = curve_of(20 * W, 60 * W, 2, 50);

    (void)state;
    for (int often = 0; often < 2; often++) {
        struct keeper k = {0};
        struct keeper_plan plan = {.quota_mcpu = 2000};
        struct keeper_input in = two_cores(&curve, 45 * W);

        for (uint32_t s = 1; s <= 160; s++) {
            in.other_mcpu = s > 140 ? 0 : often ? (s % 12 < 6) * 1500 : 770 + (s % 12 < 6) * 95;
            in.load_mcpu = in.other_mcpu + (s > 140 ? plan.quota_mcpu : 0);
            in.machine = measured(watts_at(&curve, in.load_mcpu).uw);
            in.now_ns = in.machine_ns = s * SECOND;
            assert_int_equal(keeper_step(&k, &in, &plan), 0);
            assert_true(s > 140 || k.wait_ns <= KEEPER_WAIT_MAX);
        }
        assert_true(plan.most_mcpu >= 800);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_go_on_soon_after_others_have_gone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

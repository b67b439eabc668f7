/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/daemon.h"
#include "daemon/energy/ledger.h"
#include "daemon/job/job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define S UINT64_C(1000000000)

static struct daemon daemon_;
static struct job_table jobs;
static struct job one, two;
static struct ledger ledger;
static struct attribution division;

static int begin(void **state)
{
    memset(&daemon_, 0, sizeof(daemon_));
    memset(&ledger, 0, sizeof(ledger));
    memset(&division, 0, sizeof(division));
    one = (struct job){.daemon = &daemon_, .next = &two};
    two = (struct job){.daemon = &daemon_};
    jobs = (struct job_table){.first = &one, .n = 2};
    daemon_.jobs = &jobs;
    return 0;
}

/* A second in which the first job used @uj, the other nothing that is known, and the machine 100.
 */
static void second(uint64_t uj)
{
    struct energy_range machine = energy_within(100, 0, POWER_MEASURED);

    division.job[0] = energy_within(uj, 0, POWER_MODELLED);
    division.job[1] = (struct energy_range){.high_uj = 100};
    division.idle = energy_within(100 - uj, 0, POWER_MODELLED);
    ledger_add(&daemon_, &ledger, &machine, &division, S, 0);
}

static void parts_are_the_machine(void **state)
{
    for (unsigned i = 0; i < 100; i++)
        second(i);
    assert_int_equal(ledger.machine.uj, 10000);
    assert_int_equal(ledger.jobs.uj + ledger.idle.uj + ledger.system.uj + ledger.unattributed.uj,
                     10000);
    assert_int_equal(ledger.jobs.uj, 4950);
    assert_int_equal(one.observed.energy.total.uj, 4950);
    assert_int_equal(ledger.jobs.basis, POWER_MODELLED);
    assert_int_equal(ledger.gap_ns, 0);
}

static void what_is_shown_of_a_job_moves_once_in_ten_seconds(void **state)
{
    const struct job_energy *e = &one.observed.energy;

    for (unsigned i = 0; i < 9; i++)
        second(50);
    assert_int_equal(e->shown.basis, POWER_UNKNOWN);
    assert_int_equal(e->power.basis, POWER_UNKNOWN);
    second(50);
    assert_int_equal(e->shown.uj, 500);
    assert_int_equal(e->power.uw, 50);
    for (unsigned i = 0; i < 9; i++)
        second(90);
    assert_int_equal(e->shown.uj, 500);
    assert_int_equal(e->power.uw, 50);
    second(90);
    assert_int_equal(e->shown.uj, 1400);
    assert_int_equal(e->power.uw, 90);
    assert_int_equal(e->total.uj, 1400);
}

static void an_unknown_part_is_the_jobs_gap(void **state)
{
    for (unsigned i = 0; i < 10; i++)
        second(50);
    assert_int_equal(two.observed.energy.gap_ns, 10 * S);
    assert_int_equal(two.observed.energy.shown_gap_ns, 10 * S);
    assert_int_equal(two.observed.energy.total.basis, POWER_UNKNOWN);
    assert_int_equal(two.observed.energy.power.basis, POWER_UNKNOWN);
    assert_int_equal(one.observed.energy.gap_ns, 0);
    ledger_gap(&daemon_, &ledger, 3 * S);
    assert_int_equal(ledger.gap_ns, 3 * S);
    assert_int_equal(one.observed.energy.gap_ns, 3 * S);
    assert_int_equal(two.observed.energy.gap_ns, 13 * S);
}

static void a_jobs_file_is_written_once_a_minute_where_something_is_known(void **state)
{
    for (unsigned i = 0; i < 59; i++)
        second(50);
    assert_false(one.dirty);
    second(50);
    assert_true(one.dirty);
    assert_false(two.dirty);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(parts_are_the_machine, begin),
        cmocka_unit_test_setup(what_is_shown_of_a_job_moves_once_in_ten_seconds, begin),
        cmocka_unit_test_setup(an_unknown_part_is_the_jobs_gap, begin),
        cmocka_unit_test_setup(a_jobs_file_is_written_once_a_minute_where_something_is_known,
                               begin),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

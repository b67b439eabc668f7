/* SPDX-License-Identifier: Apache-2.0 */
#include "power/measure/amount.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static uint64_t micro;
static enum amount_kind kind;

static void amounts_are_read_to_the_millionth(void **state)
{
    static const struct {
        const char *text;
        uint64_t micro;
        enum amount_kind kind;
    } good[] = {
        {"0", 0, AMOUNT_PLAIN},
        {"83.2\n", 83200000, AMOUNT_PLAIN},
        {" 83.2 W\n", 83200000, AMOUNT_POWER},
        {"1.2kW", 1200000000, AMOUNT_POWER},
        {"83200 mW", 83200000, AMOUNT_POWER},
        {"17 uW", 17, AMOUNT_POWER},
        {"1 MW", 1000000000000, AMOUNT_POWER},
        {"0.35 kWh", 1260000000000, AMOUNT_ENERGY},
        {"1 Wh", 3600000000, AMOUNT_ENERGY},
        {"000000000000000000000012 J", 12000000, AMOUNT_ENERGY},
        {"0.0000009 J", 0, AMOUNT_ENERGY},
        {"1.9999999999999999999 W", 1999999, AMOUNT_POWER},
        {"0.00000000000000000000001 MWh", 0, AMOUNT_ENERGY},
    };

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_int_equal(amount_parse(good[i].text, &micro, &kind), 0);
        assert_int_equal(micro, good[i].micro);
        assert_int_equal(kind, good[i].kind);
    }
}

static void what_is_no_amount_is_refused(void **state)
{
    static const char *const bad[] = {"",       "W",    "-3 W", "nan",    "inf W", "1e3 W",
                                      "1,5 W",  "5 w",  "5 VA", ".5 W",   "5. W",  "5 W W",
                                      "5 kWhx", "0x10", "+5 W", "5 k Wh", "5\v"};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(amount_parse(bad[i], &micro, &kind), -EINVAL);
    assert_int_equal(amount_parse("9999999999999999999 W", &micro, &kind), -ERANGE);
    assert_int_equal(amount_parse("999999999999999999 kWh", &micro, &kind), -ERANGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(amounts_are_read_to_the_millionth),
        cmocka_unit_test(what_is_no_amount_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

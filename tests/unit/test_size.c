/* SPDX-License-Identifier: Apache-2.0 */
#include "base/size.h"

#include "base/cleanup.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#define MIB (UINT64_C(1) << 20)

static void units_are_powers_of_1024_however_they_are_written(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {{"512M", 512 * MIB},
                {"512m", 512 * MIB},
                {"512MiB", 512 * MIB},
                {"1.5G", 1536 * MIB},
                {"2gb", 2048 * MIB},
                {"100", 100},
                {"100B", 100},
                {"0", 0},
                {"4k", 4096},
                {"1T", MIB * MIB},
                {"1024T", 1024 * MIB * MIB}};
    uint64_t bytes;

    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        assert_int_equal(size_parse(good[i].text, &bytes), 0);
        assert_int_equal(bytes, good[i].bytes);
    }
}

static void what_is_no_size_is_refused(void **state)
{
    static const char *const bad[] = {"",     "M",     "-1G", " 1G", "1 G", "1X",
                                      "1GG",  "1iB",   "0x1", "inf", "1e9", "1.2.3",
                                      "1G\n", "1025T", "1Gi", ".5G", "nan", "99999999999999999G"};
    uint64_t bytes;

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_true(size_parse(bad[i], &bytes) < 0);
}

static void texts_have_three_digits(void **state)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } texts[] = {{0, "0"},
                 {999, "999"},
                 {1000, "0.977K"},
                 {1536 * MIB, "1.5G"},
                 {100 * MIB, "100M"},
                 {1023 * MIB, "0.999G"},
                 {UINT64_MAX, "1.68e+07T"}};
    char text[SIZE_TEXT_MAX];

    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        size_text(texts[i].bytes, text);
        assert_string_equal(text, texts[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(units_are_powers_of_1024_however_they_are_written),
        cmocka_unit_test(what_is_no_size_is_refused),
        cmocka_unit_test(texts_have_three_digits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

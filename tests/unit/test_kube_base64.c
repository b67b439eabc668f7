/* SPDX-License-Identifier: Apache-2.0 */
/* src/kube/api/base64.c: bytes to text and back. */
#include "kube/api/base64.h"

#include "base/cleanup.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void texts_are_decoded_with_a_nul_behind(void **state)
{
    static const struct {
        const char *base64, *bytes;
        size_t n;
    } cases[] = {{"", "", 0}, {"aGk=", "hi", 2}, {"aG\nk=", "hi", 2}, {"YQBi", "a\0b", 3}};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        _cleanup_free_ char *bytes = NULL;
        size_t n = SIZE_MAX;

        assert_int_equal(base64_decode(cases[i].base64, &bytes, &n), 0);
        assert_int_equal(n, cases[i].n);
        assert_memory_equal(bytes, cases[i].bytes, n + 1);
    }
}

static void other_texts_are_refused_and_leave_the_outputs(void **state)
{
    static const char *const wrong[] = {"*", "aGk", "=", "  ", "aGk=*"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        char *bytes = NULL;
        size_t n = SIZE_MAX;

        assert_int_equal(base64_decode(wrong[i], &bytes, &n), -EINVAL);
        assert_null(bytes);
        assert_int_equal(n, SIZE_MAX);
    }
}

static void all_bytes_come_back(void **state)
{
    _cleanup_free_ char *back = NULL;
    unsigned char bytes[256];
    json_t *value;
    size_t n;

    (void)state;
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (unsigned char)i;
    value = base64_value(bytes, sizeof(bytes));
    assert_int_equal(base64_decode(json_string_value(value), &back, &n), 0);
    assert_int_equal(n, sizeof(bytes));
    assert_memory_equal(back, bytes, n);
    json_decref(value);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_decoded_with_a_nul_behind),
        cmocka_unit_test(other_texts_are_refused_and_leave_the_outputs),
        cmocka_unit_test(all_bytes_come_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

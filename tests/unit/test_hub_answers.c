/* SPDX-License-Identifier: Apache-2.0 */
/* Dear answers: whoever asks for many has a part of the hub's time, and others have theirs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "hub/serve/answers.h"

#define BEGIN (1000 * NS_PER_S)

static struct answers answers;

/* Asks again and again for so long, as a program would; returns the time that the hub was busy. */
static uint64_t flood(const char *user, uint64_t cost_ns, uint64_t for_ns)
{
    uint64_t busy_ns = 0, now_ns = BEGIN;
    unsigned wait_s;

    memset(&answers, 0, sizeof(answers));
    while (now_ns < BEGIN + for_ns) {
        if (!answers_may(&answers, user, now_ns, &wait_s)) {
            assert_in_range(wait_s, 1, 61);
            now_ns += wait_s * NS_PER_S;
            continue;
        }
        answers_took(&answers, user, now_ns, now_ns + cost_ns);
        now_ns += cost_ns;
        busy_ns += cost_ns;
    }
    return busy_ns;
}

static void a_user_who_asks_without_end_has_a_third_of_the_time(void **state)
{
    static const uint64_t costs_ms[] = {1, 20, 700, 5000, 20000};

    for (size_t i = 0; i < sizeof(costs_ms) / sizeof(*costs_ms); i++) {
        uint64_t busy_ns = flood("eve", costs_ms[i] * NS_PER_MS, 3600 * NS_PER_S);

        assert_in_range(busy_ns / NS_PER_S, 1000, 1200 + 2 * 20 + 20);
    }
}

static void another_user_is_not_kept_waiting(void **state)
{
    unsigned wait_s;

    flood("eve", 5 * NS_PER_S, 600 * NS_PER_S);
    assert_false(answers_may(&answers, "eve", BEGIN + 300 * NS_PER_S, &wait_s));
    assert_true(answers_may(&answers, "ada", BEGIN + 300 * NS_PER_S, &wait_s));
    answers_forget(&answers); /* of what was erased; the account stays */
    assert_false(answers_may(&answers, "eve", BEGIN + 300 * NS_PER_S, &wait_s));
}

static void who_looks_at_pages_never_waits(void **state)
{
    uint64_t now_ns = BEGIN;
    unsigned wait_s;

    memset(&answers, 0, sizeof(answers));
    for (int i = 0; i < 1000; i++, now_ns += 10 * NS_PER_S) {
        assert_true(answers_may(&answers, "ada", now_ns, &wait_s));
        answers_took(&answers, "ada", now_ns, now_ns + 3 * NS_PER_S);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_user_who_asks_without_end_has_a_third_of_the_time),
        cmocka_unit_test(another_user_is_not_kept_waiting),
        cmocka_unit_test(who_looks_at_pages_never_waits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

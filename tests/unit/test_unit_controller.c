/* SPDX-License-Identifier: Apache-2.0 */
/* Readings of programs and management controllers, and users' energy as points of an outbox. */
#include "edge/outbox.h"
#include "sanitized.h"
#include "unit/device/printed.h"
#include "unit/device/redfish_json.h"
#include "unit/machine/users.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define W UINT64_C(1000000)

static void a_line_of_a_program_is_a_power_or_a_counter(void **state)
{
    static const struct {
        const char *text;
        int kind;
        uint64_t value;
    } rows[] = {
        {"83.5\n", 1, 83500000},         {"warning: cold\r\n83.5 W\r\n", 1, 83500000},
        {"12.5 kWh", 2, 45000000000000}, {"", -ENOENT, 0},
        {"-3 W\n", -ENOENT, 0},          {"nan\n", -ENOENT, 0},
        {"power 83\n", -ENOENT, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint64_t value = 0;

        assert_int_equal(printed_amount(rows[i].text, &value), rows[i].kind);
        assert_int_equal(value, rows[i].value);
    }
}

static void ipmitool_is_read(void **state)
{
    static const struct {
        const char *text;
        int r;
        uint64_t uw;
    } rows[] = {
        {"\n    Instantaneous power reading:                   220 Watts\n"
         "    Minimum during sampling period:                 18 Watts\n",
         0, 220 * W},
        {" Sensor ID              : Pwr (0x1)\n Sensor Reading        : 246 (+/- 0) Watts\n", 0,
         246 * W},
        {" Sensor Reading        : 246 (+/- 0) degrees C\n", -ENOENT, 0},
        {" Sensor Reading        : No Reading\n", -ENODATA, 0},
        {" Sensor Reading        : -246 Watts\n", -ENOENT, 0},
        {" Sensor Reading        : 246 (+/- 0\n", -ENOENT, 0},
        {"DCMI request failed because: Invalid command (c1)\n", -ENOENT, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint64_t uw = 0;

        assert_int_equal(printed_ipmi(rows[i].text, &uw), rows[i].r);
        assert_int_equal(uw, rows[i].uw);
    }
}

static void a_reason_is_the_last_line_and_harmless(void **state)
{
    char reason[32];

    (void)state;
    printed_reason("first\nlast \033[31mline\n\n", reason, sizeof(reason));
    assert_string_equal(reason, "last  [31mline");
    printed_reason("", reason, sizeof(reason));
    assert_string_equal(reason, "");
}

static void redfish_tells_where_and_how_much(void **state)
{
    static const char members[] = "{\"Members\":[{\"@odata.id\":\"/redfish/v1/Chassis/1\"},"
                                  "{\"@odata.id\":\"//elsewhere/x\"},{\"@odata.id\":\"/a b\"},{}]}";
    static const char chassis[] = "{\"Power\":{\"@odata.id\":\"/p\"},"
                                  "\"EnvironmentMetrics\":{\"@odata.id\":\"/e\"}}";
    struct redfish_members m;
    struct redfish_chassis c;

    (void)state;
    assert_int_equal(redfish_members(members, strlen(members), &m), 0);
    assert_int_equal(m.n, 1);
    assert_string_equal(m.path[0], "/redfish/v1/Chassis/1");
    assert_int_equal(redfish_chassis(chassis, strlen(chassis), &c), 0);
    assert_int_equal(c.n, 2);
    assert_string_equal(c.path[0], "/e");
    assert_int_equal(redfish_members("[]", 2, &m), -EBADMSG);
    assert_int_equal(redfish_chassis("{}", 2, &c), -ENOENT);
}

static void redfish_readings_are_checked(void **state)
{
    static const struct {
        const char *text;
        int r;
        uint64_t uw, uj;
    } rows[] = {
        {"{\"PowerWatts\":{\"Reading\":240.5},\"EnergykWh\":{\"Reading\":2}}", 0, 240500000,
         7200000000000},
        {"{\"PowerControl\":[{\"PowerConsumedWatts\":301}]}", 0, 301 * W, 0},
        {"{\"PowerWatts\":{\"Reading\":null}}", -ENOENT, 0, 0},
        {"{\"PowerWatts\":{\"Reading\":-1}}", -ENOENT, 0, 0},
        {"{\"PowerWatts\":{\"Reading\":1e300}}", -ENOENT, 0, 0},
        {"{\"PowerWatts\":{\"Reading\":\"240\"}}", -ENOENT, 0, 0},
        {"{\"PowerWatts\":", -EBADMSG, 0, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct redfish_reading r = {0};

        assert_int_equal(redfish_reading(rows[i].text, strlen(rows[i].text), &r), rows[i].r);
        assert_int_equal(r.uw, rows[i].uw);
        assert_int_equal(r.uj, rows[i].uj);
    }
}

static uint64_t total(struct outbox *box, const char *point)
{
    struct outbox_record last;

    return outbox_last(box, point, &last) == 0 ? last.total.uj : UINT64_MAX;
}

static void take(struct users *u, const char *name, unsigned uj, int want)
{
    char text[256];
    struct error err;

    snprintf(
        text, sizeof(text),
        "{\"rows\":[{\"key\":\"%s\",\"uj\":%u,\"low_uj\":%u,\"high_uj\":%u,\"basis\":\"measured\","
        "\"gap_ms\":0}]}",
        name, uj, uj, uj);
    assert_int_equal(users_take(u, text, &err), want);
}

static void users_energy_goes_on_over_restarts_and_counts_nothing_twice(void **state)
{
    char folder[] = "/tmp/tide-users-XXXXXX", path[64];
    struct outbox *box;
    struct users *u;
    struct error err;

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/outbox.db", folder);
    assert_true(outbox_open(path, 1 << 20, 7, &box, &err) >= 0);
    assert_int_equal(users_new(box, &u), 0);
    take(u, "ada", 1000, 0); /* an earlier process may have told it */
    assert_int_equal(total(box, "user:ada"), 0);
    take(u, "ada", 1500, 0);
    assert_int_equal(total(box, "user:ada"), 500);
    take(u, "bob", 40, 0); /* who was not there before has used all of it */
    assert_int_equal(total(box, "user:bob"), 40);
    take(u, "../x", 40, 0);
    take(u, "", 40, 0);
    users_free(u);
    assert_int_equal(users_new(box, &u), 0); /* tide-power begins anew */
    take(u, "ada", 100, 0);
    assert_int_equal(total(box, "user:ada"), 500);
    take(u, "ada", 130, 0);
    assert_int_equal(total(box, "user:ada"), 530);
    assert_int_equal(users_take(u, "[]", &err), -EBADMSG);
    users_free(u);
    outbox_close(box);
    unlink(path);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_of_a_program_is_a_power_or_a_counter),
        cmocka_unit_test(ipmitool_is_read),
        cmocka_unit_test(a_reason_is_the_last_line_and_harmless),
        cmocka_unit_test(redfish_tells_where_and_how_much),
        cmocka_unit_test(redfish_readings_are_checked),
        cmocka_unit_test(users_energy_goes_on_over_restarts_and_counts_nothing_twice),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

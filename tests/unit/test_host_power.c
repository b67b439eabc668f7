/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cleanup.h"
#include "host/power/frequency.h"
#include "host/power/sensors.h"
#include "host/proc/file.h"
#include "tree.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/time.h>

#include <cmocka.h>

#define CAP "sys/class/powercap/"
#define HW  "sys/class/hwmon/"
#define CPU "sys/devices/system/cpu/"
#define S   UINT64_C(1000000000)

/* A server of two packages, with the kernel's own order and its second view of a package. */
static const struct tree_file two_packages[] = {
    {CAP "intel-rapl/enabled", "1\n"},
    {CAP "intel-rapl:0/name", "package-0\n"},
    {CAP "intel-rapl:0/energy_uj", "65532610000\n"},
    {CAP "intel-rapl:0/max_energy_range_uj", "65532610987\n"},
    {CAP "intel-rapl:0/constraint_0_name", "long_term\n"},
    {CAP "intel-rapl:0/constraint_0_power_limit_uw", "150000000\n"},
    {CAP "intel-rapl:0/constraint_0_max_power_uw", "150000000\n"},
    {CAP "intel-rapl:0:0/name", "core\n"},
    {CAP "intel-rapl:0:0/energy_uj", "100\n"},
    {CAP "intel-rapl:0:0/max_energy_range_uj", "65532610987\n"},
    {CAP "intel-rapl:0:1/name", "dram\n"},
    {CAP "intel-rapl:0:1/energy_uj", "200\n"},
    {CAP "intel-rapl:0:1/max_energy_range_uj", "65532610987\n"},
    {CAP "intel-rapl:1/name", "package-1\n"},
    {CAP "intel-rapl:1/energy_uj", "300\n"},
    {CAP "intel-rapl:1/max_energy_range_uj", "65532610987\n"},
    {CAP "intel-rapl:1/constraint_0_power_limit_uw", "50000000\n"},
    {CAP "intel-rapl:1/constraint_0_max_power_uw", "0\n"},
    {CAP "intel-rapl:1:0/name", "dram\n"},
    {CAP "intel-rapl:1:0/energy_uj", "400\n"},
    {CAP "intel-rapl:1:0/max_energy_range_uj", "65532610987\n"},
    {CAP "intel-rapl-mmio:0/name", "package-0\n"},
    {CAP "intel-rapl-mmio:0/energy_uj", "65532610000\n"},
};

static const struct tree_file boards[] = {
    {HW "hwmon0/name", "coretemp\n"},
    {HW "hwmon0/temp1_input", "40000\n"},
    {HW "hwmon1/name", "ltc4215\n"},
    {HW "hwmon1/power1_input", "61000000\n"},
    {HW "hwmon10/name", "power_meter\n"},
    {HW "hwmon10/power1_average", "83000000\n"},
    {HW "hwmon10/power1_input", "91000000\n"},
    {HW "hwmon10/power1_average_interval", "1000\n"},
    {HW "hwmon2/name", "amd_energy\n"},
    {HW "hwmon2/energy1_input", "1000\n"},
    {HW "hwmon2/energy1_label", "Ecore000\n"},
    {HW "hwmon2/energy2_input", "18446744073709551615\n"},
    {HW "hwmon2/energy2_label", "Esocket1\n"},
};

static struct sensors *sensors;
static struct tree tree;
static struct error err;
static struct sensor_reading reading[SENSORS_MAX];
static uint32_t machine[SENSORS_MAX];

static void begin(const struct tree_file *files, size_t n, const char *wanted)
{
    tree_init(&tree, files, n);
    assert_int_equal(sensors_find(tree.fd, wanted, &sensors, &err), 0);
    sensors_read(sensors, S, reading);
}

static void end(void)
{
    sensors = sensors_free(sensors);
    tree_done(&tree);
}

static size_t find(const char *name)
{
    for (size_t i = 0; i < sensors_count(sensors); i++)
        if (strcmp(sensors_at(sensors, i)->name, name) == 0)
            return i;
    fail_msg("no sensor %s", name);
    return 0;
}

static void packages_and_their_memory_make_up_a_machine(void **state)
{
    const struct sensor *dram;
    size_t n;

    begin(two_packages, ARRAY_LEN(two_packages), "auto");
    assert_int_equal(sensors_count(sensors), 5); /* neither the type nor the second view */
    dram = sensors_at(sensors, find("package-1/dram"));
    assert_int_equal(dram->part, SENSOR_DRAM);
    assert_int_equal(dram->package, 1);
    assert_int_equal(dram->wrap_uj, 65532610988);
    assert_true(dram->counts);
    assert_int_equal(sensors_at(sensors, find("package-0"))->most_uw, 600000000);
    assert_int_equal(sensors_at(sensors, find("package-1"))->most_uw, 65532610988 / 60);
    assert_int_equal(sensors_at(sensors, find("package-0/core"))->part, SENSOR_CORE);
    assert_int_equal(reading[find("package-0")].value, 65532610000);
    assert_int_equal(reading[find("package-1/dram")].value, 400);
    n = sensors_machine(sensors, machine, SENSORS_MAX);
    assert_int_equal(n, 4);
    for (size_t i = 0; i < n; i++)
        assert_int_not_equal(sensors_at(sensors, machine[i])->part, SENSOR_CORE);
    assert_int_equal(sensors_at(sensors, machine[0])->part, SENSOR_PACKAGE);
    assert_int_equal(sensors_machine(sensors, machine, 1), 1);
    end();
}

static void psys_is_more_than_the_packages(void **state)
{
    begin(two_packages, ARRAY_LEN(two_packages), "none");
    assert_int_equal(sensors_count(sensors), 0);
    assert_int_equal(sensors_machine(sensors, machine, SENSORS_MAX), 0);
    sensors_free(sensors);
    tree_write(&tree, CAP "intel-rapl:2/name", "psys\n");
    tree_write(&tree, CAP "intel-rapl:2/energy_uj", "5\n");
    assert_int_equal(sensors_find(tree.fd, "powercap", &sensors, &err), 0);
    assert_int_equal(sensors_machine(sensors, machine, SENSORS_MAX), 1);
    assert_int_equal(machine[0], find("psys"));
    assert_int_equal(sensors_at(sensors, machine[0])->wrap_uj, 0); /* it does not say */
    end();
}

/* More than that counts as a lie of the counter, and its time as a gap. */
static void a_zone_draws_what_it_says_or_what_its_counter_is_made_for(void **state)
{
    static const struct {
        const char *says, *range;
        uint64_t most_uw;
    } zones[] = {{"1500000000\n", "65532610987\n", UINT64_C(6000000000)},
                 {"4000000000\n", "65532610987\n", UINT64_C(10000000000)},
                 {"10000000001\n", "65532610987\n", UINT64_C(65532610988) / 60},
                 {NULL, "4294967295999999\n", UINT64_C(10000000000)}, /* of a server's psys: 1 J */
                 {NULL, "262143328850\n", UINT64_C(262143328851) / 60},
                 {NULL, "29999999\n", UINT64_C(1000000000)},
                 {NULL, NULL, UINT64_C(10000000000)}};

    for (size_t i = 0; i < ARRAY_LEN(zones); i++) {
        begin(NULL, 0, "none");
        sensors_free(sensors);
        tree_write(&tree, CAP "intel-rapl:0/name", "psys\n");
        tree_write(&tree, CAP "intel-rapl:0/energy_uj", "5\n");
        if (zones[i].range)
            tree_write(&tree, CAP "intel-rapl:0/max_energy_range_uj", zones[i].range);
        if (zones[i].says)
            tree_write(&tree, CAP "intel-rapl:0/constraint_0_max_power_uw", zones[i].says);
        assert_int_equal(sensors_find(tree.fd, "powercap", &sensors, &err), 0);
        assert_int_equal(sensors_at(sensors, find("psys"))->most_uw, zones[i].most_uw);
        end();
    }
}

static void a_zone_that_vanishes_and_comes_back_is_read_again(void **state)
{
    begin(two_packages, ARRAY_LEN(two_packages), "powercap");
    unlinkat(tree.fd, CAP "intel-rapl:1/energy_uj", 0);
    sensors_read(sensors, 2 * S, reading);
    assert_int_equal(reading[find("package-1")].error, -ENOENT);
    assert_int_equal(sensors_machine(sensors, machine, SENSORS_MAX), 0); /* a half is none */
    tree_write(&tree, CAP "intel-rapl:1/energy_uj", "777\n");
    sensors_read(sensors, 3 * S, reading);
    assert_int_equal(sensors_machine(sensors, machine, SENSORS_MAX), 4);
    assert_int_equal(reading[find("package-1")].value, 777);
    tree_write(&tree, CAP "intel-rapl:1/energy_uj", "");
    sensors_read(sensors, 4 * S, reading);
    assert_int_equal(reading[find("package-1")].error, -EINVAL);
    tree_write(&tree, CAP "intel-rapl:1/energy_uj", "-5\n");
    sensors_read(sensors, 4 * S, reading);
    assert_int_equal(reading[find("package-1")].error, -EINVAL);
    end();
}

static void a_file_that_only_root_may_read_says_so(void **state)
{
    uid_t uid = geteuid();

    tree_init(&tree, two_packages, ARRAY_LEN(two_packages));
    assert_int_equal(fchmodat(tree.fd, CAP "intel-rapl:0/energy_uj", 0400, 0), 0);
    assert_int_equal(fchmod(tree.fd, 0755), 0);
    if (uid == 0)
        assert_int_equal(seteuid(65534), 0);
    else /* nobody may read it */
        assert_int_equal(fchmodat(tree.fd, CAP "intel-rapl:0/energy_uj", 0, 0), 0);
    assert_int_equal(sensors_find(tree.fd, "auto", &sensors, &err), 0);
    sensors_read(sensors, S, reading);
    assert_int_equal(sensors_count(sensors), 5);
    assert_int_equal(reading[find("package-0")].error, -EACCES);
    assert_int_equal(reading[find("package-1")].error, 0);
    if (uid == 0)
        assert_int_equal(seteuid(0), 0);
    end();
}

static void limits_of_packages_are_found(void **state)
{
    struct powercap_limit limit[4];

    begin(two_packages, ARRAY_LEN(two_packages), "powercap");
    assert_int_equal(powercap_limits(sensors, limit, 4), 2);
    assert_string_equal(limit[0].path, CAP "intel-rapl:0/constraint_0_power_limit_uw");
    assert_int_equal(limit[0].uw, 150000000);
    assert_string_equal(limit[1].path, CAP "intel-rapl:1/constraint_0_power_limit_uw");
    assert_int_equal(limit[1].uw, 50000000);
    end();
    begin(boards, ARRAY_LEN(boards), "auto");
    assert_int_equal(powercap_limits(sensors, limit, 4), 0);
    end();
}

static void chips_that_are_known_count_for_what_they_see(void **state)
{
    begin(boards, ARRAY_LEN(boards), "auto");
    assert_int_equal(sensors_count(sensors), 4);
    assert_int_equal(sensors_at(sensors, find("ltc4215/power1"))->part, SENSOR_OTHER);
    assert_int_equal(sensors_at(sensors, find("amd_energy/Ecore000"))->part, SENSOR_CORE);
    assert_int_equal(sensors_at(sensors, find("amd_energy/Esocket1"))->part, SENSOR_PACKAGE);
    assert_int_equal(sensors_at(sensors, find("amd_energy/Esocket1"))->package, 1);
    assert_true(reading[find("amd_energy/Esocket1")].value == UINT64_MAX);
    assert_int_equal(sensors_machine(sensors, machine, SENSORS_MAX), 1);
    assert_int_equal(machine[0], find("power_meter/power1"));
    assert_int_equal(reading[machine[0]].value, 83000000); /* the average */
    assert_false(sensors_at(sensors, machine[0])->counts);
    end();

    begin(boards, ARRAY_LEN(boards), "hwmon:ltc4215");
    assert_int_equal(sensors_count(sensors), 1);
    assert_int_equal(sensors_machine(sensors, machine, SENSORS_MAX), 1);
    assert_int_equal(reading[0].value, 61000000);
    end();
}

static void chip_at(const char *number, const char *device, const char *watts)
{
    char path[96], target[64];

    snprintf(path, sizeof(path), HW "%s/name", number);
    tree_write(&tree, path, "ltc4215\n");
    snprintf(path, sizeof(path), HW "%s/power1_input", number);
    tree_write(&tree, path, watts);
    snprintf(path, sizeof(path), HW "%s/device", number);
    snprintf(target, sizeof(target), "../../../%s", device);
    assert_int_equal(symlinkat(target, tree.fd, path), 0);
}

static void chip_gone(const char *number)
{
    static const char *const files[] = {"name", "power1_input", "device"};
    char path[96];

    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        snprintf(path, sizeof(path), HW "%s/%s", number, files[i]);
        assert_int_equal(unlinkat(tree.fd, path, 0), 0);
    }
    snprintf(path, sizeof(path), HW "%s", number);
    assert_int_equal(unlinkat(tree.fd, path, AT_REMOVEDIR), 0);
}

/* Two drivers that name no device: nothing but the number tells one from the other. */
static void a_chip_without_a_device_keeps_its_number(void **state)
{
    begin(NULL, 0, "none");
    sensors_free(sensors);
    chip_at("hwmon3", "", "61000000\n");
    chip_at("hwmon4", "", "99000000\n");
    assert_int_equal(sensors_find(tree.fd, "hwmon", &sensors, &err), 0);
    sensors_read(sensors, S, reading);
    chip_gone("hwmon4");
    chip_at("hwmon4", "", "98000000\n");
    sensors_read(sensors, 2 * S, reading);
    assert_int_equal(reading[0].value, 61000000);
    assert_int_equal(reading[1].value, 98000000);
    end();
}

/* Two of a kind, whose drivers come back in another order; meanwhile one number is the other's. */
static void a_chip_is_found_again_by_its_name_and_device(void **state)
{
    begin(NULL, 0, "none");
    sensors_free(sensors);
    chip_at("hwmon3", "1-0040", "61000000\n");
    chip_at("hwmon4", "1-0041", "99000000\n");
    assert_int_equal(sensors_find(tree.fd, "hwmon", &sensors, &err), 0);
    sensors_read(sensors, S, reading);
    assert_int_equal(reading[0].value, 61000000);
    assert_int_equal(reading[1].value, 99000000);
    chip_gone("hwmon3");
    chip_gone("hwmon4");
    chip_at("hwmon3", "1-0041", "98000000\n");
    sensors_read(sensors, 2 * S, reading);
    assert_int_equal(reading[0].error, -ENOENT); /* not the other's watts */
    assert_int_equal(reading[1].value, 98000000);
    chip_at("hwmon12", "1-0040", "62000000\n");
    sensors_read(sensors, 3 * S, reading);
    assert_int_equal(reading[0].value, 62000000);
    assert_string_equal(sensors_at(sensors, 0)->path, HW "hwmon12/power1_input");
    assert_int_equal(reading[1].value, 98000000);
    end();
}

static void a_machine_that_runs_never_draws_nothing(void **state)
{
    static const char *const none[] = {"0\n", "-1\n", "-61000000\n", "\n", "", "61000000 61\n"};

    begin(boards, ARRAY_LEN(boards), "hwmon:ltc4215");
    for (size_t i = 0; i < ARRAY_LEN(none); i++) {
        tree_write(&tree, HW "hwmon1/power1_input", none[i]);
        sensors_read(sensors, (2 + i) * S, reading);
        assert_int_equal(reading[0].error, i == 0 ? -ENODATA : -EINVAL);
        assert_int_equal(reading[0].value, 0);
        assert_int_equal(sensors_machine(sensors, machine, SENSORS_MAX), 0);
    }
    tree_write(&tree, HW "hwmon1/power1_input", "62000000\n");
    sensors_read(sensors, 20 * S, reading);
    assert_int_equal(reading[0].value, 62000000);
    assert_int_equal(sensors_machine(sensors, machine, SENSORS_MAX), 1);
    end();

    begin(NULL, 0, "file:/run/watts");
    tree_write(&tree, "run/watts", "0 W");
    sensors_read(sensors, 2 * S, reading);
    assert_int_equal(reading[0].error, -ENODATA);
    tree_write(&tree, "run/watts", "0 kWh"); /* a counter begins there */
    sensors_read(sensors, 3 * S, reading);
    assert_int_equal(reading[0].error, 0);
    end();

    begin(boards, ARRAY_LEN(boards), "hwmon"); /* a part of a machine may be off */
    tree_write(&tree, HW "hwmon1/power1_input", "0\n");
    sensors_read(sensors, 2 * S, reading);
    assert_int_equal(reading[find("ltc4215/power1")].error, 0);
    end();
}

/* Makes the file look as old as it would after @seconds without a writer. */
static void age(const char *path, long seconds)
{
    struct timespec times[2] = {{.tv_sec = 1000 + seconds}, {.tv_sec = 1000 + seconds}};

    assert_int_equal(utimensat(tree.fd, path, times, 0), 0);
}

static void a_file_tells_watts_until_nobody_writes_it(void **state)
{
    static const struct tree_file files[] = {{"run/watts", "83.25 W\n"}};

    tree_init(&tree, files, 1);
    age("run/watts", 0);
    assert_int_equal(sensors_find(tree.fd, "powercap file:/run/watts", &sensors, &err), 0);
    sensors_read(sensors, S, reading);
    assert_int_equal(sensors_count(sensors), 1);
    assert_int_equal(reading[0].value, 83250000);
    assert_false(sensors_at(sensors, 0)->counts);
    assert_false(reading[0].old);
    sensors_read(sensors, 31 * S, reading);
    assert_int_equal(reading[0].error, 0);
    assert_true(reading[0].old);
    sensors_read(sensors, 32 * S, reading);
    assert_int_equal(reading[0].error, -ESTALE);
    assert_int_equal(sensors_machine(sensors, machine, 1), 0);
    age("run/watts", 7);
    sensors_read(sensors, 33 * S, reading);
    assert_int_equal(reading[0].error, 0);
    assert_false(reading[0].old);
    tree_write(&tree, "run/new", "2 kWh\n"); /* as programs replace a file */
    assert_int_equal(renameat(tree.fd, "run/new", tree.fd, "run/watts"), 0);
    sensors_read(sensors, 34 * S, reading);
    assert_int_equal(reading[0].value, 7200000000000);
    assert_true(sensors_at(sensors, 0)->counts);
    tree_write(&tree, "run/watts", "nan\n");
    sensors_read(sensors, 35 * S, reading);
    assert_int_equal(reading[0].error, -EINVAL);
    end();
}

static void a_file_may_appear_later(void **state)
{
    begin(NULL, 0, "file:/run/watts");
    assert_int_equal(reading[0].error, -ENOENT);
    tree_write(&tree, "run/watts", "5");
    sensors_read(sensors, 2 * S, reading);
    assert_int_equal(reading[0].value, 5000000);
    end();
}

static void words_that_are_no_sensor_are_named(void **state)
{
    static const char *const good[] = {"auto",   " none ",        "powercap",
                                       "hwmon",  "hwmon:ltc4215", "powercap file:/run/x hwmon",
                                       "file:/a"};
    static const char *const bad[] = {"",          "  ",          "autos",      "auto powercap",
                                      "ipmi",      "file:",       "file:run/x", "file",
                                      "powercap:", "none file:/x"};

    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        assert_int_equal(sensors_check(good[i], &err), 0);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        err.text[0] = '\0';
        assert_int_equal(sensors_check(bad[i], &err), -EINVAL);
        assert_string_not_equal(err.text, "");
    }
    sensors_check("powercap ipmi", &err);
    assert_non_null(strstr(err.text, "'ipmi' is no sensor: use auto"));
}

static void names_exist_for_all_kinds_and_parts(void **state)
{
    assert_string_equal(sensor_kind_name(SENSOR_MODEL), "model");
    assert_string_equal(sensor_part_name(SENSOR_PSYS), "psys");
    assert_string_equal(sensor_kind_name(SENSOR_KIND_MAX), "?");
    assert_string_equal(sensor_part_name(SENSOR_PART_MAX), "?");
}

/* ---- frequency ---- */

static void frequency_is_relative_to_the_base(void **state)
{
    static const struct tree_file files[] = {
        {CPU "cpu0/cpufreq/scaling_cur_freq", "3000000\n"},
        {CPU "cpu0/cpufreq/base_frequency", "2000000\n"},
        {CPU "cpu0/cpufreq/cpuinfo_max_freq", "4000000\n"},
        {CPU "cpu1/cpufreq/scaling_cur_freq", "1000000\n"},
        {CPU "cpu1/cpufreq/cpuinfo_max_freq", "4000000\n"},
        {CPU "cpu2/online", "1\n"},
    };
    struct frequency *f;
    struct cpuset all, one;

    cpuset_parse("0-2", &all);
    tree_init(&tree, files, ARRAY_LEN(files));
    assert_int_equal(frequency_new(tree.fd, &all, &f), 0);
    cpuset_parse("0", &one);
    assert_int_equal(frequency_mean(f, &one), 1500);
    cpuset_parse("1", &one);
    assert_int_equal(frequency_mean(f, &one), 250);
    cpuset_parse("2", &one);
    assert_int_equal(frequency_mean(f, &one), FREQUENCY_BASE);
    assert_int_equal(frequency_mean(f, &all), (1500 + 250 + 1000) / 3);
    tree_write(&tree, CPU "cpu0/cpufreq/scaling_cur_freq", "0\n");
    frequency_read(f);
    cpuset_parse("0", &one);
    assert_int_equal(frequency_mean(f, &one), 1); /* no speed is 0 */
    tree_write(&tree, CPU "cpu0/cpufreq/scaling_cur_freq", "<unknown>\n");
    frequency_read(f);
    assert_int_equal(frequency_mean(f, &one), 1);
    f = frequency_free(f);
    cpuset_parse("2", &one);
    assert_int_equal(frequency_new(tree.fd, &one, &f), -ENOENT);
    assert_int_equal(frequency_mean(NULL, &all), FREQUENCY_BASE);
    tree_done(&tree);
}

static void a_large_machine_is_read_in_pieces(void **state)
{
    struct frequency *f;
    struct cpuset all;
    char path[96];

    cpuset_parse("0-39", &all);
    tree_init(&tree, NULL, 0);
    for (unsigned i = 0; i < 40; i++) {
        snprintf(path, sizeof(path), CPU "cpu%u/cpufreq/scaling_cur_freq", i);
        tree_write(&tree, path, "1000\n");
        snprintf(path, sizeof(path), CPU "cpu%u/cpufreq/base_frequency", i);
        tree_write(&tree, path, "1000\n");
    }
    assert_int_equal(frequency_new(tree.fd, &all, &f), 0);
    for (unsigned i = 0; i < 40; i++) {
        snprintf(path, sizeof(path), CPU "cpu%u/cpufreq/scaling_cur_freq", i);
        tree_write(&tree, path, "2000\n");
    }
    frequency_read(f);
    assert_in_range(frequency_mean(f, &all), 1001, 1999);
    frequency_read(f);
    frequency_read(f);
    assert_int_equal(frequency_mean(f, &all), 2000);
    frequency_free(f);
    tree_done(&tree);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packages_and_their_memory_make_up_a_machine),
        cmocka_unit_test(psys_is_more_than_the_packages),
        cmocka_unit_test(a_zone_draws_what_it_says_or_what_its_counter_is_made_for),
        cmocka_unit_test(a_zone_that_vanishes_and_comes_back_is_read_again),
        cmocka_unit_test(a_file_that_only_root_may_read_says_so),
        cmocka_unit_test(limits_of_packages_are_found),
        cmocka_unit_test(chips_that_are_known_count_for_what_they_see),
        cmocka_unit_test(a_chip_without_a_device_keeps_its_number),
        cmocka_unit_test(a_chip_is_found_again_by_its_name_and_device),
        cmocka_unit_test(a_machine_that_runs_never_draws_nothing),
        cmocka_unit_test(a_file_tells_watts_until_nobody_writes_it),
        cmocka_unit_test(a_file_may_appear_later),
        cmocka_unit_test(words_that_are_no_sensor_are_named),
        cmocka_unit_test(names_exist_for_all_kinds_and_parts),
        cmocka_unit_test(frequency_is_relative_to_the_base),
        cmocka_unit_test(a_large_machine_is_read_in_pieces),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

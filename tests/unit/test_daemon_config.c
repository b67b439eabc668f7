/* SPDX-License-Identifier: Apache-2.0 */
/* tide.conf: accepted and refused lines, the errors, and which file takes precedence. */
#include "base/cleanup.h"
#include "daemon/config.h"
#include "daemon/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void parse(struct config *c, const char *text)
{
    struct error err = {0};

    config_init(c);
    if (config_parse(c, "f", text, &err) < 0)
        fail_msg("refused: %s", err.text);
}

static void refused(const char *text, const char *line, const char *word)
{
    struct config c;
    struct error err = {0};

    config_init(&c);
    assert_int_equal(config_parse(&c, "f", text, &err), -EINVAL);
    if (strncmp(err.text, line, strlen(line)) != 0 || !strstr(err.text, word))
        fail_msg("'%s' does not begin with %s or does not say %s", err.text, line, word);
}

static void nothing_said_is_the_defaults(void **state)
{
    struct config c;

    parse(&c, "");
    assert_null(c.policy.policy);
    assert_int_equal(c.placement, PLACEMENT_SHARED);
    assert_int_equal(cpuset_count(&c.cpus), 0);
    assert_int_equal(c.heartbeat_ms, DAEMON_HEARTBEAT_MS);
    assert_false(c.engines_said);
    assert_string_equal(c.admin_group, "tide-admin");
    assert_string_equal(c.power, "auto");
    assert_string_equal(c.power_root, "/");
    assert_int_equal(c.history_mib, 64);
    assert_int_equal(c.curves, CURVES_KEEP);
    assert_int_equal(c.promises, PROMISES_WARN);
    assert_true(c.memory_bytes == CONFIG_MEMORY_MACHINE);
    assert_true(c.devices == CONFIG_DEVICES_MACHINE);
    assert_int_equal(c.device_cores, 1);
}

static void every_key_is_taken(void **state)
{
    struct config c;

    parse(&c,
          "# comment\n; another\n\n[daemon]\npolicy=throughput\n placement = quota\ncpus=0-3,8\n"
          "heartbeat=500 ; slow\nengines=/run/a.sock \t /b\nadmin-group=wheel\nhistory=8\n"
          "memory=1.5G\npower=powercap file:/run/watts\npower-root=/host\n"
          "tariff=0.125 EUR/kWh\ncarbon=350 g/kWh\ncurves=share\npromises=refuse\n"
          "devices=nvidia=2,uverbs=1\ndevice-cores=3\n");
    assert_int_equal(devices_of(c.devices, DEVICE_UVERBS), 1);
    assert_int_equal(devices_total(c.devices), 3);
    assert_int_equal(c.device_cores, 3);
    assert_int_equal(c.promises, PROMISES_REFUSE);
    assert_int_equal(c.curves, CURVES_SHARE);
    assert_int_equal(c.tariff, 125000);
    assert_string_equal(c.currency, "EUR");
    assert_int_equal(c.carbon, 350000000);
    assert_string_equal(c.power, "powercap file:/run/watts");
    assert_string_equal(c.power_root, "/host");
    assert_int_equal(c.memory_bytes, UINT64_C(3) << 29);
    assert_int_equal(c.history_mib, 8);
    assert_string_equal(c.policy.policy->name, "throughput");
    assert_int_equal(c.placement, PLACEMENT_QUOTA);
    assert_int_equal(cpuset_count(&c.cpus), 5);
    assert_int_equal(c.heartbeat_ms, 500);
    assert_true(c.engines_said);
    assert_int_equal(c.n_engines, 2);
    assert_string_equal(c.engines[0], "/run/a.sock");
    assert_string_equal(c.engines[1], "/b");
    assert_string_equal(c.admin_group, "wheel");
}

static void a_later_word_wins_and_an_empty_one_is_the_default(void **state)
{
    struct config c;

    parse(&c, "[daemon]\nplacement=quota\nplacement=exclusive\nheartbeat=100\nheartbeat=\n"
              "cpus=1\ncpus=\npolicy=equal\npolicy=\nengines=/"
              "a\nengines=\nadmin-group=none\nhistory=1\nhistory=none\nmemory=1G\n"
              "memory=none\ndevices=vfio=1\ndevices=none\ndevice-cores=none\n");
    assert_int_equal(c.memory_bytes, 0);
    assert_int_equal(c.devices, 0);
    assert_int_equal(c.device_cores, 0);
    assert_int_equal(c.history_mib, 0);
    assert_int_equal(c.placement, PLACEMENT_EXCLUSIVE);
    assert_int_equal(c.heartbeat_ms, DAEMON_HEARTBEAT_MS);
    assert_int_equal(cpuset_count(&c.cpus), 0);
    assert_null(c.policy.policy);
    assert_false(c.engines_said);
    assert_int_equal(c.n_engines, 0);
    assert_string_equal(c.admin_group, "");
}

/* inih would append it to the line above. */
static void an_indented_key_is_a_key(void **state)
{
    struct config c;

    parse(&c, "[daemon]\nadmin-group=wheel\n    placement=quota\n");
    assert_string_equal(c.admin_group, "wheel");
    assert_int_equal(c.placement, PLACEMENT_QUOTA);
}

static void mistakes_are_told_with_file_line_key_and_what_to_do(void **state)
{
    char text[400];

    refused("[daemon]\npower=ipmi\n", "f:2: power: 'ipmi' is no sensor", "auto, none, powercap");
    refused("[daemon]\ntariff=12\n", "f:2: tariff: '12'", "0.12 EUR/kWh");
    refused("[daemon]\ntariff=-1 EUR/kWh\n", "f:2: tariff: '-1 EUR/kWh'", "0.12 EUR/kWh");
    refused("[daemon]\ncarbon=350 kg/kWh\n", "f:2: carbon: '350 kg/kWh'", "350 g/kWh");
    refused("[daemon]\npower-root=here\n", "f:2: power-root: 'here'", "absolute path");
    refused("\n[daemon]\nheartbeat=20\n", "f:3: heartbeat: '20'", "100 to 500");
    refused("[daemon]\nheartbeat=1s", "f:2: heartbeat:", "100 to 500");
    refused("[daemon]\nheartbeat=-250", "f:2: heartbeat:", "100 to 500");
    refused("[daemon]\npolicy=luck\n", "f:2: policy:", "luck");
    refused("[daemon]\nplacement=best\n", "f:2: placement: 'best'", "shared, exclusive or quota");
    refused("[daemon]\ncpus=3-1\n", "f:2: cpus:", "0-3,8");
    refused("[daemon]\nengines=docker.sock\n", "f:2: engines:", "absolute");
    refused("[daemon]\nengines=/1 /2 /3 /4 /5\n", "f:2: engines:", "more than 4");
    refused("[daemon]\nadmin-group=a:b\n", "f:2: admin-group:", "name of a group");
    refused("[daemon]\nhistory=2048\n", "f:2: history: '2048'", "none");
    refused("[daemon]\ncurves=yes\n", "f:2: curves: 'yes'", "keep, share or none");
    refused("[daemon]\npromises=yes\n", "f:2: promises: 'yes'", "warn or refuse");
    refused("[daemon]\nslo=serve\n", "f:2: slo: 'serve'", "serve:p99=50ms");
    refused("[daemon]\nslo=serve:p99=2min\n", "f:2: slo: 'serve:p99=2min'", "1ms to 60s");
    refused("[daemon]\nslo=serve:p99=90s\n", "f:2: slo:", "1ms to 60s");
    refused("[daemon]\nslo=serve:none\n", "f:2: slo:", "1ms to 60s");
    refused("[daemon]\nslo=:p99=50ms\n", "f:2: slo: ''", "name of a job");
    refused("[daemon]\nslo=nobody-at-all/x:p99=50ms\n", "f:2: slo:", "no user 'nobody-at-all'");
    refused("[daemon]\ndevices=gpu=1\n", "f:2: devices: 'gpu=1'", "nvidia=2");
    refused("[daemon]\nmemory=lots\n", "f:2: memory: 'lots'", "16G");
    refused("[daemon]\npolcy=equal\n", "f:2: polcy:", "did you mean policy?");
    refused("[daemon]\ncolour=red\n", "f:2: colour:", "tide.conf(5)");
    refused("[deamon]\npolicy=equal\n", "f:2: there is no section [deamon]", "[daemon]");
    refused("policy=equal\n", "f:1: keys need a section", "[daemon]");
    refused("[daemon]\n\njust words\n", "f:3:", "KEY=VALUE");
    refused("[daemon\n", "f:1:", "KEY=VALUE");
    /* The first of several. */
    refused("[daemon]\nwords\nheartbeat=1\n", "f:2:", "KEY=VALUE");
    refused("[daemon]\nheartbeat=1\nwords\n", "f:2: heartbeat", "100 to 500");
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    refused(text, "f:1: the line is longer", "bytes");
}

static void the_first_promise_that_fits_counts_and_lines_add_up(void **state)
{
    struct config c;

    parse(&c, "[daemon]\nslo=61001/serve:p99=50ms  serve:p99=1.5s\nslo=api-*:p99=80ms\n");
    assert_int_equal(c.n_slos, 3);
    assert_int_equal(config_slo(&c, 61001, "serve"), 50000);
    assert_int_equal(config_slo(&c, 0, "serve"), 1500000);
    assert_int_equal(config_slo(&c, 0, "api-2"), 80000);
    assert_int_equal(config_slo(&c, 0, "api"), 0);
    assert_int_equal(config_slo(&c, 0, "server"), 0);
    assert_int_equal(config_slo(&c, 0, NULL), 0);
    parse(&c, "[daemon]\nslo=serve:p99=50ms\nslo=\nslo=other:p99=50ms\n");
    assert_int_equal(config_slo(&c, 0, "serve"), 0);
    assert_int_equal(config_slo(&c, 0, "other"), 50000);
}

static void what_is_printed_reads_back_as_the_same(void **state)
{
    static const char *const texts[] = {
        "", "[daemon]\nengines=none\nadmin-group=none\n",
        ("[daemon]\npolicy=fcfs/max-prop/malleable\nplacement=exclusive\ncpus=1,3\nheartbeat=100\n"
         "engines=/a /b\nadmin-group=wheel\ncurves=none\npromises=refuse\n"
         "slo=root/serve:p99=50ms api-*:p99=1500us\n")};

    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        char first[4096] = "", second[4096] = "";
        FILE *one = fmemopen(first, sizeof(first), "w"),
             *two = fmemopen(second, sizeof(second), "w");
        struct config c;

        parse(&c, texts[i]);
        config_print(&c, one);
        fclose(one);
        parse(&c, first);
        config_print(&c, two);
        fclose(two);
        assert_string_equal(first, second);
        assert_non_null(strstr(first, "[daemon]"));
    }
}

/* ---- files ---- */

static char dir[64];

static const char *at(const char *name)
{
    static char path[128];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return path;
}

static void put(const char *name, const char *text)
{
    FILE *file = fopen(at(name), "w");

    assert_non_null(file);
    fputs(text, file);
    fchmod(fileno(file), 0644);
    fclose(file);
}

static int load(struct config *c, struct error *err, bool optional, const char *key,
                const char *value)
{
    struct config_source source = {.file = at("t.conf"), .optional = optional};

    if (key)
        source.orders[source.n_orders++] = (struct config_order){key, value};
    return config_load(&source, c, err);
}

static int make_files(void **state)
{
    strcpy(dir, "/tmp/tide-config-XXXXXX");
    return mkdtemp(dir) && mkdir(at("t.conf.d"), 0755) == 0 ? 0 : -1;
}

static int remove_files(void **state)
{
    char command[96];

    snprintf(command, sizeof(command), "rm -r %s", dir);
    return system(command);
}

static void files_go_by_name_and_the_command_line_goes_last(void **state)
{
    struct config c;
    struct error err = {0};

    put("t.conf", "[daemon]\nplacement=quota\nheartbeat=100\nadmin-group=main\n");
    put("t.conf.d/20-b.conf", "[daemon]\nheartbeat=300\n");
    put("t.conf.d/10-a.conf", "[daemon]\nheartbeat=200\nplacement=exclusive\n");
    put("t.conf.d/.hidden.conf", "rubbish");
    put("t.conf.d/30-c.conf.bak", "rubbish");
    assert_int_equal(load(&c, &err, false, NULL, NULL), 0);
    assert_int_equal(c.heartbeat_ms, 300);
    assert_int_equal(c.placement, PLACEMENT_EXCLUSIVE);
    assert_string_equal(c.admin_group, "main");
    assert_int_equal(load(&c, &err, false, "heartbeat", "400"), 0);
    assert_int_equal(c.heartbeat_ms, 400);
    assert_int_equal(load(&c, &err, false, "heartbeat", "4"), -EINVAL);
    assert_non_null(strstr(err.text, "command line: heartbeat:"));
    assert_int_equal(c.heartbeat_ms, 400); /* untouched */
}

static void a_mistake_in_a_drop_in_names_it(void **state)
{
    struct config c;
    struct error err = {0};

    put("t.conf.d/10-a.conf", "[daemon]\n\nheartbeat=2\n");
    assert_int_equal(load(&c, &err, true, NULL, NULL), -EINVAL);
    assert_non_null(strstr(err.text, "t.conf.d/10-a.conf:3: heartbeat"));
}

static void only_an_optional_file_may_be_missing(void **state)
{
    struct config c;
    struct error err = {0};

    put("t.conf.d/10-a.conf", "[daemon]\nheartbeat=200\n");
    assert_int_equal(load(&c, &err, true, NULL, NULL), 0);
    assert_int_equal(c.heartbeat_ms, 200);
    assert_int_equal(load(&c, &err, false, NULL, NULL), -ENOENT);
    assert_non_null(strstr(err.text, "t.conf"));
}

static void root_obeys_nobody_elses_file(void **state)
{
    static const char *const names[] = {"t.conf", "t.conf.d/10-a.conf", "t.conf.d"};
    bool root = geteuid() == 0;
    struct config c;
    struct error err = {0};

    put("t.conf", "");
    put("t.conf.d/10-a.conf", "");
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        mode_t usual = i == 2 ? 0755 : 0644;

        assert_int_equal(load(&c, &err, false, NULL, NULL), 0);
        chmod(at(names[i]), usual | S_IWGRP);
        assert_int_equal(load(&c, &err, false, NULL, NULL), root ? -EPERM : 0);
        chmod(at(names[i]), usual);
        if (!root)
            continue;
        assert_non_null(strstr(err.text, "chmod go-w"));
        assert_int_equal(chown(at(names[i]), 65534, 65534), 0);
        assert_int_equal(load(&c, &err, false, NULL, NULL), -EPERM);
        assert_non_null(strstr(err.text, "chown it to root"));
        assert_int_equal(chown(at(names[i]), 0, 0), 0);
    }
}

static void what_is_no_text_file_is_refused_at_once(void **state)
{
    static char big[CONFIG_BYTES_MAX + 2];
    struct config c;
    struct error err = {0};
    FILE *file;

    assert_int_equal(mkfifo(at("t.conf"), 0644), 0);
    assert_int_equal(load(&c, &err, false, NULL, NULL), -EINVAL);
    unlink(at("t.conf"));
    memset(big, '\n', sizeof(big) - 1);
    put("t.conf", big);
    assert_int_equal(load(&c, &err, false, NULL, NULL), -EFBIG);
    put("t.conf", "[daemon]\n");
    file = fopen(at("t.conf"), "a");
    assert_int_equal(fwrite("\0x", 1, 2, file), 2);
    fclose(file);
    assert_int_equal(load(&c, &err, false, NULL, NULL), -EINVAL);
    assert_non_null(strstr(err.text, "NUL"));
}

static void groups_are_found_by_their_whole_name(void **state)
{
    assert_int_equal(config_group("root"), 0);
    assert_int_equal(config_group(""), CONFIG_NOBODY);
    assert_int_equal(config_group("roo"), CONFIG_NOBODY);
}

#define ON_FILES(test) cmocka_unit_test_setup_teardown(test, make_files, remove_files)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_said_is_the_defaults),
        cmocka_unit_test(every_key_is_taken),
        cmocka_unit_test(a_later_word_wins_and_an_empty_one_is_the_default),
        cmocka_unit_test(an_indented_key_is_a_key),
        cmocka_unit_test(mistakes_are_told_with_file_line_key_and_what_to_do),
        cmocka_unit_test(the_first_promise_that_fits_counts_and_lines_add_up),
        cmocka_unit_test(what_is_printed_reads_back_as_the_same),
        ON_FILES(files_go_by_name_and_the_command_line_goes_last),
        ON_FILES(a_mistake_in_a_drop_in_names_it),
        ON_FILES(only_an_optional_file_may_be_missing),
        ON_FILES(root_obeys_nobody_elses_file),
        ON_FILES(what_is_no_text_file_is_refused_at_once),
        cmocka_unit_test(groups_are_found_by_their_whole_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

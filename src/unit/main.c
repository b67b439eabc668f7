/* SPDX-License-Identifier: Apache-2.0 */
/* tide-power's command line; one thread. */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <systemd/sd-daemon.h>
#include <systemd/sd-event.h>

#include "base/cleanup.h"
#include "base/failpoint.h"
#include "base/hold.h"
#include "base/wallclock.h"
#include "host/net/ends.h"
#include "unit/alive.h"
#include "unit/area/area.h"
#include "unit/cmd_broker.h"
#include "unit/enrol.h"
#include "unit/log.h"

#define ERROR_WORD "system-refused"

#define EXIT_USAGE 2 /* also a configuration that is wrong: whoever tries again meets it again */
#define CONFIG     "/etc/tide/tide-power.conf"

static const char usage[] = "Usage: tide-power [OPTION]...\n"
                            "       tide-power enrol https://HUB TOKEN [OPTION]...\n"
                            "       tide-power broker [OPTION]...\n"
                            "Measures an area's energy: reads its meters, keeps what they tell "
                            "until the hub has stored it.\n"
                            "\n"
                            "  --config FILE   configuration instead of " CONFIG "\n"
                            "  --check         say what is wrong with the configuration, and end\n"
                            "  --alive         ask the one that runs whether it does, and end\n"
                            "  --help, --version\n";

enum option_id { OPTION_CONFIG = 256, OPTION_CHECK, OPTION_ALIVE, OPTION_HELP, OPTION_VERSION };

static const struct option options[] = {
    {"config", required_argument, NULL, OPTION_CONFIG}, {"check", no_argument, NULL, OPTION_CHECK},
    {"alive", no_argument, NULL, OPTION_ALIVE},         {"help", no_argument, NULL, OPTION_HELP},
    {"version", no_argument, NULL, OPTION_VERSION},     {NULL, 0, NULL, 0},
};

/* The configuration may be checked on another machine than the one whose it is: told, no fault. */
static void check_files(const struct unit_config *config)
{
    const char *const files[] = {config->uplink.ca, config->uplink.cert, config->uplink.key,
                                 config->seal};

    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
        if (*files[i] && access(files[i], R_OK) < 0) {
            unit_log("[uplink]: cannot read %s: %s%s (tide why bad-certificate)", files[i],
                     strerror(errno), errno == ENOENT ? ": 'tide-power enrol' makes it" : "");
        }
    }
}

static int run(const struct unit_config *config)
{
    struct error err = {0};
    struct area *area;
    sd_event *event;
    int r, held = hold_file(config->state_dir, "running", false, &err);

    if (held == -EBUSY) {
        unit_err_of(&err, "%s", err.text);
        return EXIT_FAILURE;
    }

    signal(SIGPIPE, SIG_IGN);
    r = sd_event_new(&event);
    if (r >= 0)
        r = ends_by_signals(event, false, NULL, NULL);
    if (r < 0) {
        unit_err("cannot make an event loop: %s", strerror(-r));
        return EXIT_FAILURE;
    }
    r = area_new(event, config, &area, &err);
    if (r < 0) {
        unit_err_of(&err, "%s", err.text);
        sd_event_unref(event);
        return r == -EINVAL ? EXIT_USAGE : EXIT_FAILURE;
    }
    unit_log("%s: %u meters, %u switches", config->name, config->meters, config->switches);
    sd_notify(0, "READY=1");
    if (sd_event_set_watchdog(event, true) < 0) /* 0: no watchdog is configured */
        unit_err("cannot report to systemd's watchdog: systemd may restart tide-power");
    r = sd_event_loop(event);
    sd_notify(0, "STOPPING=1");
    area_free(area);
    sd_event_unref(event);
    close_fd(held);
    return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    _cleanup_free_ struct unit_config *config = NULL;
    const char *file = CONFIG;
    struct error err;
    bool check = false, alive = false;
    int option, faked;

    if (argc > 1 && strcmp(argv[1], "enrol") == 0)
        return enrol_main(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "broker") == 0)
        return broker_main(argc - 1, argv + 1);

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case OPTION_CONFIG:
            file = optarg;
            break;
        case OPTION_CHECK:
            check = true;
            break;
        case OPTION_ALIVE:
            alive = true;
            break;
        case OPTION_HELP:
            fputs(usage, stdout);
            return 0;
        case OPTION_VERSION:
            puts("tide-power " TIDE_VERSION);
            return 0;
        default:
            error_print("usage", "Try 'tide-power --help'.");
            return EXIT_USAGE;
        }
    }
    if (optind < argc) {
        error_print("usage", "tide-power: unexpected argument '%s'", argv[optind]);
        return EXIT_USAGE;
    }
    failpoint_arm();
    faked = wallclock_begin(&err);
    if (faked < 0 || unit_config_load(file, &config, &err) < 0) {
        unit_err_of(&err, "%s", err.text);
        return check || alive ? EXIT_FAILURE : EXIT_USAGE;
    }
    if (alive) {
        if (alive_ask(config, &err) == 0)
            return 0;
        unit_err_of(&err, "%s", err.text);
        return EXIT_FAILURE;
    }
    if (check) {
        check_files(config);
        printf("%s: unit %s, %u meters, %u switches\n", file, config->name, config->meters,
               config->switches);
        return 0;
    }
    if (faked)
        unit_log("TIDE_CLOCK: the time of the day is not the real one");
    return run(config);
}

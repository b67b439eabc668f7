/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cleanup.h"
#include "base/failpoint.h"
#include "base/wallclock.h"
#include "hub/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_WORD "system-refused"

static const char usage[] =
    "Usage: tide-hub COMMAND …\n"
    "\n"
    "The hub of an organization's energy: checks its power policy, says who its units\n"
    "are, and stores their energy.\n"
    "\n"
    "  policy check|diff|explain|apply|show\n"
    "                              reads the organization's policy, puts it in force\n"
    "  token                       a one-time token with which a unit is enrolled\n"
    "  unit sign|revoke|admit|list certificates of units\n"
    "  broker                      a mosquitto that trusts these alone\n"
    "  serve                       stores what units send, and shows it to people\n"
    "  energy                      what is stored\n"
    "  user add|passwd|role|remove|list|token\n"
    "                              who may see it, and change something\n"
    "  audit                       who changed what\n"
    "\n"
    "'tide-hub COMMAND --help' says more; see tide-hub(8) and tide-policy-file(5).\n";

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} commands[] = {{"audit", cmd_audit},   {"broker", cmd_broker}, {"energy", cmd_energy},
                {"policy", cmd_policy},
#ifdef HAVE_MOSQUITTO
                {"serve", cmd_serve},
#endif
                {"token", cmd_token},   {"unit", cmd_unit},     {"user", cmd_user}};

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    struct error err;
    int faked = wallclock_begin(&err);

    failpoint_arm();
    if (faked < 0) {
        error_print(error_why(&err), "tide-hub: %s", err.text);
        return EXIT_FAILURE;
    }
    if (faked)
        fputs("tide-hub: TIDE_CLOCK: the time of the day is not the real one\n", stderr);

    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        if (strcmp(name, commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    if (strcmp(name, "--help") == 0 || strcmp(name, "help") == 0) {
        fputs(usage, stdout);
        return 0;
    }
    if (strcmp(name, "--version") == 0) {
        puts("tide-hub " TIDE_VERSION);
        return 0;
    }
    if (*name)
        error_print("usage", "tide-hub: there is no command '%s'", name);
    fputs(usage, stderr);
    return HUB_EXIT_USAGE;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes what a mosquitto needs to be the broker of an area's machines and plugs, and becomes it.
 * Data's way: the unit's configuration names its certificate and the authority, and its state
 * directory has the hub's list of revoked certificates; all of these stand in the mosquitto.conf
 * that area/broker.c writes. Nothing of the broker is read back: tide-power has it read its lists
 * again by a signal to the pid that is written here.
 */
#include "unit/cmd_broker.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/hold.h"
#include "unit/area/broker.h"

#define ERROR_WORD "broker-not-started"

#define EXIT_USAGE 2
#define CONFIG     "/etc/tide/tide-power.conf"
#define PORT       8883
#define PLUG_PORT  1883

static const char usage[] =
    "Usage: tide-power broker [--config FILE] [--address ADDRESS] [--port N]\n"
    "                         [--plugs ADDRESS[:PORT]] [--write]\n"
    "\n"
    "Writes what a mosquitto needs to be the broker of this area's machines, and becomes that\n"
    "mosquitto. The unit was enrolled with a token of 'tide-hub token NAME --broker HOST'.\n"
    "\n"
    "  --config FILE           the unit's; default " CONFIG "\n"
    "  --address ADDRESS       machines connect there, with certificates; default: every address\n"
    "  --port N                default 8883\n"
    "  --plugs ADDRESS[:PORT]  plugs and meters connect there, without; port 1883 unless named.\n"
    "                          They reach no topic of machines\n"
    "  --write                 only writes STATE/broker\n";

static const struct option options[] = {{"config", required_argument, NULL, 'c'},
                                        {"address", required_argument, NULL, 'a'},
                                        {"port", required_argument, NULL, 'p'},
                                        {"plugs", required_argument, NULL, 'g'},
                                        {"write", no_argument, NULL, 'w'},
                                        {"help", no_argument, NULL, 'h'},
                                        {0}};

static int complain(const char *option, const char *value, const char *wanted)
{
    fprintf(stderr, "tide-power: broker: %s '%.100s': %s\n", option, value, wanted);
    return -EINVAL;
}

static int take_port(const char *text, unsigned *ret)
{
    char *end;
    unsigned long port = strtoul(text, &end, 10);

    if (*end || end == text || port < 1 || port > 65535)
        return -EINVAL;
    *ret = (unsigned)port;
    return 0;
}

static bool is_address(const char *text)
{
    unsigned char address[16];

    return inet_pton(AF_INET, text, address) == 1 || inet_pton(AF_INET6, text, address) == 1;
}

static int take_plugs(char *text, struct broker_listens *l)
{
    char *colon = strchr(text, ':');

    l->plug_port = PLUG_PORT;
    if (colon && !strchr(colon + 1, ':')) { /* no address of IPv6 */
        *colon = '\0';
        if (take_port(colon + 1, &l->plug_port) < 0)
            return -EINVAL;
    }
    l->plug_address = text;
    return is_address(text) ? 0 : -EINVAL;
}

/* The broker is what everybody around may speak to: root becomes the owner of the directory. */
static int leave_root(const char *state_dir, const char **ret_user, struct error *err)
{
    const struct passwd *user;
    struct stat status;

    if (geteuid() != 0)
        return 0;
    if (stat(state_dir, &status) < 0)
        return error_set(err, -errno, "%.160s: %s", state_dir, strerror(errno));
    user = getpwuid(status.st_uid);
    if (!user)
        return error_set(err, -ENOENT, "the owner of %.160s has no name", state_dir);
    *ret_user = user->pw_name;
    if (user->pw_uid == 0)
        return 0;
    if (initgroups(user->pw_name, user->pw_gid) < 0 || setgid(user->pw_gid) < 0 ||
        setuid(user->pw_uid) < 0)
        return error_set(err, -errno, "cannot become %s: %s", user->pw_name, strerror(errno));
    return 0;
}

/* Returns only if it fails. */
static int become(const char *state_dir, struct error *err)
{
    char path[PATH_MAX], pid[32];
    int r;

    snprintf(pid, sizeof(pid), "%d\n", (int)getpid());
    r = broker_put(state_dir, "pid", pid, err);
    if (r < 0)
        return r;
    snprintf(path, sizeof(path), "%s/broker/mosquitto.conf", state_dir);
    execlp("mosquitto", "mosquitto", "-c", path, (char *)NULL);
    execl("/usr/sbin/mosquitto", "mosquitto", "-c", path, (char *)NULL);
    return error_set(err, -errno, "cannot run mosquitto (package mosquitto): %s", strerror(errno));
}

static int run(const char *file, struct broker_listens *listens, bool only_write)
{
    _cleanup_free_ struct unit_config *config = NULL;
    struct error err = {0};
    int r = unit_config_load(file, &config, &err);

    if (r >= 0)
        r = leave_root(config->state_dir, &listens->user, &err);
    if (r >= 0 && !only_write && broker_is_there(config->state_dir))
        r = hold_file(config->state_dir, "broker/running", true, &err) == -EBUSY ? -EBUSY : 0;
    if (r >= 0)
        r = broker_write(config, listens, &err);
    if (r >= 0 && !only_write)
        r = become(config->state_dir, &err);
    if (r >= 0)
        return EXIT_SUCCESS;
    fprintf(stderr, "tide-power: broker: %s\n", error_said(&err));
    return EXIT_FAILURE;
}

int broker_main(int argc, char **argv)
{
    struct broker_listens listens = {.port = PORT};
    const char *file = CONFIG;
    bool only_write = false;
    int option, r = 0;

    while (r == 0 && (option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 'c') {
            file = optarg;
        } else if (option == 'w') {
            only_write = true;
        } else if (option == 'a') {
            listens.address = optarg;
            r = is_address(optarg) ? 0 : complain("--address", optarg, "use one as 127.0.0.1");
        } else if (option == 'p') {
            if (take_port(optarg, &listens.port) < 0)
                r = complain("--port", optarg, "use a number from 1 to 65535");
        } else if (option == 'g') {
            if (take_plugs(optarg, &listens) < 0)
                r = complain("--plugs", optarg, "use ADDRESS or ADDRESS:PORT, as 10.0.3.1:1883");
        } else {
            fputs(usage, option == 'h' ? stdout : stderr);
            return option == 'h' ? 0 : EXIT_USAGE;
        }
    }
    if (r < 0)
        return EXIT_USAGE;
    if (optind != argc) {
        fputs(usage, stderr);
        return EXIT_USAGE;
    }
    return run(file, &listens, only_write);
}

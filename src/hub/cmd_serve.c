/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cleanup.h"
#include "base/moment.h"
#include "hub/command.h"
#include "hub/tree/serve.h"
#include "hub/trust/state.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DAY_MS  UINT64_C(86400000)
#define PORT    8883
#define NO_FILE "is missing: run 'tide-hub broker --host NAME --write' first"

static const char usage[] =
    "Usage: tide-hub serve [--state DIR] [--broker HOST[:PORT]] [--keep-1s TIME]\n"
    "                      [--keep-1min TIME] [--keep-15min TIME]\n"
    "\n"
    "Stores the energy that units send through the broker in DIR/hub.db, and gives them receipts.\n"
    "\n"
    "  --broker HOST[:PORT]   default 127.0.0.1:8883; its certificate names the host\n"
    "  --state DIR            where 'tide-hub broker' put the hub's certificate; default\n"
    "                         /var/lib/tide-hub\n"
    "  --keep-1s, --keep-1min, --keep-15min TIME\n"
    "                         how long records stay before they are summed up to minutes (7d),\n"
    "                         to quarters of an hour (90d), and before they go (3650d)\n"
    "\n"
    "SIGTERM ends it. It may be killed at any time: what has a receipt is on the disk.\n";

static const struct option options[] = {{"state", required_argument, NULL, 's'},
                                        {"broker", required_argument, NULL, 'b'},
                                        {"keep-1s", required_argument, NULL, '1'},
                                        {"keep-1min", required_argument, NULL, '2'},
                                        {"keep-15min", required_argument, NULL, '3'},
                                        {"help", no_argument, NULL, 'h'},
                                        {0}};

struct command_line {
    const char *state;
    char host[256];
    struct serve_options serve;
};

static int complain(const char *name, const char *wanted)
{
    fprintf(stderr, "tide-hub: --%s '%s': use %s\n", name, optarg, wanted);
    return HUB_EXIT_USAGE;
}

static int take_broker(struct command_line *line)
{
    const char *colon = strrchr(optarg, ':');
    size_t len = colon ? (size_t)(colon - optarg) : strlen(optarg);
    unsigned long port = PORT;
    char *end = NULL;

    if (colon)
        port = strtoul(colon + 1, &end, 10);
    if (len == 0 || len >= sizeof(line->host) || port < 1 || port > 65535 ||
        (end && (*end || end == colon + 1)))
        return complain("broker", "HOST or HOST:PORT");
    memcpy(line->host, optarg, len);
    line->host[len] = '\0';
    line->serve.port = (uint16_t)port;
    return 0;
}

static int take_time(const char *name, uint64_t *to)
{
    return moment_duration(optarg, to) < 0 ? complain(name, "a time as 7d or 36h") : 0;
}

static int take(struct command_line *line, int option)
{
    switch (option) {
    case 's':
        line->state = optarg;
        return 0;
    case 'b':
        return take_broker(line);
    case '1':
        return take_time("keep-1s", &line->serve.keep.second_ms);
    case '2':
        return take_time("keep-1min", &line->serve.keep.minute_ms);
    case '3':
        return take_time("keep-15min", &line->serve.keep.quarter_ms);
    default:
        fputs(usage, option == 'h' ? stdout : stderr);
        return option == 'h' ? -1 : HUB_EXIT_USAGE;
    }
}

static int serve(struct command_line *line, struct error *err)
{
    static const char *const names[] = {"trust/ca.crt", "hub.crt", "hub.key", "hub.db"};
    char path[ARRAY_LEN(names)][PATH_MAX];
    struct state s = {.dir = line->state};

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        int r = state_path(&s, names[i], path[i], sizeof(path[i]), err);

        if (r < 0)
            return r;
        if (i < 3 && access(path[i], R_OK) < 0)
            return error_set(err, -errno, "%s %s", path[i],
                             errno == ENOENT ? NO_FILE : "cannot be read");
    }
    line->serve.state = line->state;
    line->serve.ca = path[0];
    line->serve.cert = path[1];
    line->serve.key = path[2];
    line->serve.store = path[3];
    line->serve.host = line->host;
    return serve_run(&line->serve, err);
}

int cmd_serve(int argc, char **argv)
{
    struct command_line line = {
        .state = STATE_DIR,
        .host = "127.0.0.1",
        .serve = {.port = PORT, .keep = {7 * DAY_MS, 90 * DAY_MS, 3650 * DAY_MS}}};
    struct error err = {0};
    int option, r;

    while ((option = getopt_long(argc, argv, "", options, NULL)) >= 0) {
        r = take(&line, option);
        if (r)
            return r < 0 ? 0 : r;
    }
    if (optind < argc) {
        fputs(usage, stderr);
        return HUB_EXIT_USAGE;
    }
    umask(077);
    r = serve(&line, &err);
    if (r < 0)
        fprintf(stderr, "tide-hub: %s\n", err.text);
    return r < 0 ? HUB_EXIT_FAILED : 0;
}

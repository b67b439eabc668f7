/* SPDX-License-Identifier: Apache-2.0 */
/* tided's command line; one thread. */
#include "base/cpuset.h"
#include "node/node.h"
#include "policy/policy.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXIT_USAGE 2

#define ENGINE_DOCKER_SOCKET "/run/docker.sock"
#define ENGINE_PODMAN_SOCKET "/run/podman/podman.sock"

static const char usage[] =
    "Usage: tided [OPTION]...\n"
    "Shares this machine's cores between jobs started with `tide run`.\n"
    "\n"
    "As root without --dir it serves every user, in " RUNDIR_SYSTEM "; otherwise its own user,\n"
    "in $TIDE_DIR, else $XDG_RUNTIME_DIR/tide, else /tmp/tide-UID. `tide run` starts one by\n"
    "itself when none runs.\n"
    "\n"
    "  --dir DIR           directory of its sockets, lock and records\n"
    "  --policy SPEC       how cores are divided, as `tide policy set` takes it; default: what\n"
    "                      was set last, else %s\n"
    "  --placement HOW     of jobs that do not say: shared (default), exclusive, quota\n"
    "  --auto-exit         end two seconds after the last job\n"
    "  --cpus LIST         divide these CPUs (\"0-3,8\") instead of all it may use\n"
    "  --engine SOCKET     a container engine to watch, Docker's or podman's; more than one is\n"
    "                      possible, \"none\" is none. Default in " RUNDIR_SYSTEM ":\n"
    "                      " ENGINE_DOCKER_SOCKET " and " ENGINE_PODMAN_SOCKET "\n"
    "  --heartbeat MS      how often agents report, 100 to 500; default %d\n"
    "  --foreground        stay in the foreground, as it always does\n"
    "  --help, --version\n"
    "\n"
    "SIGTERM ends it: what it changed is put back and the jobs go on with their own limits.\n";

enum option_id {
    OPTION_DIR = 256,
    OPTION_POLICY,
    OPTION_PLACEMENT,
    OPTION_AUTO_EXIT,
    OPTION_CPUS,
    OPTION_ENGINE,
    OPTION_HEARTBEAT,
    OPTION_FOREGROUND,
    OPTION_HELP,
    OPTION_VERSION
};

static const struct option options[] = {
    {"dir", required_argument, NULL, OPTION_DIR},
    {"policy", required_argument, NULL, OPTION_POLICY},
    {"placement", required_argument, NULL, OPTION_PLACEMENT},
    {"auto-exit", no_argument, NULL, OPTION_AUTO_EXIT},
    {"cpus", required_argument, NULL, OPTION_CPUS},
    {"engine", required_argument, NULL, OPTION_ENGINE},
    {"heartbeat", required_argument, NULL, OPTION_HEARTBEAT},
    {"foreground", no_argument, NULL, OPTION_FOREGROUND},
    {"help", no_argument, NULL, OPTION_HELP},
    {"version", no_argument, NULL, OPTION_VERSION},
    {NULL, 0, NULL, 0},
};

static int complain(const char *option, const char *value, const char *wanted)
{
    fprintf(stderr, "tided: --%s is '%s': use %s\n", option, value, wanted);
    return EXIT_USAGE;
}

static int take_dir(struct node_options *o, const char *value)
{
    if (strlen(value) >= sizeof(o->dir) || value[0] != '/')
        return complain("dir", value, "an absolute path of at most 95 bytes");
    snprintf(o->dir, sizeof(o->dir), "%s", value);
    return 0;
}

static int take_engine(struct node_options *o, const char *value, bool *ret_chosen)
{
    *ret_chosen = true;
    if (strcmp(value, "none") == 0)
        return 0;
    if (value[0] != '/')
        return complain("engine", value, "the absolute path of a unix socket, or none");
    if (o->n_engines == CONTAINERS_ENGINES_MAX)
        return complain("engine", value, "at most 4 of them");
    o->engines[o->n_engines++] = value;
    return 0;
}

static int take_heartbeat(struct node_options *o, const char *value)
{
    char *end;
    unsigned long ms = strtoul(value, &end, 10);

    if (*end || ms < NODE_HEARTBEAT_MIN_MS || ms > NODE_HEARTBEAT_MAX_MS)
        return complain("heartbeat", value, "a number of milliseconds from 100 to 500");
    o->heartbeat_ms = (uint32_t)ms;
    return 0;
}

static int take_policy(struct node_options *o, const char *value)
{
    struct error err = {0};

    if (policy_spec_parse(value, &o->policy, &err) == 0)
        return 0;
    fprintf(stderr, "tided: --policy: %s\n", err.text);
    return EXIT_USAGE;
}

/* 0: taken; an exit status above 0; or -1: done, nothing is to be run. */
static int take(struct node_options *o, int id, bool *engine_chosen)
{
    switch (id) {
    case OPTION_ENGINE:
        return take_engine(o, optarg, engine_chosen);
    case OPTION_DIR:
        return take_dir(o, optarg);
    case OPTION_POLICY:
        return take_policy(o, optarg);
    case OPTION_PLACEMENT:
        return placement_parse(optarg, &o->placement) == 0
                   ? 0
                   : complain("placement", optarg, "shared, exclusive or quota");
    case OPTION_AUTO_EXIT:
        o->auto_exit = true;
        return 0;
    case OPTION_CPUS:
        o->have_cpus = true;
        return cpuset_parse(optarg, &o->cpus) == 0 && cpuset_count(&o->cpus) > 0
                   ? 0
                   : complain("cpus", optarg, "a list like 0-3,8");
    case OPTION_HEARTBEAT:
        return take_heartbeat(o, optarg);
    case OPTION_FOREGROUND:
        return 0;
    case OPTION_HELP:
        printf(usage, policy_at(0)->name, NODE_HEARTBEAT_MS);
        return -1;
    case OPTION_VERSION:
        puts("tided " TIDE_VERSION);
        return -1;
    default:
        fputs("Try 'tided --help'.\n", stderr);
        return EXIT_USAGE;
    }
}

int main(int argc, char **argv)
{
    struct node_options o = {0};
    struct error err = {0};
    bool engine_chosen = false;
    int id, r;

    while ((id = getopt_long(argc, argv, "", options, NULL)) >= 0) {
        r = take(&o, id, &engine_chosen);
        if (r != 0)
            return r < 0 ? 0 : r;
    }
    if (optind < argc) {
        fprintf(stderr, "tided: '%s' is no option. Try 'tided --help'.\n", argv[optind]);
        return EXIT_USAGE;
    }
    if (!o.dir[0] && geteuid() == 0 && !getenv("TIDE_DIR"))
        snprintf(o.dir, sizeof(o.dir), "%s", RUNDIR_SYSTEM);
    if (!engine_chosen && strcmp(o.dir, RUNDIR_SYSTEM) == 0) {
        o.engines[o.n_engines++] = ENGINE_DOCKER_SOCKET;
        o.engines[o.n_engines++] = ENGINE_PODMAN_SOCKET;
    }
    r = node_run(&o, &err);
    if (r < 0) {
        fprintf(stderr, "tided: %s\n", err.text[0] ? err.text : strerror(-r));
        return 1;
    }
    return 0;
}

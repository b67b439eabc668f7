/* SPDX-License-Identifier: Apache-2.0 */
/* tided's command line; one thread. */
#include "base/failpoint.h"
#include "daemon/daemon.h"
#include "policy/core/policy.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ERROR_WORD "config-error"

#define EXIT_USAGE 2

#define ENGINES_STD "/run/docker.sock /run/podman/podman.sock"

static const char usage[] =
    "Usage: tided [OPTION]...\n"
    "Shares this machine's cores between jobs started with `tide run`.\n"
    "\n"
    "As root without --dir it serves every user, in " RUNDIR_SYSTEM ", as " CONFIG_FILE "\n"
    "and tide.conf.d/*.conf beside it say; otherwise its own user, in $TIDE_DIR, else\n"
    "$XDG_RUNTIME_DIR/tide, else /tmp/tide-UID. `tide run` starts one by itself when none runs.\n"
    "\n"
    "  --dir DIR           directory of its sockets, lock and records\n"
    "  --config FILE       configuration instead of " CONFIG_FILE ", with FILE.d/*.conf\n"
    "  --check-config      print the configuration or what is wrong with it, and end\n"
    "  --auto-exit         end two seconds after the last job\n"
    "  --foreground        stay in the foreground, as it always does\n"
    "  --help, --version\n"
    "\n"
    "These take precedence over the files:\n"
    "  --policy SPEC       how cores are divided, as `tide policy set` takes it; default: what\n"
    "                      was set last, else %s\n"
    "  --placement HOW     of jobs that do not say: shared (default), exclusive, quota\n"
    "  --cpus LIST         divide these CPUs (\"0-3,8\") instead of all it may use\n"
    "  --idle-cores HOW    lend (default): as extra threads, to jobs that use their share; leave\n"
    "  --engine SOCKET     a container engine to watch, Docker's or podman's; more than one is\n"
    "                      possible, \"none\" is none. Default in " RUNDIR_SYSTEM ":\n"
    "                      " ENGINES_STD "\n"
    "  --memory SIZE       what jobs may have together (\"16G\"); default: the machine's but for "
    "a\n"
    "                      reserve, \"none\": memory is not counted\n"
    "  --heartbeat MS      how often agents report, 100 to 500; default %d\n"
    "  --admin-group NAME  who may do what root may; default tide-admin, \"none\" is none\n"
    "  --history MIB       how large the record of jobs may become; default 64, \"none\" is none\n"
    "\n"
    "SIGTERM ends it: what it changed is put back and the jobs go on with their own limits.\n"
    "SIGHUP makes it read its files again.\n";

enum option_id {
    OPTION_DIR = 256,
    OPTION_CONFIG,
    OPTION_CHECK_CONFIG,
    OPTION_AUTO_EXIT,
    OPTION_FOREGROUND,
    OPTION_HELP,
    OPTION_VERSION,
    OPTION_KEY, /* the option is named after a configuration key */
    OPTION_ENGINE
};

static const struct option options[] = {
    {"dir", required_argument, NULL, OPTION_DIR},
    {"config", required_argument, NULL, OPTION_CONFIG},
    {"check-config", no_argument, NULL, OPTION_CHECK_CONFIG},
    {"auto-exit", no_argument, NULL, OPTION_AUTO_EXIT},
    {"foreground", no_argument, NULL, OPTION_FOREGROUND},
    {"help", no_argument, NULL, OPTION_HELP},
    {"version", no_argument, NULL, OPTION_VERSION},
    {"policy", required_argument, NULL, OPTION_KEY},
    {"placement", required_argument, NULL, OPTION_KEY},
    {"cpus", required_argument, NULL, OPTION_KEY},
    {"idle-cores", required_argument, NULL, OPTION_KEY},
    {"heartbeat", required_argument, NULL, OPTION_KEY},
    {"admin-group", required_argument, NULL, OPTION_KEY},
    {"history", required_argument, NULL, OPTION_KEY},
    {"memory", required_argument, NULL, OPTION_KEY},
    {"engine", required_argument, NULL, OPTION_ENGINE},
    {NULL, 0, NULL, 0},
};

struct command_line {
    struct daemon_options daemon;
    struct config_source source;
    bool check;
    char engines[CONTAINERS_ENGINES_MAX * CONFIG_SOCKET_MAX]; /* separated by blanks */
};

static int take_dir(struct daemon_options *o, const char *value)
{
    if (strlen(value) >= sizeof(o->dir) || value[0] != '/') {
        error_print("usage", "tided: --dir is '%s': use an absolute path of at most %zu bytes",
                    value, sizeof(o->dir) - 1);
        return EXIT_USAGE;
    }
    snprintf(o->dir, sizeof(o->dir), "%s", value);
    return 0;
}

static int take_key(struct config_source *s, const char *key, const char *value)
{
    unsigned i = 0;

    if (!*value) {
        error_print("usage", "tided: --%s needs a value", key);
        return EXIT_USAGE;
    }
    while (i < s->n_orders && strcmp(s->orders[i].key, key) != 0)
        i++;
    s->orders[i] = (struct config_order){key, value};
    if (i == s->n_orders)
        s->n_orders++;
    return 0;
}

static int take_engine(struct command_line *line, const char *value)
{
    size_t len = strlen(line->engines);
    int n =
        snprintf(line->engines + len, sizeof(line->engines) - len, "%s%s", len ? " " : "", value);

    if (n >= (int)(sizeof(line->engines) - len)) {
        error_print("usage", "tided: --engine: the sockets are too many, or their paths too long");
        return EXIT_USAGE;
    }
    return take_key(&line->source, "engines", line->engines);
}

/* 0: parsed; above 0: an exit status; -1: nothing is left to do. */
static int take(struct command_line *line, int id, const char *name)
{
    switch (id) {
    case OPTION_DIR:
        return take_dir(&line->daemon, optarg);
    case OPTION_CONFIG:
        line->source.file = optarg;
        return 0;
    case OPTION_CHECK_CONFIG:
        line->check = true;
        return 0;
    case OPTION_AUTO_EXIT:
        line->daemon.auto_exit = true;
        return 0;
    case OPTION_FOREGROUND:
        return 0;
    case OPTION_KEY:
        return take_key(&line->source, name, optarg);
    case OPTION_ENGINE:
        return take_engine(line, optarg);
    case OPTION_HELP:
        printf(usage, policy_at(0)->name, DAEMON_HEARTBEAT_MS);
        return -1;
    case OPTION_VERSION:
        puts("tided " TIDE_VERSION);
        return -1;
    default:
        error_print("usage", "Try 'tided --help'.");
        return EXIT_USAGE;
    }
}

static int read_command_line(int argc, char **argv, struct command_line *line)
{
    struct daemon_options *o = &line->daemon;
    int id, r, index = 0;

    while ((id = getopt_long(argc, argv, "", options, &index)) >= 0) {
        r = take(line, id, options[index].name);
        if (r != 0)
            return r;
    }
    if (optind < argc) {
        error_print("usage", "tided: '%s' is no option. Try 'tided --help'.", argv[optind]);
        return EXIT_USAGE;
    }
    if (!o->dir[0] && geteuid() == 0 && !getenv("TIDE_DIR"))
        snprintf(o->dir, sizeof(o->dir), "%s", RUNDIR_SYSTEM);
    if (!line->source.file && (line->check || strcmp(o->dir, RUNDIR_SYSTEM) == 0)) {
        line->source.file = CONFIG_FILE;
        line->source.optional = true;
    }
    return 0;
}

static void choose_engines(struct daemon_options *o)
{
    if (!o->config.engines_said && strcmp(o->dir, RUNDIR_SYSTEM) == 0)
        config_set(&o->config, "engines", ENGINES_STD, NULL);
}

static int check(const struct config *c)
{
    gid_t gid = config_group(c->admin_group);

    config_print(c, stdout);
    if (gid != CONFIG_NOBODY)
        printf("# group %s has the number %u\n", c->admin_group, (unsigned)gid);
    else if (*c->admin_group)
        printf("# there is no group %s in /etc/group: only root may do what root may\n",
               c->admin_group);
    return 0;
}

int main(int argc, char **argv)
{
    struct command_line line = {0};
    struct daemon_options *o = &line.daemon;
    struct error err = {0};
    int r = read_command_line(argc, argv, &line);

    failpoint_arm();
    if (r != 0)
        return r < 0 ? 0 : r;
    if (config_load(&line.source, &o->config, &err) < 0) {
        error_print(error_why(&err), "tided: %s", err.text);
        return EXIT_USAGE;
    }
    if (line.check)
        return check(&o->config);
    for (unsigned i = 0; i < line.source.n_orders; i++)
        o->policy_ordered |= strcmp(line.source.orders[i].key, "policy") == 0;
    o->source = &line.source;
    choose_engines(o);
    r = daemon_run(o, &err);
    if (r < 0) {
        /* One line: `tide run` quotes the last one of the log. */
        error_print(err.word ? err.word : "system-refused", "tided: %s",
                    err.text[0] ? err.text : strerror(-r));
        return 1;
    }
    return 0;
}

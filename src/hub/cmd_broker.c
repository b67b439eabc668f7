/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cleanup.h"
#include "base/hold.h"
#include "hub/command.h"
#include "hub/trust/broker.h"
#include "hub/trust/sandbox.h"
#include "hub/trust/state.h"

#include <arpa/inet.h>
#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define ERROR_WORD "broker-not-started"

#define HOSTS_MAX 8
#define PORT      8883
#define HUB_USER  "tide-hub"

static const char usage[] =
    "Usage: tide-hub broker [--state DIR] [--port N] [--address ADDRESS] [--user NAME]\n"
    "                       --host NAME… [--write]\n"
    "\n"
    "Writes what a mosquitto needs to be the broker of units, and becomes that mosquitto.\n"
    "\n"
    "  --host NAME         a name or address at which units reach it, for its certificate;\n"
    "                      up to 8 times\n"
    "  --port N            default 8883\n"
    "  --address ADDRESS   that it listens on; default: every address\n"
    "  --state DIR         default /var/lib/tide-hub\n"
    "  --user NAME         whom it becomes when root starts it, with all that it writes; default:\n"
    "                      the owner of DIR, else tide-hub; 'root' has to be said\n"
    "  --write             only writes DIR/broker/mosquitto.conf and what it names\n"
    "\n"
    "Run it again before the broker's certificate ends, which is a year later. 'tide-hub serve'\n"
    "keeps the list of revoked certificates young: without it the broker refuses everybody after\n"
    "30 days.\n";

static const struct option options[] = {
    {"state", required_argument, NULL, 's'},   {"port", required_argument, NULL, 'p'},
    {"address", required_argument, NULL, 'a'}, {"host", required_argument, NULL, 'n'},
    {"user", required_argument, NULL, 'u'},    {"write", no_argument, NULL, 'w'},
    {"help", no_argument, NULL, 'h'},          {0}};

struct command_line {
    const char *state, *address, *user, *host[HOSTS_MAX];
    unsigned hosts, port;
    bool write;
};

static int write_certificates(const struct state *s, const struct command_line *line,
                              struct error *err)
{
    struct identity_pem server = {0};
    int r = authority_issue(s->authority, line->host, line->hosts, time(NULL), &server, err);

    if (r >= 0)
        r = state_put(s, "broker/broker.crt", server.cert, err);
    if (r >= 0)
        r = state_put(s, "broker/broker.key", server.key, err);
    identity_pem_done(&server);
    return r < 0 ? r : state_renew(s, time(NULL), true, err);
}

static int write_texts(const struct state *s, const struct command_line *line, struct error *err)
{
    static const char *const names[] = {"broker/broker.crt", "broker/broker.key", "broker/ca.crt",
                                        "broker/revoked.crl", "broker/acl"};
    char path[ARRAY_LEN(names)][PATH_MAX], address[280];
    const struct passwd *user = getpwuid(geteuid());
    const struct broker_options o = {.address = line->address,
                                     .port = line->port,
                                     .cert = path[0],
                                     .key = path[1],
                                     .ca = path[2],
                                     .list = path[3],
                                     .acl = path[4],
                                     .user = user ? user->pw_name : NULL};
    _cleanup_free_ char *text = NULL;
    int r = 0;

    for (size_t i = 0; r >= 0 && i < ARRAY_LEN(names); i++)
        r = state_path(s, names[i], path[i], PATH_MAX, err);
    if (r < 0)
        return r;
    snprintf(address, sizeof(address), "%.255s:%u\n", line->host[0], line->port);
    text = broker_config(&o);
    r = state_put_broker(s, err);
    if (r >= 0)
        r = state_put(s, STATE_BROKER_ADDRESS, address, err);
    return r < 0 ? r : state_put(s, "broker/mosquitto.conf", text, err);
}

/* ---- root ---- */

/* The user that a broker becomes when root starts it. */
static const struct passwd *find_user(const struct command_line *line, const struct stat *status,
                                      struct error *err)
{
    const struct passwd *user;

    if (line->user) {
        user = getpwnam(line->user);
        if (!user)
            error_set(err, -ENOENT, "there is no user '%.40s'", line->user);
        return user;
    }
    user = status->st_uid ? getpwuid(status->st_uid) : getpwnam(HUB_USER);
    if (!user)
        error_set(err, -EPERM,
                  "root shall not be the broker, and there is no user " HUB_USER
                  ": make it (systemd-sysusers), or name another one by --user");
    return user;
}

/*
 * A broker is what everybody on the network may speak to, so it is not root's: from here on we are
 * another user, and all that we write is that user's. Does nothing for any other caller.
 */
static int leave_root(const struct command_line *line, struct error *err)
{
    const struct passwd *user;
    struct stat status = {0};
    bool made;

    if (geteuid() != 0)
        return 0;
    if (stat(line->state, &status) < 0 && errno != ENOENT)
        return error_set(err, -errno, "%.160s: %s", line->state, strerror(errno));
    made = status.st_nlink == 0;
    user = find_user(line, &status, err);
    if (!user)
        return err->code;
    if (user->pw_uid == 0) {
        fprintf(stderr, "tide-hub: the broker runs as root, as --user says\n");
        return 0;
    }
    if (made &&
        (mkdir(line->state, 0700) < 0 || chown(line->state, user->pw_uid, user->pw_gid) < 0))
        return error_set(err, -errno, "cannot make %.160s: %s", line->state, strerror(errno));
    if (!made && status.st_uid != user->pw_uid)
        return error_set(err, -EPERM, "%.120s does not belong to %s: chown -R %s it, or use --user",
                         line->state, user->pw_name, user->pw_name);
    if (initgroups(user->pw_name, user->pw_gid) < 0 || setgid(user->pw_gid) < 0 ||
        setuid(user->pw_uid) < 0)
        return error_set(err, -errno, "cannot become %s: %s", user->pw_name, strerror(errno));
    fprintf(stderr, "tide-hub: root started it: the broker and its files are %s's\n",
            user->pw_name);
    return 0;
}

/* Returns only if it fails. The state's lock ends with us. */
static int become(const struct state *s, struct error *err)
{
    char config[PATH_MAX], folder[PATH_MAX], pid[32];
    struct error no_sandbox = {0};
    int r = state_path(s, "broker/mosquitto.conf", config, sizeof(config), err);

    snprintf(pid, sizeof(pid), "%d\n", (int)getpid());
    if (r >= 0)
        r = state_put(s, "broker/pid", pid, err);
    if (r >= 0)
        r = state_path(s, "broker", folder, sizeof(folder), err);
    if (r < 0)
        return r;
    r = sandbox_enter(folder, &no_sandbox);
    if (r < 0)
        error_print(error_why(&no_sandbox), "tide-hub: %s: the broker may read all of %s",
                    no_sandbox.text, s->dir);
    execlp("mosquitto", "mosquitto", "-c", config, (char *)NULL);
    execl("/usr/sbin/mosquitto", "mosquitto", "-c", config, (char *)NULL);
    return error_set(err, -errno, "cannot run mosquitto (package mosquitto): %s", strerror(errno));
}

static int take(void *arg, int option)
{
    struct command_line *line = arg;
    unsigned char address[16];
    char *end;

    switch (option) {
    case 's':
        line->state = optarg;
        return 0;
    case 'a':
        if (inet_pton(AF_INET, optarg, address) != 1 && inet_pton(AF_INET6, optarg, address) != 1) {
            error_print("usage", "tide-hub: --address '%s': use an address as 127.0.0.1", optarg);
            return HUB_EXIT_USAGE;
        }
        line->address = optarg;
        return 0;
    case 'n':
        if (line->hosts == HOSTS_MAX || !*optarg || strpbrk(optarg, " \n\t")) {
            error_print("usage", "tide-hub: --host '%s': use up to %d names or addresses", optarg,
                        HOSTS_MAX);
            return HUB_EXIT_USAGE;
        }
        line->host[line->hosts++] = optarg;
        return 0;
    case 'p':
        line->port = (unsigned)strtoul(optarg, &end, 10);
        if (*end || end == optarg || line->port < 1 || line->port > 65535) {
            error_print("usage", "tide-hub: --port '%s': use a number from 1 to 65535", optarg);
            return HUB_EXIT_USAGE;
        }
        return 0;
    case 'u':
        line->user = optarg;
        return 0;
    default:
        line->write = true;
        return 0;
    }
}

int cmd_broker(int argc, char **argv)
{
    struct command_line line = {.state = STATE_DIR, .port = PORT};
    struct error err = {0};
    struct state s;
    int r = command_options(argc, argv, usage, options, take, &line);

    if (r)
        return r < 0 ? 0 : r;
    if (optind == argc && line.hosts == 0)
        error_print("usage", "tide-hub: broker: --host is missing");
    if (optind < argc || line.hosts == 0)
        return command_wrong(usage);
    r = leave_root(&line, &err);
    if (r >= 0)
        r = state_open(line.state, &s, &err);
    if (r >= 0) {
        /* A second one would not get the port, and its pid would be the one that is told things. */
        if (!line.write)
            r = hold_file(line.state, "broker/running", true, &err);
        if (r != -EBUSY)
            r = write_certificates(&s, &line, &err);
        if (r >= 0)
            r = write_texts(&s, &line, &err);
        if (r >= 0 && !line.write)
            r = become(&s, &err);
        state_close(&s);
    }
    return command_end(r, &err);
}

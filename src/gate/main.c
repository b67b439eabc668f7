/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tide-gate: lets people without a login ask this machine's tided, over TLS; tide-gate(8). gate.h
 * draws the way of a request. `serve` runs as a user of its own, `token` as whoever may write the
 * file of tokens.
 */
#include "base/cleanup.h"
#include "base/moment.h"
#include "gate/gate.h"
#include "gate/tokens.h"
#include "host/net/ends.h"

#include <getopt.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>
#include <time.h>

#define ERROR_WORD "config-error"

#define EXIT_USAGE 2

static const char usage[] =
    "Usage: tide-gate serve|check [--config FILE]\n"
    "       tide-gate token USER [--for TIME] [--config FILE]\n"
    "\n"
    "Lets people without a login ask this machine's tided, over TLS, by a token or a certificate.\n"
    "\n"
    "  serve    listens, as a user of its own: 'gateway-user' in tide.conf(5) names it to tided\n"
    "  check    reads the configuration and says what is wrong with it\n"
    "  token    makes a token of the local user USER, and prints it; only its hash is kept\n"
    "\n"
    "  --config FILE   default " CONF_FILE "\n"
    "  --for TIME      how long the token lets its user in, as 90d; default: until its line is "
    "removed\n";

struct arguments {
    const char *config;
    uint64_t for_ms; /* 0: no end */
    const char *user;
};

static int fail(struct error *err, int status)
{
    fprintf(stderr, "tide-gate: %s\n", error_said(err));
    return status;
}

/* ---- serve ---- */

static int on_signal(sd_event_source *source, const struct signalfd_siginfo *info, void *arg)
{
    struct gate *g = arg;
    struct error err = {0};

    if (info->ssi_signo != SIGHUP)
        return sd_event_exit(sd_event_source_get_event(source), 0);
    if (gate_reload(g, &err) < 0)
        fprintf(stderr, "tide-gate: %s: the former configuration stays\n", error_said(&err));
    else
        fputs("tide-gate: configuration reloaded\n", stderr);
    return 0;
}

static int serve(const struct arguments *a)
{
    struct gate *g = NULL;
    sd_event *event = NULL;
    struct error err = {0};
    int r;

    if (geteuid() == 0) {
        error_set(&err, -EPERM,
                  "it does not run as root: whoever breaks into it shall not be "
                  "root; 'systemctl start tide-gate' runs it as " GATE_USER);
        return fail(&err, EXIT_USAGE);
    }
    umask(077);
    signal(SIGPIPE, SIG_IGN);
    r = sd_event_new(&event);
    if (r < 0)
        error_word(&err, error_set(&err, r, "no event loop: %s", strerror(-r)), "system-refused");
    else
        r = gate_new(event, a->config, &g, &err);
    if (r >= 0)
        r = ends_by_signals(event, true, on_signal, g);
    if (r >= 0) {
        sd_notify(0, "READY=1");
        sd_event_set_watchdog(event, true);
        r = sd_event_loop(event);
        sd_notify(0, "STOPPING=1");
    }
    gate_free(g);
    sd_event_unref(event);
    if (r >= 0)
        return EXIT_SUCCESS;
    if (!*err.text)
        error_word(&err, error_set(&err, r, "the event loop ended: %s", strerror(-r)),
                   "system-refused");
    return fail(&err, r == -EINVAL || r == -ENOENT || r == -EPERM ? EXIT_USAGE : EXIT_FAILURE);
}

/* ---- the other commands ---- */

static int check(const struct arguments *a)
{
    struct tokens tokens = {0};
    struct error err = {0};
    struct gate_conf conf;

    if (gate_conf_read(a->config, &conf, &err) < 0)
        return fail(&err, EXIT_USAGE);
    if (*conf.tokens && gate_tokens_read(conf.tokens, &tokens, &err) < 0)
        return fail(&err, EXIT_USAGE);
    printf("%s is good: %zu users, %zu tokens\n", a->config, conf.users, tokens.n);
    gate_tokens_done(&tokens);
    gate_conf_done(&conf);
    return EXIT_SUCCESS;
}

static int token(const struct arguments *a)
{
    int64_t until_s = a->for_ms ? time(NULL) + (int64_t)(a->for_ms / 1000) : 0;
    char text[TOKEN_LEN + 1];
    struct error err = {0};
    struct gate_conf conf;
    int r;

    if (gate_conf_read(a->config, &conf, &err) < 0)
        return fail(&err, EXIT_USAGE);
    if (!*conf.tokens)
        r = error_set(&err, -EINVAL, "%.200s has no key 'tokens': the file for them", a->config);
    else if (!gate_conf_named(&conf, a->user))
        r = error_set(&err, -ENOENT, "%.150s has no line 'user = %.60s'", a->config, a->user);
    else
        r = gate_tokens_add(conf.tokens, a->user, until_s, GATE_USER, text, &err);
    gate_conf_done(&conf);
    if (r < 0)
        return fail(&err, r == -EINVAL || r == -ENOENT ? EXIT_USAGE : EXIT_FAILURE);
    puts(text);
    return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

static const struct {
    const char *name;
    int operands;
    int (*run)(const struct arguments *a);
} commands[] = {{"serve", 0, serve}, {"check", 0, check}, {"token", 1, token}};

/* Returns 0, or the exit status after a message. */
static int take_options(int argc, char **argv, struct arguments *a)
{
    static const struct option options[] = {
        {"config", required_argument, NULL, 'c'}, {"for", required_argument, NULL, 'f'}, {0}};
    int option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) >= 0) {
        if (option == 'c') {
            a->config = optarg;
        } else if (option != 'f' || moment_duration(optarg, &a->for_ms) < 0 || a->for_ms < 1000) {
            if (option == 'f')
                fprintf(stderr, "tide-gate: --for %.40s: use a time as 90d or 12h\n", optarg);
            fputs(usage, stderr);
            return EXIT_USAGE;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    struct arguments a = {.config = CONF_FILE};

    if (strcmp(name, "--help") == 0 || strcmp(name, "help") == 0)
        return fputs(usage, stdout) < 0;
    if (strcmp(name, "--version") == 0)
        return puts("tide-gate " TIDE_VERSION) < 0;
    for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
        if (strcmp(name, commands[i].name) != 0)
            continue;
        if (take_options(argc - 1, argv + 1, &a))
            return EXIT_USAGE;
        if (argc - 1 - optind != commands[i].operands)
            break;
        a.user = argv[argc - 1];
        return commands[i].run(&a);
    }
    if (*name)
        error_print("usage", "tide-gate: '%.40s' is no command, or has other arguments", name);
    fputs(usage, stderr);
    return EXIT_USAGE;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cleanup.h"
#include "base/preload.h"
#include "host/net/ends.h"
#include "host/trust/identity.h"
#include "kube/api/access.h"
#include "kube/api/client.h"
#include "kube/inject/agent_files.h"
#include "kube/inject/inject.h"
#include "kube/inject/patch.h"
#include "kube/inject/spread.h"
#include "kube/inject/token.h"
#include "kube/inject/webhook.h"
#include "kube/log.h"
#include "kube/serve/trust.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_WORD "system-refused"

#define EXIT_USAGE 2
#define DRAIN_S    10 /* until no API server's node sends to a pod that is not ready */
#define DRAIN_MAX  3600

/*
 * All pods of a namespace wait for one call. These are for many new namespaces at once: each call
 * carries the agent, 0.4 MB, and a pod waits for it for SPREAD_WAIT_MS.
 */
#define RATE   50
#define BURST  200
#define SECRET "tide-inject-ca"

static const char usage[] =
    "Usage: tide-kube inject [OPTION…]\n"
    "\n"
    "A webhook of the API server: brings the agent into pods with the label\n"
    "threadtide.io/inject=true, or in namespaces with it, without another image.\n"
    "\n"
    "  --kubeconfig FILE     how to reach the API server; default: the pod's service account\n"
    "  --context NAME        of the kubeconfig\n"
    "  --namespace NAME      ours, with the Secret; its pods are left alone; default: the pod's\n"
    "  --listen HOST:PORT    for the API server's questions (TLS); default :9443\n"
    "  --health HOST:PORT    /healthz and /readyz, for probes; default 127.0.0.1:8080\n"
    "  --metrics HOST:PORT   /metrics, to everybody who asks; default 127.0.0.1:8081\n"
    "  --service HOST        the host that the API server calls; default\n"
    "                        tide-inject.NAMESPACE.svc\n"
    "  --ca-secret NAME      keeps the authority of our certificates, and the secret part of the\n"
    "                        webhook's path; default tide-inject-ca\n"
    "  --tls-dir DIR         holds tls.crt, tls.key and ca.crt of your own instead\n"
    "  --agent-dir DIR       holds the agent; default: the installed one\n"
    "  --sizes=yes|no        also set variables that size runtimes for the CPU limit; default yes\n"
    "  --drain SECONDS       for how long it still answers after SIGTERM; default 10\n"
    "\n"
    "SIGTERM ends it: /readyz says so, and it answers on for --drain; a second one ends it at "
    "once.\n"
    "Pods go on, and new ones start without the agent.\n";

enum option_id {
    OPTION_KUBECONFIG = 256,
    OPTION_CONTEXT,
    OPTION_NAMESPACE,
    OPTION_LISTEN,
    OPTION_HEALTH,
    OPTION_METRICS,
    OPTION_SERVICE,
    OPTION_SECRET,
    OPTION_TLS_DIR,
    OPTION_AGENT_DIR,
    OPTION_SIZES,
    OPTION_DRAIN,
    OPTION_HELP,
    OPTION_MAX,
};

static const struct option options[] = {
    {"kubeconfig", required_argument, NULL, OPTION_KUBECONFIG},
    {"context", required_argument, NULL, OPTION_CONTEXT},
    {"namespace", required_argument, NULL, OPTION_NAMESPACE},
    {"listen", required_argument, NULL, OPTION_LISTEN},
    {"health", required_argument, NULL, OPTION_HEALTH},
    {"metrics", required_argument, NULL, OPTION_METRICS},
    {"service", required_argument, NULL, OPTION_SERVICE},
    {"ca-secret", required_argument, NULL, OPTION_SECRET},
    {"tls-dir", required_argument, NULL, OPTION_TLS_DIR},
    {"agent-dir", required_argument, NULL, OPTION_AGENT_DIR},
    {"sizes", required_argument, NULL, OPTION_SIZES},
    {"drain", required_argument, NULL, OPTION_DRAIN},
    {"help", no_argument, NULL, OPTION_HELP},
    {NULL, 0, NULL, 0},
};

struct program {
    const char *given[OPTION_MAX - OPTION_KUBECONFIG]; /* options' values; NULL: not given */
    sd_event *event;
    struct client *client;
    struct spread *spread;
    struct webhook *webhook;
    struct trust *trust;
    struct token *token;
    unsigned drain_s;
    bool ends;
    struct webhook_options webhook_options;
    struct trust_options trust_options;
    char host[300];
    char files[3][PATH_MAX]; /* in tls_dir */
    const char *hosts[1];
};

static const char *given(const struct program *p, enum option_id id, const char *otherwise)
{
    const char *value = p->given[id - OPTION_KUBECONFIG];

    return value ? value : otherwise;
}

/* Returns 0, an exit status above 0, or -1: there is nothing to run. */
static int read_command_line(struct program *p, int argc, char **argv)
{
    const char *sizes, *drain;
    char *end;
    unsigned long seconds;
    int id;

    while ((id = getopt_long(argc, argv, "", options, NULL)) >= 0) {
        if (id == '?') {
            error_print("usage", "Try 'tide-kube inject --help'.");
            return EXIT_USAGE;
        }
        if (id == OPTION_HELP) {
            fputs(usage, stdout);
            return -1;
        }
        p->given[id - OPTION_KUBECONFIG] = optarg;
    }
    sizes = given(p, OPTION_SIZES, "yes");
    p->webhook_options.sizes = strcmp(sizes, "yes") == 0;
    if (optind < argc || (!p->webhook_options.sizes && strcmp(sizes, "no") != 0)) {
        error_print("usage", "tide-kube: '%s' is %s. Try 'tide-kube inject --help'.",
                    optind < argc ? argv[optind] : sizes,
                    optind < argc ? "no option" : "neither yes nor no, as --sizes has it");
        return EXIT_USAGE;
    }
    drain = given(p, OPTION_DRAIN, NULL);
    seconds = drain ? strtoul(drain, &end, 10) : DRAIN_S;
    if (drain && (*drain < '0' || *drain > '9' || *end || seconds > DRAIN_MAX)) {
        error_print("usage", "tide-kube: --drain=%s is no number of seconds up to %d.", drain,
                    DRAIN_MAX);
        return EXIT_USAGE;
    }
    p->drain_s = (unsigned)seconds;
    return 0;
}

/* When the authority ends: there is nobody but a person to tell the API server of another. */
static int64_t authority_s(const struct program *p)
{
    const char *ca = p->trust ? trust_ca(p->trust) : NULL;

    return ca ? identity_expires_s(ca) : -1;
}

static void on_trust(void *arg, const char *problem)
{
    struct program *p = arg;
    struct error err = {0};
    char text[ERROR_TEXT_MAX + 600];

    if (problem) {
        snprintf(text, sizeof(text),
                 "no certificate for the webhook: %s (tide why cluster-refused)", problem);
        kube_log(NULL, text);
    } else if (webhook_serve(p->webhook, authority_s(p), &err) < 0) {
        kube_log(NULL, error_said(&err));
        sd_event_exit(p->event, 1);
    }
}

static void on_token(void *arg, const char *text, const char *problem)
{
    struct program *p = arg;
    char said[ERROR_TEXT_MAX + 600];

    if (text) {
        webhook_name(p->webhook, text);
        return;
    }
    snprintf(said, sizeof(said),
             "no secret part of the webhook's path: %s (tide why cluster-refused)", problem);
    kube_log(NULL, said);
}

static int on_drained(sd_event_source *s, uint64_t usec, void *arg)
{
    const struct program *p = arg;

    (void)s;
    (void)usec;
    return sd_event_exit(p->event, 0);
}

/*
 * Whoever calls us learns a while after kubelet that we end: until then we answer. A second signal
 * ends us at once.
 */
static int on_end(sd_event_source *s, const struct signalfd_siginfo *info, void *arg)
{
    struct program *p = arg;

    (void)s;
    (void)info;
    if (p->ends || p->drain_s == 0 ||
        sd_event_add_time_relative(p->event, NULL, CLOCK_MONOTONIC, p->drain_s * 1000000ull, 0,
                                   on_drained, p) < 0)
        return sd_event_exit(p->event, 0);
    p->ends = true;
    if (p->webhook)
        webhook_leave(p->webhook);
    return 0;
}

static int connect_to(struct program *p, struct error *err)
{
    const struct client_limits limits = {.rate = RATE, .burst = BURST};
    struct access access;
    int r = access_find(given(p, OPTION_KUBECONFIG, NULL), given(p, OPTION_CONTEXT, NULL), &access,
                        err);

    return r < 0 ? r : client_new(p->event, &access, &limits, &p->client, err);
}

static int read_agent(const struct program *p, json_t **ret, struct error *err)
{
    char found[PATH_MAX];
    const char *dir = given(p, OPTION_AGENT_DIR, NULL);
    int r = dir ? 0 : preload_find(found, sizeof(found), err);

    return r < 0 ? r : agent_files_read(dir ? dir : found, INJECT_CONFIG_MAP, ret, err);
}

/* The names in our certificate, and the Secret that it is kept in. */
static void name_trust(struct program *p)
{
    struct trust_options *t = &p->trust_options;
    const char *space = p->webhook_options.own;
    const char *dir = given(p, OPTION_TLS_DIR, NULL);
    static const char *const names[] = {"tls.crt", "tls.key", "ca.crt"};

    snprintf(p->host, sizeof(p->host), "tide-inject.%s.svc", space);
    p->hosts[0] = given(p, OPTION_SERVICE, p->host);
    t->hosts = p->hosts;
    t->n_hosts = 1;
    t->told = true;
    t->name_space = space;
    t->secret = given(p, OPTION_SECRET, SECRET);
    if (!dir)
        return;
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        snprintf(p->files[i], sizeof(p->files[i]), "%s/%s", dir, names[i]);
    t->cert_file = p->files[0];
    t->key_file = p->files[1];
    t->ca_file = p->files[2];
}

static int run(struct program *p, struct error *err)
{
    json_t *agent;
    int r = sd_event_new(&p->event);

    signal(SIGPIPE, SIG_IGN);
    if (r >= 0)
        r = ends_by_signals(p->event, false, on_end, p);
    if (r < 0)
        return error_set(err, r, "no event loop: %s", strerror(-r));
    r = read_agent(p, &agent, err);
    if (r < 0)
        return r;
    r = connect_to(p, err);
    if (r < 0) {
        json_decref(agent);
        return r;
    }
    p->spread = spread_new(p->client, INJECT_CONFIG_MAP, agent, kube_log);
    if (!p->spread)
        return error_set(err, -ENOMEM, "out of memory");
    p->webhook_options.listen = given(p, OPTION_LISTEN, ":9443");
    p->webhook_options.health = given(p, OPTION_HEALTH, "127.0.0.1:8080");
    p->webhook_options.metrics = given(p, OPTION_METRICS, "127.0.0.1:8081");
    p->webhook_options.own = given(p, OPTION_NAMESPACE, client_namespace(p->client));
    name_trust(p);
    r = webhook_new(p->event, &p->webhook_options, p->spread, &p->webhook, err);
    if (r == 0)
        r = trust_new(p->client, p->event, &p->trust_options, on_trust, p, &p->trust, err);
    if (r == 0)
        r = token_new(p->client, p->event, p->trust_options.name_space, p->trust_options.secret,
                      on_token, p, &p->token, err);
    if (r < 0)
        return r;
    if (p->trust_options.cert_file)
        on_trust(p, NULL);
    return sd_event_loop(p->event);
}

int inject_main(int argc, char **argv)
{
    static struct program program;
    struct error err = {0};
    int r = read_command_line(&program, argc, argv);

    if (r != 0)
        return r < 0 ? 0 : r;
    r = run(&program, &err);
    if (r < 0)
        error_print(error_why(&err), "tide-kube: %s", err.text);
    token_free(program.token);
    trust_free(program.trust);
    webhook_free(program.webhook);
    spread_free(program.spread);
    client_free(program.client);
    identity_serve(NULL);
    sd_event_unref(program.event);
    return r < 0 ? 1 : r;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/moment.h"
#include "host/net/ends.h"
#include "host/trust/identity.h"
#include "kube/api/access.h"
#include "kube/api/lease.h"
#include "kube/core/reconcile.h"
#include "kube/inject/inject.h"
#include "kube/kubectl/kubectl.h"
#include "kube/log.h"
#include "kube/serve/chiefs_channel.h"
#include "kube/serve/kube_metrics.h"
#include "kube/serve/trust.h"
#include "kube/shell/controller.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_WORD "system-refused"

#define EXIT_USAGE 2
#define HOSTS_MAX  8

static const char usage[] =
    "Usage: tide-kube [OPTION…]\n"
    "       tide-kube kubectl COMMAND …     (also: kubectl tide COMMAND …)\n"
    "       tide-kube inject [OPTION…]      (brings the agent into pods)\n"
    "\n"
    "The controller of ElasticTrainingJobs: gives parameter servers and workers to running\n"
    "TensorFlow trainings, and takes them back, as the cluster's free resources allow.\n"
    "\n"
    "  --kubeconfig FILE       how to reach the API server; default: the pod's service "
    "account\n"
    "  --context NAME          of the kubeconfig\n"
    "  --namespace NAME        look after trainings of this one only; default: all\n"
    "  --policy SPEC           of trainings that name none, as tided(8) has it; default "
    "throughput\n"
    "  --leader-elect=yes|no   several replicas, of which one acts; default yes\n"
    "  --lease-namespace NAME  where the lease and the Secret lie; default: the pod's\n"
    "  --lease-name NAME       default tide-kube\n"
    "  --lease-duration TIME   until another may take over; default 15s\n"
    "  --lease-deadline TIME   until a leader that cannot renew gives up; default 10s\n"
    "  --lease-retry TIME      between renewals; default 2s\n"
    "  --metrics HOST:PORT     /metrics, /healthz, /readyz; default 127.0.0.1:8080\n"
    "  --health HOST:PORT      /healthz and /readyz alone, for probes; default: none\n"
    "  --listen HOST:PORT      for the chiefs' reports (TLS); default :8443\n"
    "  --service HOST:PORT     what chiefs are told to connect to; default\n"
    "                          tide-kube.NAMESPACE.svc:8443\n"
    "  --ca-secret NAME        keeps the authority of our certificates; default tide-kube-ca\n"
    "  --tls-dir DIR           holds tls.crt, tls.key and ca.crt of your own instead\n"
    "  --node-image IMAGE      copies tide-tfnode and the Python package into pods\n"
    "  --gpus NAME,…           resources of nodes that trainings without GPUs leave alone;\n"
    "                          default nvidia.com/gpu,amd.com/gpu; \"\": no node is\n"
    "  --batch, --settle, --pending, --drain, --silent, --node-lost TIME\n"
    "                          how decisions are paced, see tide-kube(8)\n"
    "  --rate N, --burst N     requests per second in the long run (20), and at once (60)\n"
    "\n"
    "SIGTERM ends it: the lease is given back. Trainings go on.\n";

enum option_id {
    OPTION_KUBECONFIG = 256,
    OPTION_CONTEXT,
    OPTION_NAMESPACE,
    OPTION_POLICY,
    OPTION_ELECT,
    OPTION_LEASE_NAMESPACE,
    OPTION_LEASE_NAME,
    OPTION_METRICS,
    OPTION_HEALTH,
    OPTION_LISTEN,
    OPTION_SERVICE,
    OPTION_SECRET,
    OPTION_TLS_DIR,
    OPTION_NODE_IMAGE,
    OPTION_RATE,
    OPTION_BURST,
    OPTION_GPUS,
    OPTION_HELP,
    OPTION_VERSION,
    OPTION_LEASE_DURATION, /* this and the following are times, see take_time() */
    OPTION_LEASE_DEADLINE,
    OPTION_LEASE_RETRY,
    OPTION_BATCH,
    OPTION_SETTLE,
    OPTION_PENDING,
    OPTION_DRAIN,
    OPTION_SILENT,
    OPTION_NODE_LOST,
};

static const struct option options[] = {
    {"kubeconfig", required_argument, NULL, OPTION_KUBECONFIG},
    {"context", required_argument, NULL, OPTION_CONTEXT},
    {"namespace", required_argument, NULL, OPTION_NAMESPACE},
    {"policy", required_argument, NULL, OPTION_POLICY},
    {"leader-elect", optional_argument, NULL, OPTION_ELECT},
    {"lease-namespace", required_argument, NULL, OPTION_LEASE_NAMESPACE},
    {"lease-name", required_argument, NULL, OPTION_LEASE_NAME},
    {"metrics", required_argument, NULL, OPTION_METRICS},
    {"health", required_argument, NULL, OPTION_HEALTH},
    {"listen", required_argument, NULL, OPTION_LISTEN},
    {"service", required_argument, NULL, OPTION_SERVICE},
    {"ca-secret", required_argument, NULL, OPTION_SECRET},
    {"tls-dir", required_argument, NULL, OPTION_TLS_DIR},
    {"node-image", required_argument, NULL, OPTION_NODE_IMAGE},
    {"rate", required_argument, NULL, OPTION_RATE},
    {"burst", required_argument, NULL, OPTION_BURST},
    {"gpus", required_argument, NULL, OPTION_GPUS},
    {"help", no_argument, NULL, OPTION_HELP},
    {"version", no_argument, NULL, OPTION_VERSION},
    {"lease-duration", required_argument, NULL, OPTION_LEASE_DURATION},
    {"lease-deadline", required_argument, NULL, OPTION_LEASE_DEADLINE},
    {"lease-retry", required_argument, NULL, OPTION_LEASE_RETRY},
    {"batch", required_argument, NULL, OPTION_BATCH},
    {"settle", required_argument, NULL, OPTION_SETTLE},
    {"pending", required_argument, NULL, OPTION_PENDING},
    {"drain", required_argument, NULL, OPTION_DRAIN},
    {"silent", required_argument, NULL, OPTION_SILENT},
    {"node-lost", required_argument, NULL, OPTION_NODE_LOST},
    {NULL, 0, NULL, 0},
};

struct command_line {
    const char *kubeconfig, *context, *name_space;
    const char *metrics, *health, *listen, *service, *tls_dir, *node_image;
    struct lease_options lease;
    struct trust_options trust;
    struct kube_settings settings;
    struct client_limits limits;
    bool elect;
};

/* The running controller. */
struct program {
    struct command_line line;
    sd_event *event;
    struct client *client;
    struct trust *trust;
    struct channel *channel;
    struct lease *lease;
    struct controller *controller;
    struct metrics *metrics, *health;
    struct metrics_source source;
    struct kube_pod_settings pods;
    struct controller_options options;
    char address[300]; /* chiefs report there */
    char host[300];
    char files[3][4096]; /* in tls_dir */
    const char *hosts[HOSTS_MAX];
};

/* ---- the command line ---- */

static int complain(const char *name, const char *value, const char *wanted)
{
    error_print("usage", "tide-kube: --%s is '%s': use %s", name, value, wanted);
    return EXIT_USAGE;
}

static int take_time(struct command_line *line, int id, const char *name)
{
    struct kube_settings *s = &line->settings;
    uint64_t ms, *lease = NULL;
    int64_t *pace = NULL;

    if (moment_duration(optarg, &ms) < 0)
        return complain(name, optarg, "a duration, as 15s or 500ms");
    switch (id) {
    case OPTION_LEASE_DURATION:
        lease = &line->lease.times.duration_ns;
        break;
    case OPTION_LEASE_DEADLINE:
        lease = &line->lease.times.deadline_ns;
        break;
    case OPTION_LEASE_RETRY:
        lease = &line->lease.times.retry_ns;
        break;
    case OPTION_BATCH:
        pace = &s->batch_ns;
        break;
    case OPTION_SETTLE:
        pace = &s->settle_ns;
        break;
    case OPTION_PENDING:
        pace = &s->pending_ns;
        break;
    case OPTION_DRAIN:
        pace = &s->drain_ns;
        break;
    case OPTION_SILENT:
        pace = &s->silent_ns;
        break;
    default:
        pace = &s->node_lost_ns;
    }
    if (lease)
        *lease = ms * NS_PER_MS;
    else
        *pace = (int64_t)(ms * NS_PER_MS);
    return 0;
}

static int take_number(unsigned *to, const char *name)
{
    char *end;
    unsigned long n = strtoul(optarg, &end, 10);

    if (*end || end == optarg || n < 1 || n > 100000)
        return complain(name, optarg, "a number from 1 to 100000");
    *to = (unsigned)n;
    return 0;
}

static int take_policy(struct command_line *line)
{
    struct error err = {0};

    if (policy_spec_parse(optarg, &line->settings.policy, &err) == 0)
        return 0;
    error_print("usage", "tide-kube: --policy: %s", err.text);
    return EXIT_USAGE;
}

static int take_gpus(struct command_line *line)
{
    char *rest = optarg;
    const char *name;

    line->settings.gpu_count = 0;
    while ((name = strsep(&rest, ","))) {
        if (!*name)
            continue;
        if (line->settings.gpu_count == KUBE_GPUS_MAX) {
            error_print("usage", "tide-kube: --gpus: at most %d names are taken", KUBE_GPUS_MAX);
            return EXIT_USAGE;
        }
        line->settings.gpus[line->settings.gpu_count++] = name;
    }
    return 0;
}

static int take_elect(struct command_line *line, const char *name)
{
    const char *value = optarg ? optarg : "yes";

    line->elect = strcmp(value, "yes") == 0 || strcmp(value, "true") == 0;
    if (!line->elect && strcmp(value, "no") != 0 && strcmp(value, "false") != 0)
        return complain(name, value, "yes or no");
    return 0;
}

/* Returns 0: the option was taken; an exit status above 0; or -1: the program has nothing to run.
 */
static int take(struct command_line *line, int id, const char *name)
{
    const char **const texts[] = {
        [OPTION_KUBECONFIG - 256] = &line->kubeconfig,
        [OPTION_CONTEXT - 256] = &line->context,
        [OPTION_NAMESPACE - 256] = &line->name_space,
        [OPTION_LEASE_NAMESPACE - 256] = &line->lease.name_space,
        [OPTION_LEASE_NAME - 256] = &line->lease.name,
        [OPTION_METRICS - 256] = &line->metrics,
        [OPTION_HEALTH - 256] = &line->health,
        [OPTION_LISTEN - 256] = &line->listen,
        [OPTION_SERVICE - 256] = &line->service,
        [OPTION_SECRET - 256] = &line->trust.secret,
        [OPTION_TLS_DIR - 256] = &line->tls_dir,
        [OPTION_NODE_IMAGE - 256] = &line->node_image,
        [OPTION_VERSION - 256] = NULL,
    };

    if (id >= OPTION_LEASE_DURATION)
        return take_time(line, id, name);
    switch (id) {
    case OPTION_POLICY:
        return take_policy(line);
    case OPTION_ELECT:
        return take_elect(line, name);
    case OPTION_RATE:
        return take_number(&line->limits.rate, name);
    case OPTION_BURST:
        return take_number(&line->limits.burst, name);
    case OPTION_GPUS:
        return take_gpus(line);
    case OPTION_HELP:
        fputs(usage, stdout);
        return -1;
    case OPTION_VERSION:
        puts("tide-kube " TIDE_VERSION);
        return -1;
    case '?':
        error_print("usage", "Try 'tide-kube --help'.");
        return EXIT_USAGE;
    default:
        *texts[id - 256] = optarg;
        return 0;
    }
}

static int check(const struct command_line *line)
{
    const struct lease_times *t = &line->lease.times;

    if (t->duration_ns <= t->deadline_ns || t->deadline_ns <= 2 * t->retry_ns ||
        t->duration_ns < NS_PER_S) {
        error_print("usage",
                    "tide-kube: --lease-duration has to be longer than --lease-deadline, and that "
                    "longer than twice --lease-retry");
        return EXIT_USAGE;
    }
    return 0;
}

static int read_command_line(int argc, char **argv, struct command_line *line)
{
    int id, r, index = 0;

    kube_settings_init(&line->settings);
    line->elect = true;
    line->metrics = "127.0.0.1:8080";
    line->listen = ":8443";
    line->lease.name = "tide-kube";
    line->lease.times = (struct lease_times){LEASE_DURATION_S * NS_PER_S,
                                             LEASE_DEADLINE_S * NS_PER_S, LEASE_RETRY_S * NS_PER_S};
    line->trust.secret = TRUST_SECRET;
    while ((id = getopt_long(argc, argv, "", options, &index)) >= 0) {
        r = take(line, id, options[index].name);
        if (r != 0)
            return r;
    }
    if (optind < argc) {
        error_print("usage", "tide-kube: '%s' is no option. Try 'tide-kube --help'.", argv[optind]);
        return EXIT_USAGE;
    }
    return check(line);
}

/* ---- callbacks of the parts ---- */

static bool is_leading(void *arg)
{
    struct program *p = arg;

    return !p->lease || lease_leading(p->lease);
}

static void on_lease(void *arg, bool leading, const char *holder)
{
    struct program *p = arg;
    char text[LEASE_HOLDER_MAX + 64];

    if (leading != p->source.leading) {
        p->source.leading = leading;
        controller_lead(p->controller, leading);
    }
    snprintf(text, sizeof(text), leading ? "this replica leads" : "%s%s leads",
             leading   ? ""
             : *holder ? "replica "
                       : "nobody",
             leading ? "" : holder);
    kube_log(NULL, text);
}

static void on_trust(void *arg, const char *problem)
{
    struct program *p = arg;
    struct error err = {0};
    char text[ERROR_TEXT_MAX + 600];

    if (problem) {
        snprintf(text, sizeof(text),
                 "no certificate for the chiefs' channel: %s (tide why cluster-refused)", problem);
        kube_log(NULL, text);
        return;
    }
    p->pods.ca_pem = trust_ca(p->trust);
    if (!p->channel && channel_new(p->client, p->event, p->line.listen, controller_report,
                                   p->controller, &p->channel, &err) < 0) {
        kube_log(NULL, error_said(&err));
        sd_event_exit(p->event, 1);
        return;
    }
    p->source.channel = p->channel;
    controller_wake(p->controller);
}

static void on_released(void *arg)
{
    struct program *p = arg;

    sd_event_exit(p->event, 0);
}

static int on_term(sd_event_source *s, const struct signalfd_siginfo *info, void *arg)
{
    struct program *p = arg;

    controller_lead(p->controller, false);
    if (p->lease)
        lease_release(p->lease, on_released, p);
    else
        sd_event_exit(p->event, 0);
    return 0;
}

/* ---- the program ---- */

static int connect_to(struct program *p, struct error *err)
{
    const struct command_line *l = &p->line;
    struct access access;
    int r = access_find(l->kubeconfig, l->context, &access, err);

    return r < 0 ? r : client_new(p->event, &access, &l->limits, &p->client, err);
}

/* The host names in our certificate: chiefs and services use them. */
static void name_hosts(struct program *p)
{
    struct command_line *l = &p->line;
    const char *colon;

    if (!l->lease.name_space)
        l->lease.name_space = client_namespace(p->client);
    if (l->service)
        snprintf(p->address, sizeof(p->address), "%s", l->service);
    else
        snprintf(p->address, sizeof(p->address), "tide-kube.%s.svc:8443", l->lease.name_space);
    colon = strrchr(p->address, ':');
    snprintf(p->host, sizeof(p->host), "%.*s",
             (int)(colon ? (size_t)(colon - p->address) : strlen(p->address)), p->address);
    if (l->tls_dir) {
        snprintf(p->files[0], sizeof(p->files[0]), "%s/tls.crt", l->tls_dir);
        snprintf(p->files[1], sizeof(p->files[1]), "%s/tls.key", l->tls_dir);
        snprintf(p->files[2], sizeof(p->files[2]), "%s/ca.crt", l->tls_dir);
        l->trust.cert_file = p->files[0];
        l->trust.key_file = p->files[1];
        l->trust.ca_file = p->files[2];
    }
    p->hosts[0] = p->host;
    l->trust.hosts = p->hosts;
    l->trust.n_hosts = 1;
    l->trust.name_space = l->lease.name_space;
    p->pods.controller = p->address;
    p->pods.node_image = l->node_image;
}

static int start_parts(struct program *p, struct error *err)
{
    struct command_line *l = &p->line;
    int r = 0;

    p->source =
        (struct metrics_source){.client = p->client, .policy = l->settings.policy.policy->name};
    r = metrics_new(p->event, l->metrics, true, &p->source, &p->metrics, err);
    if (r >= 0 && l->health)
        r = metrics_new(p->event, l->health, false, &p->source, &p->health, err);
    if (r < 0)
        return r;
    p->options = (struct controller_options){
        &l->settings, &p->pods, "tide-kube", l->name_space, is_leading, kube_log, p};
    r = controller_new(p->client, p->event, &p->options, &p->controller);
    if (r < 0)
        return error_set(err, r, "cannot set up the controller: %s", strerror(-r));
    p->source.controller = p->controller;
    r = trust_new(p->client, p->event, &l->trust, on_trust, p, &p->trust, err);
    if (r < 0)
        return r;
    if (l->tls_dir)
        on_trust(p, NULL);
    if (l->elect)
        r = lease_new(p->client, p->event, &l->lease, on_lease, p, &p->lease);
    else
        on_lease(p, true, "");
    return r < 0 ? error_set(err, r, "cannot set up the lease: %s", strerror(-r)) : 0;
}

static int run(struct program *p, struct error *err)
{
    int r = sd_event_new(&p->event);

    signal(SIGPIPE, SIG_IGN);
    if (r >= 0)
        r = ends_by_signals(p->event, false, on_term, p);
    if (r < 0)
        return error_set(err, r, "no event loop: %s", strerror(-r));
    r = connect_to(p, err);
    if (r < 0)
        return r;
    name_hosts(p);
    r = start_parts(p, err);
    if (r < 0)
        return r;
    return sd_event_loop(p->event);
}

static void done(struct program *p)
{
    p->source.controller = NULL;
    p->source.channel = NULL;
    channel_free(p->channel);
    lease_free(p->lease);
    controller_free(p->controller);
    trust_free(p->trust);
    metrics_free(p->metrics);
    metrics_free(p->health);
    client_free(p->client);
    identity_serve(NULL);
    sd_event_unref(p->event);
}

int main(int argc, char **argv)
{
    static struct program program;
    struct error err = {0};
    const char *name = strrchr(argv[0], '/');
    int r;

    name = name ? name + 1 : argv[0];
    if (strncmp(name, "kubectl-", strlen("kubectl-")) == 0)
        return kubectl_main(argc, argv);
    if (argc > 1 && strcmp(argv[1], "kubectl") == 0)
        return kubectl_main(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "inject") == 0)
        return inject_main(argc - 1, argv + 1);
    r = read_command_line(argc, argv, &program.line);
    if (r != 0)
        return r < 0 ? 0 : r;
    r = run(&program, &err);
    if (r < 0)
        error_print(error_why(&err), "tide-kube: %s", err.text);
    done(&program);
    return r < 0 ? 1 : r;
}

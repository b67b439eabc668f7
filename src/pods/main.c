/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tide-pods: brings containers of pods to tided. On one side it is a plugin of the container
 * runtime (NRI), on the other it looks like a container engine.
 */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/preload.h"
#include "base/rundir.h"
#include "host/net/ends.h"
#include "pods/engine_api.h"
#include "pods/log.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define ERROR_WORD "system-refused"

#define EXIT_USAGE 2

#define NRI_SOCKET  "/var/run/nri/nri.sock"
#define CPU_MANAGER "/var/lib/kubelet/cpu_manager_state"
#define INDEX       "90" /* behind others, whose changes of a container it then sees */

#define DRAIN_US      10000000       /* for so long tided and its guardian may restore limits … */
#define QUIET_NS      (3 * NS_PER_S) /* … and for so long nobody has to be there */
#define DRAIN_LOOK_US 50000

static const char usage[] =
    "Usage: tide-pods [OPTION…]\n"
    "\n"
    "Brings containers of this node's pods to tided, which shares cores and threads between them.\n"
    "It connects to the container runtime as a plugin (NRI), and tided to it: tided "
    "--engine SOCKET.\n"
    "\n"
    "  --socket SOCKET       where tided connects; default pods.sock in tided's directory\n"
    "  --nri SOCKET          the runtime's; default /var/run/nri/nri.sock\n"
    "  --namespace NAME      pods of this namespace are jobs; more than one is possible\n"
    "  --qos CLASS           pods of this class are jobs: guaranteed, burstable or besteffort\n"
    "  --own-namespace NAME  pods of this one stay as they are, as those of kube-system\n"
    "  --inject=yes|no       bring the agent into every job; default no: into those whose pods\n"
    "                        have the label threadtide.io/inject=true\n"
    "  --agent-dir DIR       holds the agent, on the host; default: the installed one\n"
    "  --sizes=yes|no        also set variables that size runtimes for the CPU limit; default yes\n"
    "  --cpu-manager FILE    the kubelet's state of its CPU manager; default\n"
    "                        /var/lib/kubelet/cpu_manager_state\n"
    "  --nri-index NN        the order among plugins; default 90\n"
    "\n"
    "A pod with the label threadtide.io/elastic=true is a job, one with =false is none.\n"
    "SIGTERM ends it, as soon as tided has restored limits. Pods go on.\n";

enum option_id {
    OPTION_SOCKET = 256,
    OPTION_NRI,
    OPTION_NAMESPACE,
    OPTION_QOS,
    OPTION_OWN,
    OPTION_INJECT,
    OPTION_AGENT_DIR,
    OPTION_SIZES,
    OPTION_MANAGER,
    OPTION_INDEX,
    OPTION_HELP,
    OPTION_VERSION,
};

static const struct option options[] = {
    {"socket", required_argument, NULL, OPTION_SOCKET},
    {"nri", required_argument, NULL, OPTION_NRI},
    {"namespace", required_argument, NULL, OPTION_NAMESPACE},
    {"qos", required_argument, NULL, OPTION_QOS},
    {"own-namespace", required_argument, NULL, OPTION_OWN},
    {"inject", required_argument, NULL, OPTION_INJECT},
    {"agent-dir", required_argument, NULL, OPTION_AGENT_DIR},
    {"sizes", required_argument, NULL, OPTION_SIZES},
    {"cpu-manager", required_argument, NULL, OPTION_MANAGER},
    {"nri-index", required_argument, NULL, OPTION_INDEX},
    {"help", no_argument, NULL, OPTION_HELP},
    {"version", no_argument, NULL, OPTION_VERSION},
    {NULL, 0, NULL, 0},
};

struct program {
    struct choice choice;
    struct nri_options nri_options;
    const char *socket, *manager;
    sd_event *event;
    sd_event_source *drain;
    struct pods *pods;
    struct nri *nri;
    struct engine_api *api;
    unsigned drained; /* looks since SIGTERM */
    char path[RUNDIR_PATH_MAX + 16];
    char agent_dir[PATH_MAX];
};

/* ---- the command line ---- */

static int complain(const char *name, const char *value, const char *wanted)
{
    error_print("usage", "tide-pods: --%s is '%s': use %s", name, value, wanted);
    return EXIT_USAGE;
}

static int take_flag(bool *ret, const char *name)
{
    *ret = strcmp(optarg, "yes") == 0;
    return *ret || strcmp(optarg, "no") == 0 ? 0 : complain(name, optarg, "yes or no");
}

static int take_qos(struct choice *choice)
{
    enum qos qos;

    if (choose_qos_parse(optarg, &qos) < 0)
        return complain("qos", optarg, "guaranteed, burstable or besteffort");
    choice->qos |= 1u << qos;
    return 0;
}

static int take_namespace(struct choice *choice)
{
    if (choice->n_namespaces == CHOOSE_NAMESPACES_MAX) {
        error_print("usage", "tide-pods: --namespace: more than %d", CHOOSE_NAMESPACES_MAX);
        return EXIT_USAGE;
    }
    choice->namespaces[choice->n_namespaces++] = optarg;
    return 0;
}

static int take_index(struct nri_options *o)
{
    if (strlen(optarg) != 2 || strspn(optarg, "0123456789") != 2)
        return complain("nri-index", optarg, "two digits");
    o->index = optarg;
    return 0;
}

/* Returns 0: the option was taken; an exit status above 0; or -1: there is nothing to run. */
static int take(struct program *p, int id)
{
    switch (id) {
    case OPTION_SOCKET:
        p->socket = optarg;
        return 0;
    case OPTION_NRI:
        p->nri_options.socket = optarg;
        return 0;
    case OPTION_NAMESPACE:
        return take_namespace(&p->choice);
    case OPTION_QOS:
        return take_qos(&p->choice);
    case OPTION_OWN:
        p->choice.own = optarg;
        return 0;
    case OPTION_INJECT:
        return take_flag(&p->choice.inject, "inject");
    case OPTION_AGENT_DIR:
        p->nri_options.agent_dir = optarg;
        return 0;
    case OPTION_SIZES:
        return take_flag(&p->nri_options.sizes, "sizes");
    case OPTION_MANAGER:
        p->manager = optarg;
        return 0;
    case OPTION_INDEX:
        return take_index(&p->nri_options);
    case OPTION_HELP:
        fputs(usage, stdout);
        return -1;
    case OPTION_VERSION:
        puts("tide-pods " TIDE_VERSION);
        return -1;
    default:
        error_print("usage", "Try 'tide-pods --help'.");
        return EXIT_USAGE;
    }
}

static int read_command_line(struct program *p, int argc, char **argv)
{
    int id, r;

    while ((id = getopt_long(argc, argv, "", options, NULL)) >= 0) {
        r = take(p, id);
        if (r != 0)
            return r;
    }
    if (optind < argc) {
        error_print("usage", "tide-pods: '%s' is no option. Try 'tide-pods --help'.", argv[optind]);
        return EXIT_USAGE;
    }
    return 0;
}

/* ---- the program ---- */

static void on_news(void *arg)
{
    const struct program *p = arg;

    if (p->api)
        engine_api_news(p->api);
}

static void on_state(void *arg, bool ready)
{
    const struct program *p = arg;

    if (!ready && p->api)
        engine_api_away(p->api);
}

/* A tided that ends with us, as in one pod, has its guardian restore limits through us. */
static int on_drain(sd_event_source *s, uint64_t usec, void *arg)
{
    struct program *p = arg;

    if (engine_api_watched_ns(p->api) + QUIET_NS < clock_now_ns() ||
        ++p->drained > DRAIN_US / DRAIN_LOOK_US)
        return sd_event_exit(p->event, 0);
    sd_event_source_set_time_relative(s, DRAIN_LOOK_US);
    return sd_event_source_set_enabled(s, SD_EVENT_ONESHOT);
}

static int on_end(sd_event_source *s, const struct signalfd_siginfo *info, void *arg)
{
    struct program *p = arg;

    if (p->drain ||
        sd_event_add_time_relative(p->event, &p->drain, CLOCK_MONOTONIC, 0, 1000, on_drain, p) < 0)
        return sd_event_exit(p->event, 0);
    return 0;
}

static int find_paths(struct program *p, struct error *err)
{
    char run[RUNDIR_PATH_MAX];
    struct error why = {0};
    _cleanup_fd_ int fd = -1;

    if (!p->nri_options.agent_dir) {
        if (preload_find(p->agent_dir, sizeof(p->agent_dir), &why) == 0)
            p->nri_options.agent_dir = p->agent_dir;
        else
            pods_log("no agent is brought into pods: %s", error_said(&why));
    }
    if (p->socket)
        return 0;
    if (rundir_machine(run) < 0)
        return error_set(err, -ENAMETOOLONG, "TIDE_DIR is too long for the path of a socket");
    fd = rundir_open(run, err);
    if (fd < 0)
        return fd;
    snprintf(p->path, sizeof(p->path), "%s/pods.sock", run);
    p->socket = p->path;
    return 0;
}

static int run(struct program *p, struct error *err)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int r = find_paths(p, err);

    if (r < 0)
        return r;
    signal(SIGPIPE, SIG_IGN);
    p->nri_options.cores = cores > 0 ? (unsigned)cores : 1;
    r = sd_event_new(&p->event);
    if (r >= 0)
        r = ends_by_signals(p->event, false, on_end, p);
    if (r < 0)
        return error_set(err, r, "no event loop: %s", strerror(-r));
    p->pods = pods_new(&p->choice, on_news, p);
    if (!p->pods)
        return error_set(err, -ENOMEM, "out of memory");
    r = nri_new(p->event, &p->nri_options, p->pods, on_state, p, &p->nri, err);
    if (r == 0)
        r = engine_api_new(p->event, p->socket, p->manager, p->pods, p->nri, &p->api, err);
    return r < 0 ? r : sd_event_loop(p->event);
}

int main(int argc, char **argv)
{
    struct program p = {
        .manager = CPU_MANAGER,
        .nri_options = {.socket = NRI_SOCKET, .index = INDEX, .sizes = true},
    };
    struct error err = {0};
    int r = read_command_line(&p, argc, argv);

    if (r != 0)
        return r < 0 ? 0 : r;
    r = run(&p, &err);
    if (r < 0)
        error_print(error_why(&err), "tide-pods: %s", err.text[0] ? err.text : strerror(-r));
    engine_api_free(p.api);
    nri_free(p.nri);
    pods_free(p.pods);
    sd_event_source_disable_unref(p.drain);
    sd_event_unref(p.event);
    return r < 0 ? 1 : r;
}

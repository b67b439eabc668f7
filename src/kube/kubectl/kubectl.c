/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/kubectl/kubectl.h"

#include "base/cleanup.h"
#include "base/suggest.h"
#include "kube/kubectl/cluster_page.h"
#include "kube/object/object.h"

#include <errno.h>
#include <getopt.h>
#include <string.h>

#define EXIT_USAGE 2

static const char usage[] =
    "Usage: kubectl tide COMMAND [OPTION…]\n"
    "\n"
    "  status [NAME]         trainings: phase, replicas in the training of those wanted, progress\n"
    "  explain NAME          why it has the size that it has: conditions, pods, events\n"
    "  scale NAME N|auto     so many workers; auto: the policy decides\n"
    "  pause NAME            drain, save a checkpoint, give everything back\n"
    "  resume NAME           go on\n"
    "  dashboard             a page of the cluster in a web browser, on 127.0.0.1\n"
    "\n"
    "  -n, --namespace NAME  default: the context's\n"
    "  -A, --all-namespaces  of status; dashboard shows all namespaces unless -n names one\n"
    "  -o, --output json     what the API server has\n"
    "      --port N          of dashboard: listen there (any free one)\n"
    "      --no-open         of dashboard: print the link, but start no browser\n"
    "      --context NAME    of the kubeconfig\n"
    "      --kubeconfig FILE default: KUBECONFIG, ~/.kube/config, or the pod's service account\n";

static int print_json(const json_t *value)
{
    if (json_dumpf(value, stdout, JSON_INDENT(2)) < 0)
        return -ENOMEM;
    putchar('\n');
    return 0;
}

/* ---- commands: words are those behind the command ---- */

static int cmd_status(struct kubectl *k, int n, char **words)
{
    json_t *answer = NULL, *list;
    int r = kubectl_get(k, n > 0 ? words[0] : NULL, &answer);

    if (r < 0)
        return r;
    list = n > 0 ? json_pack("[O]", answer) : json_incref(json_object_get(answer, "items"));
    if (k->json)
        r = print_json(answer);
    else if (json_array_size(list) > 0)
        kubectl_print_status(list, k->all_spaces, stdout);
    else if (k->all_spaces)
        fputs("No trainings found\n", stderr);
    else
        fprintf(stderr, "No trainings found in %s namespace.\n", k->name_space);
    json_decref(list);
    json_decref(answer);
    return r;
}

static int by_time(const void *a, const void *b)
{
    const json_t *const *x = a, *const *y = b;
    const char *first = json_string_value(json_object_get(*x, "eventTime"));
    const char *second = json_string_value(json_object_get(*y, "eventTime"));

    return strcmp(first ? first : "", second ? second : "");
}

/* Sorts events by time, since the API server lists them by name. */
static json_t *sorted(const json_t *events)
{
    size_t n = json_array_size(events);
    _cleanup_free_ json_t **all = calloc(n + 1, sizeof(json_t *));
    json_t *list = json_array();

    for (size_t i = 0; all && i < n; i++)
        all[i] = json_array_get(events, i);
    if (all)
        qsort(all, n, sizeof(json_t *), by_time);
    for (size_t i = 0; all && i < n; i++)
        json_array_append(list, all[i]);
    return list;
}

static int cmd_explain(struct kubectl *k, int n, char **words)
{
    json_t *etj = NULL, *pods = NULL, *events = NULL, *ordered;
    char name[800], path[2000];
    int r = kubectl_get(k, words[0], &etj);

    if (r == 0 && k->json) {
        r = print_json(etj);
        json_decref(etj);
        return r;
    }
    if (r == 0)
        r = client_escape(words[0], name, sizeof(name));
    if (r == 0) {
        snprintf(path, sizeof(path),
                 "/api/v1/namespaces/%s/pods?labelSelector=threadtide.io%%2Fjob%%3D%s",
                 k->name_space, name);
        r = kubectl_ask(k, CLIENT_GET, path, NULL, &pods);
    }
    if (r == 0) {
        snprintf(
            path, sizeof(path),
            "/apis/events.k8s.io/v1/namespaces/%s/events?fieldSelector=regarding.kind%%3D" KUBE_KIND
            "%%2Cregarding.name%%3D%s",
            k->name_space, name);
        r = kubectl_ask(k, CLIENT_GET, path, NULL, &events);
    }
    if (r == 0) {
        ordered = sorted(json_object_get(events, "items"));
        kubectl_print_explanation(etj, json_object_get(pods, "items"), ordered, stdout);
        json_decref(ordered);
    }
    json_decref(etj);
    json_decref(pods);
    json_decref(events);
    return r;
}

static int patch(struct kubectl *k, const char *name, json_t *body, const char *what)
{
    json_t *answer = NULL;
    char path[1200];
    int r = kubectl_path(k, name, path, sizeof(path));

    if (r == 0)
        r = kubectl_ask(k, CLIENT_MERGE, path, body, &answer);
    if (r == 0 && k->json)
        r = print_json(answer);
    else if (r == 0)
        printf("elastictrainingjob." KUBE_GROUP "/%s %s\n", name, what);
    json_decref(body);
    json_decref(answer);
    return r;
}

static int cmd_scale(struct kubectl *k, int n, char **words)
{
    bool automatic = strcmp(words[1], "auto") == 0;
    char *end = NULL;
    long count = automatic ? 0 : strtol(words[1], &end, 10);
    char what[64];

    if (!automatic && (*end || end == words[1] || count < 1 || count > KUBE_TASKS_MAX)) {
        error_print("usage", "error: '%s' is no number of workers: use 1 to %d, or auto", words[1],
                    KUBE_TASKS_MAX);
        return -EINVAL;
    }
    if (automatic)
        snprintf(what, sizeof(what), "scaled: the policy decides");
    else
        snprintf(what, sizeof(what), "scaled: %ld worker%s", count, count == 1 ? "" : "s");
    return patch(k, words[0], json_pack("{s:{s:{s:i}}}", "spec", "workers", "replicas", (int)count),
                 what);
}

static int cmd_pause(struct kubectl *k, int n, char **words)
{
    return patch(k, words[0], json_pack("{s:{s:b}}", "spec", "suspend", 1), "paused");
}

static int cmd_resume(struct kubectl *k, int n, char **words)
{
    return patch(k, words[0], json_pack("{s:{s:b}}", "spec", "suspend", 0), "resumed");
}

static int cmd_dashboard(struct kubectl *k, int n, char **words)
{
    k->all_spaces |= !k->asked_space;
    return cluster_page_serve(k, k->port, !k->no_open);
}

static const struct {
    const char *name;
    int (*run)(struct kubectl *k, int n, char **words);
    int least, most;
    const char *words;
} commands[] = {
    {"status", cmd_status, 0, 1, "[NAME]"},    {"explain", cmd_explain, 1, 1, "NAME"},
    {"scale", cmd_scale, 2, 2, "NAME N|auto"}, {"pause", cmd_pause, 1, 1, "NAME"},
    {"resume", cmd_resume, 1, 1, "NAME"},      {"dashboard", cmd_dashboard, 0, 0, ""},
};

/* ---- the command line ---- */

static const struct option options[] = {
    {"namespace", required_argument, NULL, 'n'},  {"all-namespaces", no_argument, NULL, 'A'},
    {"output", required_argument, NULL, 'o'},     {"context", required_argument, NULL, 'c'},
    {"kubeconfig", required_argument, NULL, 'k'}, {"port", required_argument, NULL, 'p'},
    {"no-open", no_argument, NULL, 'b'},          {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, 'v'},          {NULL, 0, NULL, 0},
};

/* Returns 0; or an exit status above 0; or -1: there is nothing to run. */
static int read_options(struct kubectl *k, int argc, char **argv)
{
    char *end;
    int id;

    while ((id = getopt_long(argc, argv, "n:Ao:h", options, NULL)) >= 0)
        switch (id) {
        case 'n':
            k->name_space = optarg;
            k->asked_space = true;
            break;
        case 'p':
            k->port = strtol(optarg, &end, 10);
            if (*end || end == optarg || k->port < 0 || k->port > 65535) {
                error_print("usage", "error: '%s' is no port: use 0 to 65535", optarg);
                return EXIT_USAGE;
            }
            break;
        case 'b':
            k->no_open = true;
            break;
        case 'A':
            k->all_spaces = true;
            break;
        case 'o':
            if (strcmp(optarg, "json") != 0) {
                error_print("usage", "error: there is no output '%s': use json", optarg);
                return EXIT_USAGE;
            }
            k->json = true;
            break;
        case 'c':
            k->context = optarg;
            break;
        case 'k':
            k->kubeconfig = optarg;
            break;
        case 'h':
            fputs(usage, stdout);
            return -1;
        case 'v':
            puts("kubectl tide " TIDE_VERSION);
            return -1;
        default:
            error_print("usage", "See 'kubectl tide --help'.");
            return EXIT_USAGE;
        }
    return 0;
}

static int unknown(const char *word)
{
    const char *names[ARRAY_LEN(commands)], *near;

    for (size_t i = 0; i < ARRAY_LEN(commands); i++)
        names[i] = commands[i].name;
    near = suggest_nearest(word, names, ARRAY_LEN(names));
    error_print("usage", "error: there is no command '%s'%s%s%s\nSee 'kubectl tide --help'.", word,
                near ? ": did you mean '" : "", near ? near : "", near ? "'?" : "");
    return EXIT_USAGE;
}

int kubectl_main(int argc, char **argv)
{
    struct kubectl k = {0};
    int r = read_options(&k, argc, argv), n;
    size_t i = 0;

    if (r != 0)
        return r < 0 ? 0 : r;
    n = argc - optind - 1;
    if (n < 0) {
        fputs(usage, stderr);
        return EXIT_USAGE;
    }
    while (i < ARRAY_LEN(commands) && strcmp(commands[i].name, argv[optind]) != 0)
        i++;
    if (i == ARRAY_LEN(commands))
        return unknown(argv[optind]);
    if (n < commands[i].least || n > commands[i].most) {
        fprintf(stderr, "Usage: kubectl tide %s %s\n", commands[i].name, commands[i].words);
        return EXIT_USAGE;
    }
    r = kubectl_connect(&k);
    if (r == 0)
        r = commands[i].run(&k, n, argv + optind + 1);
    kubectl_done(&k);
    return r < 0 ? 1 : 0;
}

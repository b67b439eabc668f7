/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of tide-kube under the tests' hands, one a run:
 *   kube_probe KUBECONFIG watch PATH          a line for each change: "+ NAMESPACE/NAME VERSION"
 *   kube_probe KUBECONFIG lease NAMESPACE NAME IDENTITY [DURATION DEADLINE RETRY, in ms]
 *                                             "leading" or "following HOLDER"; SIGTERM releases
 *   kube_probe KUBECONFIG ask METHOD PATH [BODY]    the answer, or the error, as JSON
 *   kube_probe KUBECONFIG burst N PATH              N requests at once: seconds that they took
 *   kube_probe KUBECONFIG channel NAMESPACE SECRET  serves reports: its port, then each of them
 * It ends at SIGTERM.
 */
#include "base/cleanup.h"
#include "base/clock.h"
#include "host/trust/identity.h"
#include "kube/api/access.h"
#include "kube/api/lease.h"
#include "kube/api/watch.h"
#include "kube/serve/chiefs_channel.h"
#include "kube/serve/trust.h"

#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>

static sd_event *event;
static struct client *client;
static struct lease *lease;

static _Noreturn void die(const char *text)
{
    fprintf(stderr, "kube_probe: %s\n", text);
    exit(1);
}

static void say(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    putchar('\n');
    fflush(stdout);
}

/* ---- watch ---- */

static void on_change(void *arg, enum watch_change change, json_t *object)
{
    static const char *const marks[] = {"+", "~", "-", "synced", "lost", "back"};
    const json_t *meta = json_object_get(object, "metadata");
    const char *space = json_string_value(json_object_get(meta, "namespace"));
    const char *version = json_string_value(json_object_get(meta, "resourceVersion"));

    if (!object)
        say("%s", marks[change]);
    else
        say("%s %s/%s %s", marks[change], space ? space : "",
            json_string_value(json_object_get(meta, "name")), version ? version : "");
}

static void watch(const char *path)
{
    struct watch *w;

    if (watch_new(client, event, path, NULL, on_change, NULL, &w) < 0)
        die("no watch");
    sd_event_loop(event);
    watch_free(w);
}

/* ---- lease ---- */

static void on_lease(void *arg, bool leading, const char *holder)
{
    if (leading)
        say("leading");
    else
        say("following %s", holder);
}

static void on_released(void *arg)
{
    say("released");
    sd_event_exit(event, 0);
}

static int on_term(sd_event_source *s, const struct signalfd_siginfo *info, void *arg)
{
    if (lease)
        lease_release(lease, on_released, NULL);
    else
        sd_event_exit(event, 0);
    return 0;
}

static void hold(int argc, char **argv)
{
    struct lease_options options = {.name_space = argv[0], .name = argv[1], .identity = argv[2]};

    if (argc == 6)
        options.times = (struct lease_times){strtoull(argv[3], NULL, 10) * NS_PER_MS,
                                             strtoull(argv[4], NULL, 10) * NS_PER_MS,
                                             strtoull(argv[5], NULL, 10) * NS_PER_MS};
    if (lease_new(client, event, &options, on_lease, NULL, &lease) < 0)
        die("no lease");
    sd_event_loop(event);
    lease = lease_free(lease);
}

/* ---- requests ---- */

static unsigned left;

static void on_answer(void *arg, const struct client_answer *answer)
{
    json_t *said =
        json_pack("{s:i,s:i,s:s,s:s,s:O?}", "code", answer->code, "status", answer->status,
                  "reason", answer->reason, "text", answer->text, "body", answer->body);
    char *text = json_dumps(said, 0);

    if (!arg)
        say("%s", text);
    free(text);
    json_decref(said);
    if (--left == 0)
        sd_event_exit(event, 0);
}

static void ask(const char *method, const char *path, const char *body)
{
    static const char *const verbs[] = {"GET",   "POST",      "PUT",  "APPLY",
                                        "MERGE", "STRATEGIC", "JSON", "DELETE"};
    struct client_request request = {.path = path, .done = on_answer};

    while (strcmp(verbs[request.verb], method) != 0)
        if (++request.verb == CLIENT_VERB_MAX)
            die("no such method");
    request.body = body ? json_loads(body, 0, NULL) : NULL;
    left = 1;
    if (client_send(client, &request) < 0)
        die("not sent");
    sd_event_loop(event);
    json_decref((json_t *)request.body);
}

static void burst(unsigned n, const char *path)
{
    struct client_request request = {
        .path = path, .done = on_answer, .arg = &left, .timeout_ms = 60000};
    uint64_t begun = clock_now_ns();

    left = n;
    while (n-- > 0)
        client_send(client, &request);
    sd_event_loop(event);
    say("%.3f", (double)(clock_now_ns() - begun) / NS_PER_S);
}

/* ---- channel ---- */

static struct channel *channel;
static struct trust *trust;

static unsigned on_report(void *arg, struct kube_report *report, json_t **ret_members,
                          struct error *err)
{
    say("%s/%s %s step %" PRIu64 " nodes %u", report->namespace, report->job, report->chief_uid,
        report->progress.step, report->node_count);
    *ret_members = json_pack("{s:i,s:s,s:i,s:b,s:[],s:[]}", "generation", 7, "mode", "sync",
                             "slots", 8, "suspend", 0, "ps", "worker");
    kube_report_free(report);
    return 200;
}

static void on_trust(void *arg, const char *problem)
{
    struct error err = {0};

    if (problem) {
        say("trouble %s", problem);
        return;
    }
    if (!channel && channel_new(client, event, "127.0.0.1:0", on_report, NULL, &channel, &err) < 0)
        die(err.text);
    say("port %u\n%s\n.", channel_port(channel), trust_ca(trust));
}

static void serve(char **argv)
{
    static const char *const hosts[] = {"tide-kube.test.svc", "127.0.0.1"};
    struct trust_options options = {
        .name_space = argv[0], .secret = argv[1], .hosts = hosts, .n_hosts = 2, .look_ms = 100};
    struct error err = {0};

    if (argv[2] && argv[3] && argv[4]) {
        options.cert_file = argv[2];
        options.key_file = argv[3];
        options.ca_file = argv[4];
    }
    if (trust_new(client, event, &options, on_trust, NULL, &trust, &err) < 0)
        die(err.text);
    if (options.cert_file)
        on_trust(NULL, NULL);
    sd_event_loop(event);
    channel_free(channel);
    trust_free(trust);
    identity_serve(NULL);
}

int main(int argc, char **argv)
{
    struct access access;
    struct error err = {0};
    sigset_t set;

    if (argc < 4)
        die("read the comment");
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    if (access_load(argv[1], NULL, &access, &err) < 0)
        die(err.text);
    if (sd_event_new(&event) < 0 || sd_event_add_signal(event, NULL, SIGTERM, on_term, NULL) < 0 ||
        client_new(event, &access, NULL, &client, &err) < 0)
        die(err.text);
    if (strcmp(argv[2], "watch") == 0)
        watch(argv[3]);
    else if (strcmp(argv[2], "lease") == 0 && argc >= 6)
        hold(argc - 3, argv + 3);
    else if (strcmp(argv[2], "ask") == 0 && argc >= 5)
        ask(argv[3], argv[4], argv[5]);
    else if (strcmp(argv[2], "burst") == 0 && argc == 5)
        burst((unsigned)atoi(argv[3]), argv[4]);
    else if (strcmp(argv[2], "channel") == 0 && argc >= 5)
        serve(argv + 3);
    else
        die("read the comment");
    client_free(client);
    sd_event_unref(event);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/kubectl/cluster_page.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "host/net/door.h"
#include "host/net/ends.h"
#include "kube/kubectl/cluster_look.h"
#include "kube/object/object.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ERROR_WORD "page-not-served"

#define COMMAND    "kubectl tide dashboard"
#define FRESH_NS   (2 * NS_PER_S) /* a look serves all that ask for so long */
#define REST       4              /* … and for so many times as long as it took */
#define PIECE      "limit=500"    /* of a list */
#define PIECES_MAX 400            /* 200,000 pods */
#define WAITING    64

enum step { LOOK_TRAININGS, LOOK_NODES, LOOK_PODS, LOOK_DONE };

struct page {
    struct kubectl *k;
    struct door *door;
    struct cluster_look look; /* the one under way */
    enum step step;
    int pieces;
    int64_t ticket; /* 0: no look is under way */
    uint64_t begun_ns, ended_ns, took_ns;
    char *text; /* of the last look; NULL: it failed */
    char problem[512];
    struct httpd_request *waiting[WAITING];
};

static const char *const lists[] = {"trainings", "nodes", "pods"};

static int64_t wall_ns(void)
{
    return (int64_t)clock_real_ms() * (int64_t)NS_PER_MS;
}

/* ---- answers --------------------------------------------------------------------------------- */

static void answer(const struct page *p, struct httpd_request *r)
{
    if (p->text)
        httpd_answer(r, 200, "application/json", strdup(p->text), false);
    else
        door_refuse(r, 502, p->problem, "");
}

static void answer_all(struct page *p)
{
    for (int i = 0; i < WAITING; i++) {
        struct httpd_request *r = p->waiting[i];

        p->waiting[i] = NULL;
        if (r)
            answer(p, r);
    }
}

static void end_look(struct page *p, const char *problem)
{
    free(p->text);
    p->text = problem ? NULL : cluster_look_text(&p->look, wall_ns());
    snprintf(p->problem, sizeof(p->problem), "%s", problem ? problem : "out of memory");
    cluster_look_done(&p->look);
    p->step = LOOK_DONE;
    p->ended_ns = clock_now_ns();
    p->took_ns = p->ended_ns - p->begun_ns;
    answer_all(p);
}

/* ---- a look: lists, one after another -------------------------------------------------------- */

static void ask(struct page *p, const char *next);

static void take(struct page *p, const json_t *items)
{
    if (p->step == LOOK_TRAININGS)
        cluster_look_trainings(&p->look, items);
    else if (p->step == LOOK_NODES)
        cluster_look_nodes(&p->look, items, wall_ns());
    else
        cluster_look_pods(&p->look, items);
}

static void on_list(void *arg, const struct client_answer *a)
{
    const char *next, *message;
    struct page *p = arg;

    p->ticket = 0;
    if (a->code < 0 && a->status == 0) {
        end_look(p, a->text);
        return;
    }
    if (a->code < 0) { /* what is not allowed, or not installed, leaves a gap */
        message = json_string_value(json_object_get(a->body, "message"));
        cluster_look_problem(&p->look, lists[p->step], message ? message : a->text);
    } else {
        take(p, json_object_get(a->body, "items"));
    }
    next = json_string_value(json_object_get(json_object_get(a->body, "metadata"), "continue"));
    if (a->code == 0 && next && *next && ++p->pieces < PIECES_MAX) {
        ask(p, next);
        return;
    }
    p->pieces = 0;
    p->step++;
    if (p->step == LOOK_PODS && !p->look.nodes) /* nothing to count them on */
        p->step++;
    if (p->step == LOOK_DONE)
        end_look(p, NULL);
    else
        ask(p, NULL);
}

static int path_of(const struct page *p, const char *next, char *ret, size_t size)
{
    char base[1200], token[4096] = "";
    int n;

    if (next && client_escape(next, token, sizeof(token)) < 0)
        return -ENAMETOOLONG;
    if (p->step == LOOK_TRAININGS && kubectl_path(p->k, NULL, base, sizeof(base)) < 0)
        return -ENAMETOOLONG;
    if (p->step != LOOK_TRAININGS)
        snprintf(base, sizeof(base), "/api/v1/%s", lists[p->step]);
    n = snprintf(ret, size, "%s?" PIECE "%s%s%s", base,
                 p->step == LOOK_PODS
                     ? "&fieldSelector=status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed"
                     : "",
                 next ? "&continue=" : "", token);
    return n < (int)size ? 0 : -ENAMETOOLONG;
}

static void ask(struct page *p, const char *next)
{
    char path[6000];
    struct client_request request = {
        .verb = CLIENT_GET, .path = path, .done = on_list, .arg = p, .timeout_ms = 30000};

    if (path_of(p, next, path, sizeof(path)) < 0) {
        end_look(p, "the API server's token for the rest of a list is too long");
        return;
    }
    p->ticket = client_send(p->k->client, &request);
    if (p->ticket < 0) {
        p->ticket = 0;
        end_look(p, "out of memory");
    }
}

static void begin_look(struct page *p)
{
    if (p->ticket)
        return;
    p->begun_ns = clock_now_ns();
    if (cluster_look_begin(&p->look) < 0) {
        end_look(p, "out of memory");
        return;
    }
    p->step = LOOK_TRAININGS;
    p->pieces = 0;
    ask(p, NULL);
}

/* ---- requests of the page -------------------------------------------------------------------- */

static bool is_fresh(const struct page *p)
{
    uint64_t rest = p->took_ns * REST;

    return p->text && clock_now_ns() - p->ended_ns < (rest > FRESH_NS ? rest : FRESH_NS);
}

static void on_cluster(struct page *p, struct httpd_request *r)
{
    int i = 0;

    if (is_fresh(p)) {
        answer(p, r);
        return;
    }
    while (i < WAITING && p->waiting[i])
        i++;
    if (i == WAITING) {
        door_refuse(r, 503, "too many pages ask at once", "");
        return;
    }
    p->waiting[i] = r;
    begin_look(p);
}

static void on_session(struct page *p, struct httpd_request *r)
{
    json_t *body =
        json_pack("{s:s,s:s,s:s,s:o}", "server", "cluster", "user",
                  p->k->context ? p->k->context : "", "version", TIDE_VERSION, "namespace",
                  p->k->all_spaces ? json_null() : json_string(p->k->name_space));

    httpd_answer(r, 200, "application/json", body ? json_dumps(body, JSON_COMPACT) : NULL, false);
    json_decref(body);
}

static void on_request(void *arg, struct httpd_request *r)
{
    struct page *p = arg;

    if (door_changes(r))
        door_refuse(r, 405, "this page only shows the cluster and changes nothing",
                    "Use kubectl tide scale, pause, resume.");
    else if (strcmp(r->path, "/v1/session") == 0)
        on_session(p, r);
    else if (strcmp(r->path, "/v1/cluster") == 0)
        on_cluster(p, r);
    else
        door_refuse(r, 404, "there is no such path", "/v1/session and /v1/cluster are there.");
}

static void on_over(void *arg, struct httpd_request *r)
{
    struct page *p = arg;

    for (int i = 0; i < WAITING; i++)
        if (p->waiting[i] == r)
            p->waiting[i] = NULL;
}

/* ---- the command ----------------------------------------------------------------------------- */

int cluster_page_serve(struct kubectl *k, long port, bool browser)
{
    struct page p = {.k = k, .step = LOOK_DONE};
    struct door_options options = {
        .command = COMMAND, .port = port, .handler = on_request, .over = on_over, .arg = &p};
    struct error err = {0};
    int r = ends_by_signals(k->event, true, NULL, NULL);

    if (r >= 0)
        r = door_new(k->event, &options, &p.door, &err);
    if (r < 0) {
        error_print(error_why(&err), "error: %s", err.text[0] ? err.text : strerror(-r));
        return r;
    }
    printf("%s\n", door_link(p.door));
    if (isatty(STDOUT_FILENO))
        puts("The link works once. Ctrl-C ends the page.");
    fflush(stdout);
    if (browser)
        door_open_browser(p.door);
    r = sd_event_loop(k->event);
    if (p.ticket)
        client_cancel(k->client, p.ticket);
    door_free(p.door);
    cluster_look_done(&p.look);
    free(p.text);
    return r < 0 ? r : 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/shell/act.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "kube/shell/action_queue.h"
#include "kube/shell/event_series.h"
#include "kube/shell/workload.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define PATH_LEN    1024
#define EVENTS_PATH "/apis/events.k8s.io/v1/namespaces/%s/events%s%s"

/* One request, built from an action while the plan exists. */
struct step {
    struct step *next;
    json_t *body; /* or the members */
    enum kube_action_kind kind;
    enum client_verb verb;
    enum kube_role role; /* of KUBE_CREATE_POD */
    uint32_t index;
    char path[PATH_LEN];
};

/* The actions of one training. */
struct chain {
    struct chain *next;
    struct actor *actor;
    struct step *first;
    int64_t call;
    char uid[WORK_KEY_MAX];
    char space[KUBE_NAME_MAX + 1], name[KUBE_NAME_MAX + 1];
};

struct actor {
    struct client *client;
    struct actor_events on;
    const struct kube_pod_settings *settings;
    const char *identity;
    struct work_queue *work;
    struct chain *chains;
    struct event_series_set *notes;
    uint64_t done[KUBE_ACTION_MAX], failed, events;
};

/* ---- requests of actions ---- */

static const char *etj_path(char *path, const struct kube_etj *etj, const char *tail)
{
    snprintf(path, PATH_LEN,
             "/apis/" KUBE_GROUP "/" KUBE_VERSION "/namespaces/%s/" KUBE_PLURAL "/%s%s",
             etj->meta.namespace, etj->meta.name, tail);
    return path;
}

static void core_path(char *path, const char *space, const char *kind, const char *name,
                      const char *tail)
{
    snprintf(path, PATH_LEN, "/api/v1/namespaces/%s/%s%s%s%s", space, kind, name ? "/" : "",
             name ? name : "", tail);
}

/* The UID makes the server answer with a conflict if another object has the name by now. */
static json_t *of_uid(json_t *body, const char *uid)
{
    json_t *meta = json_object_get(body, "metadata");

    if (body && !meta) {
        meta = json_object();
        json_object_set_new(body, "metadata", meta);
    }
    json_object_set_new(meta, "uid", json_string(uid));
    return body;
}

static const char *name_of(const json_t *object)
{
    const char *name =
        json_string_value(json_object_get(json_object_get(object, "metadata"), "name"));

    return name ? name : "";
}

static json_t *delete_options(const char *uid, int32_t grace_s)
{
    json_t *options = json_pack("{s:s,s:s,s:{s:s}}", "apiVersion", "v1", "kind", "DeleteOptions",
                                "preconditions", "uid", uid);

    if (options && grace_s >= 0)
        json_object_set_new(options, "gracePeriodSeconds", json_integer(grace_s));
    return options;
}

static void of_pod(struct step *s, const struct kube_action *action)
{
    const struct kube_pod *pod = action->pod;
    const char *space = pod->meta.namespace, *name = pod->meta.name;

    s->verb = CLIENT_STRATEGIC;
    if (action->kind == KUBE_ASK_LEAVE) {
        core_path(s->path, space, "pods", name, "");
        s->body = of_uid(kube_leave_json(action->note.text), pod->meta.uid);
    } else if (action->kind == KUBE_RESIZE_POD) {
        core_path(s->path, space, "pods", name, "/resize");
        s->body = of_uid(kube_resize_json(pod, action->resize.mcpu, action->resize.limit_mcpu),
                         pod->meta.uid);
    } else {
        s->verb = CLIENT_DELETE;
        core_path(s->path, space, "pods", name, "");
        s->body = delete_options(pod->meta.uid, action->delete.grace_s);
    }
}

static void workload_path(char *path, const struct kube_queueing *q, const char *space,
                          const char *tail)
{
    snprintf(path, PATH_LEN, "/apis/" KUBE_KUEUE_GROUP "/%s/namespaces/%s/workloads%s%s%s",
             q->version, space, q->workload ? "/" : "", q->workload ? q->workload->meta.name : "",
             tail);
}

static int of_workload(struct step *s, struct actor *a, const struct kube_action *action)
{
    const struct kube_queueing *q = &action->queueing;
    const char *space = action->etj->meta.namespace;
    struct kube_queueing none = *q;

    s->verb = CLIENT_MERGE;
    switch (action->kind) {
    case KUBE_MAKE_WORKLOAD:
        s->verb = CLIENT_POST;
        none.workload = NULL;
        workload_path(s->path, &none, space, "");
        s->body = kube_workload_json(a->settings, action->etj, q);
        break;
    case KUBE_TURN_WORKLOAD:
        workload_path(s->path, q, space, "");
        s->body = kube_workload_turn_json(q);
        break;
    case KUBE_TELL_WORKLOAD:
        workload_path(s->path, q, space, "/status");
        s->body = kube_workload_news_json(q);
        break;
    default:
        s->verb = CLIENT_DELETE;
        workload_path(s->path, q, space, "");
        s->body = delete_options(q->workload->meta.uid, -1);
    }
    return s->body ? 0 : -ENOMEM;
}

/* A repeated event is not written again: its Event object counts the repetitions. */
static int of_event(struct step *s, struct actor *a, const struct kube_action *action)
{
    const struct kube_meta *meta = &action->etj->meta;
    struct event_series note = {
        .uid = meta->uid, .reason = action->note.reason, .text = action->note.text};
    struct timespec ts;
    int64_t wall_ns;

    clock_gettime(CLOCK_REALTIME, &ts);
    wall_ns = (int64_t)ts.tv_sec * (int64_t)NS_PER_S + ts.tv_nsec;
    snprintf(note.name, sizeof(note.name), "%.200s.%" PRIx64 ".%x", meta->name, (uint64_t)wall_ns,
             (unsigned)(a->events++ & 0xffff));
    s->verb = CLIENT_POST;
    switch (event_series_next(a->notes, &note, clock_now_ns())) {
    case EVENT_SERIES_NEW:
        snprintf(s->path, PATH_LEN, EVENTS_PATH, meta->namespace, "", "");
        s->body = kube_event_json(action, note.name, a->identity, wall_ns);
        break;
    case EVENT_SERIES_AGAIN:
        s->verb = CLIENT_MERGE;
        snprintf(s->path, PATH_LEN, EVENTS_PATH, meta->namespace, "/", note.name);
        s->body = event_series_patch(&note, wall_ns);
        break;
    default:
        s->verb = CLIENT_VERB_MAX; /* nothing to send */
        return 0;
    }
    return s->body ? 0 : -ENOMEM;
}

static struct step *add_step(struct chain *c, enum kube_action_kind kind)
{
    struct step **at = &c->first, *s = calloc(1, sizeof(*s));

    while (*at)
        at = &(*at)->next;
    *at = s;
    if (s)
        s->kind = kind;
    return s;
}

/*
 * Takes @body. Never applies it at once, since the name may be somebody else's: see claim(). Only
 * pods are created without asking first: the others already exist when a new leader looks.
 */
static int make(struct step *s, const char *space, const char *kind, json_t *body)
{
    s->verb = s->kind == KUBE_CREATE_POD ? CLIENT_POST : CLIENT_GET;
    s->body = body;
    core_path(s->path, space, kind, NULL, "");
    return body ? 0 : -ENOMEM;
}

/* The service, and the ConfigMap with the authority that the chief has to trust. */
static int of_service(struct chain *c, const struct kube_action *action)
{
    const char *space = action->etj->meta.namespace;
    struct step *s = add_step(c, action->kind);
    int r = s ? make(s, space, "services", kube_service_json(action->etj)) : -ENOMEM;

    if (r < 0 || !c->actor->settings->ca_pem)
        return r;
    s = add_step(c, action->kind);
    return s ? make(s, space, "configmaps", kube_config_json(c->actor->settings, action->etj))
             : -ENOMEM;
}

static int add_action(struct chain *c, const struct kube_action *action)
{
    const struct kube_etj *etj = action->etj;
    struct step *s;

    if (action->kind == KUBE_CREATE_SERVICE)
        return of_service(c, action);
    s = add_step(c, action->kind);
    if (!s)
        return -ENOMEM;
    s->verb = CLIENT_APPLY;
    switch (action->kind) {
    case KUBE_ADD_FINALIZER:
        etj_path(s->path, etj, "");
        s->body = of_uid(kube_finalizer_json(etj), etj->meta.uid);
        break;
    case KUBE_REMOVE_FINALIZER:
        s->verb = CLIENT_JSON;
        etj_path(s->path, etj, "");
        s->body = kube_let_go_json(etj);
        break;
    case KUBE_PATCH_STATUS:
        etj_path(s->path, etj, "/status");
        s->body = of_uid(kube_status_json(etj, action->status), etj->meta.uid);
        break;
    case KUBE_CREATE_POD:
        s->role = action->create.role;
        s->index = action->create.index;
        return make(s, etj->meta.namespace, "pods",
                    kube_pod_json(c->actor->settings, etj, &action->create));
    case KUBE_SET_MEMBERS:
        s->body = kube_members_json(action->members);
        break;
    case KUBE_EVENT:
        return of_event(s, c->actor, action);
    case KUBE_MAKE_WORKLOAD:
    case KUBE_TURN_WORKLOAD:
    case KUBE_TELL_WORKLOAD:
    case KUBE_DELETE_WORKLOAD:
        return of_workload(s, c->actor, action);
    default:
        of_pod(s, action);
    }
    return s->body ? 0 : -ENOMEM;
}

/* ---- chains ---- */

static void drop_step(struct chain *c)
{
    struct step *s = c->first;

    c->first = s->next;
    json_decref(s->body);
    free(s);
}

static struct chain *chain_free(struct chain *c)
{
    while (c->first)
        drop_step(c);
    free(c);
    return NULL;
}

static void unlink_chain(struct chain *c)
{
    struct chain **at = &c->actor->chains;

    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
}

static void end_chain(struct chain *c, bool good)
{
    struct actor *a = c->actor;

    unlink_chain(c);
    work_end(a->work, c->uid, good, clock_now_ns());
    if (!good)
        a->on.dropped(a->on.arg, c->space, c->name, c->uid);
    chain_free(c);
    a->on.ended(a->on.arg);
}

static void advance(struct chain *c);
static void claim(struct chain *c);
static void send(struct chain *c, struct client_request *request);

/* Whether this failure means success: we, before a crash, or somebody else did it already. */
static bool is_done(const struct step *s, const struct client_answer *answer)
{
    switch (s->kind) {
    case KUBE_DELETE_POD:
    case KUBE_DELETE_WORKLOAD:
    case KUBE_TURN_WORKLOAD:
    case KUBE_TELL_WORKLOAD: /* one of Kueue's own has come first: the next look decides anew */
        return answer->code == -ENOENT || answer->code == -EAGAIN;
    case KUBE_ASK_LEAVE:
    case KUBE_REMOVE_FINALIZER:
        return answer->code == -ENOENT;
    case KUBE_EVENT: /* nothing rests on it */
        return true;
    default:
        return false;
    }
}

/* Reports the server's final answer to the first action to the controller. */
static void tell_answer(struct chain *c, int code, const char *text)
{
    const struct step *s = c->first;
    const struct kube_answer answer = {
        .kind = s->kind, .role = s->role, .index = s->index, .code = code, .text = text};

    c->actor->on.answered(c->actor->on.arg, c->space, c->name, c->uid, &answer);
}

static bool makes(const struct step *s)
{
    return s->kind == KUBE_CREATE_SERVICE || s->kind == KUBE_CREATE_POD;
}

/* Drops the refused first action, the actions that rest on it, and the events that report them. */
static void give_up(struct chain *c)
{
    struct step **at = &c->first->next;
    bool gone = true;

    while (*at) {
        struct step *s = *at;
        bool rests = makes(c->first) ? makes(s) : s->kind == c->first->kind;

        gone = rests || (gone && s->kind == KUBE_EVENT);
        if (!gone) {
            at = &s->next;
            continue;
        }
        gone = rests;
        *at = s->next;
        json_decref(s->body);
        free(s);
    }
    drop_step(c);
    advance(c);
}

static void fail(struct chain *c, int code, const char *text)
{
    struct actor *a = c->actor;
    bool alone = makes(c->first) || c->first->kind == KUBE_RESIZE_POD ||
                 c->first->kind >= KUBE_MAKE_WORKLOAD;
    bool refused = code == -EINVAL || code == -EACCES || code == -EEXIST || code == -ESHUTDOWN ||
                   (alone && code == -EREMOTEIO); /* mostly a webhook that does not answer */

    a->on.failed(a->on.arg, text);
    a->failed++;
    if (refused)
        tell_answer(c, code, text);
    if (refused && alone)
        give_up(c);
    else
        end_chain(c, false);
}

static void succeed(struct chain *c, json_t *object)
{
    struct actor *a = c->actor;

    a->done[c->first->kind]++;
    if (!c->first->next || c->first->next->kind != KUBE_CREATE_SERVICE) /* which is two objects */
        tell_answer(c, 0, "");
    if (object)
        a->on.learnt(a->on.arg, c->first->kind, object);
    drop_step(c);
    advance(c);
}

static void on_answer(void *arg, const struct client_answer *answer)
{
    struct chain *c = arg;
    struct actor *a = c->actor;
    struct step *s = c->first;

    c->call = 0;
    if (answer->code == -EEXIST && s->kind != KUBE_EVENT) {
        claim(c);
        return;
    }
    if (answer->code < 0 && answer->code != -ESHUTDOWN && s->kind == KUBE_EVENT)
        a->on.failed(a->on.arg, answer->text);
    if (answer->code == 0 || is_done(s, answer))
        succeed(c, answer->code == 0 ? answer->body : NULL);
    else
        fail(c, answer->code, answer->text);
}

/* ---- what exists under the name of what is made ---- */

static bool is_of(const json_t *object, const char *uid)
{
    const json_t *meta = json_object_get(object, "metadata");
    json_t *owner;
    size_t i;

    json_array_foreach (json_object_get(meta, "ownerReferences"), i, owner) {
        const char *its = json_string_value(json_object_get(owner, "uid"));

        if (its && json_is_true(json_object_get(owner, "controller")) && strcmp(its, uid) == 0)
            return true;
    }
    return false;
}

/* Whether @have contains all of @want; @have also has the API server's defaults. */
static bool holds(const json_t *have, const json_t *want)
{
    const char *key;
    json_t *value;
    size_t i;

    if (json_is_object(want)) {
        json_object_foreach ((json_t *)want, key, value)
            if (!holds(json_object_get(have, key), value))
                return false;
        return true;
    }
    if (!json_is_array(want) || json_array_size(have) != json_array_size(want))
        return json_equal(have, want);
    json_array_foreach (want, i, value)
        if (!holds(json_array_get(have, i), value))
            return false;
    return true;
}

/* The name exists. If it is this training's, a pod stays as it is, and other kinds are updated. */
static void on_claimed(void *arg, const struct client_answer *answer)
{
    struct chain *c = arg;
    struct step *s = c->first;
    size_t len = strlen(s->path);
    char text[ERROR_TEXT_MAX];

    c->call = 0;
    if (answer->code == -ENOENT) {
        s->verb = CLIENT_POST;
        advance(c);
    } else if (answer->code < 0) {
        fail(c, answer->code, answer->text);
    } else if (!is_of(answer->body, c->uid)) {
        snprintf(text, sizeof(text), "%s %.100s is there already, and not this training's",
                 json_string_value(json_object_get(s->body, "kind")), name_of(s->body));
        fail(c, -EEXIST, text);
    } else if (s->kind == KUBE_CREATE_POD || s->kind == KUBE_MAKE_WORKLOAD ||
               holds(answer->body, s->body)) {
        succeed(c, answer->body);
    } else {
        s->verb = CLIENT_APPLY;
        snprintf(s->path + len, sizeof(s->path) - len, "/%s", name_of(s->body));
        of_uid(s->body, json_string_value(
                            json_object_get(json_object_get(answer->body, "metadata"), "uid")));
        advance(c);
    }
}

/* Asks whose object it is with an empty patch, which changes nothing and needs no right to read. */
static void claim(struct chain *c)
{
    json_t *nothing = json_object();
    char path[PATH_LEN + KUBE_NAME_MAX + 2];

    snprintf(path, sizeof(path), "%s/%s", c->first->path, name_of(c->first->body));
    send(c, &(struct client_request){
                .verb = CLIENT_MERGE, .path = path, .body = nothing, .done = on_claimed, .arg = c});
    json_decref(nothing);
}

/* ---- one after the other ---- */

/* Asked at sending: another replica may have taken the lease while the request waited. */
static bool is_allowed(void *arg)
{
    const struct chain *c = arg;

    return c->actor->on.allowed(c->actor->on.arg);
}

static void send(struct chain *c, struct client_request *request)
{
    request->allowed = is_allowed;
    c->call = client_send(c->actor->client, request);
    if (c->call < 0) {
        c->call = 0;
        end_chain(c, false);
    }
}

static void advance(struct chain *c)
{
    struct actor *a = c->actor;
    struct client_request request = {.done = on_answer, .arg = c};

    while (c->first && (c->first->kind == KUBE_SET_MEMBERS || c->first->verb == CLIENT_VERB_MAX)) {
        a->done[c->first->kind]++;
        if (c->first->kind == KUBE_SET_MEMBERS)
            a->on.members(a->on.arg, c->uid, TAKE_PTR(c->first->body));
        drop_step(c);
    }
    if (!c->first) {
        end_chain(c, true);
        return;
    }
    if (c->first->verb == CLIENT_GET) {
        claim(c);
        return;
    }
    request.verb = c->first->verb;
    request.path = c->first->path;
    request.body = c->first->body;
    send(c, &request);
}

/* Builds a chain of the actions from @first on that belong to one training. */
static struct chain *make_chain(struct actor *a, const struct kube_plan *plan, size_t first,
                                size_t end)
{
    const struct kube_meta *meta = &plan->actions[first].etj->meta;
    struct chain *c = calloc(1, sizeof(*c));
    int r = c ? 0 : -ENOMEM;

    if (!c)
        return NULL;
    c->actor = a;
    snprintf(c->uid, sizeof(c->uid), "%s", meta->uid);
    snprintf(c->space, sizeof(c->space), "%s", meta->namespace);
    snprintf(c->name, sizeof(c->name), "%s", meta->name);
    for (size_t i = first; i < end && r == 0; i++)
        r = add_action(c, &plan->actions[i]);
    return r < 0 ? chain_free(c) : c;
}

static void drop(struct actor *a, const struct kube_meta *meta)
{
    a->on.dropped(a->on.arg, meta->namespace, meta->name, meta->uid);
}

bool actor_holds(const struct actor *a, const char *uid, uint64_t now)
{
    return !work_may_begin(a->work, uid, now);
}

void actor_begin(struct actor *a, const struct kube_plan *plan, uint64_t now)
{
    struct chain *begun = NULL, *c;

    for (size_t first = 0, end; first < plan->count; first = end) {
        const struct kube_etj *etj = plan->actions[first].etj;

        for (end = first; end < plan->count && plan->actions[end].etj == etj;)
            end++;
        if (!work_begin(a->work, etj->meta.uid, now)) {
            drop(a, &etj->meta);
            continue;
        }
        c = make_chain(a, plan, first, end);
        if (!c) {
            work_end(a->work, etj->meta.uid, false, now);
            drop(a, &etj->meta);
            continue;
        }
        c->next = begun;
        begun = c;
    }
    work_settle(a->work, now);
    /* all chains are built before the first advances, since that may call the owner back */
    while ((c = begun)) {
        begun = c->next;
        c->next = a->chains;
        a->chains = c;
        advance(c);
    }
}

void actor_stop(struct actor *a)
{
    while (a->chains) {
        struct chain *c = a->chains;

        client_cancel(a->client, c->call);
        a->chains = c->next;
        work_forget(a->work, c->uid);
        a->on.dropped(a->on.arg, c->space, c->name, c->uid);
        chain_free(c);
    }
}

/* ---- the actor ---- */

int actor_new(struct client *client, const struct actor_events *events,
              const struct kube_pod_settings *settings, const char *identity, struct actor **ret)
{
    struct actor *a = calloc(1, sizeof(*a));

    if (!a)
        return -ENOMEM;
    a->client = client;
    a->on = *events;
    a->settings = settings;
    a->identity = identity;
    a->work = work_new(WORK_BASE_NS, WORK_CAP_NS);
    a->notes = event_series_new();
    if (!a->work || !a->notes) {
        actor_free(a);
        return -ENOMEM;
    }
    *ret = a;
    return 0;
}

struct actor *actor_free(struct actor *a)
{
    if (!a)
        return NULL;
    actor_stop(a);
    work_free(a->work);
    event_series_free(a->notes);
    free(a);
    return NULL;
}

uint64_t actor_next_ns(const struct actor *a)
{
    return work_next_ns(a->work);
}

unsigned actor_busy(const struct actor *a)
{
    return work_busy(a->work);
}

uint64_t actor_done(const struct actor *a, enum kube_action_kind kind)
{
    return a->done[kind];
}

uint64_t actor_failed(const struct actor *a)
{
    return a->failed;
}

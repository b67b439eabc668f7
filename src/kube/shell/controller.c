/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/shell/controller.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fnv.h"
#include "kube/api/discovery.h"
#include "kube/core/reconcile.h"
#include "kube/shell/object_cache.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <string.h>

#define ERROR_WORD "chief-refused"

struct feed {
    struct controller *controller;
    struct watch *watch;
    struct cache cache;
};

struct controller {
    struct client *client;
    sd_event *event;
    struct discovery *kueue;
    const struct controller_options *options;
    struct actor *actor;
    struct kube_memory *memory;
    sd_event_source *timer;
    struct feed feeds[CACHE_KIND_MAX];
    struct kube_report **reports;
    size_t n_reports, reports_size;
    bool *held; /* as in kube_world */
    size_t held_size;
    json_t *members; /* UID of a training → what its chief is answered */
    uint64_t due_ns; /* of the next look; UINT64_MAX: none */
    uint64_t looked_ns, looks, look_ns, look_max_ns, unreadable;
    bool leading;
};

/*
 * A controller of one namespace watches spaced kinds in that namespace alone. It watches the pods
 * of all namespaces even then, since foreign pods use room, too.
 */
static const struct {
    const char *api, *plural;
    bool spaced;
} kinds[] = {
    [CACHE_NODES] = {"/api/v1", "nodes", false},
    [CACHE_PODS] = {"/api/v1", "pods", false},
    [CACHE_ETJS] = {"/apis/" KUBE_GROUP "/" KUBE_VERSION, KUBE_PLURAL, true},
    [CACHE_QUOTAS] = {"/api/v1", "resourcequotas", true},
    [CACHE_PDBS] = {"/apis/policy/v1", "poddisruptionbudgets", true},
    [CACHE_WORKLOADS] = {NULL, "workloads", true}, /* of Kueue's group, in the version it serves */
    [CACHE_FLAVORS] = {NULL, "resourceflavors", false},
    [CACHE_QUEUE_CLASSES] = {NULL, "workloadpriorityclasses", false},
    [CACHE_CLASSES] = {"/apis/scheduling.k8s.io/v1", "priorityclasses", false},
};
static_assert(ARRAY_LEN(kinds) == CACHE_KIND_MAX, "an entry for each kind");

static void say(struct controller *c, const char *text)
{
    c->options->log(c->options->arg, text);
}

/* ---- when to look ---- */

static void wish(struct controller *c, unsigned in_ms)
{
    uint64_t due = clock_now_ns() + in_ms * NS_PER_MS;

    if (due < c->looked_ns + CONTROLLER_GAP_MS * NS_PER_MS)
        due = c->looked_ns + CONTROLLER_GAP_MS * NS_PER_MS;
    if (due >= c->due_ns)
        return;
    c->due_ns = due;
    sd_event_source_set_time(c->timer, due / NS_PER_US + 1);
    sd_event_source_set_enabled(c->timer, SD_EVENT_ONESHOT);
}

/* A time that is too far away for the timer is as good as never: it looks once in 49 days. */
static void wish_at(struct controller *c, uint64_t at_ns)
{
    uint64_t now = clock_now_ns();
    uint64_t in_ms = at_ns <= now ? 0 : (at_ns - now) / NS_PER_MS + 1;

    wish(c, in_ms < UINT_MAX ? (unsigned)in_ms : UINT_MAX);
}

void controller_wake(struct controller *c)
{
    wish(c, CONTROLLER_BATCH_MS);
}

/* ---- reports and members ---- */

static size_t find_report(const struct controller *c, const char *name_space, const char *job)
{
    size_t i = 0;

    while (i < c->n_reports && (strcmp(c->reports[i]->job, job) != 0 ||
                                strcmp(c->reports[i]->namespace, name_space) != 0))
        i++;
    return i;
}

/* Whether @b differs from @a in a fact that decisions wait for. */
static bool is_news(const struct kube_report *a, const struct kube_report *b)
{
    if (a->finished != b->finished || a->node_count != b->node_count ||
        strcmp(a->chief_uid, b->chief_uid) != 0)
        return true;
    for (uint32_t i = 0; i < a->node_count; i++)
        if (a->nodes[i].role != b->nodes[i].role || a->nodes[i].state != b->nodes[i].state ||
            a->nodes[i].index != b->nodes[i].index || a->nodes[i].threads != b->nodes[i].threads)
            return true;
    return false;
}

/* Takes @report over. */
static int keep_report(struct controller *c, struct kube_report *report)
{
    size_t i = find_report(c, report->namespace, report->job);
    bool news = i == c->n_reports || is_news(c->reports[i], report);

    if (i == c->n_reports) {
        if (i == c->reports_size) {
            size_t size = i ? i * 2 : 16;
            struct kube_report **more =
                size > CONTROLLER_REPORTS_MAX ? NULL : realloc(c->reports, size * sizeof(*more));

            if (!more)
                return -ENOMEM;
            c->reports = more;
            c->reports_size = size;
        }
        c->reports[c->n_reports++] = NULL;
    }
    kube_report_free(c->reports[i]);
    c->reports[i] = report;
    wish(c, news ? CONTROLLER_BATCH_MS : CONTROLLER_REPORT_MS);
    return 0;
}

static void forget_training(struct controller *c, const char *name_space, const char *job,
                            const char *uid)
{
    size_t i = find_report(c, name_space, job);

    json_object_del(c->members, uid);
    if (i == c->n_reports)
        return;
    kube_report_free(c->reports[i]);
    c->reports[i] = c->reports[--c->n_reports];
}

static bool is_present_chief(const struct controller *c, const struct kube_etj *etj,
                             const char *uid)
{
    char name[KUBE_NAME_MAX + 1];
    const struct kube_pod *pod;

    kube_pod_name(etj, KUBE_CHIEF, 0, name);
    pod = cache_find(&c->feeds[CACHE_PODS].cache, etj->meta.namespace, name);
    return pod && strcmp(pod->meta.uid, uid) == 0 && pod->owner_uid &&
           strcmp(pod->owner_uid, etj->meta.uid) == 0;
}

unsigned controller_report(void *arg, struct kube_report *report, json_t **ret_members,
                           struct error *err)
{
    struct controller *c = arg;
    const struct kube_etj *etj =
        cache_find(&c->feeds[CACHE_ETJS].cache, report->namespace, report->job);
    json_t *members = etj ? json_object_get(c->members, etj->meta.uid) : NULL;
    unsigned status = 200;

    if (!c->leading || !c->options->leading(c->options->arg) || !controller_synced(c)) {
        error_set(err, -EAGAIN, "another replica leads, or none yet: try again");
        status = 503;
    } else if (!etj) {
        error_set(err, -ENOENT, "there is no training of this name");
        status = 404;
    } else if (!is_present_chief(c, etj, report->chief_uid)) {
        error_set(err, -ESTALE, "this pod is not the training's present chief");
        status = 409;
    } else if (keep_report(c, report) < 0) {
        error_set(err, -ENOMEM, "out of memory");
        status = 503;
    } else {
        report = NULL;
        if (!members) { /* the report is kept all the same: decisions rest on it */
            error_set(err, -EAGAIN, "nothing is decided yet: try again");
            status = 503;
        }
    }
    kube_report_free(report);
    if (status == 200)
        *ret_members = json_incref(members);
    return status;
}

/* ---- looking ---- */

static bool kueue_synced(const struct controller *c)
{
    for (enum cache_kind kind = CACHE_WORKLOADS; kind < CACHE_KIND_MAX; kind++)
        if (!c->feeds[kind].watch || !watch_synced(c->feeds[kind].watch))
            return false;
    return true;
}

static void fill_kueue(const struct controller *c, struct kube_world *w)
{
    const struct cache *workloads = &c->feeds[CACHE_WORKLOADS].cache;
    const struct cache *flavors = &c->feeds[CACHE_FLAVORS].cache;
    const struct cache *classes = &c->feeds[CACHE_CLASSES].cache;
    const struct cache *queue_classes = &c->feeds[CACHE_QUEUE_CLASSES].cache;
    const char *version = discovery_version(c->kueue);

    w->kueue_version = version;
    w->kueue = version && !*version ? KUBE_KUEUE_ABSENT
               : kueue_synced(c)    ? KUBE_KUEUE_KNOWN
                                    : KUBE_KUEUE_UNKNOWN;
    if (w->kueue != KUBE_KUEUE_KNOWN)
        return;
    w->workloads = (const struct kube_workload *const *)workloads->items;
    w->workload_count = workloads->count;
    w->flavors = (const struct kube_flavor *const *)flavors->items;
    w->flavor_count = flavors->count;
    w->classes = (const struct kube_class *const *)classes->items;
    w->class_count = classes->count;
    w->queue_classes = (const struct kube_class *const *)queue_classes->items;
    w->queue_class_count = queue_classes->count;
}

static void fill_world(const struct controller *c, struct kube_world *w)
{
    const struct cache *nodes = &c->feeds[CACHE_NODES].cache, *pods = &c->feeds[CACHE_PODS].cache;
    const struct cache *etjs = &c->feeds[CACHE_ETJS].cache, *pdbs = &c->feeds[CACHE_PDBS].cache;
    const struct cache *quotas = &c->feeds[CACHE_QUOTAS].cache;

    *w = (struct kube_world){
        .now_ns = (int64_t)clock_now_ns(),
        .wall_ns = (int64_t)(clock_real_ms() * NS_PER_MS),
        .trust = fnv_text(FNV_START, c->options->pods->ca_pem ?: ""),
        .nodes = (const struct kube_node *const *)nodes->items,
        .node_count = nodes->count,
        .pods = (const struct kube_pod *const *)pods->items,
        .pod_count = pods->count,
        .etjs = (const struct kube_etj *const *)etjs->items,
        .etj_count = etjs->count,
        .quotas = (const struct kube_quota *const *)quotas->items,
        .quota_count = quotas->count,
        .pdbs = (const struct kube_pdb *const *)pdbs->items,
        .pdb_count = pdbs->count,
        .reports = (const struct kube_report *const *)c->reports,
        .report_count = c->n_reports,
    };
    fill_kueue(c, w);
}

/* Marks the trainings whose earlier actions are still under way. */
static int find_held(struct controller *c, struct kube_world *w)
{
    if (w->etj_count > c->held_size) {
        bool *more = realloc(c->held, 2 * w->etj_count * sizeof(*more));

        if (!more)
            return -ENOMEM;
        c->held = more;
        c->held_size = 2 * w->etj_count;
    }
    for (size_t i = 0; i < w->etj_count; i++)
        c->held[i] = actor_holds(c->actor, w->etjs[i]->meta.uid, (uint64_t)w->now_ns);
    w->held = c->held;
    return 0;
}

static void look(struct controller *c)
{
    struct kube_world world;
    struct kube_plan plan = {0};
    uint64_t begun = clock_now_ns(), took;
    int r;

    c->looked_ns = begun;
    fill_world(c, &world);
    r = find_held(c, &world);
    if (r == 0)
        r = kube_reconcile(c->options->settings, &world, c->memory, &plan);
    took = clock_now_ns() - begun;
    c->looks++;
    c->look_ns += took;
    c->look_max_ns = took > c->look_max_ns ? took : c->look_max_ns;
    if (r < 0) {
        say(c, "cannot decide: out of memory (tide why out-of-memory)");
        wish(c, CONTROLLER_REPORT_MS);
        return;
    }
    actor_begin(c->actor, &plan, begun);
    wish_at(c, (uint64_t)plan.wakeup_ns);
    wish_at(c, actor_next_ns(c->actor));
    kube_plan_done(&plan);
}

static int on_timer(sd_event_source *s, uint64_t usec, void *arg)
{
    struct controller *c = arg;

    c->due_ns = UINT64_MAX;
    if (c->leading && c->options->leading(c->options->arg) && controller_synced(c) &&
        c->options->pods->ca_pem)
        look(c);
    return 0;
}

/* ---- what comes in ---- */

static void on_change(void *arg, enum watch_change change, json_t *object)
{
    struct feed *f = arg;
    struct controller *c = f->controller;
    const char *plural = kinds[f->cache.kind].plural;
    const char *name =
        json_string_value(json_object_get(json_object_get(object, "metadata"), "name"));
    char text[ERROR_TEXT_MAX + 600];
    struct error err = {0};

    switch (change) {
    case WATCH_ADDED:
    case WATCH_CHANGED:
        if (cache_put(&f->cache, object, &err) < 0) {
            c->unreadable++;
            snprintf(text, sizeof(text), "%s: %s cannot be read: %s (tide why %s)", plural,
                     name ? name : "an object", err.text, error_why(&err));
            say(c, text);
        }
        break;
    case WATCH_DELETED:
        if (f->cache.kind == CACHE_ETJS) {
            const json_t *meta = json_object_get(object, "metadata");

            forget_training(c, json_string_value(json_object_get(meta, "namespace")),
                            json_string_value(json_object_get(meta, "name")),
                            json_string_value(json_object_get(meta, "uid")));
        }
        cache_remove(&f->cache, object);
        break;
    case WATCH_LOST:
        snprintf(text, sizeof(text), "lost the watch on %s: %s (tide why cluster-refused)", plural,
                 watch_trouble(f->watch));
        say(c, text);
        return;
    case WATCH_BACK:
        snprintf(text, sizeof(text), "watch on %s restored", plural);
        say(c, text);
        return;
    case WATCH_SYNCED:
        break;
    }
    wish(c, CONTROLLER_BATCH_MS);
}

/* ---- what act.c tells ---- */

static void on_learnt(void *arg, enum kube_action_kind kind, json_t *object)
{
    struct controller *c = arg;

    switch (kind) {
    case KUBE_ADD_FINALIZER:
    case KUBE_PATCH_STATUS:
        watch_learn(c->feeds[CACHE_ETJS].watch, object);
        break;
    case KUBE_CREATE_POD:
    case KUBE_ASK_LEAVE:
    case KUBE_RESIZE_POD:
        watch_learn(c->feeds[CACHE_PODS].watch, object);
        break;
    case KUBE_MAKE_WORKLOAD:
    case KUBE_TURN_WORKLOAD:
    case KUBE_TELL_WORKLOAD:
        if (c->feeds[CACHE_WORKLOADS].watch)
            watch_learn(c->feeds[CACHE_WORKLOADS].watch, object);
        break;
    default: /* a deleted object may be gone: the watch tells */
        break;
    }
}

static void on_members(void *arg, const char *uid, json_t *members)
{
    struct controller *c = arg;

    json_object_set_new(c->members, uid, members);
}

static void on_ended(void *arg)
{
    struct controller *c = arg;

    wish(c, CONTROLLER_BATCH_MS);
    wish_at(c, actor_next_ns(c->actor));
}

static void on_answered(void *arg, const char *name_space, const char *name, const char *uid,
                        const struct kube_answer *answer)
{
    struct controller *c = arg;
    const struct kube_etj *etj = cache_find(&c->feeds[CACHE_ETJS].cache, name_space, name);

    if (etj && strcmp(etj->meta.uid, uid) == 0)
        kube_memory_answer(c->memory, etj, answer, (int64_t)clock_now_ns());
}

static void on_dropped(void *arg, const char *name_space, const char *name, const char *uid)
{
    struct controller *c = arg;
    const struct kube_etj *etj = cache_find(&c->feeds[CACHE_ETJS].cache, name_space, name);

    if (etj && strcmp(etj->meta.uid, uid) == 0)
        kube_memory_doubt(c->memory, etj);
}

static void on_failed(void *arg, const char *text)
{
    char said[2 * ERROR_TEXT_MAX];

    snprintf(said, sizeof(said), "%s (tide why cluster-refused)", text);
    say(arg, said);
}

static bool may_act(void *arg)
{
    struct controller *c = arg;

    return c->leading && c->options->leading(c->options->arg);
}

/* ---- the controller ---- */

void controller_lead(struct controller *c, bool leading)
{
    struct kube_memory *memory = leading ? kube_memory_new() : NULL;

    c->leading = leading && memory;
    actor_stop(c->actor);
    json_object_clear(c->members);
    if (memory) {
        kube_memory_free(c->memory);
        c->memory = memory;
        /* the leader before us may have written objects that our watches have not brought yet */
        for (enum cache_kind kind = 0; kind < CACHE_KIND_MAX; kind++)
            if (c->feeds[kind].watch)
                watch_renew(c->feeds[kind].watch);
    }
    controller_wake(c);
}

static int start_feed(struct controller *c, sd_event *event, enum cache_kind kind)
{
    const char *space = c->options->name_space, *api = kinds[kind].api;
    struct feed *f = &c->feeds[kind];
    char path[400], group[200];
    int r = cache_init(&f->cache, kind);

    if (!api) {
        snprintf(group, sizeof(group), "/apis/" KUBE_KUEUE_GROUP "/%s",
                 discovery_version(c->kueue));
        api = group;
    }

    f->controller = c;
    if (space && kinds[kind].spaced)
        snprintf(path, sizeof(path), "%s/namespaces/%s/%s", api, space, kinds[kind].plural);
    else
        snprintf(path, sizeof(path), "%s/%s", api, kinds[kind].plural);
    return r < 0 ? r : watch_new(c->client, event, path, NULL, on_change, f, &f->watch);
}

static void stop_feed(struct controller *c, enum cache_kind kind)
{
    struct feed *f = &c->feeds[kind];

    f->watch = watch_free(f->watch);
    if (f->controller)
        cache_done(&f->cache);
    f->controller = NULL;
}

/* Kueue has come, has gone, or serves another version. */
static void on_kueue(void *arg)
{
    struct controller *c = arg;
    const char *version = discovery_version(c->kueue);
    int r = 0;

    for (enum cache_kind kind = CACHE_WORKLOADS; kind < CACHE_KIND_MAX; kind++) {
        stop_feed(c, kind);
        if (version && *version && r >= 0)
            r = start_feed(c, c->event, kind);
    }
    if (r < 0)
        say(c, "cannot watch Kueue's objects: trainings with a queue do not begin (tide why "
               "cluster-refused)");
    controller_wake(c);
}

int controller_new(struct client *client, sd_event *event, const struct controller_options *options,
                   struct controller **ret)
{
    struct controller *c = calloc(1, sizeof(*c));
    const struct actor_events events = {.answered = on_answered,
                                        .learnt = on_learnt,
                                        .members = on_members,
                                        .ended = on_ended,
                                        .dropped = on_dropped,
                                        .failed = on_failed,
                                        .allowed = may_act,
                                        .arg = c};
    int r;

    if (!c)
        return -ENOMEM;
    c->client = client;
    c->event = event;
    c->options = options;
    c->due_ns = UINT64_MAX;
    c->members = json_object();
    c->memory = kube_memory_new();
    r = c->members && c->memory ? 0 : -ENOMEM;
    if (r == 0)
        r = sd_event_add_time(event, &c->timer, CLOCK_MONOTONIC, 0, 1000, on_timer, c);
    if (r >= 0)
        r = sd_event_source_set_enabled(c->timer, SD_EVENT_OFF);
    if (r >= 0)
        r = actor_new(client, &events, options->pods, options->identity, &c->actor);
    for (enum cache_kind kind = 0; kind < CACHE_WORKLOADS && r >= 0; kind++)
        r = start_feed(c, event, kind);
    if (r >= 0)
        r = discovery_new(client, event, KUBE_KUEUE_GROUP, on_kueue, c, &c->kueue);
    if (r < 0) {
        controller_free(c);
        return r;
    }
    *ret = c;
    return 0;
}

struct controller *controller_free(struct controller *c)
{
    if (!c)
        return NULL;
    actor_free(c->actor);
    discovery_free(c->kueue);
    for (enum cache_kind kind = 0; kind < CACHE_KIND_MAX; kind++)
        stop_feed(c, kind);
    while (c->n_reports > 0)
        kube_report_free(c->reports[--c->n_reports]);
    free(c->reports);
    free(c->held);
    kube_memory_free(c->memory);
    json_decref(c->members);
    sd_event_source_disable_unref(c->timer);
    free(c);
    return NULL;
}

bool controller_synced(const struct controller *c)
{
    for (enum cache_kind kind = 0; kind < CACHE_WORKLOADS; kind++)
        if (!watch_synced(c->feeds[kind].watch))
            return false;
    return true;
}

void controller_count(const struct controller *c, struct controller_counts *ret)
{
    *ret = (struct controller_counts){.looks = c->looks,
                                      .look_ns = c->look_ns,
                                      .look_max_ns = c->look_max_ns,
                                      .unreadable = c->unreadable,
                                      .actor = c->actor};
    for (enum cache_kind kind = 0; kind < CACHE_KIND_MAX; kind++) {
        ret->objects[kind] = c->feeds[kind].cache.count;
        if (!c->feeds[kind].watch)
            continue;
        ret->lists += watch_lists(c->feeds[kind].watch);
        ret->resumes += watch_resumes(c->feeds[kind].watch);
    }
    for (size_t i = 0; i < c->feeds[CACHE_ETJS].cache.count; i++) {
        const struct kube_etj *etj = c->feeds[CACHE_ETJS].cache.items[i];

        ret->phases[etj->status.phase]++;
    }
}

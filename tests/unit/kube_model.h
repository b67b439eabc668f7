/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small cluster for tests of the controller's core: an API server that stores objects as JSON, a
 * scheduler, kubelets and chiefs that follow orders. A test reconciles, lets time pass, and breaks
 * things in between. Objects go through the parsers and through pod.c, as in the controller.
 *
 * The API server refuses the requests that a real one refuses (a name that exists, a quota that is
 * used up), and notes when an index occurs twice.
 */
#pragma once

#include "kube_objects.h"

#include "kube/capacity/capacity.h"

/* ---- the world ------------------------------------------------------------------------------- */

struct model_world {
    struct kube_world world;
    const struct kube_node *nodes[OBJECTS];
    const struct kube_pod *pods[OBJECTS];
    const struct kube_etj *etjs[OBJECTS];
    const struct kube_quota *quotas[OBJECTS];
    const struct kube_pdb *pdbs[OBJECTS];
    const struct kube_report *reports[OBJECTS];
    const struct kube_workload *workloads[OBJECTS];
    const struct kube_flavor *flavors[OBJECTS];
    const struct kube_class *classes[OBJECTS];
};

#define MODEL_PARSE(m, w, kind, list)                                                              \
    json_array_foreach ((m)->list, i, object) {                                                    \
        struct kube_##kind *made = NULL;                                                           \
        if (kube_##kind##_parse(object, &made, &err))                                              \
            fail_msg(#kind ": %s", err.text);                                                      \
        (w)->list[(w)->world.kind##_count++] = made;                                               \
    }                                                                                              \
    (w)->world.list = (w)->list

static inline struct model_world *model_world(struct model *m)
{
    struct model_world *w = malloc(sizeof(*w));
    struct error err = {0};
    const char *name;
    json_t *object;
    size_t i;

    assert_non_null(w);
    w->world = (struct kube_world){0};
    w->world.now_ns = m->now_ns;
    w->world.wall_ns = m->wall_ns;
    MODEL_PARSE(m, w, node, nodes);
    MODEL_PARSE(m, w, pod, pods);
    MODEL_PARSE(m, w, etj, etjs);
    MODEL_PARSE(m, w, quota, quotas);
    MODEL_PARSE(m, w, pdb, pdbs);
    MODEL_PARSE(m, w, workload, workloads);
    MODEL_PARSE(m, w, flavor, flavors);
    MODEL_PARSE(m, w, class, classes);
    w->world.kueue = m->kueue;
    w->world.kueue_version = "v1beta2";
    json_object_foreach (m->reports, name, object) {
        struct kube_report *report = NULL;

        if (kube_report_parse(json_object_get(object, "body"), &report, &err))
            fail_msg("report: %s", err.text);
        report->namespace = strdup("n");
        report->job = strdup(name);
        report->chief_uid = strdup(json_string_value(json_object_get(object, "uid")));
        report->at_ns = json_integer_value(json_object_get(object, "at"));
        w->reports[w->world.report_count++] = report;
    }
    w->world.reports = w->reports;
    return w;
}

static inline void model_world_free(struct model_world *w)
{
    for (size_t i = 0; i < w->world.node_count; i++)
        kube_node_free((struct kube_node *)w->nodes[i]);
    for (size_t i = 0; i < w->world.pod_count; i++)
        kube_pod_free((struct kube_pod *)w->pods[i]);
    for (size_t i = 0; i < w->world.etj_count; i++)
        kube_etj_free((struct kube_etj *)w->etjs[i]);
    for (size_t i = 0; i < w->world.quota_count; i++)
        kube_quota_free((struct kube_quota *)w->quotas[i]);
    for (size_t i = 0; i < w->world.pdb_count; i++)
        kube_pdb_free((struct kube_pdb *)w->pdbs[i]);
    for (size_t i = 0; i < w->world.workload_count; i++)
        kube_workload_free((struct kube_workload *)w->workloads[i]);
    for (size_t i = 0; i < w->world.flavor_count; i++)
        kube_flavor_free((struct kube_flavor *)w->flavors[i]);
    for (size_t i = 0; i < w->world.class_count; i++)
        kube_class_free((struct kube_class *)w->classes[i]);
    for (size_t i = 0; i < w->world.report_count; i++)
        kube_report_free((struct kube_report *)w->reports[i]);
    free(w);
}

/* ---- carrying out ---------------------------------------------------------------------------- */

/* As the API server counts it: all pods of the namespace that have not ended. */
static inline int64_t model_pods_mcpu(struct model *m, const char *space)
{
    struct model_world *w = model_world(m);
    int64_t sum = 0;

    for (size_t i = 0; i < w->world.pod_count; i++)
        if (strcmp(w->pods[i]->meta.namespace, space) == 0 &&
            w->pods[i]->phase != KUBE_POD_SUCCEEDED && w->pods[i]->phase != KUBE_POD_FAILED)
            sum += w->pods[i]->request.mcpu;
    model_world_free(w);
    return sum;
}

static inline void model_update_quotas(struct model *m)
{
    json_t *quota;
    size_t i;

    json_array_foreach (m->quotas, i, quota) {
        char text[KUBE_QUANTITY_MAX];

        kube_milli_text(model_pods_mcpu(m, model_text(quota, "metadata", "namespace")), text);
        json_object_set_new(json_object_get(json_object_get(quota, "status"), "used"),
                            "requests.cpu", json_string(text));
    }
}

/* A namespace's limit of requests.cpu. */
static inline void model_quota(struct model *m, const char *name, const char *cpu)
{
    json_t *quota = json_pack("{s:{s:s}, s:{}, s:{s:{s:s}, s:{}}}", "metadata", "namespace", "n",
                              "spec", "status", "hard", "requests.cpu", cpu, "used");

    model_stamp(m, quota, name);
    json_array_append_new(m->quotas, quota);
    model_update_quotas(m);
}

static inline bool model_quota_refuses(struct model *m)
{
    json_t *quota;
    size_t i;

    json_array_foreach (m->quotas, i, quota) {
        struct kube_quota *parsed = NULL;
        bool over;

        assert_int_equal(kube_quota_parse(quota, &parsed, NULL), 0);
        over = parsed->request_left.mcpu < 0;
        kube_quota_free(parsed);
        if (over)
            return true;
    }
    return false;
}

static inline void model_answer(struct model *m, const struct kube_action *action, int code)
{
    struct kube_answer answer = {.kind = KUBE_CREATE_POD,
                                 .role = action->create.role,
                                 .index = action->create.index,
                                 .code = code,
                                 .text = "violates PodSecurity"};

    kube_memory_answer(m->memory, action->etj, &answer, m->now_ns);
}

static inline void model_refuse(struct model *m, const struct kube_action *action)
{
    m->gave_up = action->etj;
    m->tries++;
    model_answer(m, action, -EACCES);
}

static inline void model_create(struct model *m, const struct kube_action *action)
{
    static const struct kube_pod_settings settings = {.controller = "c:1", .ca_pem = "pem"};
    json_t *pod = kube_pod_json(&settings, action->etj, &action->create), *spec;
    const char *name = model_text(pod, "metadata", "name");
    char *copy = strdup(name);

    assert_non_null(pod);
    if (m->refuses && strstr(name, m->refuses)) { /* 403 */
        model_refuse(m, action);
        json_decref(pod);
        free(copy);
        return;
    }
    if (model_find(m->pods, name)) { /* 409 */
        json_decref(pod);
        free(copy);
        return;
    }
    if (action->create.role != KUBE_CHIEF) {
        if (json_object_get(m->used, name))
            fail_msg("%s comes twice", name);
        json_object_set_new(m->used, name, json_true());
    }
    model_stamp(m, pod, copy);
    spec = json_object_get(pod, "spec");
    json_object_set_new(spec, "priority", json_integer(0));
    json_object_set_new(pod, "status", json_pack("{s:s}", "phase", "Pending"));
    json_array_append_new(m->pods, pod);
    model_update_quotas(m);
    if (model_quota_refuses(m)) {
        m->refused++;
        model_remove(m->pods, copy);
        model_update_quotas(m);
    }
    model_answer(m, action, 0);
    free(copy);
}

static inline json_t *model_pod_of(struct model *m, const struct kube_action *action)
{
    json_t *pod = model_find(m->pods, action->pod->meta.name);

    return pod && strcmp(model_text(pod, "metadata", "uid"), action->pod->meta.uid) == 0 ? pod
                                                                                         : NULL;
}

/* Carries out and frees a JSON patch of kube_let_go_json(). */
static inline void model_let_go(struct model *m, json_t *etj, json_t *patch)
{
    json_t *list = json_object_get(json_object_get(etj, "metadata"), "finalizers");
    const char *path = json_string_value(
        json_object_get(json_array_get(patch, json_array_size(patch) - 1), "path"));

    m->let_go++;
    json_array_remove(list, (size_t)atoi(strrchr(path, '/') + 1));
    json_decref(patch);
    if (*model_text(etj, "metadata", "deletionTimestamp") && json_array_size(list) == 0)
        model_remove(m->etjs, model_text(etj, "metadata", "name"));
}

/* RFC 7396, as far as patches of Workloads use it. */
static inline void model_merge(json_t *to, const json_t *patch)
{
    const char *key;
    json_t *value;

    json_object_foreach ((json_t *)patch, key, value) {
        json_t *inner = json_object_get(to, key);

        if (json_is_null(value))
            json_object_del(to, key);
        else if (json_is_object(value) && json_is_object(inner))
            model_merge(inner, value);
        else
            json_object_set_new(to, key, json_deep_copy(value));
    }
}

static inline void model_queue(struct model *m, const struct kube_action *action)
{
    static const struct kube_pod_settings settings = {.controller = "c:1", .ca_pem = "pem"};
    const struct kube_queueing *q = &action->queueing;
    json_t *object, *patch;

    if (action->kind == KUBE_MAKE_WORKLOAD) {
        char name[KUBE_NAME_MAX + 1];

        object = kube_workload_json(&settings, action->etj, q);
        assert_non_null(object);
        kube_workload_name(action->etj, name);
        assert_null(model_find(m->workloads, name));
        model_stamp(m, object, name);
        json_object_set_new(object, "status", json_object());
        json_array_append_new(m->workloads, object);
        return;
    }
    object = model_find(m->workloads, q->workload->meta.name);
    if (!object)
        return;
    if (action->kind == KUBE_DELETE_WORKLOAD) {
        model_remove(m->workloads, q->workload->meta.name);
        return;
    }
    patch = action->kind == KUBE_TURN_WORKLOAD ? kube_workload_turn_json(q)
                                               : kube_workload_news_json(q);
    assert_non_null(patch);
    model_merge(object, patch);
    json_decref(patch);
}

static inline void model_apply(struct model *m, const struct kube_action *action)
{
    json_t *etj = model_find(m->etjs, action->etj->meta.name), *pod, *patch;
    char when[KUBE_TIME_TEXT];

    kube_time_text(m->wall_ns, when);
    assert_non_null(etj);
    switch (action->kind) {
    case KUBE_ADD_FINALIZER:
        patch = kube_finalizer_json(action->etj);
        json_object_update_recursive(etj, patch);
        json_decref(patch);
        break;
    case KUBE_REMOVE_FINALIZER:
        model_let_go(m, etj, kube_let_go_json(action->etj));
        break;
    case KUBE_PATCH_STATUS:
        patch = kube_status_json(action->etj, action->status);
        assert_non_null(patch);
        json_object_set(etj, "status", json_object_get(patch, "status"));
        json_decref(patch);
        m->status_count++;
        break;
    case KUBE_CREATE_POD:
        if (m->gave_up != action->etj)
            model_create(m, action);
        break;
    case KUBE_ASK_LEAVE:
        patch = kube_leave_json(action->note.text);
        if ((pod = model_pod_of(m, action)))
            json_object_update_recursive(pod, patch);
        json_decref(patch);
        break;
    case KUBE_RESIZE_POD:
        patch = kube_resize_json(action->pod, action->resize.mcpu, action->resize.limit_mcpu);
        if ((pod = model_pod_of(m, action)))
            json_object_update_recursive(
                json_array_get(json_object_get(json_object_get(pod, "spec"), "containers"), 0),
                json_array_get(json_object_get(json_object_get(patch, "spec"), "containers"), 0));
        json_decref(patch);
        break;
    case KUBE_DELETE_POD:
        if ((pod = model_pod_of(m, action)))
            json_object_set_new(json_object_get(pod, "metadata"), "deletionTimestamp",
                                json_string(when));
        break;
    case KUBE_SET_MEMBERS:
        json_object_set_new(m->told, action->etj->meta.name, kube_members_json(action->members));
        break;
    case KUBE_EVENT:
        json_array_append_new(m->events, json_string(action->note.reason));
        if (getenv("MODEL_VERBOSE"))
            print_message("%3d s: %s: %s: %s\n", (int)(m->now_ns / S - 1000),
                          action->etj->meta.name, action->note.reason, action->note.text);
        break;
    case KUBE_MAKE_WORKLOAD:
    case KUBE_TURN_WORKLOAD:
    case KUBE_TELL_WORKLOAD:
    case KUBE_DELETE_WORKLOAD:
        model_queue(m, action);
        break;
    default:
        patch = kube_service_json(action->etj);
        assert_non_null(patch);
        json_decref(patch);
    }
}

/* Returns the controller's view of the cluster, which may be out of date. */
static inline struct model_world *model_view(struct model *m)
{
    json_t *pods = m->pods, *etjs = m->etjs;
    struct model_world *w;

    m->pods = m->seen_pods ? m->seen_pods : pods;
    m->etjs = m->seen_etjs ? m->seen_etjs : etjs;
    w = model_world(m);
    m->pods = pods;
    m->etjs = etjs;
    return w;
}

/* Without an API server the first action fails, and those that rest on it are dropped with it. */
static inline void model_carry_out(struct model *m, const struct kube_action *action)
{
    m->sent[action->kind]++;
    if (m->no_api)
        kube_memory_doubt(m->memory, action->etj);
    else
        model_apply(m, action);
}

/* Creations and resizes may be refused, so no action of another kind may follow them. */
static inline void model_check_order(const struct kube_plan *plan)
{
    for (size_t i = 1; i < plan->count; i++)
        if (plan->actions[i - 1].kind == KUBE_CREATE_POD &&
            plan->actions[i - 1].etj == plan->actions[i].etj)
            assert_true(plan->actions[i].kind == KUBE_CREATE_POD ||
                        plan->actions[i].kind == KUBE_EVENT ||
                        plan->actions[i].kind == KUBE_RESIZE_POD);
}

/* Carries out the first @limit actions; with fewer than all, the controller has crashed then. */
static inline size_t model_reconcile(struct model *m, size_t limit)
{
    struct model_world *w = model_view(m);
    struct kube_plan plan;
    size_t count;

    assert_int_equal(kube_reconcile(&m->settings, &w->world, m->memory, &plan), 0);
    model_check_order(&plan);
    m->gave_up = NULL;
    count = plan.count;
    m->wakeup_ns = plan.wakeup_ns;
    for (size_t i = 0; i < count && i < limit; i++)
        model_carry_out(m, &plan.actions[i]);
    kube_plan_done(&plan);
    model_world_free(w);
    if (limit < count) {
        kube_memory_free(m->memory);
        m->memory = kube_memory_new();
    }
    return count;
}

/* ---- everybody else -------------------------------------------------------------------------- */

static inline void model_set_phase(json_t *pod, const char *phase)
{
    json_object_set_new(json_object_get(pod, "status"), "phase", json_string(phase));
}

/* Whether the node has all else that the pod asks for. */
static inline bool model_has_extras(const struct kube_node *node, const struct kube_pod *pod)
{
    uint32_t found = 0;

    for (uint32_t p = 0; p < pod->extras.count; p++)
        for (uint32_t n = 0; n < node->extras.count; n++)
            found += strcmp(node->extras.at[n].name, pod->extras.at[p].name) == 0 &&
                     node->extras.at[n].amount >= pod->extras.at[p].amount;
    return found == pod->extras.count;
}

/* Takes the first node that fits, or marks the pod unschedulable. */
static inline void model_schedule(struct model *m, size_t p)
{
    struct model_world *w = model_world(m);
    const struct kube_pod *pod = w->pods[p];
    json_t *object = json_array_get(m->pods, p);

    for (size_t n = 0; n < w->world.node_count && !pod->node; n++) {
        const struct kube_node *node = w->nodes[n];
        struct kube_amount free = node->allocatable;
        const struct node_capacity capacity = {.node = node, .usable = node->ready};
        bool barred = node->unschedulable || node->taint_count ||
                      !place_admits(&pod->place, NULL, &capacity) || !model_has_extras(node, pod);

        for (size_t i = 0; i < w->world.pod_count; i++)
            if (w->pods[i]->node && strcmp(w->pods[i]->node, node->meta.name) == 0 &&
                w->pods[i]->phase <= KUBE_POD_RUNNING) {
                free.mcpu -= w->pods[i]->request.mcpu;
                free.bytes -= w->pods[i]->request.bytes;
            }
        if (barred || free.mcpu < pod->request.mcpu || free.bytes < pod->request.bytes)
            continue;
        json_object_set_new(json_object_get(object, "spec"), "nodeName",
                            json_string(node->meta.name));
        json_object_del(json_object_get(object, "status"), "conditions");
        model_world_free(w);
        return;
    }
    json_object_set_new(json_object_get(object, "status"), "conditions",
                        json_pack("[{s:s, s:s, s:s, s:s}]", "type", "PodScheduled", "status",
                                  "False", "reason", "Unschedulable", "message",
                                  "0/9 nodes are available: 9 Insufficient cpu."));
    model_world_free(w);
}

static inline void model_resize(struct model *m, json_t *pod)
{
    json_t *container =
        json_array_get(json_object_get(json_object_get(pod, "spec"), "containers"), 0);
    json_t *status = json_object_get(pod, "status"), *now;
    json_t *wanted = json_object_get(json_object_get(container, "resources"), "requests");

    if (strcmp(model_text(pod, "status", "phase"), "Running") != 0 || !wanted)
        return;
    now = json_object_get(
        json_object_get(json_array_get(json_object_get(status, "containerStatuses"), 0),
                        "resources"),
        "requests");
    if ((m->no_resize || m->defers) && now && !json_equal(now, wanted)) {
        json_object_set_new(status, "conditions",
                            json_pack("[{s:s, s:s, s:s}, {s:s, s:s}]", "type", "PodResizePending",
                                      "status", "True", "reason",
                                      m->defers ? "Deferred" : "Infeasible", "type", "Ready",
                                      "status", "True"));
        return;
    }
    if (m->slow_resize && now)
        return;
    json_object_set_new(status, "conditions",
                        json_pack("[{s:s, s:s}]", "type", "Ready", "status", "True"));
    json_object_set_new(
        status, "containerStatuses",
        json_pack("[{s:s, s:o}]", "name", json_string_value(json_object_get(container, "name")),
                  "resources", json_deep_copy(json_object_get(container, "resources"))));
}

static inline void model_start_pod(struct model *m, json_t *pod)
{
    char ip[32];

    m->uids++;
    snprintf(ip, sizeof(ip), "10.0.%u.%u", m->uids / 250, m->uids % 250);
    model_set_phase(pod, "Running");
    json_object_set_new(json_object_get(pod, "status"), "podIP", json_string(ip));
    json_object_set_new(json_object_get(pod, "status"), "conditions",
                        json_pack("[{s:s, s:s}]", "type", "Ready", "status", "True"));
    model_resize(m, pod);
}

/* The chief's next report; nodes that may leave end with it. */
static inline void model_chief(struct model *m, const json_t *chief)
{
    const json_t *labels = json_object_get(json_object_get(chief, "metadata"), "labels");
    const char *name = json_string_value(json_object_get(labels, KUBE_LABEL_JOB));
    const json_t *members = json_object_get(m->told, name);
    json_t *nodes = json_array(), *old = json_object_get(m->reports, name), *member;
    bool suspend = json_is_true(json_object_get(members, "suspend"));
    json_int_t examples =
        json_integer_value(json_object_get(json_object_get(old, "body"), "examples"));
    int count[KUBE_ROLE_MAX] = {0};
    double rate;
    size_t i;

    for (int role = KUBE_PS; role <= KUBE_WORKER; role++)
        json_array_foreach (json_object_get(members, kube_role_name((enum kube_role)role)), i,
                            member) {
            json_int_t index = json_integer_value(json_object_get(member, "index"));
            bool leave = !m->saves &&
                         (suspend || m->finished || json_is_true(json_object_get(member, "leave")));
            char pod_name[300];
            json_t *pod;

            snprintf(pod_name, sizeof(pod_name), "%s-%s-%d", name,
                     kube_role_name((enum kube_role)role), (int)index);
            pod = model_find(m->pods, pod_name);
            if (!pod || strcmp(model_text(pod, "status", "phase"), "Running") != 0)
                continue;
            count[role] += !leave;
            json_array_append_new(nodes, json_pack("{s:s, s:I, s:s, s:O}", "role",
                                                   kube_role_name((enum kube_role)role), "index",
                                                   index, "state", leave ? "released" : "in",
                                                   "threads", json_object_get(member, "threads")));
            if (leave)
                model_set_phase(pod, "Succeeded");
        }
    rate = count[KUBE_PS] && !suspend && !m->finished ? m->rate(count[KUBE_WORKER], count[KUBE_PS])
                                                      : 0;
    examples += (json_int_t)rate;
    json_object_set_new(m->reports, name,
                        json_pack("{s:s, s:I, s:{s:I, s:I, s:f, s:i, s:b, s:o}}", "uid",
                                  model_text(chief, "metadata", "uid"), "at", (json_int_t)m->now_ns,
                                  "body", "step", examples / 10, "examples", examples, "loss", 0.5,
                                  "communication_permille", (int)m->communication_permille,
                                  "finished", m->finished, "nodes", nodes));
}

static inline bool model_node_is_up(struct model *m, const json_t *pod)
{
    const json_t *node = model_find(m->nodes, model_text(pod, "spec", "nodeName"));
    const json_t *ready =
        json_array_get(json_object_get(json_object_get(node, "status"), "conditions"), 0);
    const char *status = json_string_value(json_object_get(ready, "status"));

    return status && strcmp(status, "True") == 0;
}

/* Pods of nodes that are gone are removed after a minute, as kube-controller-manager does. */
static inline void model_collect(struct model *m)
{
    for (size_t i = json_array_size(m->pods); i-- > 0;) {
        json_t *pod = json_array_get(m->pods, i);
        const char *node = model_text(pod, "spec", "nodeName");
        json_int_t seconds = json_integer_value(json_object_get(pod, "orphaned"));

        if (!*node || model_find(m->nodes, node))
            json_object_del(pod, "orphaned");
        else if (seconds < 60)
            json_object_set_new(pod, "orphaned", json_integer(seconds + 1));
        else
            json_array_remove(m->pods, i);
    }
}

/* A second passes. */
static inline void model_tick(struct model *m)
{
    size_t i;
    json_t *pod;

    m->now_ns += S;
    m->wall_ns += S;
    model_collect(m);
    for (i = json_array_size(m->pods); i-- > 0;) {
        pod = json_array_get(m->pods, i);
        if (*model_text(pod, "metadata", "deletionTimestamp") &&
            (!*model_text(pod, "spec", "nodeName") || model_node_is_up(m, pod) ||
             !model_find(m->nodes, model_text(pod, "spec", "nodeName"))))
            json_array_remove(m->pods, i);
    }
    model_update_quotas(m);
    json_array_foreach (m->pods, i, pod) {
        if (!*model_text(pod, "spec", "nodeName"))
            model_schedule(m, i);
        else if (strcmp(model_text(pod, "status", "phase"), "Pending") == 0 && !m->no_kubelet &&
                 !json_object_get(json_object_get(pod, "status"), "containerStatuses"))
            model_start_pod(m, pod);
        else if (!m->no_kubelet)
            model_resize(m, pod);
    }
    json_array_foreach (m->pods, i, pod) {
        const json_t *labels = json_object_get(json_object_get(pod, "metadata"), "labels");
        const char *role = json_string_value(json_object_get(labels, KUBE_LABEL_ROLE));

        if (role && strcmp(role, "chief") == 0 && !m->no_chiefs &&
            strcmp(model_text(pod, "status", "phase"), "Running") == 0 && model_node_is_up(m, pod))
            model_chief(m, pod);
    }
}

/* Seconds go by, each with a reconcile. */
static inline void model_run(struct model *m, int seconds)
{
    for (int i = 0; i < seconds; i++) {
        model_reconcile(m, WHOLE_PLAN);
        model_tick(m);
    }
}

/* ---- what there is --------------------------------------------------------------------------- */

static inline bool model_serves(const struct kube_pod *pod, const char *job, enum kube_role role)
{
    return pod->job && strcmp(pod->job, job) == 0 && pod->role == role && !pod->leave &&
           !pod->meta.deleted_ns && pod->phase <= KUBE_POD_RUNNING;
}

/* Pods of a training that live and were not asked to leave. */
static inline int model_count(struct model *m, const char *job, enum kube_role role)
{
    struct model_world *w = model_world(m);
    int count = 0;

    for (size_t i = 0; i < w->world.pod_count; i++)
        count += model_serves(w->pods[i], job, role);
    model_world_free(w);
    return count;
}

static inline const char *model_phase(struct model *m, const char *job)
{
    return model_text(model_find(m->etjs, job), "status", "phase");
}

static inline json_t *model_condition(struct model *m, const char *job, const char *type)
{
    json_t *status = json_object_get(model_find(m->etjs, job), "status"), *condition;
    size_t i;

    json_array_foreach (json_object_get(status, "conditions"), i, condition)
        if (strcmp(json_string_value(json_object_get(condition, "type")), type) == 0)
            return condition;
    fail_msg("%s has no condition %s", job, type);
    return NULL;
}

static inline int model_events(struct model *m, const char *reason)
{
    json_t *event;
    int count = 0;
    size_t i;

    json_array_foreach (m->events, i, event)
        count += strcmp(json_string_value(event), reason) == 0;
    return count;
}

static inline void model_assert_phase(struct model *m, const char *job, const char *phase)
{
    assert_string_equal(model_phase(m, job), phase);
}

static inline void model_assert_condition(struct model *m, const char *job, const char *type,
                                          const char *status, const char *reason)
{
    const json_t *condition = model_condition(m, job, type);

    assert_string_equal(model_text(condition, NULL, "status"), status);
    assert_string_equal(model_text(condition, NULL, "reason"), reason);
}

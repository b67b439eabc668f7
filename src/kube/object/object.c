/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/object/object.h"

#include "base/cleanup.h"
#include "kube/object/quantity.h"
#include "kube/object/read.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_WORD "bad-object"

static const char *const role_names[] = {"chief", "ps", "worker"};
static_assert(ARRAY_LEN(role_names) == KUBE_ROLE_MAX, "a name for each");

const char *kube_role_name(enum kube_role role)
{
    return role < KUBE_ROLE_MAX ? role_names[role] : "?";
}

/* Ends a parse: *made is given out, or freed when something was wrong. */
#define FINISH(reader, made, x_free, ret, err)                                                     \
    do {                                                                                           \
        int end_ = read_end(reader, err);                                                          \
        if (end_)                                                                                  \
            x_free(made);                                                                          \
        else                                                                                       \
            *(ret) = (made);                                                                       \
        return end_;                                                                               \
    } while (0)

/* Whether a condition of such a type says so, and the condition. */
static const json_t *find_condition(struct reader *r, const json_t *status, const char *type)
{
    json_t *condition;
    size_t i;

    json_array_foreach (read_array(r, status, "conditions"), i, condition) {
        const char *name = read_string(r, condition, "type");

        if (name && strcmp(name, type) == 0)
            return condition;
    }
    return NULL;
}

static bool is_string(struct reader *r, const json_t *in, const char *key, const char *value)
{
    const char *text = in ? read_string(r, in, key) : NULL;

    return text && strcmp(text, value) == 0;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static void read_taints(struct reader *r, const json_t *spec, struct kube_node *node)
{
    static const char *const effects[] = {"NoSchedule", "PreferNoSchedule", "NoExecute"};
    const json_t *taints = read_array(r, spec, "taints");
    json_t *entry;
    size_t i;

    if (json_array_size(taints) == 0)
        return;
    node->taints = read_alloc(r, json_array_size(taints), sizeof(node->taints[0]));
    if (!node->taints)
        return;
    json_array_foreach (taints, i, entry) {
        struct kube_taint *to = &node->taints[node->taint_count++];
        const char *value = read_string(r, entry, "value");

        to->key = read_text(r, entry, "key");
        to->value = read_copy(r, value ? value : "");
        to->effect = (enum kube_effect)read_name(r, entry, "effect", effects, 3, KUBE_NO_EXECUTE);
        if (!to->key)
            to->key = read_copy(r, "");
    }
}

/* Annotations that cannot be read are no cap: the node's own daemon still keeps its watts. */
static void read_power(struct reader *r, const json_t *json, struct kube_node *node)
{
    const json_t *notes;

    read_at(r, "metadata.annotations.");
    notes = read_object(r, read_object(r, json, "metadata"), "annotations");
    node->power_mcpu = read_quantity(r, notes, KUBE_ANNOTATION_POWER_CPU, true, -1);
    node->power_until_ns = read_time(r, notes, KUBE_ANNOTATION_POWER_UNTIL);
    node->capped = node->power_mcpu >= 0 && (node->power_until_ns > 0 ||
                                             !json_object_get(notes, KUBE_ANNOTATION_POWER_UNTIL));
}

int kube_node_parse(const json_t *json, struct kube_node **ret, struct error *err)
{
    struct reader r = {.lenient = true};
    struct kube_node *node = read_alloc(&r, 1, sizeof(*node));
    const json_t *status, *spec;

    if (!node)
        return read_end(&r, err);
    read_meta(&r, json, &node->meta);
    read_labels(&r, read_object(&r, json, "metadata"), "labels", &node->labels);
    read_at(&r, "spec.");
    spec = read_object(&r, json, "spec");
    node->unschedulable = read_bool(&r, spec, "unschedulable", false);
    read_taints(&r, spec, node);
    status = read_object(&r, json, "status");
    read_at(&r, "status.allocatable.");
    read_resources(&r, status, "allocatable", &node->allocatable);
    node->allocatable.pods =
        read_quantity(&r, read_object(&r, status, "allocatable"), "pods", false, 0);
    read_extras(&r, status, "allocatable", &node->extras);
    if (node->allocatable.mcpu < 0 || node->allocatable.bytes < 0) /* a node that just came */
        node->allocatable = (struct kube_amount){0};
    read_at(&r, "status.conditions.");
    node->ready = is_string(&r, find_condition(&r, status, "Ready"), "status", "True");
    read_power(&r, json, node);
    FINISH(&r, node, kube_node_free, ret, err);
}

struct kube_node *kube_node_free(struct kube_node *node)
{
    if (!node)
        return NULL;
    kube_meta_done(&node->meta);
    kube_extras_done(&node->extras);
    kube_labels_done(&node->labels);
    for (uint32_t i = 0; i < node->taint_count; i++) {
        free(node->taints[i].key);
        free(node->taints[i].value);
    }
    free(node->taints);
    free(node);
    return NULL;
}

/* ---- pods ------------------------------------------------------------------------------------ */

/* Whether a container with this reason waits in vain, not for its turn. */
static bool is_trouble(const char *reason)
{
    static const char *const troubles[] = {
        "ErrImagePull",      "ImagePullBackOff",           "InvalidImageName",
        "ErrImageNeverPull", "CreateContainerConfigError", "CreateContainerError",
        "RunContainerError", "CrashLoopBackOff",           "ImageInspectError",
    };

    for (size_t i = 0; i < ARRAY_LEN(troubles); i++)
        if (strcmp(troubles[i], reason) == 0)
            return true;
    return false;
}

static void read_trouble(struct reader *r, const json_t *state, struct kube_pod *pod)
{
    const json_t *waiting = read_object(r, state, "waiting");
    const char *reason = read_string(r, waiting, "reason");

    if (!reason || !is_trouble(reason) || pod->trouble)
        return;
    pod->trouble = read_copy(r, reason);
    if (!pod->message)
        pod->message = read_clipped(r, waiting, "message");
}

/* Reads whether one container waits in vain, how it ended, and which resources it has. */
static void read_container_status(struct reader *r, const json_t *status, struct kube_pod *pod,
                                  struct kube_amount *given)
{
    const json_t *state = read_object(r, status, "state");
    const json_t *ended = read_object(r, state, "terminated");
    struct kube_amount actual, allocated, limit;

    read_trouble(r, state, pod);
    if (ended) {
        int64_t at = read_time(r, ended, "finishedAt");

        pod->finished_ns = at > pod->finished_ns ? at : pod->finished_ns;
        if (is_string(r, status, "name", KUBE_CONTAINER))
            pod->exit_code = (int32_t)read_int(r, ended, "exitCode", 0, INT32_MIN, INT32_MAX);
    }
    read_resources(r, read_object(r, status, "resources"), "requests", &actual);
    read_resources(r, status, "allocatedResources", &allocated);
    read_resources(r, read_object(r, status, "resources"), "limits", &limit);
    if (is_string(r, status, "name", KUBE_CONTAINER) && actual.mcpu > 0) {
        pod->actual_mcpu = actual.mcpu;
        pod->actual_limit_mcpu = limit.mcpu > 0 ? limit.mcpu : 0;
    }
    given->mcpu += actual.mcpu > allocated.mcpu ? actual.mcpu : allocated.mcpu;
    given->bytes += actual.bytes > allocated.bytes ? actual.bytes : allocated.bytes;
}

/* During a resize a pod counts with the larger of what it has and what it requests, as in the
 * scheduler. */
static void read_containers(struct reader *r, const json_t *status, struct kube_pod *pod)
{
    struct kube_amount given = {0};
    json_t *container;
    size_t i;

    read_at(r, "status.initContainerStatuses.");
    json_array_foreach (read_array(r, status, "initContainerStatuses"), i, container)
        read_trouble(r, read_object(r, container, "state"), pod);
    read_at(r, "status.containerStatuses.");
    json_array_foreach (read_array(r, status, "containerStatuses"), i, container)
        read_container_status(r, container, pod, &given);
    if (given.mcpu > pod->request.mcpu)
        pod->request.mcpu = given.mcpu;
    if (given.bytes > pod->request.bytes)
        pod->request.bytes = given.bytes;
}

static void read_conditions(struct reader *r, const json_t *status, struct kube_pod *pod)
{
    const json_t *scheduled, *resize;

    read_at(r, "status.conditions.");
    pod->ready = is_string(r, find_condition(r, status, "Ready"), "status", "True");
    scheduled = find_condition(r, status, "PodScheduled");
    if (is_string(r, scheduled, "status", "False")) {
        pod->unschedulable = is_string(r, scheduled, "reason", "Unschedulable");
        if (!pod->message)
            pod->message = read_clipped(r, scheduled, "message");
    }
    resize = find_condition(r, status, "PodResizePending");
    if (is_string(r, resize, "status", "True"))
        pod->resize = is_string(r, resize, "reason", "Infeasible") ? KUBE_RESIZE_INFEASIBLE
                                                                   : KUBE_RESIZE_DEFERRED;
    else if (is_string(r, find_condition(r, status, "PodResizeInProgress"), "status", "True"))
        pod->resize = KUBE_RESIZE_IN_PROGRESS;
}

static void read_owner(struct reader *r, const json_t *meta, struct kube_pod *pod)
{
    json_t *owner;
    size_t i;

    json_array_foreach (read_array(r, meta, "ownerReferences"), i, owner)
        if (read_bool(r, owner, "controller", false) && !pod->owner_uid)
            pod->owner_uid = read_text(r, owner, "uid");
}

/* Reads from the labels which training the pod belongs to; with unusable labels it is foreign. */
static void read_membership(struct reader *r, const json_t *meta, struct kube_pod *pod)
{
    const json_t *labels = read_object(r, meta, "labels");
    const char *job = read_string(r, labels, KUBE_LABEL_JOB);
    const char *role = read_string(r, labels, KUBE_LABEL_ROLE);
    const char *index = read_string(r, labels, KUBE_LABEL_INDEX);
    char *end = NULL;
    unsigned long number = index ? strtoul(index, &end, 10) : 0;

    pod->role = KUBE_ROLE_MAX;
    for (int i = 0; role && i < KUBE_ROLE_MAX; i++)
        if (strcmp(role_names[i], role) == 0)
            pod->role = (enum kube_role)i;
    if (!job || !index || !pod->owner_uid || pod->role == KUBE_ROLE_MAX || !*index || *end ||
        number > KUBE_INDEX_MAX)
        return;
    pod->job = read_copy(r, job);
    pod->index = (uint32_t)number;
    read_labels(r, meta, "labels", &pod->labels);
    pod->leave = read_text(r, read_object(r, meta, "annotations"), KUBE_ANNOTATION_LEAVE);
    pod->start_mcpu =
        read_quantity(r, read_object(r, meta, "annotations"), KUBE_ANNOTATION_START, true, 0);
}

static void read_pod_spec(struct reader *r, const json_t *spec, struct kube_pod *pod)
{
    json_t *container;
    size_t i;

    read_at(r, "spec.");
    pod->node = read_text(r, spec, "nodeName");
    if (pod->node && !*pod->node) {
        free(pod->node);
        pod->node = NULL;
    }
    pod->priority = (int32_t)read_int(r, spec, "priority", 0, INT32_MIN, INT32_MAX);
    pod->gated = json_array_size(read_array(r, spec, "schedulingGates")) > 0;
    read_pod_request(r, spec, NULL, &pod->request, &pod->limit, &pod->mcpu, &pod->limit_mcpu);
    json_array_foreach (read_array(r, spec, "containers"), i, container)
        read_extras(r, read_object(r, container, "resources"), "requests", &pod->extras);
    if (!pod->node)
        read_place(r, spec, &pod->place);
}

int kube_pod_parse(const json_t *json, struct kube_pod **ret, struct error *err)
{
    static const char *const phases[] = {"Pending", "Running", "Succeeded", "Failed", "Unknown"};
    struct reader r = {.lenient = true};
    struct kube_pod *pod = read_alloc(&r, 1, sizeof(*pod));
    const json_t *status;

    if (!pod)
        return read_end(&r, err);
    read_meta(&r, json, &pod->meta);
    read_owner(&r, read_object(&r, json, "metadata"), pod);
    read_membership(&r, read_object(&r, json, "metadata"), pod);
    read_pod_spec(&r, read_object(&r, json, "spec"), pod);
    read_at(&r, "status.");
    status = read_object(&r, json, "status");
    pod->phase = (enum kube_pod_phase)read_name(&r, status, "phase", phases, KUBE_POD_PHASE_MAX,
                                                KUBE_POD_PENDING);
    pod->ip = read_text(&r, status, "podIP");
    pod->started_ns = read_time(&r, status, "startTime");
    read_containers(&r, status, pod);
    read_conditions(&r, status, pod);
    if (pod->request.mcpu > KUBE_MCPU_MAX)
        pod->request.mcpu = KUBE_MCPU_MAX;
    if (pod->request.bytes > KUBE_BYTES_MAX)
        pod->request.bytes = KUBE_BYTES_MAX;
    FINISH(&r, pod, kube_pod_free, ret, err);
}

struct kube_pod *kube_pod_free(struct kube_pod *pod)
{
    if (!pod)
        return NULL;
    kube_meta_done(&pod->meta);
    kube_extras_done(&pod->extras);
    kube_labels_done(&pod->labels);
    kube_place_done(&pod->place);
    free(pod->node);
    free(pod->owner_uid);
    free(pod->job);
    free(pod->ip);
    free(pod->trouble);
    free(pod->message);
    free(pod->leave);
    free(pod);
    return NULL;
}

/* ---- quotas, budgets ------------------------------------------------------------------------- */

/* hard - used of the first of two names that has a limit; INT64_MAX: none. */
static int64_t quota_left(struct reader *r, const json_t *status, const char *name,
                          const char *other, bool milli)
{
    const json_t *hard = read_object(r, status, "hard"), *used = read_object(r, status, "used");
    int64_t least = INT64_MAX;

    for (int i = 0; i < 2; i++) {
        const char *key = i ? other : name;
        int64_t limit = key ? read_quantity(r, hard, key, milli, -1) : -1, left;

        if (limit < 0)
            continue;
        left = limit - read_quantity(r, used, key, milli, 0);
        least = left < least ? left : least;
    }
    return least;
}

int kube_quota_parse(const json_t *json, struct kube_quota **ret, struct error *err)
{
    struct reader r = {.lenient = true};
    struct kube_quota *quota = read_alloc(&r, 1, sizeof(*quota));
    const json_t *spec, *status;

    if (!quota)
        return read_end(&r, err);
    read_meta(&r, json, &quota->meta);
    read_at(&r, "spec.");
    spec = read_object(&r, json, "spec");
    quota->scoped = json_array_size(read_array(&r, spec, "scopes")) > 0 ||
                    json_object_size(read_object(&r, spec, "scopeSelector")) > 0;
    read_at(&r, "status.");
    status = read_object(&r, json, "status");
    quota->request_left = (struct kube_amount){
        .mcpu = quota_left(&r, status, "requests.cpu", "cpu", true),
        .bytes = quota_left(&r, status, "requests.memory", "memory", false),
        .pods = quota_left(&r, status, "pods", "count/pods", false),
    };
    quota->limit_left = (struct kube_amount){
        .mcpu = quota_left(&r, status, "limits.cpu", NULL, true),
        .bytes = quota_left(&r, status, "limits.memory", NULL, false),
        .pods = INT64_MAX,
    };
    FINISH(&r, quota, kube_quota_free, ret, err);
}

struct kube_quota *kube_quota_free(struct kube_quota *quota)
{
    if (!quota)
        return NULL;
    kube_meta_done(&quota->meta);
    free(quota);
    return NULL;
}

static void read_match_labels(struct reader *r, const json_t *selector, struct kube_term *term)
{
    struct kube_labels labels = {0};
    struct kube_requirement *at;

    read_labels(r, selector, "matchLabels", &labels);
    at = labels.count ? realloc(term->at, (term->count + labels.count) * sizeof(*at)) : NULL;
    for (uint32_t i = 0; at && i < labels.count; i++) {
        struct kube_requirement *to = &at[term->count++];

        term->at = at;
        *to = (struct kube_requirement){.op = KUBE_IN, .key = TAKE_PTR(labels.at[i].key)};
        to->values = read_alloc(r, 1, sizeof(char *));
        if (to->values)
            to->values[to->value_count++] = TAKE_PTR(labels.at[i].value);
    }
    if (labels.count && !at)
        error_set(&r->err, -ENOMEM, "out of memory");
    kube_labels_done(&labels);
}

int kube_pdb_parse(const json_t *json, struct kube_pdb **ret, struct error *err)
{
    struct reader r = {.lenient = true};
    struct kube_pdb *pdb = read_alloc(&r, 1, sizeof(*pdb));
    const json_t *selector;

    if (!pdb)
        return read_end(&r, err);
    read_meta(&r, json, &pdb->meta);
    read_at(&r, "spec.selector.");
    selector = read_object(&r, read_object(&r, json, "spec"), "selector");
    pdb->nothing = !selector;
    read_term(&r, selector, "matchExpressions", false, &pdb->selector);
    read_match_labels(&r, selector, &pdb->selector);
    read_at(&r, "status.");
    pdb->allowed = (int32_t)read_int(&r, read_object(&r, json, "status"), "disruptionsAllowed", 0,
                                     0, INT32_MAX);
    FINISH(&r, pdb, kube_pdb_free, ret, err);
}

struct kube_pdb *kube_pdb_free(struct kube_pdb *pdb)
{
    if (!pdb)
        return NULL;
    kube_meta_done(&pdb->meta);
    kube_term_done(&pdb->selector);
    free(pdb);
    return NULL;
}

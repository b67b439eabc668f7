/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/shell/manifest.h"

#include "base/cleanup.h"
#include "kube/object/quantity.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define API     KUBE_GROUP "/" KUBE_VERSION
#define SECRETS "/var/run/threadtide" /* where token and CA are mounted */
#define FILES   "/opt/threadtide"     /* ours, in an image or copied into the pod */
#define GRACE_S 30

#define THEIR_PATH "TIDE_PYTHONPATH" /* the user's PYTHONPATH, where it is read from elsewhere */

/*
 * A value that cannot be allocated is NULL, and jansson's *_new functions refuse NULL. So a failure
 * reaches the outermost result, and only that is checked.
 */

void kube_pod_name(const struct kube_etj *etj, enum kube_role role, uint32_t index,
                   char ret[KUBE_NAME_MAX + 1])
{
    if (role == KUBE_CHIEF)
        snprintf(ret, KUBE_NAME_MAX + 1, "%s-chief", etj->meta.name);
    else
        snprintf(ret, KUBE_NAME_MAX + 1, "%s-%s-%" PRIu32, etj->meta.name, kube_role_name(role),
                 index);
}

/* ---- laying one over the other --------------------------------------------------------------- */

/* The object's member of that name, created if there is none; borrowed. */
static json_t *object_in(json_t *in, const char *key)
{
    json_t *value = json_object_get(in, key);

    if (!json_is_object(value)) {
        value = json_object();
        if (json_object_set_new(in, key, value))
            return NULL;
    }
    return value;
}

static json_t *array_in(json_t *in, const char *key)
{
    json_t *value = json_object_get(in, key);

    if (!json_is_array(value)) {
        value = json_array();
        if (json_object_set_new(in, key, value))
            return NULL;
    }
    return value;
}

/* Takes @entry and replaces an entry with the same value of @key. Returns 0 or -1. */
static int put_named(json_t *list, const char *key, json_t *entry)
{
    const char *name = json_string_value(json_object_get(entry, key));
    json_t *other;
    size_t i;

    json_array_foreach (list, i, other) {
        const char *of = json_string_value(json_object_get(other, key));

        if (of && name && strcmp(of, name) == 0)
            return json_array_set_new(list, i, entry);
    }
    return json_array_append_new(list, entry);
}

/* Sets the value unless the user has set one. Returns 0 or -1. */
static int put_default(json_t *in, const char *key, json_t *value)
{
    if (json_object_get(in, key)) {
        json_decref(value);
        return 0;
    }
    return json_object_set_new(in, key, value);
}

/* ---- parts ----------------------------------------------------------------------------------- */

static json_t *labels_of(const struct kube_etj *etj, const char *role, const char *index)
{
    return json_pack("{s:s, s:s*, s:s*, s:s}", KUBE_LABEL_JOB, etj->meta.name, KUBE_LABEL_ROLE,
                     role, KUBE_LABEL_INDEX, index, "app.kubernetes.io/managed-by", "tide-kube");
}

json_t *kube_owner_json(const struct kube_etj *etj)
{
    return json_pack("[{s:s, s:s, s:s, s:s, s:b, s:b}]", "apiVersion", API, "kind", KUBE_KIND,
                     "name", etj->meta.name, "uid", etj->meta.uid, "controller", 1,
                     "blockOwnerDeletion", 0);
}

static int put_env(json_t *list, const char *name, const char *value)
{
    return put_named(list, "name", json_pack("{s:s, s:s}", "name", name, "value", value));
}

/*
 * Puts our path in front of the PYTHONPATH of the user. One that is read from elsewhere (valueFrom)
 * gets another name, by which kubelet puts it in.
 */
static int put_python_path(json_t *list)
{
    const char *its, *before = NULL;
    char path[KUBE_TEXT_MAX];
    json_t *entry;
    size_t i;
    int e = 0;

    json_array_foreach (list, i, entry) {
        its = json_string_value(json_object_get(entry, "name"));
        if (!its || strcmp(its, "PYTHONPATH") != 0)
            continue;
        before = json_string_value(json_object_get(entry, "value"));
        if (!json_object_get(entry, "valueFrom"))
            continue;
        before = "$(" THEIR_PATH ")";
        e |= json_object_set_new(entry, "name", json_string(THEIR_PATH));
    }
    snprintf(path, sizeof(path), FILES "/python%s%s", before ? ":" : "", before ? before : "");
    return e | put_env(list, "PYTHONPATH", path);
}

static int put_env_number(json_t *list, const char *name, int64_t value)
{
    char text[24];

    snprintf(text, sizeof(text), "%" PRId64, value);
    return put_env(list, name, text);
}

static int put_chief_env(const struct kube_pod_settings *settings, const struct kube_etj *etj,
                         json_t *list)
{
    char url[512];
    int e;

    snprintf(url, sizeof(url), "https://%s", settings->controller);
    e = put_env(list, "TIDE_CONTROLLER", url);
    e |= put_env(list, "TIDE_CONTROLLER_CA", SECRETS "/ca.crt");
    e |= put_env(list, "TIDE_TOKEN_FILE", SECRETS "/token");
    e |= put_env(list, "TIDE_NAMESPACE", etj->meta.namespace);
    e |= put_env(list, "TIDE_MODE", kube_mode_name(etj->mode));
    e |= put_env_number(list, "TIDE_SLOTS", etj->slots);
    if (settings->node_image)
        e |= put_python_path(list);
    if (*etj->checkpoint_path) {
        e |= put_env(list, "TIDE_CHECKPOINT", etj->checkpoint_path);
        e |= put_env_number(list, "TIDE_CHECKPOINT_INTERVAL", etj->checkpoint_interval_s);
    }
    return e;
}

static int put_all_env(const struct kube_pod_settings *settings, const struct kube_etj *etj,
                       const struct kube_new_pod *new_pod, json_t *container)
{
    json_t *list = array_in(container, "env"), *entry;
    size_t i;
    int e = 0;

    json_array_foreach (etj->env, i, entry)
        e |= put_named(list, "name", json_deep_copy(entry));
    e |= put_env(list, "TIDE_JOB", etj->meta.name);
    e |= put_env(list, "TIDE_ROLE", kube_role_name(new_pod->role));
    e |= put_env_number(list, "TIDE_INDEX", new_pod->index);
    e |= put_env_number(list, "TIDE_PORT", KUBE_PORT);
    e |= put_env_number(list, "TIDE_CONTROL_PORT", KUBE_CONTROL_PORT);
    e |= put_named(list, "name",
                   json_pack("{s:s, s:{s:{s:s}}}", "name", "POD_IP", "valueFrom", "fieldRef",
                             "fieldPath", "status.podIP"));
    if (new_pod->role == KUBE_CHIEF)
        e |= put_chief_env(settings, etj, list);
    return e;
}

static json_t *probe(const char *path, int failures)
{
    return json_pack("{s:{s:s, s:i}, s:i, s:i, s:i}", "httpGet", "path", path, "port",
                     KUBE_CONTROL_PORT, "periodSeconds", 2, "timeoutSeconds", 2, "failureThreshold",
                     failures);
}

static json_t *resize_policy(const char *resource)
{
    return json_pack("{s:s, s:s}", "resourceName", resource, "restartPolicy", "NotRequired");
}

/* The ratio of limit to request stays, and with it the pod's class. */
static int put_cpu(json_t *resources, int64_t mcpu, int64_t before, int64_t limit)
{
    char text[KUBE_QUANTITY_MAX];
    int e;

    kube_milli_text(mcpu, text);
    e = json_object_set_new(object_in(resources, "requests"), "cpu", json_string(text));
    if (limit > 0 && before > 0) {
        kube_milli_text((limit * mcpu + before - 1) / before, text);
        e |= json_object_set_new(object_in(resources, "limits"), "cpu", json_string(text));
    }
    return e;
}

static int put_resources(const struct kube_etj *etj, const struct kube_new_pod *new_pod,
                         json_t *container)
{
    const struct kube_task *task = &etj->task[new_pod->role];
    int e = 0;

    if (task->resources)
        e |= json_object_set_new(container, "resources", json_deep_copy(task->resources));
    if (new_pod->mcpu && new_pod->mcpu != task->mcpu)
        e |=
            put_cpu(object_in(container, "resources"), new_pod->mcpu, task->mcpu, task->limit_mcpu);
    return e;
}

/*
 * A limit for the start alone; the request stays, so nobody else's room is used. A resize may not
 * change the pod's class: the last byte of memory is not requested, so that the pod is Burstable
 * also with the usual limit.
 */
static int put_start(const struct kube_etj *etj, const struct kube_new_pod *new_pod,
                     json_t *container)
{
    const struct kube_task *task = &etj->task[new_pod->role];
    json_t *resources = object_in(container, "resources");
    json_t *requests = object_in(resources, "requests"), *limits = object_in(resources, "limits");
    const char *memory = json_string_value(json_object_get(limits, "memory"));
    const json_t *asked = json_object_get(requests, "memory");
    char text[KUBE_QUANTITY_MAX];
    int64_t bytes;
    int e;

    kube_milli_text(new_pod->start_mcpu, text);
    e = json_object_set_new(limits, "cpu", json_string(text));
    kube_milli_text(new_pod->mcpu ? new_pod->mcpu : task->mcpu, text);
    e |= put_default(requests, "cpu", json_string(text));
    if (!memory || (asked && !json_equal(asked, json_object_get(limits, "memory"))) ||
        kube_quantity_whole(memory, &bytes) || bytes < 2)
        return e;
    return e | json_object_set_new(requests, "memory", json_sprintf("%" PRId64, bytes - 1));
}

static int put_command(const struct kube_pod_settings *settings, const struct kube_etj *etj,
                       enum kube_role role, json_t *container)
{
    const char *node = settings->node_image ? FILES "/tide-tfnode" : "tide-tfnode";

    if (role != KUBE_CHIEF)
        return put_default(container, "command", json_pack("[s]", node));
    if (json_object_set_new(container, "command", json_deep_copy(etj->command)))
        return -1;
    return etj->args ? json_object_set_new(container, "args", json_deep_copy(etj->args)) : 0;
}

static int put_ports(json_t *container)
{
    json_t *list = array_in(container, "ports");

    return put_named(list, "name",
                     json_pack("{s:s, s:i, s:s}", "name", "tensorflow", "containerPort", KUBE_PORT,
                               "protocol", "TCP")) |
           put_named(list, "name",
                     json_pack("{s:s, s:i, s:s}", "name", "tide-control", "containerPort",
                               KUBE_CONTROL_PORT, "protocol", "TCP"));
}

/* The chief's token and CA. The pod starts without the ConfigMap, which may come later or never. */
static int put_secrets(const struct kube_etj *etj, json_t *spec, json_t *container)
{
    char name[KUBE_NAME_MAX + 1];
    json_t *volume;

    snprintf(name, sizeof(name), "%s-ca", etj->meta.name);
    volume = json_pack("{s:s, s:{s:[{s:{s:s, s:s, s:i}}, {s:{s:s, s:b, s:[{s:s, s:s}]}}]}}", "name",
                       "threadtide", "projected", "sources", "serviceAccountToken", "audience",
                       "threadtide", "path", "token", "expirationSeconds", 3600, "configMap",
                       "name", name, "optional", 1, "items", "key", "ca.crt", "path", "ca.crt");
    return put_named(array_in(spec, "volumes"), "name", volume) |
           put_named(array_in(container, "volumeMounts"), "name",
                     json_pack("{s:s, s:s, s:b}", "name", "threadtide", "mountPath", SECRETS,
                               "readOnly", 1));
}

/*
 * An init container of the node image copies our files into the pod before anything else runs. It
 * requests as much as the training's container, so the pod's request and class do not change.
 */
static int put_files(const struct kube_pod_settings *settings, json_t *spec, json_t *container)
{
    json_t *copier =
        json_pack("{s:s, s:s, s:[s, s, s, s], s:[{s:s, s:s}], s:o*, s:{s:b, s:{s:[s]}}}", "name",
                  "tide-files", "image", settings->node_image, "command", "/bin/cp", "-r",
                  FILES "/.", "/to", "volumeMounts", "name", "tide-files", "mountPath", "/to",
                  "resources", json_deep_copy(json_object_get(container, "resources")),
                  "securityContext", "allowPrivilegeEscalation", 0, "capabilities", "drop", "ALL");

    return put_named(array_in(spec, "initContainers"), "name", copier) |
           put_named(array_in(spec, "volumes"), "name",
                     json_pack("{s:s, s:{}}", "name", "tide-files", "emptyDir")) |
           put_named(array_in(container, "volumeMounts"), "name",
                     json_pack("{s:s, s:s, s:b}", "name", "tide-files", "mountPath", FILES,
                               "readOnly", 1));
}

/* ---- pods ------------------------------------------------------------------------------------ */

/* The container of the training in the user's template, or a new one at the front; borrowed. */
static json_t *find_container(json_t *spec)
{
    json_t *list = array_in(spec, "containers"), *container;
    size_t i;

    json_array_foreach (list, i, container) {
        const char *name = json_string_value(json_object_get(container, "name"));

        if (name && strcmp(name, KUBE_CONTAINER) == 0)
            return container;
    }
    container = json_pack("{s:s}", "name", KUBE_CONTAINER);
    return json_array_insert_new(list, 0, container) ? NULL : container;
}

static int fill_container(const struct kube_pod_settings *settings, const struct kube_etj *etj,
                          const struct kube_new_pod *new_pod, json_t *spec, json_t *container)
{
    int e = put_default(container, "image", json_string(etj->image));

    e |= put_command(settings, etj, new_pod->role, container);
    e |= put_all_env(settings, etj, new_pod, container);
    e |= put_resources(etj, new_pod, container);
    e |= json_object_set_new(container, "resizePolicy",
                             json_pack("[o, o]", resize_policy("cpu"), resize_policy("memory")));
    e |= put_default(container, "securityContext",
                     json_pack("{s:b, s:{s:[s]}}", "allowPrivilegeEscalation", 0, "capabilities",
                               "drop", "ALL"));
    if (settings->node_image)
        e |= put_files(settings, spec, container);
    if (new_pod->start_mcpu) /* last: what copies files needs no more than ever */
        e |= put_start(etj, new_pod, container);
    if (new_pod->role == KUBE_CHIEF)
        return e | put_secrets(etj, spec, container);
    e |= put_ports(container);
    e |= put_default(container, "readinessProbe", probe("/readyz", 1));
    return e | put_default(container, "livenessProbe", probe("/healthz", 15));
}

/* ---- where they may run ---------------------------------------------------------------------- */

static json_t *requirement(const char *key, const char *op, const char *const *values,
                           uint32_t count)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < count; i++)
        json_array_append_new(list, json_string(values[i]));
    return json_pack("{s:s, s:s, s:o}", "key", key, "operator", op, "values", list);
}

/* Whether the template itself says how its pods keep apart, or together. */
static bool spreads(const json_t *spec)
{
    const json_t *affinity = json_object_get(spec, "affinity");

    return json_object_get(spec, "topologySpreadConstraints") ||
           json_object_get(affinity, "podAntiAffinity") || json_object_get(affinity, "podAffinity");
}

/* The requirements that each of the user's terms gets. */
static json_t *requirements_of(const struct kube_demand *more, bool spread)
{
    uint32_t bound = spread ? more->taken_count : more->bound_count;
    static const char *const yes = "true";
    json_t *list = json_array();

    if (more->topology_required)
        json_array_append_new(list,
                              requirement(more->topology_key, "In", &more->topology_value, 1));
    for (uint32_t g = 0; more->no_gpus && g < more->gpu_count; g++) {
        char key[KUBE_NAME_MAX + 64];

        snprintf(key, sizeof(key), "%s.present", more->gpus[g]);
        json_array_append_new(list, requirement(key, "NotIn", &yes, 1));
    }
    if (more->no_gpus && more->host_count)
        json_array_append_new(
            list, requirement(KUBE_LABEL_HOSTNAME, "NotIn", more->hosts, more->host_count));
    if (bound)
        json_array_append_new(list, requirement(KUBE_LABEL_HOSTNAME, "NotIn", more->bound, bound));
    return list;
}

static int require(json_t *affinity, const struct kube_demand *more, bool spread)
{
    json_t *needs = requirements_of(more, spread), *terms, *term;
    int e = needs ? 0 : -1;
    size_t i;

    if (json_array_size(needs) > 0) {
        terms = array_in(object_in(affinity, "requiredDuringSchedulingIgnoredDuringExecution"),
                         "nodeSelectorTerms");
        if (json_array_size(terms) == 0)
            e |= json_array_append_new(terms, json_object());
        json_array_foreach (terms, i, term)
            e |= json_array_extend(array_in(term, "matchExpressions"), needs);
    }
    json_decref(needs);
    return e;
}

static int prefer(json_t *affinity, const char *key, const char *value)
{
    json_t *list = array_in(affinity, "preferredDuringSchedulingIgnoredDuringExecution");

    return json_array_append_new(list,
                                 json_pack("{s:i, s:{s:[o]}}", "weight", 100, "preference",
                                           "matchExpressions", requirement(key, "In", &value, 1)));
}

static int put_tolerations(json_t *spec, const struct kube_demand *more)
{
    static const char *const effects[] = {"NoSchedule", "PreferNoSchedule", "NoExecute", NULL};
    json_t *list = array_in(spec, "tolerations");
    int e = 0;

    for (uint32_t i = 0; i < more->toleration_count; i++) {
        const struct kube_toleration *t = &more->tolerations[i];

        e |= json_array_append_new(list, json_pack("{s:s*, s:s, s:s*, s:s*}", "key",
                                                   *t->key ? t->key : NULL, "operator",
                                                   t->value ? "Equal" : "Exists", "value", t->value,
                                                   "effect", effects[t->effect]));
    }
    return e;
}

static int put_demand(json_t *spec, const struct kube_demand *more)
{
    bool near = more->topology_value && !more->topology_required;
    json_t *affinity;
    int e = 0;

    for (uint32_t i = 0; i < more->selector_count; i++)
        e |= json_object_set_new(object_in(spec, "nodeSelector"), more->selector[i].key,
                                 json_string(more->selector[i].value));
    if (more->toleration_count)
        e |= put_tolerations(spec, more);
    if (!near && !more->topology_required && !more->no_gpus && !more->bound_count && !more->host)
        return e;
    affinity = object_in(object_in(spec, "affinity"), "nodeAffinity");
    e |= require(affinity, more, spreads(spec));
    if (near)
        e |= prefer(affinity, more->topology_key, more->topology_value);
    return e | (more->host ? prefer(affinity, KUBE_LABEL_HOSTNAME, more->host) : 0);
}

static int fill_spec(const struct kube_etj *etj, const char *name, json_t *spec)
{
    int e = json_object_set_new(spec, "restartPolicy", json_string("Never"));

    e |= json_object_set_new(spec, "subdomain", json_string(etj->meta.name));
    e |= json_object_set_new(spec, "hostname", json_string(name));
    e |= put_default(spec, "terminationGracePeriodSeconds", json_integer(GRACE_S));
    e |= put_default(spec, "automountServiceAccountToken", json_false());
    e |= put_default(spec, "enableServiceLinks", json_false());
    e |= put_default(spec, "securityContext",
                     json_pack("{s:{s:s}}", "seccompProfile", "type", "RuntimeDefault"));
    if (*etj->priority_class)
        e |= json_object_set_new(spec, "priorityClassName", json_string(etj->priority_class));
    return e;
}

/* Labels and annotations of the template, then ours. */
static json_t *metadata_of(const struct kube_etj *etj, const json_t *template,
                           const struct kube_new_pod *new_pod, const char *name)
{
    const json_t *user = json_object_get(template, "metadata");
    json_t *meta = json_object(), *ours;
    char index[16];
    int e;

    snprintf(index, sizeof(index), "%" PRIu32, new_pod->index);
    ours = labels_of(etj, kube_role_name(new_pod->role), index);
    e = json_object_set_new(meta, "name", json_string(name));
    e |= json_object_set_new(meta, "namespace", json_string(etj->meta.namespace));
    e |= json_object_set_new(meta, "ownerReferences", kube_owner_json(etj));
    if (json_is_object(json_object_get(user, "annotations")))
        e |= json_object_set_new(meta, "annotations",
                                 json_deep_copy(json_object_get(user, "annotations")));
    if (new_pod->start_mcpu) {
        char text[KUBE_QUANTITY_MAX];

        kube_milli_text(new_pod->start_mcpu, text);
        e |= json_object_set_new(object_in(meta, "annotations"), KUBE_ANNOTATION_START,
                                 json_string(text));
    }
    if (json_is_object(json_object_get(user, "labels")))
        e |= json_object_set_new(meta, "labels", json_deep_copy(json_object_get(user, "labels")));
    e |= json_object_update(object_in(meta, "labels"), ours);
    json_decref(ours);
    if (e) {
        json_decref(meta);
        return NULL;
    }
    return meta;
}

json_t *kube_pod_json(const struct kube_pod_settings *settings, const struct kube_etj *etj,
                      const struct kube_new_pod *new_pod)
{
    const json_t *template = etj->task[new_pod->role].template;
    const json_t *user = json_object_get(template, "spec");
    json_t *spec = json_is_object(user) ? json_deep_copy(user) : json_object();
    json_t *container = find_container(spec);
    char name[KUBE_NAME_MAX + 1];

    kube_pod_name(etj, new_pod->role, new_pod->index, name);
    if (!container || fill_container(settings, etj, new_pod, spec, container) ||
        fill_spec(etj, name, spec) || (new_pod->demand && put_demand(spec, new_pod->demand))) {
        json_decref(spec);
        return NULL;
    }
    return json_pack("{s:s, s:s, s:o, s:o}", "apiVersion", "v1", "kind", "Pod", "metadata",
                     metadata_of(etj, template, new_pod, name), "spec", spec);
}

/* ---- beside the pods ------------------------------------------------------------------------- */

json_t *kube_service_json(const struct kube_etj *etj)
{
    return json_pack(
        "{s:s, s:s, s:{s:s, s:s, s:o, s:o}, s:{s:s, s:b, s:{s:s}, s:[{s:s, s:i, s:s}]}}",
        "apiVersion", "v1", "kind", "Service", "metadata", "name", etj->meta.name, "namespace",
        etj->meta.namespace, "labels", labels_of(etj, NULL, NULL), "ownerReferences",
        kube_owner_json(etj), "spec", "clusterIP", "None", "publishNotReadyAddresses", 1,
        "selector", KUBE_LABEL_JOB, etj->meta.name, "ports", "name", "tensorflow", "port",
        KUBE_PORT, "protocol", "TCP");
}

json_t *kube_config_json(const struct kube_pod_settings *settings, const struct kube_etj *etj)
{
    char name[KUBE_NAME_MAX + 1];

    snprintf(name, sizeof(name), "%s-ca", etj->meta.name);
    return json_pack("{s:s, s:s, s:{s:s, s:s, s:o, s:o}, s:{s:s}}", "apiVersion", "v1", "kind",
                     "ConfigMap", "metadata", "name", name, "namespace", etj->meta.namespace,
                     "labels", labels_of(etj, NULL, NULL), "ownerReferences", kube_owner_json(etj),
                     "data", "ca.crt", settings->ca_pem);
}

json_t *kube_finalizer_json(const struct kube_etj *etj)
{
    return json_pack("{s:s, s:s, s:{s:s, s:s, s:[s]}}", "apiVersion", API, "kind", KUBE_KIND,
                     "metadata", "name", etj->meta.name, "namespace", etj->meta.namespace,
                     "finalizers", KUBE_FINALIZER);
}

json_t *kube_let_go_json(const struct kube_etj *etj)
{
    char place[64];

    snprintf(place, sizeof(place), "/metadata/finalizers/%d", etj->finalizer);
    return json_pack("[{s:s, s:s, s:s}, {s:s, s:s, s:s}, {s:s, s:s}]", "op", "test", "path",
                     "/metadata/uid", "value", etj->meta.uid, "op", "test", "path", place, "value",
                     KUBE_FINALIZER, "op", "remove", "path", place);
}

json_t *kube_leave_json(const char *why)
{
    return json_pack("{s:{s:{s:s}}}", "metadata", "annotations", KUBE_ANNOTATION_LEAVE, why);
}

json_t *kube_resize_json(const struct kube_pod *pod, int64_t mcpu, int64_t limit_mcpu)
{
    json_t *resources = json_object();
    int64_t before = limit_mcpu ? mcpu : pod->mcpu;

    if (put_cpu(resources, mcpu, before, limit_mcpu ? limit_mcpu : pod->limit_mcpu)) {
        json_decref(resources);
        return NULL;
    }
    return json_pack("{s:{s:[{s:s, s:o}]}}", "spec", "containers", "name", KUBE_CONTAINER,
                     "resources", resources);
}

json_t *kube_event_json(const struct kube_action *action, const char *name, const char *controller,
                        int64_t wall_ns)
{
    const struct kube_etj *etj = action->etj;
    char when[KUBE_TIME_TEXT];

    kube_micro_time_text(wall_ns, when);
    return json_pack("{s:s, s:s, s:{s:s, s:s}, s:s, s:s, s:s, s:s, s:s, s:s, s:s,"
                     " s:{s:s, s:s, s:s, s:s, s:s}}",
                     "apiVersion", "events.k8s.io/v1", "kind", "Event", "metadata", "name", name,
                     "namespace", etj->meta.namespace, "eventTime", when, "reportingController",
                     KUBE_GROUP "/tide-kube", "reportingInstance", controller, "action",
                     action->note.reason, "reason", action->note.reason, "type",
                     action->note.warning ? "Warning" : "Normal", "note", action->note.text,
                     "regarding", "apiVersion", API, "kind", KUBE_KIND, "name", etj->meta.name,
                     "namespace", etj->meta.namespace, "uid", etj->meta.uid);
}

json_t *kube_members_json(const struct kube_members *members)
{
    json_t *lists[KUBE_ROLE_MAX] = {NULL, json_array(), json_array()};

    for (uint32_t i = 0; i < members->count; i++) {
        const struct kube_member *m = &members->at[i];

        json_array_append_new(lists[m->role],
                              json_pack("{s:I, s:s, s:i, s:i, s:b, s:I}", "index",
                                        (json_int_t)m->index, "host", m->host, "port", KUBE_PORT,
                                        "control_port", KUBE_CONTROL_PORT, "leave", m->leave,
                                        "threads", (json_int_t)m->threads));
    }
    return json_pack("{s:I, s:s, s:i, s:b, s:o, s:o}", "generation",
                     (json_int_t)members->generation, "mode", kube_mode_name(members->mode),
                     "slots", members->slots, "suspend", members->suspend, "ps", lists[KUBE_PS],
                     "worker", lists[KUBE_WORKER]);
}

/* ---- status ---------------------------------------------------------------------------------- */

static json_t *count_json(const struct kube_count *count)
{
    return json_pack("{s:i, s:i, s:i, s:I}", "desired", count->desired, "actual", count->actual,
                     "ready", count->ready, "nextIndex", (json_int_t)count->next_index);
}

/* Rounds to six digits: more are noise, and unreadable in a table. */
static json_t *real(double value)
{
    char text[32];

    snprintf(text, sizeof(text), "%.6g", value);
    return json_real(strtod(text, NULL));
}

static json_t *progress_json(const struct kube_status *status)
{
    const struct kube_progress *p = &status->progress;
    char when[KUBE_TIME_TEXT];
    json_t *json;

    kube_time_text(status->progress_ns, when);
    json = json_pack("{s:I, s:I, s:I, s:o, s:o, s:i, s:i, s:s}", "step", (json_int_t)p->step,
                     "epoch", (json_int_t)p->epoch, "examples", (json_int_t)p->examples,
                     "examplesPerSecond", real(p->examples_per_s), "stepSeconds", real(p->step_s),
                     "computePermille", (int)p->compute_permille, "communicationPermille",
                     (int)p->communication_permille, "at", when);
    if (json && !isnan(p->loss))
        json_object_set_new(json, "loss", real(p->loss));
    return json;
}

static json_t *conditions_json(const struct kube_status *status)
{
    static const char *const truths[] = {"Unknown", "False", "True"};
    json_t *list = json_array();

    for (int i = 0; i < KUBE_CONDITION_MAX; i++) {
        const struct kube_condition *condition = &status->conditions[i];
        char when[KUBE_TIME_TEXT];

        if (condition->since_ns == 0)
            continue;
        kube_time_text(condition->since_ns, when);
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:s, s:s, s:s, s:I}", "type",
                                        kube_condition_name((enum kube_condition_type)i), "status",
                                        truths[condition->status], "reason", condition->reason,
                                        "message", condition->message, "lastTransitionTime", when,
                                        "observedGeneration", (json_int_t)condition->generation));
    }
    return list;
}

static json_t *sizes_json(const struct kube_status *status)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < status->size_count; i++) {
        const struct kube_size *size = &status->sizes[i];
        char when[KUBE_TIME_TEXT];

        kube_time_text(size->since_ns, when);
        json_array_append_new(list, json_pack("{s:s, s:i, s:i}", "since", when, "ps", size->ps,
                                              "workers", size->workers));
    }
    return list;
}

json_t *kube_status_json(const struct kube_etj *etj, const struct kube_status *status)
{
    char selector[KUBE_NAME_MAX + 128], hash[24];
    json_t *json;

    snprintf(selector, sizeof(selector), KUBE_LABEL_JOB "=%s," KUBE_LABEL_ROLE "=worker",
             etj->meta.name);
    snprintf(hash, sizeof(hash), "%" PRIx64, status->members_hash);
    json = json_pack("{s:s, s:I, s:s, s:s, s:s, s:i, s:o, s:o, s:{s:I, s:s}, s:o}", "phase",
                     kube_phase_name(status->phase), "observedGeneration",
                     (json_int_t)status->observed_generation, "reason", status->reason, "message",
                     status->message, "selector", selector, "restarts", status->restarts, "ps",
                     count_json(&status->ps), "workers", count_json(&status->worker), "members",
                     "generation", (json_int_t)status->members_generation, "hash", hash,
                     "conditions", conditions_json(status));
    if (json && *status->failed_uid)
        json_object_set_new(json, "failedChief", json_string(status->failed_uid));
    if (json && status->efficiency_percent >= 0)
        json_object_set_new(json, "efficiency", json_integer(status->efficiency_percent));
    if (json && status->has_progress)
        json_object_set_new(json, "progress", progress_json(status));
    if (json && status->size_count)
        json_object_set_new(json, "sizes", sizes_json(status));
    return json_pack("{s:s, s:s, s:{s:s, s:s, s:s*}, s:o}", "apiVersion", API, "kind", KUBE_KIND,
                     "metadata", "name", etj->meta.name, "namespace", etj->meta.namespace,
                     "resourceVersion", etj->version, "status", json);
}

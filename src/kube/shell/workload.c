/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/shell/workload.h"

#include "base/cleanup.h"
#include "kube/object/quantity.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- the Workload ---------------------------------------------------------------------------- */

/* Copies members of that name, as far as there are any. Returns 0 or -1. */
static int copy_members(json_t *to, const json_t *from, const char *const *keys, size_t count)
{
    int e = 0;

    for (size_t i = 0; i < count; i++)
        if (json_object_get(from, keys[i]))
            e |= json_object_set_new(to, keys[i], json_deep_copy(json_object_get(from, keys[i])));
    return e;
}

/* Containers as far as they ask for resources. */
static json_t *ask_of(const json_t *containers)
{
    static const char *const keys[] = {"name", "image", "resources", "restartPolicy"};
    json_t *list = json_array(), *container;
    size_t i;

    json_array_foreach (containers, i, container) {
        json_t *small = json_object();

        if (copy_members(small, container, keys, ARRAY_LEN(keys)) ||
            json_array_append_new(list, small)) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

/* The pod's template as far as Kueue decides by it. */
static json_t *template_of(const struct kube_pod_settings *settings, const struct kube_etj *etj,
                           enum kube_role role)
{
    static const char *const keys[] = {"nodeSelector",     "affinity",          "tolerations",
                                       "overhead",         "resources",         "restartPolicy",
                                       "runtimeClassName", "priorityClassName", "schedulerName"};
    const struct kube_new_pod new_pod = {.role = role};
    json_t *pod = kube_pod_json(settings, etj, &new_pod), *spec = json_object();
    const json_t *from = json_object_get(pod, "spec"),
                 *init = json_object_get(from, "initContainers");
    int e = pod ? copy_members(spec, from, keys, ARRAY_LEN(keys)) : -1;

    e |= json_object_set_new(spec, "containers", ask_of(json_object_get(from, "containers")));
    if (init)
        e |= json_object_set_new(spec, "initContainers", ask_of(init));
    json_decref(pod);
    if (e) {
        json_decref(spec);
        return NULL;
    }
    return json_pack("{s:o}", "spec", spec);
}

static json_t *pod_set(const struct kube_pod_settings *settings, const struct kube_etj *etj,
                       enum kube_role role)
{
    const struct kube_task *task = &etj->task[role];
    json_t *set = json_pack("{s:s, s:i, s:o}", "name", kube_role_name(role), "count", task->max,
                            "template", template_of(settings, etj, role));

    /* of one pod set alone there may be fewer */
    if (set && role == KUBE_WORKER && task->min < task->max)
        json_object_set_new(set, "minCount", json_integer(task->min));
    return set;
}

json_t *kube_workload_json(const struct kube_pod_settings *settings, const struct kube_etj *etj,
                           const struct kube_queueing *queueing)
{
    char api[128], name[KUBE_NAME_MAX + 1], asks[24];

    snprintf(api, sizeof(api), KUBE_KUEUE_GROUP "/%s", queueing->version);
    snprintf(asks, sizeof(asks), "%" PRIx64, etj->asks);
    kube_workload_name(etj, name);
    return json_pack(
        "{s:s, s:s, s:{s:s, s:s, s:{s:s}, s:{s:s, s:s}, s:o}, s:{s:s, s:i, s:[o, o, o]}}",
        "apiVersion", api, "kind", "Workload", "metadata", "name", name, "namespace",
        etj->meta.namespace, "annotations", KUBE_ANNOTATION_ASKS, asks, "labels", KUBE_LABEL_JOB,
        etj->meta.name, "app.kubernetes.io/managed-by", "tide-kube", "ownerReferences",
        kube_owner_json(etj), "spec", "queueName", etj->queue, "priority", (int)queueing->priority,
        "podSets", pod_set(settings, etj, KUBE_CHIEF), pod_set(settings, etj, KUBE_PS),
        pod_set(settings, etj, KUBE_WORKER));
}

/* ---- changes --------------------------------------------------------------------------------- */

json_t *kube_workload_turn_json(const struct kube_queueing *queueing)
{
    return json_pack("{s:{s:s, s:{s:o}}, s:{s:b}}", "metadata", "uid", queueing->workload->meta.uid,
                     "annotations", KUBE_ANNOTATION_PAUSED,
                     queueing->active ? json_null() : json_string("true"), "spec", "active",
                     queueing->active);
}

/* Sets a condition in the list; its time stays where its status does. Returns 0 or -1. */
static int put_condition(json_t *list, const struct kube_queueing *queueing, const char *type,
                         bool truth, const char *reason, const char *message)
{
    const char *status = truth ? "True" : "False";
    char when[KUBE_TIME_TEXT];
    json_t *made, *other;
    size_t i;

    kube_time_text(queueing->wall_ns, when);
    made = json_pack("{s:s, s:s, s:s, s:s, s:s, s:I}", "type", type, "status", status, "reason",
                     reason, "message", message, "lastTransitionTime", when, "observedGeneration",
                     (json_int_t)queueing->workload->meta.generation);
    json_array_foreach (list, i, other) {
        const char *its = json_string_value(json_object_get(other, "type"));
        const char *was = json_string_value(json_object_get(other, "status"));

        if (!its || strcmp(its, type) != 0)
            continue;
        if (was && strcmp(was, status) == 0)
            json_object_set(made, "lastTransitionTime",
                            json_object_get(other, "lastTransitionTime"));
        return json_array_set_new(list, i, made);
    }
    return json_array_append_new(list, made);
}

/* As Kueue does itself with jobs of its own: who was pushed out is queued again. */
static int put_release(json_t *list, const struct kube_queueing *queueing)
{
    const struct kube_workload *w = queueing->workload;
    const char *reason = w->evicted_for ? w->evicted_for : "Evicted";
    bool again = strcmp(reason, "Preempted") == 0 || strcmp(reason, "NodeFailures") == 0;

    return put_condition(list, queueing, "Requeued", again, reason, w->why) |
           put_condition(list, queueing, "QuotaReserved", false, "Pending", w->why) |
           put_condition(list, queueing, "Admitted", false, "NoReservation",
                         "The workload has no reservation");
}

json_t *kube_workload_news_json(const struct kube_queueing *queueing)
{
    const struct kube_workload *w = queueing->workload;
    json_t *list = w->conditions ? json_deep_copy(w->conditions) : json_array(), *status;
    int e = 0;

    switch (queueing->news) {
    case KUBE_NEWS_RELEASED:
        e = put_release(list, queueing);
        break;
    case KUBE_NEWS_READY:
        e = put_condition(list, queueing, "PodsReady", true, "Started",
                          "chief and the minimum of replicas are in the training");
        break;
    case KUBE_NEWS_SUCCEEDED:
        e = put_condition(list, queueing, "Finished", true, "Succeeded", "the training has ended");
        break;
    default:
        e = put_condition(list, queueing, "Finished", true, "Failed", "the training has failed");
    }
    if (e) {
        json_decref(list);
        return NULL;
    }
    status = json_pack("{s:o}", "conditions", list);
    if (status && queueing->news == KUBE_NEWS_RELEASED)
        json_object_set_new(status, "admission", json_null());
    return json_pack("{s:{s:s, s:s*}, s:o}", "metadata", "uid", w->meta.uid, "resourceVersion",
                     w->version, "status", status);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Kueue's objects, as far as every version of them agrees; and priority classes. */
#include "kube/object/object.h"

#include "kube/object/read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Workload -------------------------------------------------------------------------------- */

static enum kube_role role_of(const char *name)
{
    for (int role = 0; name && role < KUBE_ROLE_MAX; role++)
        if (strcmp(name, kube_role_name((enum kube_role)role)) == 0)
            return (enum kube_role)role;
    return KUBE_ROLE_MAX;
}

static void read_assignment(struct reader *r, const json_t *in, struct kube_assignment *ret)
{
    const json_t *flavors = read_object(r, in, "flavors");
    size_t most = json_object_size(flavors);
    const char *resource;
    json_t *name;

    ret->count = (int32_t)read_int(r, in, "count", -1, 0, KUBE_TASKS_MAX);
    if (most == 0 || most > KUBE_LIST_MAX || ret->flavors)
        return;
    ret->flavors = read_alloc(r, most, sizeof(char *));
    json_object_foreach ((json_t *)flavors, resource, name) {
        if (!ret->flavors || !json_is_string(name))
            continue;
        ret->flavors[ret->flavor_count] = read_copy(r, json_string_value(name));
        ret->flavor_count += ret->flavors[ret->flavor_count] != NULL;
    }
}

static void read_admission(struct reader *r, const json_t *status, struct kube_workload *w)
{
    const json_t *admission, *assignment, *check, *update;
    const char *queue;
    size_t i, k;

    for (int role = 0; role < KUBE_ROLE_MAX; role++)
        w->assignment[role].count = -1;
    admission = read_object(r, status, "admission");
    queue = read_string(r, admission, "clusterQueue");
    w->cluster_queue = read_copy(r, queue ? queue : "");
    json_array_foreach (read_array(r, admission, "podSetAssignments"), i, assignment) {
        enum kube_role role = role_of(read_string(r, assignment, "name"));

        if (role < KUBE_ROLE_MAX)
            read_assignment(r, assignment, &w->assignment[role]);
    }
    /* as a check that orders new machines, and says how to find them */
    json_array_foreach (read_array(r, status, "admissionChecks"), i, check)
        json_array_foreach (read_array(r, check, "podSetUpdates"), k, update) {
            enum kube_role role = role_of(read_string(r, update, "name"));

            if (role < KUBE_ROLE_MAX && !w->assignment[role].place.selector.at &&
                !w->assignment[role].place.tolerations)
                read_place(r, update, &w->assignment[role].place);
        }
}

static void read_workload_condition(struct reader *r, const json_t *in, struct kube_workload *w)
{
    const char *type = read_string(r, in, "type"), *status = read_string(r, in, "status");
    bool truth = status && strcmp(status, "True") == 0;
    bool why = false;

    if (!type)
        return;
    if (strcmp(type, "QuotaReserved") == 0) {
        w->reserved = truth;
        why = !truth;
    } else if (strcmp(type, "Admitted") == 0) {
        w->admitted = truth;
    } else if (strcmp(type, "Evicted") == 0) {
        w->evicted = truth;
        why = truth && !*w->why;
        if (truth && !w->evicted_for)
            w->evicted_for = read_text(r, in, "reason");
    } else if (strcmp(type, "Finished") == 0) {
        w->finished = truth;
    } else if (strcmp(type, "PodsReady") == 0) {
        w->pods_ready = truth;
    }
    if (why && json_string_value(json_object_get(in, "message"))) {
        free(w->why);
        w->why = read_clipped(r, in, "message");
    }
}

static void read_workload_meta(struct reader *r, const json_t *meta, struct kube_workload *w)
{
    const json_t *notes = read_object(r, meta, "annotations");
    const char *asks = read_string(r, notes, KUBE_ANNOTATION_ASKS);
    json_t *owner;
    size_t i;

    w->version = read_text(r, meta, "resourceVersion");
    w->asks = asks ? strtoull(asks, NULL, 16) : 0;
    w->paused = json_object_get(notes, KUBE_ANNOTATION_PAUSED);
    json_array_foreach (read_array(r, meta, "ownerReferences"), i, owner)
        if (read_bool(r, owner, "controller", false) && !w->owner_uid)
            w->owner_uid = read_text(r, owner, "uid");
}

int kube_workload_parse(const json_t *json, struct kube_workload **ret, struct error *err)
{
    struct reader r = {.lenient = true};
    struct kube_workload *w = read_alloc(&r, 1, sizeof(*w));
    const json_t *status;
    json_t *condition;
    size_t i;
    int e;

    if (!w)
        return read_end(&r, err);
    read_meta(&r, json, &w->meta);
    read_workload_meta(&r, read_object(&r, json, "metadata"), w);
    w->active = read_bool(&r, read_object(&r, json, "spec"), "active", true);
    status = read_object(&r, json, "status");
    w->why = read_copy(&r, "");
    read_admission(&r, status, w);
    w->conditions = json_incref((json_t *)read_array(&r, status, "conditions"));
    json_array_foreach (w->conditions, i, condition)
        if (w->why)
            read_workload_condition(&r, condition, w);
    e = read_end(&r, err);
    if (e)
        kube_workload_free(w);
    else
        *ret = w;
    return e;
}

struct kube_workload *kube_workload_free(struct kube_workload *w)
{
    if (!w)
        return NULL;
    kube_meta_done(&w->meta);
    for (int role = 0; role < KUBE_ROLE_MAX; role++) {
        struct kube_assignment *a = &w->assignment[role];

        for (uint32_t i = 0; i < a->flavor_count; i++)
            free(a->flavors[i]);
        free(a->flavors);
        kube_place_done(&a->place);
    }
    json_decref(w->conditions);
    free(w->version);
    free(w->owner_uid);
    free(w->cluster_queue);
    free(w->why);
    free(w->evicted_for);
    free(w);
    return NULL;
}

/* ---- ResourceFlavor -------------------------------------------------------------------------- */

int kube_flavor_parse(const json_t *json, struct kube_flavor **ret, struct error *err)
{
    struct reader r = {.lenient = true};
    struct kube_flavor *flavor = read_alloc(&r, 1, sizeof(*flavor));
    const json_t *spec;
    int e;

    if (!flavor)
        return read_end(&r, err);
    read_meta(&r, json, &flavor->meta);
    spec = read_object(&r, json, "spec");
    read_place(&r, spec, &flavor->place);
    read_labels(&r, spec, "nodeLabels", &flavor->place.selector);
    e = read_end(&r, err);
    if (e)
        kube_flavor_free(flavor);
    else
        *ret = flavor;
    return e;
}

struct kube_flavor *kube_flavor_free(struct kube_flavor *flavor)
{
    if (!flavor)
        return NULL;
    kube_meta_done(&flavor->meta);
    kube_place_done(&flavor->place);
    free(flavor);
    return NULL;
}

/* ---- priority classes ------------------------------------------------------------------------ */

int kube_class_parse(const json_t *json, struct kube_class **ret, struct error *err)
{
    struct reader r = {.lenient = true};
    struct kube_class *class = read_alloc(&r, 1, sizeof(*class));
    int e;

    if (!class)
        return read_end(&r, err);
    read_meta(&r, json, &class->meta);
    class->value = (int32_t)read_int(&r, json, "value", 0, INT32_MIN, INT32_MAX);
    class->standard = read_bool(&r, json, "globalDefault", false);
    e = read_end(&r, err);
    if (e)
        kube_class_free(class);
    else
        *ret = class;
    return e;
}

struct kube_class *kube_class_free(struct kube_class *class)
{
    if (!class)
        return NULL;
    kube_meta_done(&class->meta);
    free(class);
    return NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The objects of kube_model.h, and how tests make, find and change them. Seconds are the clock's.
 */
#pragma once

#include "kube/core/reconcile.h"
#include "kube/object/quantity.h"
#include "kube/shell/manifest.h"
#include "kube/shell/workload.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define S          INT64_C(1000000000)
#define OBJECTS    1024
#define WHOLE_PLAN SIZE_MAX

typedef double (*model_rate_fn)(int workers, int ps);

struct model {
    json_t *nodes, *pods, *etjs, *quotas, *pdbs; /* arrays */
    json_t *workloads, *flavors, *classes;       /* the same; Kueue's */
    json_t *told;                                /* members, by the training's name */
    json_t *used;                  /* every pod name that there ever was, but chiefs' */
    json_t *reports;               /* by the training's name: the last report */
    json_t *events;                /* reasons, in order */
    json_t *seen_pods, *seen_etjs; /* the controller's caches; NULL: up to date */
    struct kube_settings settings;
    struct kube_memory *memory;
    int64_t now_ns, wall_ns, wakeup_ns;
    unsigned uids;
    unsigned refused;      /* creations, for a quota */
    unsigned status_count; /* patches of statuses */
    unsigned let_go;       /* finalizers that were taken out */
    unsigned sent[KUBE_ACTION_MAX];
    enum kube_kueue kueue;
    bool no_api;         /* all requests of the controller are lost */
    bool no_chiefs;      /* chiefs run, but never report */
    bool no_kubelet;     /* pods are scheduled, but never run */
    bool no_resize;      /* kubelets call each resize infeasible */
    bool defers;         /* kubelets put each resize off */
    bool slow_resize;    /* kubelets have not come to it yet */
    bool finished;       /* chiefs report the end, have released all nodes, and end a while later */
    bool saves;          /* chiefs that are to give nodes back report, and keep them */
    unsigned tries;      /* to make pods that are refused */
    const char *refuses; /* pods with this in their names; NULL: none */
    const struct kube_etj *gave_up; /* whose pod of this plan was: no others are made */
    unsigned communication_permille;
    model_rate_fn rate;
    uint64_t random;
};

static inline double model_linear(int workers, int ps)
{
    (void)ps;
    return 100.0 * workers;
}

static inline unsigned model_random(struct model *m, unsigned below)
{
    m->random ^= m->random << 13;
    m->random ^= m->random >> 7;
    m->random ^= m->random << 17;
    return (unsigned)(m->random >> 33) % below;
}

static inline void model_init(struct model *m)
{
    *m = (struct model){
        .nodes = json_array(),
        .pods = json_array(),
        .etjs = json_array(),
        .quotas = json_array(),
        .pdbs = json_array(),
        .workloads = json_array(),
        .flavors = json_array(),
        .classes = json_array(),
        .told = json_object(),
        .used = json_object(),
        .reports = json_object(),
        .events = json_array(),
        .memory = kube_memory_new(),
        .now_ns = 1000 * S,
        .communication_permille = 100,
        .wall_ns = INT64_C(1790000000) * S,
        .rate = model_linear,
        .random = 88172645463325252u,
    };
    kube_settings_init(&m->settings);
}

static inline void model_done(struct model *m)
{
    json_t *all[] = {m->nodes, m->pods,    m->etjs,   m->quotas,    m->pdbs,    m->told,
                     m->used,  m->reports, m->events, m->workloads, m->flavors, m->classes};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        json_decref(all[i]);
    kube_memory_free(m->memory);
}

/* A test's own model is its prestate. */
static inline int model_set_up(void **state)
{
    model_init(*state);
    return 0;
}

static inline int model_tear_down(void **state)
{
    model_done(*state);
    return 0;
}

/* ---- objects --------------------------------------------------------------------------------- */

/* @outer: the object that holds it; NULL: @object itself. */
static inline const char *model_text(const json_t *object, const char *outer, const char *key)
{
    const char *text =
        json_string_value(json_object_get(outer ? json_object_get(object, outer) : object, key));

    return text ? text : "";
}

static inline void model_stamp(struct model *m, json_t *object, const char *name)
{
    json_t *meta = json_object_get(object, "metadata");
    char uid[32], when[KUBE_TIME_TEXT];

    if (!meta) {
        meta = json_object();
        json_object_set_new(object, "metadata", meta);
    }
    snprintf(uid, sizeof(uid), "uid-%u", ++m->uids);
    kube_time_text(m->wall_ns, when);
    json_object_set_new(meta, "name", json_string(name));
    json_object_set_new(meta, "uid", json_string(uid));
    json_object_set_new(meta, "creationTimestamp", json_string(when));
    json_object_set_new(meta, "generation", json_integer(1));
}

static inline json_t *model_json(const char *text)
{
    json_error_t error;
    json_t *json = json_loads(text, 0, &error);

    if (!json)
        fail_msg("%s: %s", error.text, text);
    return json;
}

static inline json_t *model_find(const json_t *list, const char *name)
{
    json_t *object;
    size_t i;

    json_array_foreach (list, i, object)
        if (strcmp(model_text(object, "metadata", "name"), name) == 0)
            return object;
    return NULL;
}

static inline json_t *model_node(struct model *m, const char *name, const char *cpu,
                                 const char *memory)
{
    json_t *node =
        json_pack("{s:{s:{}}, s:{}, s:{s:{s:s, s:s, s:s}, s:[{s:s, s:s}]}}", "metadata", "labels",
                  "spec", "status", "allocatable", "cpu", cpu, "memory", memory, "pods", "110",
                  "conditions", "type", "Ready", "status", "True");

    assert_non_null(node);
    model_stamp(m, node, name);
    json_array_append_new(m->nodes, node);
    return node;
}

/*
 * A training; @spec is laid over one with 1 worker of 1 core and 1 GiB at least, 8 at most, and
 * with slots that any of these numbers divides.
 */
static inline json_t *model_etj(struct model *m, const char *name, const char *spec)
{
    json_t *etj = model_json(
        "{\"metadata\": {\"namespace\": \"n\"}, \"spec\": {\"image\": \"i\", \"command\": [\"c\"],"
        "\"slots\": 840,"
        "\"chief\": {\"resources\": {\"requests\": {\"cpu\": \"500m\", \"memory\": \"1Gi\"}}},"
        "\"ps\": {\"min\": 1, \"max\": 1, \"resources\": {\"requests\": {\"cpu\": \"500m\","
        " \"memory\": \"1Gi\"}}},"
        "\"workers\": {\"min\": 1, \"max\": 8, \"resources\": {\"requests\": {\"cpu\": 1,"
        " \"memory\": \"1Gi\"}}}}}");
    json_t *more = model_json(spec);

    json_object_update_recursive(json_object_get(etj, "spec"), more);
    json_decref(more);
    model_stamp(m, etj, name);
    json_array_append_new(m->etjs, etj);
    return etj;
}

static inline json_t *model_spec(struct model *m, const char *name, const char *spec)
{
    json_t *etj = model_find(m->etjs, name), *more = model_json(spec);

    json_object_update_recursive(json_object_get(etj, "spec"), more);
    json_decref(more);
    return etj;
}

/* Makes a foreign pod, on a node or for the scheduler. */
static inline json_t *model_other(struct model *m, const char *name, const char *node,
                                  const char *cpu, int priority)
{
    json_t *pod = json_pack("{s:{s:s}, s:{s:i, s:[{s:s, s:{s:{s:s, s:s}}}]}, s:{s:s}}", "metadata",
                            "namespace", "others", "spec", "priority", priority, "containers",
                            "name", "x", "resources", "requests", "cpu", cpu, "memory", "1Gi",
                            "status", "phase", node ? "Running" : "Pending");

    assert_non_null(pod);
    if (node)
        json_object_set_new(json_object_get(pod, "spec"), "nodeName", json_string(node));
    model_stamp(m, pod, name);
    json_array_append_new(m->pods, pod);
    return pod;
}

static inline void model_remove(json_t *list, const char *name)
{
    json_t *object;
    size_t i;

    json_array_foreach (list, i, object)
        if (strcmp(model_text(object, "metadata", "name"), name) == 0) {
            json_array_remove(list, i);
            return;
        }
    fail_msg("there is no %s", name);
}

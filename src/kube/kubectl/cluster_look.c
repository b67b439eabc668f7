/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/kubectl/cluster_look.h"

#include "base/clock.h"
#include "base/minmax.h"
#include "kube/object/object.h"
#include "kube/object/quantity.h"

#include <errno.h>
#include <math.h>
#include <string.h>

int cluster_look_begin(struct cluster_look *l)
{
    *l = (struct cluster_look){.by_name = json_object(), .problems = json_array()};
    if (l->by_name && l->problems)
        return 0;
    cluster_look_done(l);
    return -ENOMEM;
}

void cluster_look_done(struct cluster_look *l)
{
    json_decref(l->trainings);
    json_decref(l->nodes);
    json_decref(l->by_name);
    json_decref(l->problems);
    *l = (struct cluster_look){0};
}

void cluster_look_problem(struct cluster_look *l, const char *what, const char *why)
{
    json_array_append_new(l->problems, json_sprintf("%s: %s", what, why));
}

static json_t *milliseconds(int64_t ns)
{
    return ns > 0 ? json_integer(ns / (int64_t)NS_PER_MS) : json_null();
}

/* ---- trainings ------------------------------------------------------------------------------- */

static json_t *count_of(const struct kube_count *count, const struct kube_task *task)
{
    return json_pack("{s:i,s:i,s:i,s:i,s:i}", "desired", count->desired, "actual", count->actual,
                     "ready", count->ready, "min", task->min, "max", task->max);
}

static json_t *sizes_of(const struct kube_status *s)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < s->size_count; i++)
        json_array_append_new(list, json_pack("[o,i,i]", milliseconds(s->sizes[i].since_ns),
                                              s->sizes[i].ps, s->sizes[i].workers));
    return list;
}

static json_t *real(bool known, double value)
{
    return known && isfinite(value) ? json_real(value) : json_null();
}

static json_t *training_of(const struct kube_etj *e)
{
    const struct kube_status *s = &e->status;
    const struct kube_progress *p = &s->progress;

    return json_pack("{s:s,s:s,s:o,s:s,s:s,s:s,s:s,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "namespace",
                     e->meta.namespace, "name", e->meta.name, "created_ms",
                     milliseconds(e->meta.created_ns), "mode", kube_mode_name(e->mode), "phase",
                     kube_phase_name(s->phase), "reason", s->reason, "message",
                     e->fault ? e->fault : s->message, "ps", count_of(&s->ps, &e->task[KUBE_PS]),
                     "workers", count_of(&s->worker, &e->task[KUBE_WORKER]), "step",
                     s->has_progress ? json_integer((json_int_t)p->step) : json_null(), "loss",
                     real(s->has_progress, p->loss), "examples_per_s",
                     real(s->has_progress, p->examples_per_s), "efficiency",
                     s->efficiency_percent >= 0 ? json_integer(s->efficiency_percent) : json_null(),
                     "sizes", sizes_of(s));
}

void cluster_look_trainings(struct cluster_look *l, const json_t *items)
{
    json_t *item;
    size_t i;

    if (!l->trainings)
        l->trainings = json_array();
    json_array_foreach ((json_t *)items, i, item) {
        struct kube_etj *etj;

        if (kube_etj_parse(item, &etj, NULL) < 0)
            continue;
        json_array_append_new(l->trainings, training_of(etj));
        kube_etj_free(etj);
    }
}

/* ---- nodes ----------------------------------------------------------------------------------- */

/* Watts of an annotation, in thousandths; null: none, or no number. */
static json_t *watts(const json_t *item, const char *name)
{
    const json_t *notes = json_object_get(json_object_get(item, "metadata"), "annotations");
    const char *text = json_string_value(json_object_get(notes, name));
    int64_t milli;

    return text && kube_quantity_milli(text, &milli) == 0 && milli >= 0 ? json_integer(milli)
                                                                        : json_null();
}

static json_t *node_of(const struct kube_node *n, const json_t *item, int64_t wall_ns)
{
    bool capped = n->capped && (n->power_until_ns == 0 || n->power_until_ns > wall_ns);

    return json_pack("{s:s,s:b,s:b,s:I,s:I,s:I,s:o,s:o,s:o,s:o}", "name", n->meta.name, "ready",
                     n->ready, "schedulable", !n->unschedulable, "mcpu",
                     (json_int_t)n->allocatable.mcpu, "trainings_mcpu", (json_int_t)0,
                     "others_mcpu", (json_int_t)0, "power_mcpu",
                     capped ? json_integer(n->power_mcpu) : json_null(), "power_until_ms",
                     capped ? milliseconds(n->power_until_ns) : json_null(), "cap_mw",
                     capped ? watts(item, KUBE_ANNOTATION_POWER_CAP) : json_null(), "draw_mw",
                     capped ? watts(item, KUBE_ANNOTATION_POWER_DRAW) : json_null());
}

void cluster_look_nodes(struct cluster_look *l, const json_t *items, int64_t wall_ns)
{
    json_t *item;
    size_t i;

    if (!l->nodes)
        l->nodes = json_array();
    json_array_foreach ((json_t *)items, i, item) {
        struct kube_node *node;
        json_t *entry;

        if (kube_node_parse(item, &node, NULL) < 0)
            continue;
        entry = node_of(node, item, wall_ns);
        json_object_set(l->by_name, node->meta.name, entry);
        json_array_append_new(l->nodes, entry);
        kube_node_free(node);
    }
}

static void add(json_t *entry, const char *key, int64_t mcpu)
{
    json_int_t sum = json_integer_value(json_object_get(entry, key));

    json_object_set_new(entry, key, json_integer(sum + mcpu));
}

void cluster_look_pods(struct cluster_look *l, const json_t *items)
{
    json_t *item, *entry;
    size_t i;

    json_array_foreach ((json_t *)items, i, item) {
        struct kube_pod *pod;

        if (kube_pod_parse(item, &pod, NULL) < 0)
            continue;
        entry = pod->node ? json_object_get(l->by_name, pod->node) : NULL;
        if (entry && pod->phase != KUBE_POD_SUCCEEDED && pod->phase != KUBE_POD_FAILED)
            add(entry, pod->job ? "trainings_mcpu" : "others_mcpu", pod->request.mcpu);
        kube_pod_free(pod);
    }
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Cores of each node that a training may still take, within the cores that its watts allow. */
static void set_free(const json_t *nodes)
{
    json_t *node;
    size_t i;

    json_array_foreach ((json_t *)nodes, i, node) {
        int64_t all = json_integer_value(json_object_get(node, "mcpu"));
        const json_t *power = json_object_get(node, "power_mcpu");
        int64_t most = json_is_integer(power) ? smaller(all, json_integer_value(power)) : all;
        int64_t used = json_integer_value(json_object_get(node, "trainings_mcpu")) +
                       json_integer_value(json_object_get(node, "others_mcpu"));

        json_object_set_new(node, "free_mcpu", json_integer(larger(most - used, 0)));
    }
}

char *cluster_look_text(struct cluster_look *l, int64_t wall_ns)
{
    json_t *whole;
    char *text;

    set_free(l->nodes);
    whole = json_pack("{s:I,s:O,s:O,s:O}", "time_ms", (json_int_t)(wall_ns / (int64_t)NS_PER_MS),
                      "trainings", l->trainings ? l->trainings : json_null(), "nodes",
                      l->nodes ? l->nodes : json_null(), "problems", l->problems);
    text = whole ? json_dumps(whole, JSON_COMPACT) : NULL;
    json_decref(whole);
    return text;
}

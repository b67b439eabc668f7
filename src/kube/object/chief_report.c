/* SPDX-License-Identifier: Apache-2.0 */
/* A chief's report: kube_report_parse() of object.h. */
#include "kube/object/object.h"
#include "kube/object/read.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

static void read_progress(struct reader *r, const json_t *in, struct kube_progress *ret)
{
    ret->step = (uint64_t)read_int(r, in, "step", 0, 0, INT64_MAX);
    ret->epoch = (uint64_t)read_int(r, in, "epoch", 0, 0, INT64_MAX);
    ret->examples = (uint64_t)read_int(r, in, "examples", 0, 0, INT64_MAX);
    ret->loss = read_real(r, in, "loss", NAN);
    ret->examples_per_s = read_real(r, in, "examples_per_s", 0);
    ret->step_s = read_real(r, in, "step_s", 0);
    ret->compute_permille = (uint32_t)read_int(r, in, "compute_permille", 0, 0, 1000);
    ret->communication_permille = (uint32_t)read_int(r, in, "communication_permille", 0, 0, 1000);
    if (ret->examples_per_s < 0 || ret->step_s < 0)
        read_fault(r, "examples_per_s", "is negative, or step_s is");
}

static void read_nodes(struct reader *r, const json_t *in, struct kube_report *report)
{
    static const char *const roles[] = {"chief", "ps", "worker"};
    static const char *const states[] = {"joining", "in", "draining", "released", "lost"};
    const json_t *list = json_object_get(in, "nodes");
    json_t *entry;
    size_t i;

    static_assert(sizeof(states) / sizeof(states[0]) == KUBE_NODE_STATE_MAX, "a name for each");
    if (list && !json_is_array(list))
        read_fault(r, "nodes", "is no list");
    if (json_array_size(list) > 2 * KUBE_TASKS_MAX)
        read_fault(r, "nodes", "has more entries than a training may have nodes");
    if (json_array_size(list) == 0 || r->err.code)
        return;
    report->nodes = read_alloc(r, json_array_size(list), sizeof(report->nodes[0]));
    if (!report->nodes)
        return;
    json_array_foreach (list, i, entry) {
        struct kube_reported_node *to = &report->nodes[report->node_count++];

        read_at(r, "nodes[%zu].", i);
        to->role = (enum kube_role)read_name(r, entry, "role", roles, KUBE_ROLE_MAX, 0);
        to->state =
            (enum kube_node_state)read_name(r, entry, "state", states, KUBE_NODE_STATE_MAX, 0);
        to->index = (uint32_t)read_int(r, entry, "index", 0, 0, KUBE_INDEX_MAX);
        to->threads = (uint32_t)read_int(r, entry, "threads", 0, 0, 1 << 20);
    }
    read_at(r, "%s", "");
}

/* Keeps the last pauses of a long list, which comes when the controller was away. */
static void read_pauses(struct reader *r, const json_t *in, struct kube_report *report)
{
    const json_t *list = json_object_get(in, "pauses_ms");
    size_t count = json_array_size(list);
    size_t first = count > KUBE_PAUSES_MAX ? count - KUBE_PAUSES_MAX : 0;

    if (list && !json_is_array(list))
        read_fault(r, "pauses_ms", "is no list");
    for (size_t i = first; i < count; i++) {
        double ms = json_number_value(json_array_get(list, i));

        if (!json_is_number(json_array_get(list, i)) || !(ms >= 0 && ms <= 1e9)) {
            read_fault(r, "pauses_ms", "has an entry that is no number of milliseconds");
            return;
        }
        report->pauses_ms[report->pause_count++] = (uint32_t)ms;
    }
}

int kube_report_parse(const json_t *json, struct kube_report **ret, struct error *err)
{
    struct reader r = {0};
    struct kube_report *report = read_alloc(&r, 1, sizeof(*report));

    if (!report)
        return read_end(&r, err);
    if (!json_is_object(json))
        read_fault(&r, "report", "is no object");
    read_progress(&r, json, &report->progress);
    report->finished = read_bool(&r, json, "finished", false);
    report->duplicates = (uint64_t)read_int(&r, json, "duplicates", 0, 0, INT64_MAX);
    read_pauses(&r, json, report);
    read_nodes(&r, json, report);
    if (r.err.code) {
        kube_report_free(report);
        return read_end(&r, err);
    }
    *ret = report;
    return 0;
}

struct kube_report *kube_report_free(struct kube_report *report)
{
    if (!report)
        return NULL;
    free(report->namespace);
    free(report->job);
    free(report->chief_uid);
    free(report->nodes);
    free(report);
    return NULL;
}

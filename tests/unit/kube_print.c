/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads an ElasticTrainingJob as the API server gives it, and prints what the controller would
 * write for it in an empty cluster: {"service", "config", "finalizer", "status", "pods"}, or the
 * error. For tests against a real API server, which validates the pods.
 */
#include "kube/core/reconcile.h"
#include "kube/shell/manifest.h"

#include <stdio.h>

#define S INT64_C(1000000000)

static json_t *carry_out(const struct kube_plan *plan)
{
    static const struct kube_pod_settings settings = {.controller = "tide-kube.x.svc:8443",
                                                      .ca_pem = "PEM"};
    json_t *out = json_pack("{s:[]}", "pods");

    for (size_t i = 0; i < plan->count; i++) {
        const struct kube_action *action = &plan->actions[i];

        switch (action->kind) {
        case KUBE_CREATE_SERVICE:
            json_object_set_new(out, "service", kube_service_json(action->etj));
            json_object_set_new(out, "config", kube_config_json(&settings, action->etj));
            break;
        case KUBE_ADD_FINALIZER:
            json_object_set_new(out, "finalizer", kube_finalizer_json(action->etj));
            break;
        case KUBE_PATCH_STATUS:
            json_object_set_new(out, "status", kube_status_json(action->etj, action->status));
            break;
        case KUBE_CREATE_POD:
            json_array_append_new(json_object_get(out, "pods"),
                                  kube_pod_json(&settings, action->etj, &action->create));
            break;
        default:
            break;
        }
    }
    return out;
}

int main(void)
{
    struct kube_node node = {.meta = {.namespace = "", .name = "node", .uid = "node"},
                             .allocatable = {64000, INT64_C(1) << 40, 110},
                             .ready = true};
    const struct kube_node *nodes = &node;
    const struct kube_etj *etjs;
    json_t *json = json_loadf(stdin, 0, NULL), *out;
    struct kube_etj *etj = NULL;
    struct kube_settings settings;
    struct kube_memory *memory = kube_memory_new();
    struct kube_plan plan;
    struct error err = {0};

    if (kube_etj_parse(json, &etj, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    etjs = etj;
    kube_settings_init(&settings);
    if (kube_reconcile(&settings,
                       &(struct kube_world){.now_ns = S,
                                            .wall_ns = 1795324519 * S,
                                            .nodes = &nodes,
                                            .node_count = 1,
                                            .etjs = &etjs,
                                            .etj_count = 1},
                       memory, &plan))
        return 1;
    out = carry_out(&plan);
    json_dumpf(out, stdout, JSON_INDENT(1));
    json_decref(out);
    json_decref(json);
    kube_plan_done(&plan);
    kube_memory_free(memory);
    kube_etj_free(etj);
    return 0;
}

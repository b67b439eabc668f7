/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects of the API server and reports of chiefs: any JSON becomes a struct that is within its
 * bounds, or is refused with a reason. An accepted training gives valid pods, and its status can be
 * written and read again. The first byte chooses the kind of object.
 */
#include "input.h"
#include "kube/object/quantity.h"
#include "kube/shell/workload.h"

#include <stdio.h>

static void check_text(const struct error *err)
{
    CHECK(err->code < 0 && err->text[0]);
}

static void check_etj(const struct kube_etj *etj)
{
    static const struct kube_pod_settings settings = {.controller = "c", .ca_pem = "pem"};

    CHECK(etj->meta.name && etj->meta.uid);
    if (etj->fault) {
        CHECK(etj->fault[0]);
        return;
    }
    for (int role = 0; role < KUBE_ROLE_MAX; role++) {
        const struct kube_new_pod new_pod = {.role = (enum kube_role)role, .index = 1};

        CHECK(etj->task[role].min >= 1 && etj->task[role].min <= etj->task[role].max);
        CHECK(etj->task[role].max <= KUBE_TASKS_MAX);
        json_decref(kube_pod_json(&settings, etj, &new_pod));
    }
    CHECK(etj->task[KUBE_WORKER].request.mcpu > 0 && etj->worker_mcpu_min > 0);
    json_decref(kube_service_json(etj));
    json_decref(kube_status_json(etj, &etj->status));
}

static void check_workload(const struct kube_workload *workload)
{
    struct kube_queueing q = {.workload = workload, .version = "v1beta2"};

    for (int role = 0; role < KUBE_ROLE_MAX; role++)
        CHECK(workload->assignment[role].count <= KUBE_TASKS_MAX);
    json_decref(kube_workload_turn_json(&q));
    for (q.news = KUBE_NEWS_RELEASED; q.news <= KUBE_NEWS_FAILED; q.news++)
        json_decref(kube_workload_news_json(&q));
}

static void parse(char kind, const json_t *json)
{
    struct error err = {0};
    struct kube_node *node = NULL;
    struct kube_pod *pod = NULL;
    struct kube_etj *etj = NULL;
    struct kube_quota *quota = NULL;
    struct kube_pdb *pdb = NULL;
    struct kube_report *report = NULL;
    struct kube_workload *workload = NULL;
    struct kube_flavor *flavor = NULL;
    struct kube_class *class = NULL;

    switch (kind) {
    case 'n':
        if (kube_node_parse(json, &node, &err))
            check_text(&err);
        break;
    case 'p':
        if (kube_pod_parse(json, &pod, &err))
            check_text(&err);
        else
            CHECK(pod->request.mcpu >= 0 && pod->request.mcpu <= KUBE_MCPU_MAX &&
                  pod->request.bytes >= 0 && pod->request.bytes <= KUBE_BYTES_MAX);
        break;
    case 'e':
        if (kube_etj_parse(json, &etj, &err))
            check_text(&err);
        else
            check_etj(etj);
        break;
    case 'q':
        if (kube_quota_parse(json, &quota, &err))
            check_text(&err);
        break;
    case 'b':
        if (kube_pdb_parse(json, &pdb, &err))
            check_text(&err);
        break;
    case 'w':
        if (kube_workload_parse(json, &workload, &err))
            check_text(&err);
        else
            check_workload(workload);
        break;
    case 'f':
        if (kube_flavor_parse(json, &flavor, &err))
            check_text(&err);
        break;
    case 'c':
        if (kube_class_parse(json, &class, &err))
            check_text(&err);
        break;
    default:
        if (kube_report_parse(json, &report, &err))
            check_text(&err);
        else
            CHECK(report->node_count <= 2 * KUBE_TASKS_MAX);
    }
    kube_node_free(node);
    kube_pod_free(pod);
    kube_etj_free(etj);
    kube_quota_free(quota);
    kube_pdb_free(pdb);
    kube_report_free(report);
    kube_workload_free(workload);
    kube_flavor_free(flavor);
    kube_class_free(class);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *json;
    int64_t number;
    char *text;

    if (size == 0)
        return 0;
    text = input_text(data, size);
    if (kube_quantity_milli(text, &number) == 0)
        CHECK(number >= 0 && number <= KUBE_MCPU_MAX);
    if (kube_time(text, &number) == 0)
        CHECK(number >= -86400 * INT64_C(1000000000));
    json = json_loads(text + 1, JSON_REJECT_DUPLICATES, NULL);
    if (json)
        parse(text[0], json);
    json_decref(json);
    free(text);
    return 0;
}

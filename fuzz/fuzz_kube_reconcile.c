/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cluster of any objects, one a line, as in fuzz_kube_object.c. For all objects that the API
 * server may accept, the decision keeps to its own rules and can be written. The report is the
 * first training's.
 */
#include "input.h"
#include "kube/core/reconcile.h"
#include "kube/shell/manifest.h"
#include "kube/shell/workload.h"

#define MANY 48
#define S    INT64_C(1000000000)

struct objects {
    void *at[MANY];
    size_t count;
};

static struct objects nodes, pods, etjs, quotas, pdbs, reports, workloads, flavors;

static bool is_same(const struct kube_meta *a, const struct kube_meta *b)
{
    return strcmp(a->name, b->name) == 0 && strcmp(a->namespace, b->namespace) == 0;
}

/* Whether name and UID are new: in a list of the API server both are unique. */
static bool is_new(const struct objects *in, const struct kube_meta *meta)
{
    /* the first member of each */
    for (size_t i = 0; i < in->count; i++)
        if (is_same(in->at[i], meta) ||
            strcmp(((const struct kube_meta *)in->at[i])->uid, meta->uid) == 0)
            return false;
    return in->count < MANY;
}

static void read_line(const char *line)
{
    json_t *json = line[0] ? json_loads(line + 1, JSON_REJECT_DUPLICATES, NULL) : NULL;
    struct kube_node *node = NULL;
    struct kube_pod *pod = NULL;
    struct kube_etj *etj = NULL;
    struct kube_quota *quota = NULL;
    struct kube_pdb *pdb = NULL;
    struct kube_report *report = NULL;
    struct kube_workload *workload = NULL;
    struct kube_flavor *flavor = NULL;

#define KEEP(list, what) (list.at[list.count++] = (what), (what) = NULL)
    if (json && line[0] == 'n' && kube_node_parse(json, &node, NULL) == 0) {
        if (is_new(&nodes, &node->meta))
            KEEP(nodes, node);
    } else if (json && line[0] == 'p' && kube_pod_parse(json, &pod, NULL) == 0) {
        if (is_new(&pods, &pod->meta))
            KEEP(pods, pod);
    } else if (json && line[0] == 'e' && kube_etj_parse(json, &etj, NULL) == 0) {
        if (is_new(&etjs, &etj->meta))
            KEEP(etjs, etj);
    } else if (json && line[0] == 'q' && kube_quota_parse(json, &quota, NULL) == 0) {
        if (is_new(&quotas, &quota->meta))
            KEEP(quotas, quota);
    } else if (json && line[0] == 'b' && kube_pdb_parse(json, &pdb, NULL) == 0) {
        if (is_new(&pdbs, &pdb->meta))
            KEEP(pdbs, pdb);
    } else if (json && line[0] == 'w' && kube_workload_parse(json, &workload, NULL) == 0) {
        if (is_new(&workloads, &workload->meta))
            KEEP(workloads, workload);
    } else if (json && line[0] == 'f' && kube_flavor_parse(json, &flavor, NULL) == 0) {
        if (is_new(&flavors, &flavor->meta))
            KEEP(flavors, flavor);
    } else if (json && line[0] == 'r' && kube_report_parse(json, &report, NULL) == 0) {
        if (reports.count == 0)
            KEEP(reports, report);
    }
#undef KEEP
    kube_node_free(node);
    kube_pod_free(pod);
    kube_etj_free(etj);
    kube_quota_free(quota);
    kube_pdb_free(pdb);
    kube_report_free(report);
    kube_workload_free(workload);
    kube_flavor_free(flavor);
    json_decref(json);
}

/* Makes the report that of the first training's chief, if there is one. */
static void address_report(void)
{
    struct kube_report *report = reports.count ? reports.at[0] : NULL;
    const struct kube_etj *etj = etjs.count ? etjs.at[0] : NULL;

    for (size_t i = 0; i < pods.count && report && etj && !report->chief_uid; i++) {
        const struct kube_pod *pod = pods.at[i];

        if (pod->role != KUBE_CHIEF || !pod->owner_uid || strcmp(pod->owner_uid, etj->meta.uid))
            continue;
        report->chief_uid = strdup(pod->meta.uid);
        report->namespace = strdup(etj->meta.namespace);
        report->job = strdup(etj->meta.name);
    }
    if (report && !report->chief_uid)
        reports.count = 0, kube_report_free(report);
}

static json_t *written(const struct kube_action *a)
{
    static const struct kube_pod_settings settings = {
        .controller = "c", .ca_pem = "pem", .node_image = "i"};

    switch (a->kind) {
    case KUBE_PATCH_STATUS:
        return kube_status_json(a->etj, a->status);
    case KUBE_CREATE_POD:
        return kube_pod_json(&settings, a->etj, &a->create);
    case KUBE_RESIZE_POD:
        CHECK(a->resize.mcpu > 0);
        return kube_resize_json(a->pod, a->resize.mcpu, a->resize.limit_mcpu);
    case KUBE_SET_MEMBERS:
        return kube_members_json(a->members);
    case KUBE_EVENT:
        return kube_event_json(a, "e", "c", S);
    case KUBE_ASK_LEAVE:
        return kube_leave_json(a->note.text);
    case KUBE_CREATE_SERVICE:
        json_decref(kube_config_json(&settings, a->etj));
        return kube_service_json(a->etj);
    case KUBE_REMOVE_FINALIZER:
        return kube_let_go_json(a->etj);
    case KUBE_MAKE_WORKLOAD:
        return kube_workload_json(&settings, a->etj, &a->queueing);
    case KUBE_TURN_WORKLOAD:
        return kube_workload_turn_json(&a->queueing);
    case KUBE_TELL_WORKLOAD:
        return kube_workload_news_json(&a->queueing);
    default:
        return kube_finalizer_json(a->etj);
    }
}

static void check_plan(const struct kube_plan *plan)
{
    for (size_t i = 0; i < plan->count; i++) {
        const struct kube_action *a = &plan->actions[i];
        json_t *json = written(a);

        CHECK(json);
        json_decref(json);
        CHECK(!a->etj->fault || a->kind == KUBE_PATCH_STATUS || a->kind == KUBE_EVENT ||
              a->kind == KUBE_DELETE_WORKLOAD || a->etj->meta.deleted_ns ||
              a->etj->status.phase >= KUBE_SUCCEEDED);
        for (size_t k = 0; k < i && a->kind == KUBE_CREATE_POD; k++) /* an index occurs once */
            CHECK(plan->actions[k].kind != KUBE_CREATE_POD || plan->actions[k].etj != a->etj ||
                  plan->actions[k].create.role != a->create.role ||
                  plan->actions[k].create.index != a->create.index);
    }
}

static void decide(void)
{
    const int64_t times[] = {1, 2, 8, 80, 700};
    struct kube_memory *memory = kube_memory_new();
    struct kube_settings settings;
    struct kube_world w = {
        .wall_ns = INT64_C(1795324519) * S,
        .nodes = (const struct kube_node *const *)nodes.at,
        .node_count = nodes.count,
        .pods = (const struct kube_pod *const *)pods.at,
        .pod_count = pods.count,
        .etjs = (const struct kube_etj *const *)etjs.at,
        .etj_count = etjs.count,
        .quotas = (const struct kube_quota *const *)quotas.at,
        .quota_count = quotas.count,
        .pdbs = (const struct kube_pdb *const *)pdbs.at,
        .pdb_count = pdbs.count,
        .reports = (const struct kube_report *const *)reports.at,
        .report_count = reports.count,
        .kueue = KUBE_KUEUE_KNOWN,
        .kueue_version = "v1beta2",
        .workloads = (const struct kube_workload *const *)workloads.at,
        .workload_count = workloads.count,
        .flavors = (const struct kube_flavor *const *)flavors.at,
        .flavor_count = flavors.count,
    };

    kube_settings_init(&settings);
    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
        struct kube_plan plan;

        w.now_ns = (1000 + times[i]) * S;
        if (reports.count) {
            struct kube_report *report = reports.at[0];

            report->at_ns = w.now_ns;
            report->progress.examples += report->progress.examples < INT64_MAX ? 100 : 0;
        }
        CHECK(kube_reconcile(&settings, &w, memory, &plan) == 0);
        check_plan(&plan);
        kube_plan_done(&plan);
    }
    kube_memory_free(memory);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = input_text(data, size), *rest = text, *line;

    nodes.count = pods.count = etjs.count = quotas.count = pdbs.count = reports.count = 0;
    workloads.count = flavors.count = 0;
    while ((line = strsep(&rest, "\n")))
        read_line(line);
    address_report();
    decide();
    while (nodes.count)
        kube_node_free(nodes.at[--nodes.count]);
    while (pods.count)
        kube_pod_free(pods.at[--pods.count]);
    while (etjs.count)
        kube_etj_free(etjs.at[--etjs.count]);
    while (quotas.count)
        kube_quota_free(quotas.at[--quotas.count]);
    while (pdbs.count)
        kube_pdb_free(pdbs.at[--pdbs.count]);
    while (workloads.count)
        kube_workload_free(workloads.at[--workloads.count]);
    while (flavors.count)
        kube_flavor_free(flavors.at[--flavors.count]);
    if (reports.count)
        kube_report_free(reports.at[0]);
    free(text);
    return 0;
}

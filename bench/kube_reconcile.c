/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of one reconcile of a large cluster: 1,000 nodes, 200 trainings, 5,000 pods by default,
 * every training with chief, parameter servers, workers and reports. Prints JSON rows: milliseconds
 * of processor time of a steady reconcile, of the first one of a new controller, and of one that
 * has 1,000 pods of others to make room for.
 *
 * usage: kube_reconcile [ROUNDS [NODES [JOBS]]]
 */
#include "kube/core/reconcile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define S           INT64_C(1000000000)
#define PODS_OF_JOB 22 /* with 200 trainings 4,400; the other 600 are others' */
#define OTHERS      600
#define WAITING     1000

struct cluster {
    struct kube_world world;
    const struct kube_node **nodes;
    const struct kube_pod **pods;
    const struct kube_etj **etjs;
    const struct kube_report **reports;
    json_t *etj_json;
    unsigned uid;
};

static json_t *meta(struct cluster *c, const char *name)
{
    char uid[32];

    snprintf(uid, sizeof(uid), "%08x-uid-%u", c->uid * 2654435761u, c->uid);
    c->uid++;
    return json_pack("{s:s, s:s, s:s, s:s, s:i}", "name", name, "namespace", "n", "uid", uid,
                     "creationTimestamp", "2026-11-22T05:15:19Z", "generation", 1);
}

static void *must(void *made, int r)
{
    if (r || !made) {
        fprintf(stderr, "kube_reconcile: an object is refused (%d)\n", r);
        exit(1);
    }
    return made;
}

static void add_node(struct cluster *c, unsigned i)
{
    struct kube_node *node = NULL;
    char name[32];
    json_t *json;
    int r;

    snprintf(name, sizeof(name), "node-%u", i);
    json = json_pack("{s:o, s:{}, s:{s:{s:s, s:s, s:s}, s:[{s:s, s:s}]}}", "metadata",
                     meta(c, name), "spec", "status", "allocatable", "cpu", "5", "memory", "32Gi",
                     "pods", "110", "conditions", "type", "Ready", "status", "True");
    r = kube_node_parse(json, &node, NULL);
    c->nodes[c->world.node_count++] = must(node, r);
    json_decref(json);
}

static const struct kube_etj *add_etj(struct cluster *c, unsigned i)
{
    static const char *const policies[] = {"", "equal"};
    struct kube_etj *etj = NULL;
    char name[32];
    json_t *json;
    int r;

    snprintf(name, sizeof(name), "train-%u", i);
    json = json_pack("{s:o, s:{s:s, s:[s], s:s, s:{s:{s:{s:s}}}, s:{s:i, s:i, s:{s:{s:s}}},"
                     " s:{s:i, s:i, s:{s:{s:s, s:s}}}}, s:{s:s}}",
                     "metadata", meta(c, name), "spec", "image", "i", "command", "c", "policy",
                     policies[i % 2], "chief", "resources", "requests", "cpu", "500m", "ps", "min",
                     1, "max", 4, "resources", "requests", "cpu", "500m", "workers", "min", 1,
                     "max", 60, "resources", "requests", "cpu", "1", "memory", "2Gi", "status",
                     "phase", "Running");
    r = kube_etj_parse(json, &etj, NULL);
    c->etjs[c->world.etj_count++] = must(etj, r);
    json_decref(json);
    return etj;
}

/* On a node, or waiting for one; of a training, or somebody else's. */
static void add_pod(struct cluster *c, const struct kube_etj *etj, const char *role, unsigned index,
                    unsigned node)
{
    struct kube_pod *pod = NULL;
    json_t *m, *json, *status;
    char name[64], on[32], ip[32], number[16];
    int r;

    snprintf(name, sizeof(name), "%s-%s-%u", etj ? etj->meta.name : "other", role, index);
    snprintf(on, sizeof(on), "node-%u", node);
    snprintf(ip, sizeof(ip), "10.%u.%u.%u", c->uid >> 16 & 255, c->uid >> 8 & 255, c->uid & 255);
    snprintf(number, sizeof(number), "%u", index);
    m = meta(c, name);
    if (etj) {
        json_object_set_new(m, "labels",
                            json_pack("{s:s, s:s, s:s}", KUBE_LABEL_JOB, etj->meta.name,
                                      KUBE_LABEL_ROLE, role, KUBE_LABEL_INDEX, number));
        json_object_set_new(m, "ownerReferences",
                            json_pack("[{s:b, s:s}]", "controller", 1, "uid", etj->meta.uid));
    }
    status = node == UINT32_MAX
                 ? json_pack("{s:s, s:[{s:s, s:s, s:s}]}", "phase", "Pending", "conditions", "type",
                             "PodScheduled", "status", "False", "reason", "Unschedulable")
                 : json_pack("{s:s, s:s, s:[{s:s, s:s}]}", "phase", "Running", "podIP", ip,
                             "conditions", "type", "Ready", "status", "True");
    json = json_pack("{s:o, s:{s:s*, s:[{s:s, s:{s:{s:s, s:s}}}]}, s:o}", "metadata", m, "spec",
                     "nodeName", node == UINT32_MAX ? NULL : on, "containers", "name",
                     KUBE_CONTAINER, "resources", "requests", "cpu",
                     strcmp(role, "worker") == 0 ? "1" : "500m", "memory", "2Gi", "status", status);
    r = kube_pod_parse(json, &pod, NULL);
    c->pods[c->world.pod_count++] = must(pod, r);
    json_decref(json);
}

static void add_report(struct cluster *c, const struct kube_etj *etj, const char *chief_uid)
{
    json_t *nodes = json_array(), *json;
    struct kube_report *report = NULL;
    int r;

    for (unsigned i = 0; i < PODS_OF_JOB - 1; i++)
        json_array_append_new(nodes,
                              json_pack("{s:s, s:i, s:s, s:i}", "role", i < 2 ? "ps" : "worker",
                                        "index", i < 2 ? i : i - 2, "state", "in", "threads", 1));
    json = json_pack("{s:i, s:i, s:f, s:i, s:o}", "step", 10, "examples", 1000, "loss", 0.5,
                     "communication_permille", 200, "nodes", nodes);
    r = kube_report_parse(json, &report, NULL);
    must(report, r);
    report->chief_uid = strdup(chief_uid);
    report->namespace = strdup(etj->meta.namespace);
    report->job = strdup(etj->meta.name);
    c->reports[c->world.report_count++] = report;
    json_decref(json);
}

static void build(struct cluster *c, unsigned nodes, unsigned jobs)
{
    size_t pods = (size_t)jobs * PODS_OF_JOB + OTHERS + WAITING;
    unsigned at = 0;

    c->nodes = calloc(nodes, sizeof(*c->nodes));
    c->pods = calloc(pods, sizeof(*c->pods));
    c->etjs = calloc(jobs, sizeof(*c->etjs));
    c->reports = calloc(jobs, sizeof(*c->reports));
    for (unsigned i = 0; i < nodes; i++)
        add_node(c, i);
    for (unsigned j = 0; j < jobs; j++) {
        const struct kube_etj *etj = add_etj(c, j);
        const char *chief;

        add_pod(c, etj, "chief", 0, at++ % nodes);
        chief = c->pods[c->world.pod_count - 1]->meta.uid;
        for (unsigned i = 0; i < PODS_OF_JOB - 1; i++)
            add_pod(c, etj, i < 2 ? "ps" : "worker", i < 2 ? i : i - 2, at++ % nodes);
        add_report(c, etj, chief);
    }
    for (unsigned i = 0; i < OTHERS; i++)
        add_pod(c, NULL, "ps", i, at++ % nodes);
    c->world.nodes = c->nodes;
    c->world.pods = c->pods;
    c->world.etjs = c->etjs;
    c->world.reports = c->reports;
    c->world.now_ns = 1000 * S;
    c->world.wall_ns = INT64_C(1795324519) * S;
}

static double cpu_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Median and maximum of @rounds reconciles; reports go on, a second each. */
static void measure(struct cluster *c, const char *name, unsigned rounds, bool anew,
                    const char *end)
{
    struct kube_settings settings;
    struct kube_memory *memory = kube_memory_new();
    double *ms = calloc(rounds, sizeof(*ms));
    size_t actions = 0;

    kube_settings_init(&settings);
    for (unsigned round = 0; round < rounds + 3; round++) {
        struct kube_plan plan;
        double begin;

        c->world.now_ns += S;
        c->world.wall_ns += S;
        for (size_t i = 0; i < c->world.report_count; i++) {
            struct kube_report *report = (struct kube_report *)c->reports[i];

            report->at_ns = c->world.now_ns;
            report->progress.examples += 1000;
            report->progress.step++;
        }
        if (anew) {
            kube_memory_free(memory);
            memory = kube_memory_new();
        }
        begin = cpu_ms();
        must(c, kube_reconcile(&settings, &c->world, memory, &plan));
        if (round >= 3) /* the first ones are not steady */
            ms[round - 3] = cpu_ms() - begin;
        actions = plan.count;
        kube_plan_done(&plan);
    }
    qsort(ms, rounds, sizeof(*ms), by_value);
    printf(" {\"situation\": \"%s\", \"nodes\": %zu, \"jobs\": %zu, \"pods\": %zu, \"repeats\": %u,"
           " \"p50_ms\": %.2f, \"max_ms\": %.2f, \"actions\": %zu}%s\n",
           name, c->world.node_count, c->world.etj_count, c->world.pod_count, rounds,
           ms[rounds / 2], ms[rounds - 1], actions, end);
    free(ms);
    kube_memory_free(memory);
}

int main(int argc, char **argv)
{
    unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 50;
    unsigned nodes = argc > 2 ? (unsigned)atoi(argv[2]) : 1000;
    unsigned jobs = argc > 3 ? (unsigned)atoi(argv[3]) : 200;
    struct cluster c = {0};

    build(&c, nodes, jobs);
    printf("[\n");
    measure(&c, "steady", rounds, false, ",");
    measure(&c, "new controller", rounds, true, ",");
    for (unsigned i = 0; i < WAITING; i++)
        add_pod(&c, NULL, "worker", 1000 + i, UINT32_MAX);
    measure(&c, "others wait", rounds, false, "");
    printf("]\n");
    return 0;
}

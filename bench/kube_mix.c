/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mix of trainings in a simulated cluster that the controller's own core (kube_reconcile) runs:
 * when each ends. Everything that a start costs is in it: a chief that imports TensorFlow, workers
 * that load it, the trace, and the functions that every worker prepares before it is of use.
 *
 * Reads a scenario from standard input, prints the trainings' times (both JSON);
 * cluster_simulated.py has the scenarios. With KUBE_MIX_VERBOSE, the controller's events go to
 * standard error.
 *
 * In each step of the clock: kubelets and the scheduler, chiefs and their reports, the controller.
 */
#include "kube/core/reconcile.h"
#include "kube/object/quantity.h"
#include "kube/shell/manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define S            INT64_C(1000000000)
#define STEP_NS      (S / 4)
#define REPORT_STEPS 2 /* steps between two reports, and two looks of the controller */
#define BEGIN_NS     (1000 * S)
#define WALL_NS      (INT64_C(1790000000) * S)
#define POD_NS       (S / 2) /* that a pod takes to run, and to go */
#define END_NS       (INT64_C(3000000) * S)
#define EXAMPLES     1000 /* a second with one worker */
#define PAUSE_S      0.3  /* a change */
#define WORKERS_MAX  16
#define NOISE        0.03

struct pod {
    struct kube_pod *pod;
    int64_t made_ns, runs_ns, in_ns, leaves_ns, gone_ns; /* 0: not yet */
    double prepare_s;                                    /* left, before a worker is of use */
};

struct training {
    struct kube_etj *etj;
    struct kube_report *report; /* NULL: the chief is silent */
    int64_t arrival_ns, ended_ns, chief_ns, finished_ns;
    double left_s;  /* of the work, with one worker */
    double trace_s; /* left, before the first step */
    double pause_s;
    double examples;
    double speed[WORKERS_MAX + 1];
    double start_s, load_s, prepare_s, end_s;
    struct pod *pods[64];
    uint32_t pod_count, in; /* how many workers were of use in the last step */
    bool gone;
};

struct mix {
    struct kube_settings settings;
    struct kube_memory *memory;
    struct kube_node *node;
    struct training *trainings;
    size_t count;
    int64_t now_ns, wall_ns, used_mcpu;
    uint64_t random;
    unsigned uid;
    uint64_t changes; /* workers that came or left */
    double busy_s;    /* of the places, with pods on them */
};

static void die(const char *what)
{
    fprintf(stderr, "kube_mix: %s\n", what);
    exit(1);
}

static double chance(struct mix *m)
{
    m->random ^= m->random << 13;
    m->random ^= m->random >> 7;
    m->random ^= m->random << 17;
    return (double)(m->random >> 11) / (double)(UINT64_C(1) << 53);
}

/* ---- objects --------------------------------------------------------------------------------- */

static json_t *meta_json(struct mix *m, const char *name, const char *namespace)
{
    char uid[32], when[KUBE_TIME_TEXT];

    snprintf(uid, sizeof(uid), "uid-%u", ++m->uid);
    kube_time_text(m->wall_ns, when);
    return json_pack("{s:s, s:s, s:s, s:s, s:i}", "name", name, "namespace", namespace, "uid", uid,
                     "creationTimestamp", when, "generation", 1);
}

static void make_node(struct mix *m, const json_t *scenario)
{
    char cpu[KUBE_QUANTITY_MAX];
    json_t *json;

    kube_milli_text(json_integer_value(json_object_get(scenario, "node_mcpu")), cpu);
    json =
        json_pack("{s:o, s:{}, s:{s:{s:s, s:s, s:s}, s:[{s:s, s:s}]}}", "metadata",
                  meta_json(m, "node-1", ""), "spec", "status", "allocatable", "cpu", cpu, "memory",
                  "100000Gi", "pods", "100000", "conditions", "type", "Ready", "status", "True");
    if (kube_node_parse(json, &m->node, NULL))
        die("the node is refused");
    json_decref(json);
}

static json_t *task_json(const json_t *scenario, const char *key)
{
    char cpu[KUBE_QUANTITY_MAX];

    kube_milli_text(json_integer_value(json_object_get(scenario, key)), cpu);
    return json_pack("{s:{s:s, s:s}}", "requests", "cpu", cpu, "memory", "1Mi");
}

/* The training as its user creates it at its arrival. */
static void create_training(struct mix *m, struct training *t, const json_t *scenario,
                            const json_t *job)
{
    const char *namespace = json_string_value(json_object_get(job, "namespace"));
    json_t *json = json_pack(
        "{s:o, s:{s:s, s:[s], s:O, s:{s:o}, s:{s:i, s:i, s:o}, s:{s:O, s:O, s:o}}}", "metadata",
        meta_json(m, json_string_value(json_object_get(job, "name")), namespace ? namespace : "n"),
        "spec", "image", "i", "command", "c", "slots", json_object_get(scenario, "slots"), "chief",
        "resources", task_json(scenario, "chief_mcpu"), "ps", "min", 1, "max", 1, "resources",
        task_json(scenario, "ps_mcpu"), "workers", "min", json_object_get(scenario, "min"), "max",
        json_object_get(scenario, "max"), "resources", task_json(scenario, "worker_mcpu"));
    struct error err = {0};

    if (!json || kube_etj_parse(json, &t->etj, &err) || t->etj->fault)
        die("a training is refused");
    json_decref(json);
}

static void read_training(struct training *t, const json_t *job)
{
    const json_t *speed = json_object_get(job, "speed");

    t->arrival_ns =
        BEGIN_NS + (int64_t)(json_number_value(json_object_get(job, "arrival_s")) * (double)S);
    t->left_s = json_number_value(json_object_get(job, "work_s"));
    t->start_s = json_number_value(json_object_get(job, "start_s"));
    t->load_s = json_number_value(json_object_get(job, "load_s"));
    t->trace_s = json_number_value(json_object_get(job, "trace_s"));
    t->prepare_s = json_number_value(json_object_get(job, "prepare_s"));
    t->end_s = json_number_value(json_object_get(job, "end_s"));
    for (size_t i = 1; i <= WORKERS_MAX; i++) {
        size_t at = i <= json_array_size(speed) ? i - 1 : json_array_size(speed) - 1;

        t->speed[i] = json_number_value(json_array_get(speed, at));
    }
}

/* ---- the API server -------------------------------------------------------------------------- */

static struct training *training_of(struct mix *m, const struct kube_etj *etj)
{
    for (size_t i = 0; i < m->count; i++)
        if (m->trainings[i].etj == etj)
            return &m->trainings[i];
    die("an action for nobody");
    return NULL;
}

static struct pod *pod_of(struct training *t, const struct kube_pod *pod)
{
    for (uint32_t i = 0; i < t->pod_count; i++)
        if (t->pods[i]->pod == pod)
            return t->pods[i];
    die("an action for no pod");
    return NULL;
}

static void create_pod(struct mix *m, struct training *t, const struct kube_action *action)
{
    static const struct kube_pod_settings settings = {.controller = "c:1", .ca_pem = "pem"};
    json_t *json = kube_pod_json(&settings, t->etj, &action->create), *meta;
    struct pod *made = calloc(1, sizeof(*made));
    struct kube_answer answer = {
        .kind = KUBE_CREATE_POD, .role = action->create.role, .index = action->create.index};

    if (!json || !made || t->pod_count == sizeof(t->pods) / sizeof(t->pods[0]))
        die("too many pods");
    meta =
        meta_json(m, json_string_value(json_object_get(json_object_get(json, "metadata"), "name")),
                  t->etj->meta.namespace);
    json_object_update(json_object_get(json, "metadata"), meta);
    json_object_set_new(json, "status", json_pack("{s:s}", "phase", "Pending"));
    if (kube_pod_parse(json, &made->pod, NULL))
        die("a pod is refused");
    json_decref(meta);
    json_decref(json);
    made->made_ns = m->now_ns;
    made->prepare_s = t->prepare_s;
    t->pods[t->pod_count++] = made;
    m->changes += action->create.role == KUBE_WORKER;
    kube_memory_answer(m->memory, t->etj, &answer, m->now_ns);
}

static void carry_out(struct mix *m, const struct kube_action *action)
{
    struct training *t = training_of(m, action->etj);

    switch (action->kind) {
    case KUBE_ADD_FINALIZER:
        t->etj->finalizer = 0;
        break;
    case KUBE_PATCH_STATUS:
        t->etj->status = *action->status;
        if (action->status->phase == KUBE_SUCCEEDED && !t->ended_ns)
            t->ended_ns = m->now_ns;
        break;
    case KUBE_CREATE_POD:
        create_pod(m, t, action);
        break;
    case KUBE_ASK_LEAVE:
        m->changes++;
        free(pod_of(t, action->pod)->pod->leave);
        pod_of(t, action->pod)->pod->leave = strdup(action->note.text);
        break;
    case KUBE_DELETE_POD:
        pod_of(t, action->pod)->pod->meta.deleted_ns = m->wall_ns;
        break;
    case KUBE_EVENT:
        if (getenv("KUBE_MIX_VERBOSE"))
            fprintf(stderr, "%7.2f %s: %s: %s\n", (double)(m->now_ns - BEGIN_NS) / (double)S,
                    action->etj->meta.name, action->note.reason, action->note.text);
        break;
    default:
        break;
    }
}

/* ---- scheduler and kubelet ------------------------------------------------------------------- */

static void drop_pod(struct mix *m, struct training *t, uint32_t i)
{
    if (t->pods[i]->pod->node && t->pods[i]->pod->phase <= KUBE_POD_RUNNING)
        m->used_mcpu -= t->pods[i]->pod->request.mcpu;
    kube_pod_free(t->pods[i]->pod);
    free(t->pods[i]);
    memmove(&t->pods[i], &t->pods[i + 1], (t->pod_count - i - 1) * sizeof(struct pod *));
    t->pod_count--;
}

static void end_pod(struct mix *m, struct pod *p)
{
    if (p->pod->node && p->pod->phase <= KUBE_POD_RUNNING)
        m->used_mcpu -= p->pod->request.mcpu;
    p->pod->phase = KUBE_POD_SUCCEEDED;
}

static void serve_pod(struct mix *m, struct training *t, struct pod *p)
{
    char ip[32];

    if (!p->pod->node && !p->pod->meta.deleted_ns) {
        if (m->used_mcpu + p->pod->request.mcpu > m->node->allocatable.mcpu) {
            p->pod->unschedulable = true;
            return;
        }
        p->pod->unschedulable = false;
        p->pod->node = strdup("node-1");
        m->used_mcpu += p->pod->request.mcpu;
        p->made_ns = m->now_ns;
    }
    if (p->pod->phase == KUBE_POD_PENDING && p->pod->node && m->now_ns - p->made_ns >= POD_NS) {
        m->uid++;
        snprintf(ip, sizeof(ip), "10.%u.%u.%u", m->uid >> 16, m->uid >> 8 & 255, m->uid & 255);
        p->pod->ip = strdup(ip);
        p->pod->phase = KUBE_POD_RUNNING;
        p->pod->ready = true;
        p->runs_ns = m->now_ns;
        if (p->pod->role == KUBE_CHIEF)
            t->chief_ns = m->now_ns;
    }
    if (p->runs_ns && !p->in_ns && p->pod->role != KUBE_CHIEF &&
        (double)(m->now_ns - p->runs_ns) / (double)S >= (p->pod->role == KUBE_PS ? 1 : t->load_s))
        p->in_ns = m->now_ns;
}

static void kubelet(struct mix *m, struct training *t)
{
    for (uint32_t i = t->pod_count; i-- > 0;) {
        struct pod *p = t->pods[i];

        if (p->pod->meta.deleted_ns) {
            if (!p->gone_ns)
                p->gone_ns = m->now_ns + POD_NS;
            if (m->now_ns >= p->gone_ns)
                drop_pod(m, t, i);
            continue;
        }
        serve_pod(m, t, p);
        if (p->pod->role == KUBE_WORKER && p->pod->phase == KUBE_POD_RUNNING)
            m->busy_s += (double)STEP_NS / (double)S;
    }
}

/* ---- the training ---------------------------------------------------------------------------- */

static bool is_in(const struct pod *p, enum kube_role role)
{
    return p->pod->role == role && p->in_ns && p->pod->phase == KUBE_POD_RUNNING &&
           !p->pod->leave && !p->pod->meta.deleted_ns;
}

/* A worker that was asked to leave ends what it does. */
static void let_leave(struct mix *m, struct training *t)
{
    for (uint32_t i = 0; i < t->pod_count; i++) {
        struct pod *p = t->pods[i];

        if (!p->pod->leave || p->pod->phase != KUBE_POD_RUNNING)
            continue;
        if (!p->leaves_ns)
            p->leaves_ns = m->now_ns + POD_NS;
        if (m->now_ns >= p->leaves_ns)
            end_pod(m, p);
    }
}

static void finish(struct mix *m, struct training *t)
{
    if (!t->finished_ns)
        t->finished_ns = m->now_ns + (int64_t)(t->end_s * (double)S);
    if (m->now_ns < t->finished_ns)
        return;
    if (t->report)
        t->report->progress.step++;
    if (t->report)
        t->report->finished = true;
    for (uint32_t i = 0; i < t->pod_count; i++)
        if (t->pods[i]->pod->role != KUBE_CHIEF || m->now_ns >= t->finished_ns + POD_NS)
            end_pod(m, t->pods[i]);
}

static void train(struct mix *m, struct training *t)
{
    double dt = (double)STEP_NS / (double)S;
    uint32_t servers = 0, joined = 0, ready = 0;

    for (uint32_t i = 0; i < t->pod_count; i++) {
        servers += is_in(t->pods[i], KUBE_PS);
        joined += is_in(t->pods[i], KUBE_WORKER);
    }
    if (!servers || !joined || (double)(m->now_ns - t->chief_ns) / (double)S < t->start_s)
        return;
    if (t->trace_s > 0) {
        t->trace_s -= dt;
        return;
    }
    for (uint32_t i = 0; i < t->pod_count; i++) {
        struct pod *p = t->pods[i];

        if (!is_in(p, KUBE_WORKER))
            continue;
        p->prepare_s -= p->prepare_s > 0 ? dt : 0;
        ready += p->prepare_s <= 0;
    }
    if (ready > WORKERS_MAX)
        ready = WORKERS_MAX;
    if (ready != t->in && t->in)
        t->pause_s = PAUSE_S;
    t->in = ready;
    if (t->pause_s > 0) {
        t->pause_s -= dt;
        return;
    }
    dt *= ready ? t->speed[ready] * (1 + NOISE * (2 * chance(m) - 1)) : 0;
    t->left_s -= dt;
    t->examples += dt * EXAMPLES;
}

/* A worker that is there for the first step prepares with it, and is in the training before. */
static bool is_of_use(const struct training *t, const struct pod *p)
{
    return p->in_ns && (p->pod->role == KUBE_PS || p->prepare_s <= 0 || t->examples == 0);
}

static void tell(struct mix *m, struct training *t)
{
    struct kube_report *r = t->report;

    if (!t->chief_ns || (double)(m->now_ns - t->chief_ns) / (double)S < t->start_s)
        return;
    if (!r) {
        r = t->report = calloc(1, sizeof(*r));
        r->namespace = strdup(t->etj->meta.namespace);
        r->job = strdup(t->etj->meta.name);
        r->nodes = calloc(sizeof(t->pods) / sizeof(t->pods[0]), sizeof(*r->nodes));
        for (uint32_t i = 0; i < t->pod_count; i++)
            if (t->pods[i]->pod->role == KUBE_CHIEF)
                r->chief_uid = strdup(t->pods[i]->pod->meta.uid);
    }
    r->at_ns = m->now_ns;
    r->progress.examples = (uint64_t)t->examples;
    r->progress.step = (uint64_t)(t->examples / 100);
    r->progress.communication_permille = r->progress.step ? 150 : 0;
    r->progress.compute_permille = r->progress.step ? 850 : 0;
    r->node_count = 0;
    for (uint32_t i = 0; i < t->pod_count; i++) {
        const struct pod *p = t->pods[i];

        if (p->pod->role == KUBE_CHIEF || !p->runs_ns)
            continue;
        r->nodes[r->node_count++] = (struct kube_reported_node){
            .role = p->pod->role,
            .index = p->pod->index,
            .threads = 1,
            .state = p->pod->phase == KUBE_POD_SUCCEEDED ? KUBE_NODE_RELEASED
                     : p->pod->leave                     ? KUBE_NODE_DRAINING
                     : is_of_use(t, p)                   ? KUBE_NODE_IN
                                                         : KUBE_NODE_JOINING};
    }
}

/* ---- the controller -------------------------------------------------------------------------- */

static void reconcile(struct mix *m)
{
    size_t pods = 0, etjs = 0, reports = 0;
    const struct kube_etj **etj = calloc(m->count, sizeof(*etj));
    const struct kube_pod **pod = calloc(m->count * 64, sizeof(*pod));
    const struct kube_report **report = calloc(m->count, sizeof(*report));
    const struct kube_node *node = m->node;
    struct kube_world world = {.now_ns = m->now_ns, .wall_ns = m->wall_ns, .nodes = &node};
    struct kube_plan plan;

    for (size_t i = 0; i < m->count; i++) {
        struct training *t = &m->trainings[i];

        if (!t->etj || t->gone)
            continue;
        etj[etjs++] = t->etj;
        for (uint32_t p = 0; p < t->pod_count; p++)
            pod[pods++] = t->pods[p]->pod;
        if (t->report)
            report[reports++] = t->report;
    }
    world.node_count = 1;
    world.etjs = etj;
    world.etj_count = etjs;
    world.pods = pod;
    world.pod_count = pods;
    world.reports = report;
    world.report_count = reports;
    if (kube_reconcile(&m->settings, &world, m->memory, &plan))
        die("out of memory");
    for (size_t i = 0; i < plan.count; i++)
        carry_out(m, &plan.actions[i]);
    kube_plan_done(&plan);
    free(etj);
    free(pod);
    free(report);
}

static void pass(struct mix *m, const json_t *scenario, unsigned step)
{
    const json_t *jobs = json_object_get(scenario, "jobs");

    m->now_ns += STEP_NS;
    m->wall_ns += STEP_NS;
    for (size_t i = 0; i < m->count; i++) {
        struct training *t = &m->trainings[i];

        if (!t->etj && m->now_ns >= t->arrival_ns)
            create_training(m, t, scenario, json_array_get(jobs, i));
        if (!t->etj || t->gone)
            continue;
        kubelet(m, t);
        let_leave(m, t);
        if (t->left_s > 0)
            train(m, t);
        if (step % REPORT_STEPS == 0 && t->left_s > 0)
            tell(m, t);
        if (t->left_s <= 0)
            finish(m, t);
        t->gone = t->ended_ns && t->pod_count <= 1;
        while (t->gone && t->pod_count)
            drop_pod(m, t, 0);
    }
    if (step % REPORT_STEPS == 0)
        reconcile(m);
}

static bool all_gone(const struct mix *m)
{
    for (size_t i = 0; i < m->count; i++)
        if (!m->trainings[i].gone)
            return false;
    return true;
}

int main(void)
{
    json_t *scenario = json_loadf(stdin, 0, NULL), *took = json_array(), *text;
    struct mix m = {.now_ns = BEGIN_NS, .wall_ns = WALL_NS, .memory = kube_memory_new()};
    const json_t *jobs = json_object_get(scenario, "jobs");

    if (!jobs || !m.memory)
        die("no scenario");
    kube_settings_init(&m.settings);
    if ((text = json_object_get(scenario, "policy")) &&
        policy_spec_parse(json_string_value(text), &m.settings.policy, NULL))
        die("no such policy");
    if ((text = json_object_get(scenario, "settle_s")))
        m.settings.settle_ns = (int64_t)(json_number_value(text) * (double)S);
    m.random = 88172645463325252u + (uint64_t)json_integer_value(json_object_get(scenario, "seed"));
    m.count = json_array_size(jobs);
    m.trainings = calloc(m.count, sizeof(*m.trainings));
    for (size_t i = 0; i < m.count; i++)
        read_training(&m.trainings[i], json_array_get(jobs, i));
    make_node(&m, scenario);
    for (unsigned step = 0; !all_gone(&m); step++) {
        if (m.now_ns > END_NS)
            die("it does not end");
        pass(&m, scenario, step);
    }
    for (size_t i = 0; i < m.count; i++)
        json_array_append_new(
            took,
            json_real((double)(m.trainings[i].ended_ns - m.trainings[i].arrival_ns) / (double)S));
    text = json_pack("{s:o, s:f, s:I, s:f}", "took_s", took, "makespan_s",
                     (double)(m.now_ns - BEGIN_NS) / (double)S, "changes", (json_int_t)m.changes,
                     "busy_s", m.busy_s);
    json_dumpf(text, stdout, JSON_REAL_PRECISION(6));
    printf("\n");
    json_decref(text);
    json_decref(scenario);
    kube_memory_free(m.memory);
    return 0;
}

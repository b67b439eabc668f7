/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ElasticTrainingJob: kube_etj_parse() of object.h. The API server has checked the schema, but not
 * if the CRD is an older one; what is wrong becomes ->fault, which the status then shows.
 */
#include "kube/object/object.h"

#include "base/cleanup.h"
#include "base/fnv.h"
#include "kube/object/quantity.h"
#include "kube/object/read.h"
#include "policy/core/policy.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_WORD "bad-object"

#define NAME_MAX_OF_JOB 48 /* a label, and "-worker-1000000000" behind it in a host name */
#define WORKER_MCPU_MIN 10 /* what the counts are computed with */

static const char *const phase_names[] = {"Pending",    "Starting",    "Running",
                                          "Suspending", "Suspended",   "Succeeded",
                                          "Failed",     "Terminating", "Invalid"};
static_assert(ARRAY_LEN(phase_names) == KUBE_PHASE_MAX, "a name for each");
static const char *const task_names[] = {"chief", "ps", "workers"};
static_assert(ARRAY_LEN(task_names) == KUBE_ROLE_MAX, "a name for each");
static const char *const mode_names[] = {"sync", "async"};
static_assert(ARRAY_LEN(mode_names) == KUBE_MODE_MAX, "a name for each");
static const char *const closeness_names[] = {"prefer", "require"};
static_assert(ARRAY_LEN(closeness_names) == KUBE_CLOSENESS_MAX, "a name for each");
static const char *const condition_names[] = {"Accepted", "Ready",    "Progressing",
                                              "Degraded", "Complete", "Suspended"};
static_assert(ARRAY_LEN(condition_names) == KUBE_CONDITION_MAX, "a name for each");

const char *kube_phase_name(enum kube_phase phase)
{
    return phase < KUBE_PHASE_MAX ? phase_names[phase] : "?";
}

const char *kube_mode_name(enum kube_mode mode)
{
    return mode < KUBE_MODE_MAX ? mode_names[mode] : "?";
}

const char *kube_condition_name(enum kube_condition_type type)
{
    return type < KUBE_CONDITION_MAX ? condition_names[type] : "?";
}

/* ---- status ---------------------------------------------------------------------------------- */

/* An unreadable value in a status counts as absent: a status is no reason for a fault. */
static int64_t number(const json_t *in, const char *key, int64_t max)
{
    const json_t *value = json_object_get(in, key);

    return json_is_integer(value) && json_integer_value(value) >= 0 &&
                   json_integer_value(value) <= max
               ? json_integer_value(value)
               : 0;
}

static void copy(char *to, size_t size, const json_t *in, const char *key)
{
    const char *text = json_string_value(json_object_get(in, key));

    snprintf(to, size, "%s", text ? text : "");
}

static int64_t time_of(const json_t *in, const char *key)
{
    const char *text = json_string_value(json_object_get(in, key));
    int64_t ns = 0;

    if (text)
        kube_time(text, &ns);
    return ns;
}

static void read_count(const json_t *status, const char *key, struct kube_count *ret)
{
    const json_t *in = json_object_get(status, key);

    ret->next_index = number(in, "nextIndex", KUBE_INDEX_MAX);
    ret->desired = (int32_t)number(in, "desired", KUBE_TASKS_MAX);
    ret->actual = (int32_t)number(in, "actual", KUBE_TASKS_MAX);
    ret->ready = (int32_t)number(in, "ready", KUBE_TASKS_MAX);
}

static void read_condition(const json_t *in, struct kube_status *status)
{
    const char *type = json_string_value(json_object_get(in, "type"));
    const char *truth = json_string_value(json_object_get(in, "status"));
    struct kube_condition *to;
    int i = 0;

    while (i < KUBE_CONDITION_MAX && (!type || strcmp(condition_names[i], type) != 0))
        i++;
    if (i == KUBE_CONDITION_MAX || !truth)
        return;
    to = &status->conditions[i];
    to->status = strcmp(truth, "True") == 0    ? KUBE_TRUE
                 : strcmp(truth, "False") == 0 ? KUBE_FALSE
                                               : KUBE_UNKNOWN;
    copy(to->reason, sizeof(to->reason), in, "reason");
    copy(to->message, sizeof(to->message), in, "message");
    to->since_ns = time_of(in, "lastTransitionTime");
    to->generation = number(in, "observedGeneration", INT64_MAX);
}

static void read_progress(const json_t *in, struct kube_status *status)
{
    struct kube_progress *to = &status->progress;
    const json_t *loss = json_object_get(in, "loss");

    status->has_progress = json_is_object(in);
    status->progress_ns = time_of(in, "at");
    to->step = (uint64_t)number(in, "step", INT64_MAX);
    to->epoch = (uint64_t)number(in, "epoch", INT64_MAX);
    to->examples = (uint64_t)number(in, "examples", INT64_MAX);
    to->loss = json_is_number(loss) ? json_number_value(loss) : NAN;
    to->examples_per_s = json_number_value(json_object_get(in, "examplesPerSecond"));
    to->step_s = json_number_value(json_object_get(in, "stepSeconds"));
    to->compute_permille = (uint32_t)number(in, "computePermille", 1000);
    to->communication_permille = (uint32_t)number(in, "communicationPermille", 1000);
}

static void read_sizes(const json_t *in, struct kube_status *status)
{
    const json_t *entry;
    size_t i;

    json_array_foreach ((json_t *)in, i, entry) {
        struct kube_size *to = &status->sizes[status->size_count];

        if (status->size_count == KUBE_SIZES_MAX)
            break;
        to->since_ns = time_of(entry, "since");
        to->ps = (int32_t)number(entry, "ps", KUBE_TASKS_MAX);
        to->workers = (int32_t)number(entry, "workers", KUBE_TASKS_MAX);
        status->size_count += to->since_ns > 0;
    }
}

static void read_status(const json_t *in, struct kube_status *status)
{
    const char *phase = json_string_value(json_object_get(in, "phase"));
    const json_t *conditions = json_object_get(in, "conditions");
    const json_t *members = json_object_get(in, "members");
    const char *hash = json_string_value(json_object_get(members, "hash"));
    json_t *condition;
    size_t i;

    status->efficiency_percent = -1;
    status->progress.loss = NAN;
    if (!json_is_object(in))
        return;
    for (int p = 0; phase && p < KUBE_PHASE_MAX; p++)
        if (strcmp(phase_names[p], phase) == 0)
            status->phase = (enum kube_phase)p;
    status->observed_generation = number(in, "observedGeneration", INT64_MAX);
    status->members_generation = number(members, "generation", INT64_MAX);
    status->members_hash = hash ? strtoull(hash, NULL, 16) : 0;
    status->restarts = (int32_t)number(in, "restarts", INT32_MAX);
    if (json_is_integer(json_object_get(in, "efficiency")))
        status->efficiency_percent = (int32_t)number(in, "efficiency", 1000);
    copy(status->failed_uid, sizeof(status->failed_uid), in, "failedChief");
    copy(status->reason, sizeof(status->reason), in, "reason");
    copy(status->message, sizeof(status->message), in, "message");
    read_count(in, "ps", &status->ps);
    read_count(in, "workers", &status->worker);
    read_sizes(json_object_get(in, "sizes"), status);
    if (json_object_get(in, "progress"))
        read_progress(json_object_get(in, "progress"), status);
    json_array_foreach (conditions, i, condition)
        if (i < KUBE_LIST_MAX)
            read_condition(condition, status);
}

/* ---- spec ------------------------------------------------------------------------------------ */

static json_t *hold(const json_t *value)
{
    return value ? json_incref((json_t *)value) : NULL;
}

/* A list of strings. */
static json_t *read_strings(struct reader *r, const json_t *in, const char *key)
{
    const json_t *list = read_array(r, in, key);
    json_t *entry;
    size_t i;

    json_array_foreach (list, i, entry)
        if (!json_is_string(entry) || json_string_length(entry) > KUBE_TEXT_MAX)
            read_fault(r, key, "has an entry that is no short string");
    return hold(list);
}

static json_t *read_env(struct reader *r, const json_t *in)
{
    const json_t *list = read_array(r, in, "env");
    json_t *entry;
    size_t i;

    json_array_foreach (list, i, entry) {
        const char *name = read_string(r, entry, "name");

        if (!name || !*name)
            read_fault(r, "env", "has an entry without name");
        else if (strncmp(name, "TIDE_", 5) == 0)
            read_fault(r, "env", "%.60s: names that begin with TIDE_ are the controller's", name);
    }
    return hold(list);
}

/* Refuses our own labels and annotations in a template: only we say whose a pod is. */
static void check_keys(struct reader *r, const json_t *meta, const char *kind)
{
    json_t *value;
    const char *key;

    json_object_foreach ((json_t *)read_object(r, meta, kind), key, value)
        if (strncmp(key, KUBE_GROUP "/", sizeof(KUBE_GROUP)) == 0)
            read_fault(r, kind, "%.60s: names under " KUBE_GROUP "/ are the controller's", key);
}

/* A container without a request of a resource requests its limit, as with GPUs. */
static void read_task_extras(struct reader *r, const json_t *resources, struct kube_extras *ret)
{
    const char *key =
        json_object_size(json_object_get(resources, "limits")) ? "limits" : "requests";

    read_extras(r, resources, key, ret);
}

static void read_all_extras(struct reader *r, const json_t *pod, struct kube_task *task)
{
    json_t *container;
    size_t i;

    if (task->resources)
        read_task_extras(r, task->resources, &task->extras);
    json_array_foreach (read_array(r, pod, "containers"), i, container) {
        const char *name = read_string(r, container, "name");

        if (!task->resources || !name || strcmp(name, KUBE_CONTAINER) != 0)
            read_task_extras(r, read_object(r, container, "resources"), &task->extras);
    }
}

static void read_task(struct reader *r, const json_t *spec, const char *key, enum kube_role role,
                      struct kube_task *task)
{
    const json_t *in, *meta, *pod;

    read_at(r, "spec.");
    in = read_object(r, spec, key);
    read_at(r, "spec.%s.", key);
    task->min = task->max = 1;
    if (role != KUBE_CHIEF) {
        task->min = (int32_t)read_int(r, in, "min", 1, 1, KUBE_TASKS_MAX);
        task->max = (int32_t)read_int(r, in, "max", task->min, 1, KUBE_TASKS_MAX);
        if (task->max < task->min)
            read_fault(r, "max", "%d is below min, which is %d", task->max, task->min);
    }
    task->resources = hold(read_object(r, in, "resources"));
    task->template = hold(read_object(r, in, "template"));
    read_at(r, "spec.%s.template.", key);
    meta = read_object(r, task->template, "metadata");
    read_at(r, "spec.%s.template.metadata.", key);
    check_keys(r, meta, "labels");
    check_keys(r, meta, "annotations");
    read_at(r, "spec.%s.template.", key);
    pod = read_object(r, task->template, "spec");
    read_at(r, "spec.%s.template.spec.", key);
    read_place(r, pod, &task->place);
    read_all_extras(r, pod, task);
    read_at(r, "spec.%s.resources.", key);
    read_pod_request(r, pod, task->resources, &task->request, &task->limit, &task->mcpu,
                     &task->limit_mcpu);
    if (task->request.mcpu > KUBE_MCPU_MAX || task->request.bytes > KUBE_BYTES_MAX)
        read_fault(r, "requests", "are more than any machine has");
}

static void read_workers(struct reader *r, const json_t *spec, struct kube_etj *etj)
{
    const struct kube_task *task = &etj->task[KUBE_WORKER];
    const json_t *in = read_object(r, spec, "workers"), *cpu = read_object(r, in, "cpu");

    read_at(r, "spec.workers.");
    etj->replicas = (int32_t)read_int(r, in, "replicas", 0, 0, KUBE_TASKS_MAX);
    if (etj->replicas && (etj->replicas < task->min || etj->replicas > task->max))
        read_fault(r, "replicas", "%d is neither 0 (the policy decides) nor within %d and %d",
                   etj->replicas, task->min, task->max);
    if (task->mcpu < WORKER_MCPU_MIN)
        read_fault(r, "resources.requests.cpu",
                   "is below %dm: the controller needs to know what a worker asks for",
                   WORKER_MCPU_MIN);
    read_at(r, "spec.workers.cpu.");
    etj->worker_mcpu_min = read_quantity(r, cpu, "min", true, task->mcpu);
    etj->worker_mcpu_max = read_quantity(r, cpu, "max", true, task->mcpu);
    if (etj->worker_mcpu_min < WORKER_MCPU_MIN || etj->worker_mcpu_min > task->mcpu ||
        etj->worker_mcpu_max < task->mcpu)
        read_fault(r, "min",
                   "has to be at least %dm, and the worker's requests.cpu between min and max",
                   WORKER_MCPU_MIN);
    etj->worker_start_mcpu = read_quantity(r, cpu, "start", true, 0);
    if (etj->worker_start_mcpu && !task->limit_mcpu)
        read_fault(r, "start",
                   "needs the worker's limits.cpu: without a limit it starts with all there is");
    else if (etj->worker_start_mcpu &&
             (etj->worker_start_mcpu <= task->limit_mcpu || etj->worker_start_mcpu > KUBE_MCPU_MAX))
        read_fault(
            r, "start",
            "has to be above the worker's limits.cpu, which are %lldm: it is the limit until "
            "the worker is in the training",
            (long long)task->limit_mcpu);
}

static void read_policy(struct reader *r, const json_t *spec, struct kube_etj *etj)
{
    struct policy_spec policy;
    struct error err = {0};

    etj->policy = read_text(r, spec, "policy");
    if (!etj->policy)
        etj->policy = read_copy(r, "");
    if (etj->policy && *etj->policy && policy_spec_parse(etj->policy, &policy, &err))
        read_fault(r, "policy", "%s", err.text);
}

static void read_topology(struct reader *r, const json_t *spec, struct kube_etj *etj)
{
    static const char *const uses[] = {"avoid", "use"};
    const json_t *topology = read_object(r, spec, "topology");

    etj->gpu_nodes = read_name(r, spec, "gpuNodes", uses, ARRAY_LEN(uses), 0) == 1;
    read_at(r, "spec.topology.");
    etj->topology_key = read_text(r, topology, "key");
    etj->closeness = (enum kube_closeness)read_name(r, topology, "mode", closeness_names,
                                                    KUBE_CLOSENESS_MAX, KUBE_PREFER);
    if (topology && (!etj->topology_key || !*etj->topology_key))
        read_fault(r, "key", "is missing: a label of nodes, as topology.kubernetes.io/zone");
    read_at(r, "spec.");
}

/* Adds a value of the spec, in one form whatever the order of its keys. */
static void add_asked(struct reader *r, const json_t *value, uint64_t *hash)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);

    if (value && !text)
        error_set(&r->err, -ENOMEM, "out of memory");
    *hash = fnv_text(*hash, text ? text : "-");
    free(text);
}

/* Hashes the queue, and all of the spec by which it decides. */
static void read_queue(struct reader *r, const json_t *json, struct kube_etj *etj)
{
    static const char *const keys[] = {"min", "max", "resources", "template"};
    const json_t *labels = read_object(r, read_object(r, json, "metadata"), "labels");
    const json_t *spec = json_object_get(json, "spec");
    const char *queue = read_string(r, labels, KUBE_LABEL_QUEUE);
    const char *priority = read_string(r, labels, KUBE_LABEL_QUEUE_PRIORITY);

    etj->queue = read_copy(r, queue ? queue : "");
    etj->queue_priority = read_copy(r, priority ? priority : "");
    if (!queue || !*queue)
        return;
    etj->asks = fnv_text(FNV_START, queue);
    etj->asks = fnv_text(etj->asks, priority ? priority : "-");
    add_asked(r, json_object_get(spec, "priorityClassName"), &etj->asks);
    for (int role = 0; role < KUBE_ROLE_MAX; role++) {
        const json_t *task = json_object_get(spec, task_names[role]);

        for (size_t i = 0; i < ARRAY_LEN(keys); i++)
            add_asked(r, json_object_get(task, keys[i]), &etj->asks);
    }
    etj->asks |= 1; /* 0: a Workload that says nothing */
}

/* Checks that spec.quota has room for the minimum of each role. */
static void check_quota(struct reader *r, const json_t *spec, struct kube_etj *etj)
{
    struct kube_amount least = {0};

    read_resources(r, spec, "quota", &etj->quota);
    etj->quota.mcpu = etj->quota.mcpu < 0 ? 0 : etj->quota.mcpu;
    etj->quota.bytes = etj->quota.bytes < 0 ? 0 : etj->quota.bytes;
    for (int role = 0; role < KUBE_ROLE_MAX; role++) {
        least.mcpu += etj->task[role].min * etj->task[role].request.mcpu;
        least.bytes += etj->task[role].min * etj->task[role].request.bytes;
    }
    if (etj->quota.mcpu && etj->quota.mcpu < least.mcpu)
        read_fault(r, "quota.cpu", "is below what chief, ps.min and workers.min ask for together");
    if (etj->quota.bytes && etj->quota.bytes < least.bytes)
        read_fault(r, "quota.memory",
                   "is below what chief, ps.min and workers.min ask for together");
}

/* The name becomes a Service's name, a label's value and a part of host names. */
static void check_name(struct reader *r, const char *name)
{
    bool good = islower((unsigned char)name[0]) && strlen(name) <= NAME_MAX_OF_JOB;

    for (const char *c = name; *c; c++)
        good &=
            islower((unsigned char)*c) || isdigit((unsigned char)*c) || (*c == '-' && c[1] != '\0');
    read_at(r, "metadata.");
    if (!good)
        read_fault(r, "name",
                   "needs a lower-case letter first, then letters, digits and '-', at most %d",
                   NAME_MAX_OF_JOB);
}

static void read_spec(struct reader *r, const json_t *spec, struct kube_etj *etj)
{
    const json_t *checkpoint;

    check_name(r, etj->meta.name);
    read_at(r, "spec.");
    etj->image = read_text(r, spec, "image");
    if (!etj->image || !*etj->image)
        read_fault(r, "image", "is missing");
    etj->command = read_strings(r, spec, "command");
    if (json_array_size(etj->command) == 0)
        read_fault(r, "command", "is missing: what the chief runs");
    etj->args = read_strings(r, spec, "args");
    etj->env = read_env(r, spec);
    etj->mode = (enum kube_mode)read_name(r, spec, "mode", mode_names, KUBE_MODE_MAX, KUBE_SYNC);
    etj->slots = (int32_t)read_int(r, spec, "slots", 8, 1, KUBE_SLOTS_MAX);
    etj->priority = (int32_t)read_int(r, spec, "priority", 0, -1000000, 1000000);
    etj->priority_class = read_text(r, spec, "priorityClassName");
    if (!etj->priority_class)
        etj->priority_class = read_copy(r, "");
    etj->suspend = read_bool(r, spec, "suspend", false);
    etj->backoff_limit = (int32_t)read_int(r, spec, "backoffLimit", 6, 0, 1000000);
    read_policy(r, spec, etj);
    read_topology(r, spec, etj);
    read_at(r, "spec.checkpoint.");
    checkpoint = read_object(r, spec, "checkpoint");
    etj->checkpoint_path = read_text(r, checkpoint, "path");
    if (!etj->checkpoint_path)
        etj->checkpoint_path = read_copy(r, "");
    etj->checkpoint_interval_s = read_int(r, checkpoint, "intervalSeconds", 60, 1, 86400);
    for (int role = 0; role < KUBE_ROLE_MAX; role++)
        read_task(r, spec, task_names[role], (enum kube_role)role, &etj->task[role]);
    read_workers(r, spec, etj);
    read_at(r, "spec.");
    check_quota(r, spec, etj);
}

int kube_etj_parse(const json_t *json, struct kube_etj **ret, struct error *err)
{
    struct reader r = {0}, spec = {0};
    struct kube_etj *etj = read_alloc(&r, 1, sizeof(*etj));
    json_t *finalizer;
    size_t i;

    if (!etj)
        return read_end(&r, err);
    etj->finalizer = -1;
    read_meta(&r, json, &etj->meta);
    etj->version = read_text(&r, read_object(&r, json, "metadata"), "resourceVersion");
    json_array_foreach (read_array(&r, read_object(&r, json, "metadata"), "finalizers"), i,
                        finalizer)
        if (json_is_string(finalizer) && strcmp(json_string_value(finalizer), KUBE_FINALIZER) == 0)
            etj->finalizer = (int32_t)i;
    if (r.err.code == 0) {
        read_spec(&spec, json_object_get(json, "spec"), etj);
        read_queue(&r, json, etj);
        read_status(json_object_get(json, "status"), &etj->status);
        if (spec.err.code == -ENOMEM)
            r.err = spec.err;
        else if (spec.err.code)
            etj->fault = read_copy(&r, spec.err.text);
    }
    if (r.err.code) {
        kube_etj_free(etj);
        return read_end(&r, err);
    }
    *ret = etj;
    return 0;
}

struct kube_etj *kube_etj_free(struct kube_etj *etj)
{
    if (!etj)
        return NULL;
    kube_meta_done(&etj->meta);
    for (int role = 0; role < KUBE_ROLE_MAX; role++) {
        kube_place_done(&etj->task[role].place);
        kube_extras_done(&etj->task[role].extras);
        json_decref(etj->task[role].template);
        json_decref(etj->task[role].resources);
    }
    json_decref(etj->command);
    json_decref(etj->args);
    json_decref(etj->env);
    free(etj->version);
    free(etj->fault);
    free(etj->image);
    free(etj->policy);
    free(etj->priority_class);
    free(etj->checkpoint_path);
    free(etj->topology_key);
    free(etj->queue);
    free(etj->queue_priority);
    free(etj);
    return NULL;
}

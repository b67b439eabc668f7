/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/api/view.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/size.h"
#include "daemon/confine/balance.h"
#include "daemon/containers/container.h"
#include "daemon/daemon.h"
#include "daemon/energy/cap.h"
#include "daemon/job/apportion.h"
#include "daemon/job/job.h"
#include "daemon/link/access.h"
#include "daemon/plan/beyond.h"
#include "daemon/plan/decision.h"
#include "daemon/plan/external.h"
#include "daemon/plan/promises.h"
#include "daemon/record/shown.h"
#include "daemon/record/store.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SPEEDUP_SHOWN_MAX 64 /* entries of a curve */

static json_t *number(uint64_t n)
{
    return json_integer(n > INT64_MAX ? INT64_MAX : (json_int_t)n);
}

static json_t *number_or_null(uint64_t n)
{
    return n ? number(n) : json_null();
}

/* ---- a job ---- */

static json_t *view_inter(const struct process *p, const struct backend *b)
{
    if (b->max.inter == 0)
        return json_null();
    return json_pack("{s:i,s:i,s:i}", "max", (int)b->max.inter, "target",
                     (int)(p->sent.inter ? p->sent.inter : b->target.inter), "active",
                     (int)b->active.inter);
}

static json_t *view_backend(const struct process *p, const struct backend *b)
{
    uint32_t target = b->malleable && p->beat ? p->target : b->target.intra;
    uint32_t active = b->malleable && p->beat ? p->active : b->active.intra;

    return json_pack("{s:o,s:o,s:i,s:i,s:i,s:b,s:o,s:o,s:i}", "name", shown_text(b->name),
                     "version", shown_text(b->version), "max", (int)b->max.intra, "target",
                     (int)target, "active", (int)active, "malleable", (int)b->malleable, "note",
                     shown_text(b->note), "inter", view_inter(p, b), "pid", (int)p->pid);
}

static json_t *view_backends(const struct job *j)
{
    json_t *list = json_array();

    for (const struct process *p = j->processes; p; p = p->next)
        for (unsigned i = 0; i < p->n_backends; i++)
            if (p->backend[i].known)
                json_array_append_new(list, view_backend(p, &p->backend[i]));
    return list;
}

/* The apportionment of the target; null where one process has all of it. */
static json_t *view_split(const struct job *j)
{
    json_t *list;
    uint32_t milli;

    if (apportion_count(j) < 2 || j->wanted.threads.intra == 0)
        return json_null();
    list = json_array();
    for (const struct process *p = j->processes; p; p = p->next)
        if (p->want.intra)
            json_array_append_new(
                list,
                json_pack("{s:i,s:o,s:i,s:o}", "pid", (int)p->pid, "name", shown_text(p->comm),
                          "threads", (int)p->want.intra, "used",
                          apportion_used(p, &milli) ? json_real(milli / 1000.0) : json_null()));
    return list;
}

static json_t *view_pids(const struct job *j)
{
    json_t *list = json_array();

    for (const struct process *p = j->processes; p; p = p->next)
        json_array_append_new(list, json_integer(p->pid));
    return list;
}

static json_t *view_progress(const struct job *j)
{
    struct job_progress p;

    job_progress(j, &p);
    return json_pack("{s:o,s:o,s:o,s:f}", "done", number(p.done), "total", number(p.total), "unit",
                     shown_text(p.unit), "rate", job_rate(j));
}

static uint32_t signal_of(const struct job *j)
{
    for (const struct process *p = j->processes; p; p = p->next)
        if (p->connection && p->signal)
            return p->signal;
    return 0;
}

static json_t *view_use(const struct job *j)
{
    struct cpuset cores;

    job_cores(j, &cores);
    return json_pack("{s:o,s:f,s:o,s:o,s:o,s:b}", "cores", shown_cpuset(&cores), "allowed",
                     job_allowed_mcpu(j) / 1000.0, "target", number(job_target(j)), "active",
                     number(job_active(j)), "max", number(job_max(j)), "oversubscribed",
                     (int)job_oversubscribed(j));
}

/* A value as JSON; null instead of 0 where 0 means none. */
static json_t *view_attribute(const struct attribute *a, int64_t value)
{
    char promise[PROMISE_TEXT_MAX], devices[DEVICES_TEXT_MAX];

    if (a->none && value == 0)
        return json_null();
    if (a->kind == KIND_PROMISE)
        return json_string(promise_text(value, promise));
    if (a->kind == KIND_DEVICES)
        return json_string(devices_text(value, devices));
    if (a->kind == KIND_MOMENT)
        return json_real((double)value / 1000);
    return a->kind == KIND_CHOICE ? json_string(a->choices[value].name) : json_integer(value);
}

static json_t *view_asked(const struct job *j)
{
    struct attributes asked = j->asked.attributes;
    json_t *view = json_object();

    asked.min = asked.min ? asked.min : 1;
    asked.memory_bytes = (int64_t)usage_memory_asked(j); /* a container's limit counts, too */
    for (each_attribute(a))
        json_object_set_new(view, a->shown ? a->shown : a->key,
                            view_attribute(a, attribute_get(a, &asked)));
    return view;
}

static json_t *view_memory(const struct job *j)
{
    const struct job_memory *m = &j->observed.memory;

    return json_pack(
        "{s:o,s:o,s:o,s:o,s:o}", "memory_used", number_or_null(j->observed.usage.memory_bytes),
        "memory_counted", number(usage_memory(j)), "memory_limit", number_or_null(m->limit),
        "memory_high", number_or_null(m->high), "memory_least", number_or_null(m->least));
}

/* The devices that its processes have open, and how many cores feed them. */
static json_t *view_devices(const struct job *j)
{
    char names[DEVICES_NAMES_MAX];

    device_set_text(&j->observed.devices, names, sizeof(names));
    return json_pack("{s:o,s:o}", "devices_held", *names ? json_string(names) : json_null(),
                     "device_cores", number(devices_cores(j)));
}

/* How long the job ran and waited; a job of `tide run` never waits. */
static json_t *view_turn(const struct job *j, uint64_t now)
{
    struct policy_job p;
    const char *why;
    bool preemptible = admission_preemptible(j, &why);

    admission_describe(j, now, &p);
    return json_pack("{s:b,s:b,s:f,s:f,s:b,s:o}", "submitted", (int)j->admission.submitted, "held",
                     (int)j->admission.held, "run_s", (double)p.run_ns / 1e9, "wait_s",
                     (double)p.wait_ns / 1e9, "preemptible", (int)preemptible, "preemptible_note",
                     shown_text(why));
}

static json_t *view_note(const struct job *j)
{
    char note[JOB_NOTE_MAX + VIEW_NOTE_MAX], promise[VIEW_NOTE_MAX];
    size_t len;

    job_note(j, clock_now_ns(), note);
    len = strlen(note);
    if (*view_promise_note(j, promise))
        snprintf(note + len, sizeof(note) - len, "%s%s", len ? "; " : "", promise);
    return shown_text(note);
}

static json_t *view_reason(const struct job *j)
{
    char text[BEYOND_REASON_MAX];

    beyond_reason(j, text);
    return shown_text(text);
}

/* How many of its processes may work at a time, with so many threads each; or null. */
static json_t *view_instances(const struct instances_shape *shape)
{
    return shape->threads ? json_pack("{s:i,s:i}", "at_a_time", (int)shape->count, "threads",
                                      (int)shape->threads)
                          : json_null();
}

/* Its requests and its promise: null where no request was told. */
static json_t *view_latency(const struct job *j)
{
    const struct job_latency *l = &j->latency;
    const struct latency_seconds *s = &l->seconds;
    struct latency_window w;
    char why[PROMISES_TEXT_MAX];

    if (!latency_window(j, clock_now_ns(), &w))
        return json_null();
    return json_pack(
        "{s:s,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "source", latency_source_name(l),
        "promise_us", number_or_null((uint64_t)j->asked.attributes.slo_us), "p99_us",
        number_or_null(w.p99_ns / NS_PER_US), "requests", number(l->requests), "rate",
        number(w.per_second), "in_flight", number(w.in_flight), "need",
        number_or_null(promises_bind(j) && !j->promise.room.alone ? j->promise.room.need : 0),
        "instances", view_instances(&j->promise.shape), "kept",
        s->judged ? json_real((double)s->kept / (double)s->judged) : json_null(), "seconds",
        number(s->judged), "seconds_kept", number(s->kept), "why",
        shown_text(promises_text(j, why)));
}

/* Origin of the job's pin: null without one. */
static json_t *view_pinned_by(const struct job *j)
{
    if (!j->asked.pinned.intra)
        return json_null();
    return json_string(j->asked.pinned_by == PROTO_SOURCE_SIGNAL ? "signal"
                       : j->asked.pinned_by == PROTO_SOURCE_API  ? "program"
                                                                 : "hand");
}

json_t *view_job(const struct job *j, const struct caller *who)
{
    uint64_t now = clock_now_ns();
    json_t *view = json_pack("{s:s,s:s,s:s,s:s,s:o}", "id", j->id, "name", j->name, "owner",
                             j->owner, "state", job_state(j, now), "pids", view_pids(j));
    json_t *use = view_use(j);
    json_t *asked = view_asked(j);
    json_t *memory = view_memory(j);
    json_t *devices = view_devices(j);
    json_t *turn = view_turn(j, now);
    json_t *energy = view_job_energy(j, who);
    json_t *rest = json_pack(
        "{s:b,s:o,s:b,s:b,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:f}",
        "malleable", (int)job_malleable(j), "sized", number_or_null(j->asked.sized), "adopted",
        (int)j->adopted, "kept", (int)j->asked.kept, "pinned",
        number_or_null(j->asked.pinned.intra), "pinned_by", view_pinned_by(j), "lent",
        number(j->asked.lent), "borrowed", number(j->wanted.borrowed), "extra",
        number(beyond_extra(j)), "place", number_or_null(j->wanted.place), "backends",
        view_backends(j), "split", view_split(j), "progress", view_progress(j), "latency",
        view_latency(j), "promise", view_promise(j), "reason", view_reason(j), "note", view_note(j),
        "signal", number_or_null(signal_of(j)), "elapsed_s", (double)(now - j->created_ns) / 1e9);

    if (!view || json_object_update_new(view, use) < 0 || json_object_update_new(view, asked) < 0 ||
        json_object_update_new(view, memory) < 0 || json_object_update_new(view, devices) < 0 ||
        json_object_update_new(view, turn) < 0 || json_object_update_new(view, energy) < 0 ||
        json_object_update_new(view, rest) < 0) {
        json_decref(view);
        return NULL;
    }
    return view;
}

static json_t *earlier_of(const struct speed *s)
{
    return s->earlier == SPEED_EARLIER_OWN      ? json_string("own")
           : s->earlier == SPEED_EARLIER_SHARED ? json_string("shared")
                                                : json_null();
}

/* The speed-up curve that was measured, in this run or in earlier ones, or null. */
static json_t *view_speedup(const struct job *j)
{
    const struct speed *s = &j->observed.speed;
    uint32_t table[SPEEDUP_SHOWN_MAX], count = cpuset_count(&j->daemon->cpus);
    json_t *list;

    if (!s->known)
        return json_null();
    count = count < SPEEDUP_SHOWN_MAX ? count : SPEEDUP_SHOWN_MAX;
    fit_table(&s->model, count, table);
    list = json_array();
    for (uint32_t k = 0; k < count; k++)
        json_array_append_new(list, json_real(table[k] / 1000.0));
    return json_pack("{s:o,s:f,s:f,s:f,s:i,s:o,s:f}", "table", list, "parallel",
                     (double)s->model.parallel / FIT_ONE, "contention",
                     (double)s->model.contention / FIT_ONE, "confidence",
                     s->model.confidence_permille / 1000.0, "counts", (int)s->model.counts,
                     "earlier", earlier_of(s), "resize_us", (double)speed_resize_ns(j) / 1000);
}

/* How the policy `external` fares; null under another one. */
static json_t *view_external(const struct daemon *d)
{
    char text[EXTERNAL_TEXT_MAX];

    external_text(d->external, text);
    return *text ? shown_text(text) : json_null();
}

json_t *view_changes(const struct job *j)
{
    json_t *list = json_array();
    unsigned first = j->n_changes > JOB_CHANGES_MAX ? j->n_changes - JOB_CHANGES_MAX : 0;

    for (unsigned i = first; i < j->n_changes; i++) {
        const struct change *c = &j->changes[i % JOB_CHANGES_MAX];

        json_array_append_new(
            list, json_pack("{s:f,s:i,s:i,s:s,s:o,s:f}", "time", (double)c->time_ms / 1000, "from",
                            (int)c->from, "to", (int)c->to, "cores", c->cores, "reason",
                            shown_text(c->reason), "latency_us", (double)c->latency_ns / 1000));
    }
    return json_pack("{s:s,s:s,s:o,s:o,s:o}", "id", j->id, "name", j->name, "external",
                     view_external(j->daemon), "changes", list, "speedup", view_speedup(j));
}

/* ---- what ran ---- */

/* The live job of a row of the history, or NULL: ids start again with a new directory. */
static const struct job *job_of_row(const struct daemon *d, const json_t *row)
{
    const char *id = json_string_value(json_object_get(row, "id"));
    double submitted = json_number_value(json_object_get(row, "submitted"));
    const struct job *j = id ? job_of_number(d, strtoull(id + 1, NULL, 10)) : NULL;

    return j && j->created_ms == (uint64_t)(submitted * 1000 + 0.5) ? j : NULL;
}

static double last_sign(const json_t *row)
{
    const json_t *newest = json_array_get(json_object_get(row, "allocations"), 0);
    const json_t *begun = json_object_get(row, "begun");

    if (newest)
        return json_number_value(json_object_get(newest, "time"));
    return json_number_value(json_is_number(begun) ? begun : json_object_get(row, "submitted"));
}

/* The row is as old as the job's last event. */
static void set_turn(json_t *row, const struct job *j, uint64_t now)
{
    struct policy_job turn;

    admission_describe(j, now, &turn);
    json_object_set_new(row, "run_s", json_real((double)turn.run_ns / NS_PER_S));
    json_object_set_new(row, "wait_s", json_real((double)turn.wait_ns / NS_PER_S));
}

void view_history(const struct daemon *d, double since, json_t *list)
{
    uint64_t now = clock_now_ns();

    for (size_t i = json_array_size(list); i-- > 0;) {
        json_t *row = json_array_get(list, i);
        bool ended = json_is_number(json_object_get(row, "ended"));
        const struct job *j = ended ? NULL : job_of_row(d, row);
        bool cancelled = json_is_true(json_object_get(row, "cancelled"));
        const char *state = ended && cancelled ? "cancelled"
                            : ended            ? "ended"
                            : j                ? job_state(j, now)
                                               : "lost";

        json_object_del(row, "cancelled");
        if (!ended && !j && last_sign(row) < since)
            json_array_remove(list, i);
        else
            json_object_set_new(row, "state", json_string(state));
        if (j)
            set_turn(row, j, now);
    }
}

/* ---- the machine ---- */

static void append_note(json_t *notes, const struct job *j)
{
    json_t *note = view_note(j);

    if (json_string_length(note))
        json_array_append_new(notes, json_sprintf("%s: %s", j->id, json_string_value(note)));
    json_decref(note);
}

static json_t *view_notes(const struct daemon *d)
{
    json_t *notes = json_array();
    unsigned cpus = cpuset_count(&d->cpus), capacity = decision_capacity(d->decision);
    char cap[CAP_TEXT_MAX];

    if (d->weights_note[0])
        json_array_append_new(notes, shown_text(d->weights_note));
    if (*balance_note(d->balance))
        json_array_append_new(notes, shown_text(balance_note(d->balance)));
    cap_text(d, cap);
    if (cap[0])
        json_array_append_new(notes, json_string(cap));
    containers_notes(d->containers, notes);
    store_notes(d, notes);
    if (d->jobs->n && capacity < cpus)
        json_array_append_new(
            notes,
            json_sprintf("%u of %u cores are for these jobs: other users' daemons have jobs, too",
                         capacity, cpus));
    if (!d->machine_share)
        json_array_append_new(
            notes,
            json_string(
                "this daemon cannot see other users' daemons: their jobs may use the same cores"));
    for (const struct job *j = d->jobs->first; j; j = j->next)
        append_note(notes, j);
    return notes;
}

json_t *view_machine(const struct daemon *d, const struct caller *who)
{
    unsigned capacity = d->jobs->n ? decision_capacity(d->decision) : cpuset_count(&d->cpus);
    unsigned given = 0;
    uint64_t memory = 0;
    char devices[DEVICES_TEXT_MAX];
    bool oversubscribed = false;

    for (const struct job *j = d->jobs->first; j; j = j->next) {
        given += j->wanted.share;
        memory += j->admission.phase == JOB_QUEUED ? 0 : usage_memory(j);
        oversubscribed |= job_oversubscribed(j);
    }
    devices_text(d->devices.machine, devices);
    return json_pack("{s:s,s:i,s:o,s:I,s:b,s:s,s:s,s:i,s:o,s:i,s:o,s:o,s:o,s:i,s:b,s:b,s:b,s:o}",
                     "version", TIDE_VERSION, "pid", (int)getpid(), "epoch", number(d->epoch),
                     "uid", (json_int_t)d->uid, "privileged", (int)(d->weights || d->cpusets),
                     "policy", decision_policy(d->decision)->policy->name, "placement",
                     placement_name(d->placement), "cpus", (int)cpuset_count(&d->cpus), "online",
                     shown_cpuset(&d->cpus), "free", (int)(given < capacity ? capacity - given : 0),
                     "memory", number_or_null(d->memory_bytes), "memory_counted", number(memory),
                     "devices", *devices ? json_string(devices) : json_null(), "jobs",
                     (int)d->jobs->n, "oversubscribed", (int)(oversubscribed || given > capacity),
                     "weights", (int)d->weights, "governs", (int)control_may_govern(d, who),
                     "notes", view_notes(d));
}

static json_t *view_value(const struct policy_param *param, int64_t value)
{
    char buf[POLICY_TEXT_MAX];

    policy_param_text(param, value, buf, sizeof(buf));
    return json_string(buf);
}

/* Values as text, in the form that requests take: "60s" is clearer than 60000000000. */
static json_t *view_param(const struct policy_param *param, int64_t value)
{
    json_t *names = param->names ? json_array() : json_null();

    for (int64_t i = 0; param->names && i <= param->max - param->min; i++)
        json_array_append_new(names, json_string(param->names[i]));
    return json_pack("{s:s,s:s,s:s,s:o,s:o,s:o,s:o,s:o}", "name", param->name, "text", param->text,
                     "unit", param->unit ? param->unit : "", "value", view_value(param, value),
                     "default", view_value(param, param->def), "min", view_value(param, param->min),
                     "max", param->open ? json_null() : view_value(param, param->max), "values",
                     names);
}

static json_t *view_params(const struct policy *policy, const int64_t *values)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < policy->param_count; i++)
        json_array_append_new(
            list, view_param(&policy->params[i], values ? values[i] : policy->params[i].def));
    return list;
}

json_t *view_policy(const struct daemon *d)
{
    const struct policy_spec *spec = decision_policy(d->decision);
    char choice[POLICY_SPEC_TEXT_MAX];
    json_t *list = json_array();
    const struct policy *p;

    for (size_t i = 0; (p = policy_at(i)); i++)
        json_array_append_new(
            list, json_pack("{s:s,s:s,s:o}", "name", p->name, "brief", p->brief, "params",
                            view_params(p, p == spec->policy ? spec->params : NULL)));
    p = external_policy();
    if (*d->config.decider)
        json_array_append_new(list, json_pack("{s:s,s:s,s:o}", "name", p->name, "brief", p->brief,
                                              "params", view_params(p, NULL)));
    policy_spec_text(spec, choice, sizeof(choice));
    return json_pack("{s:s,s:s,s:o,s:o}", "name", spec->policy->name, "policy", choice, "external",
                     view_external(d), "policies", list);
}

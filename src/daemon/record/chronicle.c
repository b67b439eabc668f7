/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/record/chronicle.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/container.h"
#include "daemon/containers/container.h"
#include "daemon/daemon.h"
#include "daemon/energy/cap.h"
#include "daemon/job/confine.h"
#include "daemon/plan/beyond.h"
#include "daemon/plan/decision.h"
#include "daemon/record/history.h"
#include "daemon/record/shown.h"
#include "host/proc/proc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define RATE_NS    (10 * NS_PER_S) /* a job's speed gets a row at most this often */
#define COMMAND_NS NS_PER_S        /* after this time the process runs its program */
#define WORD_NS    (10 * NS_PER_S) /* longest wait for an exit status from an engine */

/* The state of a job that the listeners were last told. */
struct seen {
    const char *state; /* NULL: nothing yet */
    uint64_t rate_ns;
    struct cpuset cores;
    unsigned changes; /* job.n_changes at that time */
    unsigned made;    /* history_made() when its row was written */
    uint32_t target;
    bool final; /* the program's own command is known */
    char reason[JOB_REASON_MAX];
};

struct chronicle {
    chronicle_fn *listener;
    void *arg;
    struct epilogue *epilogues;        /* oldest first */
    char policy[POLICY_SPEC_TEXT_MAX]; /* the policy that was told last */
    uint64_t cap_uw;                   /* the power cap that was told last; 0: none */
    enum cap_source cap_source;        /* whose it was */
};

/* A container's job that ended before its engine had reported the exit status. */
struct epilogue {
    struct epilogue *next;
    struct history_job row; /* written already; written again with the status */
    json_t *event;          /* told once the status is known */
    uint64_t until_ns;
    char container[CONTAINER_ID_MAX];
};

/* ---- what is told ---- */

/* Takes over @data, an object (NULL: out of memory, nothing is told). */
static void tell(struct daemon *d, const char *type, json_t *data)
{
    const struct chronicle *c = d->chronicle;

    if (c->listener)
        c->listener(c->arg, type, data);
    else
        json_decref(data);
}

static struct history_key key_of(const struct job *j)
{
    return (struct history_key){.submitted_ms = j->created_ms, .number = j->number};
}

/* Whether `tide docker run` added this argument to those that a person wrote. */
static bool is_ours(const char *word)
{
    static const struct {
        const char *head, *tail;
    } ours[] = {
        {"--volume=", ":" CONTAINER_AGENT_DIR ":ro"},
        {"--volume=", ":" CONTAINER_CONTROL_DIR ":ro"},
        {"--env=LD_PRELOAD=", CONTAINER_PRELOAD},
        {"--env=TIDE_SOCKET=", CONTAINER_SOCKET},
        {"--label=" CONTAINER_LABEL, ""},
        {"--label-file=/proc/self/fd/", ""},
        {"--env-file=/proc/self/fd/", ""},
    };
    size_t len = strlen(word);

    for (size_t i = 0; i < ARRAY_LEN(ours); i++) {
        size_t tail = strlen(ours[i].tail);

        if (strncmp(word, ours[i].head, strlen(ours[i].head)) == 0 && len >= tail &&
            strcmp(word + len - tail, ours[i].tail) == 0)
            return true;
    }
    return false;
}

/*
 * The command line of the job's first process, its words joined by blanks; other bytes become '?'.
 */
static void read_command(struct job *j)
{
    char *command = j->command;
    _cleanup_free_ char *words = NULL;
    size_t len, at = 0;

    if (!j->processes || (j->container_id && !j->processes->outside) ||
        proc_read_cmdline(j->daemon->root, j->processes->pid, &words, &len) < 0 || len == 0)
        return;
    for (const char *word = words; word < words + len; word += strlen(word) + 1) {
        if (!*word || is_ours(word))
            continue;
        if (at > 0 && at < JOB_COMMAND_MAX - 1)
            command[at++] = ' ';
        for (const char *c = word; *c && at < JOB_COMMAND_MAX - 1; c++)
            command[at++] =
                (char)((unsigned char)*c < 0x20 || (unsigned char)*c >= 0x7f ? '?' : *c);
    }
    command[at] = '\0';
}

static struct history_job row_of(const struct job *j, uint64_t now)
{
    struct history_job row = {.key = key_of(j),
                              .asked = j->asked.attributes,
                              .uid = j->uid,
                              .exit = j->observed.exited ? j->observed.exit : -1,
                              .container = j->container_id,
                              .oom = j->observed.out_of_memory,
                              .cancelled = j->admission.ending};
    struct policy_job turn;

    admission_describe(j, now, &turn);
    row.run_ms = turn.run_ns / NS_PER_MS;
    row.wait_ms = turn.wait_ns / NS_PER_MS;
    if (j->admission.begun_ns)
        row.begun_ms = clock_real_ms() - (now - j->admission.begun_ns) / NS_PER_MS;
    snprintf(row.name, sizeof(row.name), "%s", j->name);
    snprintf(row.owner, sizeof(row.owner), "%s", j->owner);
    snprintf(row.command, sizeof(row.command), "%s", j->command);
    return row;
}

static void write_job(struct job *j, uint64_t now)
{
    struct history_job row = row_of(j, now);

    j->seen->made = history_made(j->daemon->history);
    history_job(j->daemon->history, &row);
}

/* Changes that have left the job's ring by now are not told. */
static void write_allocations(struct job *j)
{
    struct seen *t = j->seen;

    if (j->n_changes - t->changes > JOB_CHANGES_MAX)
        t->changes = j->n_changes - JOB_CHANGES_MAX;
    for (; t->changes < j->n_changes; t->changes++) {
        const struct change *c = &j->changes[t->changes % JOB_CHANGES_MAX];
        struct history_allocation row = {.key = key_of(j), .time_ms = c->time_ms, .threads = c->to};

        snprintf(row.cores, sizeof(row.cores), "%s", c->cores);
        snprintf(row.reason, sizeof(row.reason), "%s", c->reason);
        history_allocation(j->daemon->history, &row);
    }
}

static void write_rate(struct job *j, uint64_t now)
{
    struct history_rate row = {.key = key_of(j), .time_ms = clock_real_ms()};
    struct job_progress progress;

    if (now - j->seen->rate_ns < RATE_NS || !job_reported_any(j))
        return;
    j->seen->rate_ns = now;
    job_progress(j, &progress);
    row.rate = job_rate(j);
    row.threads = job_target(j);
    row.done = progress.done;
    row.total = progress.total;
    snprintf(row.unit, sizeof(row.unit), "%s", progress.unit);
    history_rate(j->daemon->history, &row);
}

static json_t *event_of(const struct job *j, const char *state)
{
    char reason[BEYOND_REASON_MAX];

    beyond_reason(j, reason);
    return json_pack("{s:s,s:s,s:s,s:s,s:s,s:o,s:o,s:o}", "id", j->id, "name", j->name, "owner",
                     j->owner, "kind", j->confine->kind, "state", state, "target",
                     json_integer(job_target(j)), "cores", shown_cores(j), "reason",
                     shown_text(reason));
}

/* ---- looking ---- */

/* The number behind POLICY_OVER_TEXT changes for all jobs at once: it makes no other reason. */
static bool other_reason(const char *a, const char *b)
{
    const char *over_a = strstr(a, POLICY_OVER_TEXT), *over_b = strstr(b, POLICY_OVER_TEXT);

    if (!over_a || !over_b)
        return strcmp(a, b) != 0;
    return over_a - a != over_b - b || strncmp(a, b, (size_t)(over_a - a)) != 0;
}

static bool is_news(const struct job *j, const char *state, const struct cpuset *cores)
{
    const struct seen *t = j->seen;

    return strcmp(t->state, state) != 0 || t->target != job_target(j) ||
           !cpuset_equal(&t->cores, cores) || other_reason(t->reason, j->wanted.reason);
}

/* Returns false without memory; the change is told later. */
static bool is_followed(struct job *j)
{
    if (!j->seen)
        j->seen = calloc(1, sizeof(*j->seen));
    return j->seen;
}

static void look_at(struct job *j, uint64_t now)
{
    struct seen *t = j->seen;
    const char *state = job_state(j, now);
    bool first = !t->state, news = first || j->dirty;
    struct cpuset cores;

    /* The command line is empty in the middle of an exec. */
    if (!t->final && (!*j->command || (j->admission.phase == JOB_RUNNING &&
                                       now - j->admission.begun_ns >= COMMAND_NS))) {
        read_command(j);
        t->final = !first && *j->command;
        news |= *j->command != '\0';
    }
    if (news || t->made != history_made(j->daemon->history))
        write_job(j, now);
    write_allocations(j);
    write_rate(j, now);
    job_cores(j, &cores);
    if (!first && !is_news(j, state, &cores))
        return;
    t->state = state;
    t->target = job_target(j);
    t->cores = cores;
    snprintf(t->reason, sizeof(t->reason), "%s", j->wanted.reason);
    tell(j->daemon, first ? "job-added" : "job-changed", event_of(j, state));
}

static void look_at_policy(struct daemon *d)
{
    char text[POLICY_SPEC_TEXT_MAX];

    policy_spec_text(decision_policy(d->decision), text, sizeof(text));
    if (strcmp(text, d->chronicle->policy) == 0)
        return;
    if (d->chronicle->policy[0])
        tell(d, "policy-changed", json_pack("{s:s}", "policy", text));
    memcpy(d->chronicle->policy, text, sizeof(text));
}

static void look_at_cap(struct daemon *d)
{
    struct chronicle *c = d->chronicle;
    struct cap_view v;
    char text[CAP_TEXT_MAX];

    if (!d->power_caps)
        return;
    cap_view(d, &v);
    if (v.uw == c->cap_uw && (v.uw == 0 || v.source == c->cap_source))
        return;
    c->cap_uw = v.uw;
    c->cap_source = v.source;
    cap_text(d, text);
    tell(d, "cap",
         json_pack("{s:o,s:o,s:s}", "uw", v.uw ? json_integer((json_int_t)v.uw) : json_null(),
                   "source", v.uw ? json_string(cap_source_name(v.source)) : json_null(), "reason",
                   v.uw ? text : "no power cap any more"));
}

/* ---- the end ---- */

static void tell_end(struct daemon *d, json_t *event, const struct history_job *row)
{
    json_object_set_new(event, "exit", row->exit < 0 ? json_null() : json_integer(row->exit));
    json_object_set_new(event, "oom", json_boolean(row->oom));
    tell(d, "job-ended", event);
}

static void conclude(struct daemon *d, struct epilogue **at)
{
    struct epilogue *e = *at;

    *at = e->next;
    tell_end(d, e->event, &e->row);
    free(e);
    daemon_changed(d); /* the tick may rest */
}

/* Takes over @event. */
static void end_later(const struct job *j, json_t *event, const struct history_job *row,
                      uint64_t now)
{
    struct daemon *d = j->daemon;
    struct epilogue **at = &d->chronicle->epilogues, *e = calloc(1, sizeof(*e));

    if (!e) {
        tell_end(d, event, row);
        return;
    }
    *e = (struct epilogue){.row = *row, .event = event, .until_ns = now + WORD_NS};
    snprintf(e->container, sizeof(e->container), "%s", j->container_id);
    while (*at)
        at = &(*at)->next;
    *at = e;
}

/* Where one container ran several times, the engine's report is about the oldest waiting run. */
static struct epilogue **find(struct daemon *d, const char *container)
{
    struct epilogue **at = &d->chronicle->epilogues;

    while (*at && strcmp((*at)->container, container) != 0)
        at = &(*at)->next;
    return at;
}

static bool exited(struct daemon *d, const char *container, int exit)
{
    struct epilogue **at = find(d, container);

    if (!*at)
        return false;
    (*at)->row.exit = exit;
    history_job(d->history, &(*at)->row);
    conclude(d, at);
    return true;
}

static void out_of_memory(struct daemon *d, const char *container)
{
    struct epilogue *e = *find(d, container);

    if (!e)
        return;
    e->row.oom = true;
    history_job(d->history, &e->row);
}

bool chronicle_pending(const struct daemon *d)
{
    return d->chronicle->epilogues;
}

static void ended(struct job *j)
{
    uint64_t now = clock_now_ns();
    struct history_job row;
    json_t *event;

    if (!is_followed(j))
        return;
    if (!j->seen->state)
        look_at(j, now);
    write_allocations(j);
    row = row_of(j, now);
    row.ended_ms = clock_real_ms();
    history_job(j->daemon->history, &row);
    event = event_of(j, row.cancelled ? "cancelled" : "ended");
    json_object_set_new(event, "run_s", json_real((double)row.run_ms / 1000));
    json_object_set_new(event, "wait_s", json_real((double)row.wait_ms / 1000));
    if (j->container_id && !j->processes && !j->observed.exited)
        end_later(j, event, &row, now);
    else
        tell_end(j->daemon, event, &row);
}

void chronicle_look(struct daemon *d)
{
    uint64_t now = clock_now_ns();

    look_at_policy(d);
    look_at_cap(d);
    for (struct job *j = d->jobs->first; j; j = j->next)
        if (is_followed(j))
            look_at(j, now);
    while (d->chronicle->epilogues && d->chronicle->epilogues->until_ns <= now)
        conclude(d, &d->chronicle->epilogues);
    history_write(d->history, d->jobs->n == 0); /* no later call follows */
}

static void gone(struct job *j)
{
    free(j->seen);
}

const struct job_observer chronicle_observer = {
    .ended = ended, .gone = gone, .exited = exited, .out_of_memory = out_of_memory};

int chronicle_new(chronicle_fn *listener, void *arg, struct chronicle **ret)
{
    struct chronicle *c = calloc(1, sizeof(*c));

    if (!c)
        return -ENOMEM;
    c->listener = listener;
    c->arg = arg;
    *ret = c;
    return 0;
}

void chronicle_done(struct daemon *d)
{
    while (d->chronicle->epilogues)
        conclude(d, &d->chronicle->epilogues);
}

struct chronicle *chronicle_free(struct chronicle *c)
{
    free(c);
    return NULL;
}

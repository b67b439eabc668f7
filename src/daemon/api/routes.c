/* SPDX-License-Identifier: Apache-2.0 */
/* The handlers of the HTTP interface's paths, and the checks of clients' input. */
#include "daemon/api/api.h"

#include "base/clock.h"
#include "base/size.h"
#include "base/startup.h"
#include "daemon/api/events.h"
#include "daemon/api/view.h"
#include "daemon/confine/guardian.h"
#include "daemon/containers/container.h"
#include "daemon/daemon.h"
#include "daemon/job/confine.h"
#include "daemon/peers/control.h"
#include "daemon/plan/decision.h"
#include "daemon/plan/plan.h"
#include "daemon/plan/users.h"
#include "daemon/plan/wait.h"
#include "daemon/record/history.h"
#include "daemon/record/promised.h"
#include "daemon/record/store.h"
#include "host/proc/proc.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define ERROR_WORD "bad-request"

/* ---- reading fields ---- */

/* A value as the client sent it, shortened, for a message. */
static void show(const json_t *value, char *buf, size_t size)
{
    char *dump = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(6));

    snprintf(buf, size, "%.40s", dump ? dump : "?");
    free(dump);
}

/* Absent: leaves *ret; null (where @nullable): sets 0. False: answered with the error. */
static bool take_integer(struct request *r, const char *key, int32_t min, int32_t max,
                         bool nullable, int32_t *ret)
{
    const json_t *value = json_object_get(r->body, key);
    char text[48];

    if (!value)
        return true;
    if (nullable && json_is_null(value)) {
        *ret = 0;
        return true;
    }
    if (json_is_integer(value) && json_integer_value(value) >= min &&
        json_integer_value(value) <= max) {
        *ret = (int32_t)json_integer_value(value);
        return true;
    }
    show(value, text, sizeof(text));
    request_fail_as(r, HTTP_BAD_REQUEST, "value-out-of-range", "",
                    "%s is %s: use a whole number from %d to %d", key, text, (int)min, (int)max);
    return false;
}

static bool take_number(struct request *r, const char *key, int32_t min, int32_t max, bool nullable,
                        uint32_t *ret)
{
    int32_t value = (int32_t)*ret;

    if (!take_integer(r, key, min, max, nullable, &value))
        return false;
    *ret = (uint32_t)value;
    return true;
}

static bool take_text(struct request *r, const char *key, const char **ret)
{
    const json_t *value = json_object_get(r->body, key);
    char text[48];

    if (!value)
        return true;
    if (json_is_string(value) && strlen(json_string_value(value)) == json_string_length(value)) {
        *ret = json_string_value(value);
        return true;
    }
    show(value, text, sizeof(text));
    request_fail(r, HTTP_BAD_REQUEST, "", "%s is %s: use a text", key, text);
    return false;
}

static bool take_flag(struct request *r, const char *key, bool *ret)
{
    const json_t *value = json_object_get(r->body, key);

    if (!value || json_is_boolean(value)) {
        *ret = value ? json_is_true(value) : *ret;
        return true;
    }
    request_fail(r, HTTP_BAD_REQUEST, "", "%s is neither true nor false", key);
    return false;
}

/* ---- attributes ---- */

/* A wall-clock time, in seconds since 1970. */
static bool read_moment(const json_t *value, int64_t *ret_ms)
{
    double now = (double)clock_real_ms() / 1000, moment = json_number_value(value);

    if (!json_is_number(value) || moment <= now || moment > now + JOB_DEADLINE_MAX_S)
        return false;
    *ret_ms = (int64_t)(moment * 1000);
    return true;
}

static bool read_attribute(const struct attribute *a, const json_t *value, int64_t *ret)
{
    *ret = 0;
    if (json_is_null(value))
        return a->none;
    if (a->kind == KIND_MOMENT)
        return read_moment(value, ret);
    if (a->kind == KIND_CHOICE || a->kind == KIND_PROMISE || a->kind == KIND_DEVICES)
        return json_is_string(value) && attribute_parse(a, json_string_value(value), ret) == 0;
    *ret = json_integer_value(value);
    return json_is_integer(value) && *ret >= a->least && *ret <= a->most;
}

static void refuse_attribute(struct request *r, const struct attribute *a, const json_t *value)
{
    char text[48], choices[64];

    show(value, text, sizeof(text));
    switch (a->kind) {
    case KIND_MOMENT:
        request_fail_as(r, HTTP_BAD_REQUEST, "bad-time", "",
                        "%s is %s: use seconds since 1970 (now it is %.0f), within ten years",
                        a->key, text, (double)clock_real_ms() / 1000);
        break;
    case KIND_MEMORY:
        /* No program needs so little: the unit was forgotten. */
        request_fail_as(r, HTTP_BAD_REQUEST, "bad-memory", "",
                        "%s is %s: use a number of bytes, at least a MiB", a->key, text);
        break;
    case KIND_PROMISE:
        request_fail_as(r, HTTP_BAD_REQUEST, "bad-promise", "",
                        "%s is %s: use a text like \"p99=50ms\", 1ms to 60s", a->key, text);
        break;
    case KIND_DEVICES:
        request_fail_as(r, HTTP_BAD_REQUEST, "bad-devices", "",
                        "%s is %s: use a text like \"nvidia=1\"; 'tide help run' has the kinds",
                        a->key, text);
        break;
    case KIND_CHOICE:
        request_fail_as(r, HTTP_BAD_REQUEST, "value-out-of-range", "", "%s is '%.40s': use %s",
                        a->key, json_string_value(value),
                        attribute_choices(a, " or ", choices, sizeof(choices)));
        break;
    default:
        request_fail_as(r, HTTP_BAD_REQUEST, "value-out-of-range", "",
                        "%s is %s: use a whole number from %d to %d", a->key, text, (int)a->least,
                        (int)a->most);
    }
}

/* Reads the attributes in the body; absent ones stay. False: answered with the error. */
static bool take_asked(struct request *r, struct attributes *ret)
{
    const char *text = NULL;
    int64_t read;

    for (each_attribute(a)) {
        const json_t *value = json_object_get(r->body, a->key);

        if (!value)
            continue;
        if (a->kind == KIND_CHOICE && !take_text(r, a->key, &text))
            return false;
        if (!read_attribute(a, value, &read)) {
            refuse_attribute(r, a, value);
            return false;
        }
        attribute_set(a, ret, read);
    }
    if (ret->max && ret->min > ret->max) {
        request_fail_as(r, HTTP_BAD_REQUEST, "min-above-max", "Raise max or lower min.",
                        "min is %d, above max, which is %d", (int)ret->min, (int)ret->max);
        return false;
    }
    return true;
}

/* ---- jobs ---- */

static void get_jobs(struct request *r, struct job *none)
{
    json_t *list = json_array();

    for (const struct job *j = r->daemon->jobs->first; j; j = j->next)
        if (control_may_read(r->daemon, &r->who, j))
            json_array_append_new(list, view_job(j, &r->who));
    request_answer(r, HTTP_OK, list);
}

static void get_job(struct request *r, struct job *j)
{
    request_answer(r, HTTP_OK, view_job(j, &r->who));
}

static void get_explain(struct request *r, struct job *j)
{
    request_answer(r, HTTP_OK, view_changes(j));
}

/* Processes that the machine or the daemon needs running. NULL: @pid is none of them. */
static const char *what_it_is(const struct daemon *d, pid_t pid)
{
    if (pid == 1)
        return "the first process of the machine";
    if (pid == getpid())
        return "tided itself";
    if (proc_is_kernel(d->root, pid))
        return "a thread of the kernel";
    if (pid == guardian_pid(d->guardian))
        return "tided's guardian";
    return NULL;
}

/* The job's user is the process's. */
static bool find_process(struct request *r, pid_t *ret_pid, uid_t *ret_uid)
{
    struct proc_status status;
    uint32_t pid = (uint32_t)r->who.pid;
    const char *special;
    int e;

    if (!take_number(r, "pid", 1, INT32_MAX, false, &pid))
        return false;
    e = proc_read_status(r->daemon->root, (pid_t)pid, &status);
    if (e < 0) {
        request_fail_as(r, HTTP_BAD_REQUEST, "no-such-process", "",
                        "pid is %u: there is no such process", pid);
        return false;
    }
    if (!control_may_register(&r->who, status.uid)) {
        request_fail_as(r, HTTP_FORBIDDEN, "not-your-process", "", "process %u is not yours", pid);
        return false;
    }
    if (!proc_all_of(&status, status.uid)) {
        request_fail_as(r, HTTP_FORBIDDEN, "mixed-rights",
                        "It can be a job once it runs as one user alone.",
                        "process %u has the rights of another user, too (a setuid program?)", pid);
        return false;
    }
    special = what_it_is(r->daemon, status.tgid);
    if (special) {
        request_fail_as(r, HTTP_FORBIDDEN, "special-process",
                        "'tide run' starts a program as a job.",
                        "process %u is %s: it cannot be a job", pid, special);
        return false;
    }
    *ret_pid = status.tgid;
    *ret_uid = status.uid;
    return true;
}

static bool read_request(struct request *r, struct job_request *ret)
{
    static const char *const fields[] = {ATTRIBUTES, "name", "threads", "sized", "pid",
                                         "queue",    "held", "script",  NULL};
    uint32_t threads = 0, sized = 0;
    bool queue = false, held = false, script = false;

    *ret = job_request_usual(r->daemon);
    if (!request_only_fields(r, fields) || !take_text(r, "name", &ret->name) ||
        !take_asked(r, &ret->asked) ||
        !take_number(r, "threads", 1, PROTO_THREADS_MAX, true, &threads) ||
        !take_number(r, "sized", 1, STARTUP_NUMBER_MAX, true, &sized) ||
        !take_flag(r, "queue", &queue) || !take_flag(r, "held", &held) ||
        !take_flag(r, "script", &script))
        return false;
    if (held && !queue) {
        request_fail(r, HTTP_BAD_REQUEST, "Add \"queue\": true.", "held without queue");
        return false;
    }
    if (queue && !routes_fits_machine(r, &ret->asked))
        return false;
    ret->pinned.intra = threads;
    ret->sized = sized;
    ret->submitted = queue;
    ret->script = script;
    ret->held = held;
    ret->granted = threads && control_may_govern(r->daemon, &r->who);
    return true;
}

static unsigned status_of(int error)
{
    switch (error) {
    case -EINVAL:
        return HTTP_BAD_REQUEST;
    case -EEXIST:
        return HTTP_CONFLICT;
    default:
        return HTTP_UNAVAILABLE;
    }
}

static void post_job(struct request *r, struct job *none)
{
    struct daemon *d = r->daemon;
    struct job_request req;
    struct promised_verdict verdict;
    struct process *p;
    struct error err = {0};
    char note[VIEW_NOTE_MAX];
    struct job *j;
    pid_t pid;
    uid_t uid;
    int e;

    if (!control_may_use(d, &r->who)) {
        request_fail_as(r, HTTP_FORBIDDEN, "not-your-daemon", "'tide run' starts one of your own.",
                        "this daemon serves user %u only", (unsigned)d->uid);
        return;
    }
    if (!read_request(r, &req) || !find_process(r, &pid, &uid) ||
        !routes_within_limits(r, uid, &req.asked, req.pinned.intra) ||
        !routes_take_new_promise(r, uid, pid, &req, &verdict))
        return;
    e = job_new(d, uid, &req, &j, &err);
    if (e < 0) {
        request_fail_with(r, status_of(e), e == -EEXIST ? "Choose another name." : "", &err);
        return;
    }
    e = process_join(j, pid, 0, &p);
    if (e < 0) {
        job_free(j);
        request_fail_as(r, HTTP_UNAVAILABLE, "system-refused", "", "cannot follow process %d: %s",
                        (int)pid, strerror(-e));
        return;
    }
    if (!routes_write_down(r, j))
        return;
    daemon_changed(d);
    char agent_socket[RUNDIR_PATH_MAX + sizeof(RUNDIR_AGENT_SOCKET) + 1];
    snprintf(agent_socket, sizeof(agent_socket), "%s/" RUNDIR_AGENT_SOCKET, d->dir);
    request_answer(r, HTTP_CREATED,
                   json_pack("{s:s,s:s,s:s,s:s,s:s}", "id", j->id, "name", j->name, "token",
                             j->token, "socket", agent_socket, "note",
                             view_begun(j, &verdict, note)));
}

/* ---- containers ---- */

static bool may_adopt(struct request *r)
{
    if (control_may_adopt(r->daemon, &r->who))
        return true;
    request_fail_as(r, HTTP_FORBIDDEN, "admin-only",
                    "Ask an administrator: see docs/permissions.md.",
                    "only the daemon's user, root and the admin group adopt containers");
    return false;
}

static void adopted(void *arg, struct job *j, const struct error *err)
{
    static const struct {
        int code;
        unsigned status;
        const char *hint;
    } failures[] = {
        {-ENOENT, HTTP_NOT_FOUND, "'docker ps' lists the containers that run."},
        {-EINVAL, HTTP_BAD_REQUEST, "Write more of the id."},
        {-EBUSY, HTTP_CONFLICT, "Start the container, then adopt it."},
        {-EEXIST, HTTP_CONFLICT, "'tide set' changes it."},
        {-EPERM, HTTP_CONFLICT, "Start it anew without that label."},
        {0, HTTP_UNAVAILABLE, "The daemon asks again by itself; its log says more."},
    };
    struct request *r = arg;
    size_t i = 0;

    r->adoption = NULL;
    if (!j) {
        while (failures[i].code && failures[i].code != err->code)
            i++;
        request_fail_with(r, failures[i].status, failures[i].hint, err);
        return;
    }
    store_save(r->daemon); /* before the answer: it outlives the daemon */
    request_answer(r, HTTP_CREATED, view_job(j, &r->who));
}

static void post_adoption(struct request *r, struct job *none)
{
    static const char *const fields[] = {ATTRIBUTES, "container", NULL};
    struct job_request req = job_request_usual(r->daemon);
    const char *name = NULL;

    if (!may_adopt(r) || !request_only_fields(r, fields) || !take_text(r, "container", &name) ||
        !take_asked(r, &req.asked))
        return;
    if (!name || !*name)
        request_fail(r, HTTP_BAD_REQUEST, "Send {\"container\": \"NAME\"}.",
                     "container is missing");
    else if (container_adopt(r->daemon, name, &req, adopted, r, &r->adoption) < 0)
        request_fail_as(r, HTTP_UNAVAILABLE, "out-of-memory", "", "out of memory");
}

static void delete_adoption(struct request *r, struct job *j)
{
    json_t *answer = json_pack("{s:s,s:s}", "id", j->id, "name", j->name);
    struct error err = {0};

    if (!may_adopt(r)) {
        json_decref(answer);
        return;
    }
    if (container_release(j, &err) == 0) {
        daemon_changed(r->daemon);
        request_answer(r, HTTP_OK, answer);
        return;
    }
    json_decref(answer);
    request_fail_with(r, HTTP_CONFLICT,
                      "A container with io.threadtide labels is a job as long as it runs.", &err);
}

/* ---- changing a job ---- */

struct patch {
    uint32_t deadline_ms; /* of the answer, no attribute of the job */
    struct attributes asked;
    struct threads threads;
    struct cpuset cores;
    bool pins; /* threads are set, or released with intra 0 */
    bool keeps, keep, has_cores;
    bool held;
};

static bool read_threads(struct request *r, struct patch *p)
{
    const json_t *automatic = json_object_get(r->body, "auto");
    uint32_t threads = 0;

    if (!take_number(r, "threads", 1, PROTO_THREADS_MAX, false, &threads) ||
        !take_number(r, "intra", 1, PROTO_THREADS_MAX, false, &p->threads.intra) ||
        !take_number(r, "inter", 1, PROTO_THREADS_MAX, false, &p->threads.inter))
        return false;
    if (automatic && !json_is_true(automatic)) {
        request_fail(r, HTTP_BAD_REQUEST, "Leave it out, or use true.", "auto is not true");
        return false;
    }
    if (!!automatic + !!threads + (p->threads.intra || p->threads.inter) > 1) {
        request_fail(r, HTTP_BAD_REQUEST, "Name one of them.",
                     "threads, intra with inter, and auto exclude each other");
        return false;
    }
    if (p->threads.inter && !p->threads.intra) {
        request_fail(r, HTTP_BAD_REQUEST, "Name both.", "inter without intra");
        return false;
    }
    if (threads)
        p->threads.intra = threads;
    p->pins = automatic || p->threads.intra;
    return true;
}

/* `tide pin`: "pin", and its cores. */
static bool read_keep(struct request *r, struct patch *p)
{
    const char *cores = NULL;
    struct cpuset both;

    if (!take_flag(r, "pin", &p->keep) || !take_text(r, "cores", &cores))
        return false;
    p->keeps = json_object_get(r->body, "pin") != NULL;
    if (p->keeps && json_object_get(r->body, "auto")) {
        request_fail(r, HTTP_BAD_REQUEST, "Name one of them.", "pin and auto exclude each other");
        return false;
    }
    if (!cores)
        return true;
    if (!p->keeps || !p->keep) {
        request_fail(r, HTTP_BAD_REQUEST, "Add \"pin\": true.", "cores without pin");
        return false;
    }
    if (cpuset_parse(cores, &p->cores) == 0) {
        cpuset_and(&both, &p->cores, &r->daemon->cpus);
        p->has_cores = cpuset_count(&both) > 0 && cpuset_equal(&both, &p->cores);
    }
    if (!p->has_cores)
        request_fail_as(r, HTTP_BAD_REQUEST, "bad-cores", "'tide top' shows the machine's.",
                        "cores is '%.40s': use a list of this machine's, like 0-1,4", cores);
    return p->has_cores;
}

static bool read_patch(struct request *r, const struct job *j, struct patch *ret)
{
    static const char *const fields[] = {ATTRIBUTES,    "threads", "intra", "inter", "auto",
                                         "deadline_ms", "held",    "pin",   "cores", NULL};

    if (json_object_get(r->body, "placement")) {
        request_fail_as(r, HTTP_BAD_REQUEST, "placement-fixed",
                        "Start it anew with --placement, or the label io.threadtide.placement; "
                        "'tide pin' with --cores fences one that runs.",
                        "the placement of job %s is %s: that is fixed when a job starts", j->id,
                        placement_name((enum placement)j->asked.attributes.placement));
        return false;
    }
    *ret = (struct patch){.deadline_ms = DAEMON_WAIT_MS,
                          .held = j->admission.held,
                          .keep = j->asked.kept,
                          .asked = j->asked.attributes};
    if (!request_only_fields(r, fields) || !take_asked(r, &ret->asked) ||
        !take_number(r, "deadline_ms", 1, DAEMON_WAIT_MAX_MS, false, &ret->deadline_ms) ||
        !take_flag(r, "held", &ret->held) || !read_threads(r, ret) || !read_keep(r, ret))
        return false;
    if (json_object_size(r->body) == (json_object_get(r->body, "deadline_ms") ? 1 : 0)) {
        request_fail(r, HTTP_BAD_REQUEST, "Name threads, auto, min, max, weight, priority, ...",
                     "nothing to change");
        return false;
    }
    return true;
}

/* Whether the request asks for any change. */
static bool changes(const struct job *j, const struct patch *p)
{
    bool frees = (p->pins || p->keeps) && !p->threads.intra && !p->keep;

    return memcmp(&p->asked, &j->asked.attributes, sizeof(p->asked)) != 0 ||
           p->held != j->admission.held || (p->keeps && p->keep) || (p->pins && p->threads.intra) ||
           (frees && (j->asked.kept || j->asked.pinned.intra));
}

static void patch_done(void *arg, struct job *j, enum wait_outcome outcome, uint64_t latency_ns)
{
    static const char *const names[] = {
        [WAIT_DONE] = "done", [WAIT_PENDING] = "pending", [WAIT_PARTIAL] = "partial"};
    struct request *r = arg;

    r->wait = 0;
    if (!j) {
        request_fail_as(r, HTTP_NOT_FOUND, "no-such-job", "", "the job ended before the answer");
        return;
    }
    request_answer(r, HTTP_OK,
                   json_pack("{s:s,s:s,s:b,s:i,s:i,s:f,s:b,s:s,s:s,s:o}", "id", j->id, "name",
                             j->name, "changed", (int)r->changed, "from", (int)r->from, "to",
                             (int)r->to, "latency_us", (double)latency_ns / 1000, "oversubscribed",
                             (int)job_oversubscribed(j), "reason", j->wanted.reason, "status",
                             names[outcome], "promise", view_promise(j)));
}

static void patch_job(struct request *r, struct job *j)
{
    struct promised_verdict verdict;
    struct error err = {0};
    struct patch p;
    uint32_t threads;
    bool governs = control_may_govern(r->daemon, &r->who);

    if (!control_may_change(r->daemon, &r->who, j)) {
        request_fail_as(r, HTTP_FORBIDDEN, "not-your-job", "Ask its owner, or run as root.",
                        "job %s is %s's", j->id, j->owner);
        return;
    }
    if (!read_patch(r, j, &p))
        return;
    threads = p.threads.intra > p.threads.inter ? p.threads.intra : p.threads.inter;
    if (p.has_cores && cpuset_count(&p.cores) > threads)
        threads = cpuset_count(&p.cores);
    if (!routes_within_limits(
            r, j->uid, p.asked.priority == j->asked.attributes.priority ? NULL : &p.asked, threads))
        return;
    if (!routes_take_promise(r, j, j->uid, NULL, 0, &p.asked, &verdict))
        return;
    if (!governs && p.has_cores && users_check_cores(j, &p.cores, &err) < 0) {
        request_fail_with(r, HTTP_FORBIDDEN, "", &err);
        return;
    }
    r->changed = changes(j, &p);
    if (p.held && !routes_may_hold(r, j))
        return;
    if (p.held != j->admission.held) {
        if (admission_hold(j, p.held, &err) < 0) {
            request_fail_with(r, HTTP_CONFLICT, "", &err);
            return;
        }
        store_save(j->daemon); /* before the answer: a new daemon must not start the job */
    }
    r->from = job_target(j);
    job_ask(j, &p.asked);
    if (p.keeps && p.keep)
        control_keep(j, p.threads, p.has_cores ? &p.cores : NULL, governs);
    else if (p.pins || p.keeps)
        control_pin(j, p.threads, governs);
    else
        plan_make_now(j->daemon);
    r->to = job_target(j);
    if (wait_start(j, r->received_ns, clock_now_ns() + p.deadline_ms * NS_PER_MS, patch_done, r,
                   &r->wait) < 0)
        request_fail_as(r, HTTP_UNAVAILABLE, "out-of-memory", "", "out of memory");
}

/* `tide cancel` */
static void delete_job(struct request *r, struct job *j)
{
    struct error err = {0};
    unsigned asked = 0;
    int grace_s;

    if (!control_may_change(r->daemon, &r->who, j)) {
        request_fail_as(r, HTTP_FORBIDDEN, "not-your-job", "Ask its owner, or run as root.",
                        "job %s is %s's", j->id, j->owner);
        return;
    }
    grace_s = j->confine->stop(j, &err);
    if (grace_s < 0) {
        request_fail_with(r, grace_s == -EOPNOTSUPP ? HTTP_CONFLICT : HTTP_UNAVAILABLE,
                          "Nothing was changed.", &err);
        return;
    }
    if (grace_s == 0)
        asked = job_terminate(j);
    admission_end(j); /* resumes a paused job, which then sees the signal first */
    daemon_log("job %s (%s) cancelled by user %u", j->id, j->name, (unsigned)r->who.uid);
    request_answer(r, HTTP_OK,
                   json_pack("{s:s,s:s,s:s,s:i,s:i}", "id", j->id, "name", j->name, "state",
                             job_state(j, clock_now_ns()), "signalled", (int)asked, "grace_s",
                             grace_s));
}

/* ---- the rest ---- */

static void get_machine(struct request *r, struct job *none)
{
    request_answer(r, HTTP_OK, view_machine(r->daemon, &r->who));
}

static void get_policy(struct request *r, struct job *none)
{
    request_answer(r, HTTP_OK, view_policy(r->daemon));
}

static void put_policy(struct request *r, struct job *none)
{
    static const char *const fields[] = {"policy", "name", NULL};
    struct daemon *d = r->daemon;
    const char *text = NULL;
    struct policy_spec spec;
    struct error err = {0};
    json_t *answer;
    int e;

    if (!control_may_govern(d, &r->who)) {
        request_fail_as(r, HTTP_FORBIDDEN, "admin-only",
                        d->uid == 0 ? "Ask to be added to the admin group, tide.conf(5)." : "",
                        "only the daemon's user, root and the admin group change the policy");
        return;
    }
    if (!request_only_fields(r, fields) || !take_text(r, "name", &text) ||
        !take_text(r, "policy", &text))
        return;
    if (!text || json_object_size(r->body) != 1) {
        request_fail(r, HTTP_BAD_REQUEST, "Send {\"policy\": \"NAME\"}.",
                     text ? "policy and name mean the same: send one" : "policy is missing");
        return;
    }
    e = decision_parse_policy(d, text, &spec, &err);
    if (e < 0) {
        bool listed = e == -ENOENT || e == -ENODATA;

        request_fail_as(r, HTTP_BAD_REQUEST, error_why(&err),
                        listed ? "'tide policy list' explains them."
                               : "'tide policy show NAME' explains its parameters.",
                        "%s", err.text);
        return;
    }
    decision_set_policy(d->decision, &spec);
    daemon_log("policy %s set through the API", text);
    e = store_save_policy(d); /* before the answer: an accepted policy outlives the daemon */
    plan_make_now(d);
    answer = view_policy(d);
    if (e < 0)
        json_object_set_new(
            answer, "note",
            json_sprintf("the policy cannot be written to %s: %s; after a restart tided has "
                         "another policy",
                         d->dir, strerror(-e)));
    request_answer(r, HTTP_OK, answer);
}

/* ---- paths ---- */

static const struct route {
    const char *method, *path; /* "*" stands for a job */
    void (*handle)(struct request *r, struct job *j);
} routes[] = {
    {"GET", "/v1/jobs", get_jobs},
    {"POST", "/v1/jobs", post_job},
    {"GET", "/v1/jobs/*", get_job},
    {"PATCH", "/v1/jobs/*", patch_job},
    {"DELETE", "/v1/jobs/*", delete_job},
    {"GET", "/v1/jobs/*/explain", get_explain},
    {"POST", "/v1/adoptions", post_adoption},
    {"DELETE", "/v1/jobs/*/adoption", delete_adoption},
    {"PUT", "/v1/jobs/*/memory-limit", routes_put_memory_limit},
    {"GET", "/v1/machine", get_machine},
    {"GET", "/v1/policy", get_policy},
    {"PUT", "/v1/policy", put_policy},
    {"GET", "/v1/history", routes_history},
    {"GET", "/v1/power", routes_power},
    {"GET", "/v1/power/sources", routes_power_sources},
    {"GET", "/v1/energy", routes_energy},
    {"POST", "/v1/power/readings", routes_readings},
    {"GET", "/v1/events", routes_events},
    {"GET", "/metrics", routes_metrics},
    {"GET", "/v1/power/cap", routes_get_cap},
    {"PUT", "/v1/power/cap", routes_put_cap},
    {"DELETE", "/v1/power/cap", routes_delete_cap},
    {"GET", "/v1/power/shrunk", routes_get_shrunk},
    {"PUT", "/v1/power/lease", routes_put_lease},
    {"GET", "/v1/power/demand", routes_get_demand},
};

/* True if @path is @pattern's; the part for "*" is copied (cut, which no name of a job is). */
static bool matches(const char *pattern, const char *path, char ret_job[PROTO_NAME_MAX + 1])
{
    const char *star = strchr(pattern, '*');
    size_t head = star ? (size_t)(star - pattern) : strlen(pattern), len;

    ret_job[0] = '\0';
    if (!star)
        return strcmp(pattern, path) == 0;
    if (strncmp(pattern, path, head) != 0)
        return false;
    len = strcspn(path + head, "/");
    if (len == 0 || strcmp(path + head + len, star + 1) != 0)
        return false;
    snprintf(ret_job, PROTO_NAME_MAX + 1, "%.*s", (int)len, path + head);
    return true;
}

static void call(struct request *r, const struct route *route, const char *name)
{
    struct error err = {0};
    struct job *j = NULL;

    if (*name) {
        j = control_find(r->daemon, &r->who, name, &err);
        if (!j) {
            request_fail_with(
                r, err.code == -EEXIST ? HTTP_CONFLICT : HTTP_NOT_FOUND,
                err.code == -EEXIST ? "Name one of them." : "'tide ps' lists the jobs.", &err);
            return;
        }
    } else if (!control_may_use(r->daemon, &r->who)) {
        request_fail_as(r, HTTP_FORBIDDEN, "not-your-daemon", "'tide run' starts one of your own.",
                        "this daemon serves user %u only", (unsigned)r->daemon->uid);
        return;
    }
    route->handle(r, j);
}

void routes_handle(struct request *r)
{
    char name[PROTO_NAME_MAX + 1];
    bool known = false;

    for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++) {
        if (!matches(routes[i].path, r->path, name))
            continue;
        known = true;
        if (strcmp(routes[i].method, r->method) != 0)
            continue;
        call(r, &routes[i], name);
        return;
    }
    if (known)
        request_fail_as(r, HTTP_NOT_ALLOWED, "no-such-path", "See docs/http-api.md.",
                        "%.16s is not possible here", r->method);
    else
        request_fail_as(r, HTTP_NOT_FOUND, "no-such-path", "See docs/http-api.md.",
                        "there is no path %.80s", r->path);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/record/store.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/size.h"
#include "base/startup.h"
#include "daemon/containers/container.h"
#include "daemon/daemon.h"
#include "daemon/job/job.h"
#include "daemon/plan/decision.h"
#include "daemon/record/energy_file.h"
#include "daemon/record/state_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define ERROR_WORD "state-unusable"

struct store {
    uint32_t ended[PROTO_JOBS_MAX]; /* numbers of the jobs whose files are to be removed */
    unsigned n_ended;
    int error; /* -errno of the last save of jobs; logged once */
    int policy_error;
};

static void cleanup_json(json_t **json)
{
    json_decref(*json);
}

#define _cleanup_json_ _cleanup_(cleanup_json)

/* ---- files ---- */

static int open_jobs(const struct daemon *d)
{
    int fd;

    if (mkdirat(d->dir_fd, STORE_JOBS, 0700) < 0 && errno != EEXIST)
        return -errno;
    fd = openat(d->dir_fd, STORE_JOBS, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

uint64_t store_next_epoch(struct daemon *d, uint64_t *ret_before)
{
    char text[32];
    struct timespec ts;
    uint64_t epoch, stored = 0;
    int r;

    clock_gettime(CLOCK_REALTIME, &ts);
    epoch = (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
    if (state_file_read(d->dir_fd, STORE_EPOCH, text, sizeof(text)) == 0)
        stored = strtoull(text, NULL, 10);
    if (stored != UINT64_MAX && stored + 1 > epoch)
        epoch = stored + 1;
    snprintf(text, sizeof(text), "%" PRIu64 "\n", epoch);
    r = state_file_write(d->dir_fd, STORE_EPOCH, text);
    if (r < 0)
        daemon_err("cannot write %s/" STORE_EPOCH
                   ": %s; if tided is killed, its control groups may stay",
                   d->dir, strerror(-r));
    *ret_before = stored;
    return epoch;
}

/* The file has two lines: the policy in force, and the configured one that it overrides. */
int store_save_policy(struct daemon *d)
{
    const struct policy_spec *specs[] = {decision_policy(d->decision), &d->config.policy};
    char text[2 * POLICY_SPEC_TEXT_MAX + 2];
    size_t len = 0;
    int r;

    for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
        if (specs[i]->policy)
            len += policy_spec_text(specs[i], text + len, POLICY_SPEC_TEXT_MAX);
        text[len++] = '\n';
    }
    text[len] = '\0';
    r = state_file_write(d->dir_fd, STORE_POLICY, text);
    if (r < 0)
        daemon_err("cannot write %s/" STORE_POLICY ": %s; after a restart tided has another policy",
                   d->dir, strerror(-r));
    d->store->policy_error = r;
    return r;
}

int store_load_policy(struct daemon *d, struct policy_spec *ret)
{
    char text[2 * POLICY_SPEC_TEXT_MAX + 3], configured[POLICY_SPEC_TEXT_MAX] = "";
    const char *then;
    struct error err = {0};
    int r = state_file_read(d->dir_fd, STORE_POLICY, text, sizeof(text));

    if (r == -ENOENT)
        return r;
    if (r == 0) {
        then = text + strcspn(text, "\n");
        then += *then == '\n';
        if (d->config.policy.policy)
            policy_spec_text(&d->config.policy, configured, sizeof(configured));
        if (strncmp(then, configured, strcspn(then, "\n")) != 0 ||
            strlen(configured) != strcspn(then, "\n"))
            return -ESTALE; /* the administrator has configured another policy since */
        text[strcspn(text, "\n")] = '\0';
        r = decision_parse_policy(d, text, ret, &err);
    }
    if (r < 0)
        daemon_err("%s/" STORE_POLICY " is ignored: %s", d->dir,
                   err.text[0] ? err.text : strerror(-r));
    return r;
}

static void save_engines(const struct daemon *d)
{
    const struct config *c = &d->config;
    char text[CONTAINERS_ENGINES_MAX * (CONFIG_SOCKET_MAX + 1) + 1] = "";
    size_t len = 0;
    int r;

    for (unsigned i = 0; i < c->n_engines; i++)
        len +=
            (size_t)snprintf(text + len, sizeof(text) - len, "%s%s", i ? " " : "", c->engines[i]);
    r = state_file_write(d->dir_fd, STORE_ENGINES, text);
    if (r < 0)
        daemon_err("cannot write %s/" STORE_ENGINES
                   ": %s; if tided is killed, containers may keep its limits",
                   d->dir, strerror(-r));
}

void store_engines(struct daemon *d)
{
    char text[CONTAINERS_ENGINES_MAX * (CONFIG_SOCKET_MAX + 1) + 2];
    struct error err = {0};
    int r;

    if (d->config.engines_said || d->config.n_engines) {
        save_engines(d);
        return;
    }
    r = state_file_read(d->dir_fd, STORE_ENGINES, text, sizeof(text));
    if (r == 0)
        r = config_set(&d->config, "engines", text, &err);
    if (r == 0)
        daemon_log("watching the container engines of the previous tided, which was killed: %s",
                   text);
    else if (r != -ENOENT)
        daemon_err("%s/" STORE_ENGINES " is ignored: %s", d->dir,
                   err.text[0] ? err.text : strerror(-r));
}

void store_forget_engines(const struct daemon *d)
{
    unlinkat(d->dir_fd, STORE_ENGINES, 0);
}

/* ---- a job as JSON ---- */

static json_t *admission_to_json(const struct job *j)
{
    const struct admission *a = &j->admission;

    return json_pack("{s:i,s:b,s:b,s:b,s:I,s:I,s:I,s:I,s:I,s:I}", "phase", (int)a->phase, "wanted",
                     (int)a->wanted, "held", (int)a->held, "submitted", (int)a->submitted, "cores",
                     (json_int_t)a->cores, "run_ms", (json_int_t)(a->run_ns / NS_PER_MS), "wait_ms",
                     (json_int_t)(a->wait_ns / NS_PER_MS), "since_ns", (json_int_t)a->since_ns,
                     "held_ms", (json_int_t)(a->held_ns / NS_PER_MS), "held_since_ns",
                     (json_int_t)a->held_since_ns);
}

/* Processes of `tide run` have no container. */
static json_t *place_to_json(const struct job *j)
{
    json_t *container = container_to_json(j);

    return container ? container : json_null();
}

/* The cores of a pinned job. */
static json_t *kept_to_json(const struct job *j)
{
    char cores[CPUSET_TEXT_MAX];

    if (!j->asked.kept || cpuset_format(&j->asked.kept_cores, cores, sizeof(cores)) < 0)
        return json_null();
    return json_string(cores);
}

static const char *key_of(const struct attribute *a)
{
    return a->stored ? a->stored : a->shown ? a->shown : a->key;
}

static json_t *job_to_json(const struct job *j)
{
    json_t *processes = json_array(), *json;

    for (const struct process *p = j->processes; p; p = p->next)
        json_array_append_new(
            processes, json_pack("{s:i,s:I}", "pid", (int)p->pid, "start", (json_int_t)p->start));
    json = json_pack("{s:s,s:s,s:s,s:I,s:I,s:I,s:I,s:i,s:i,s:b,s:o,s:o,s:o,s:o,s:o}", "id", j->id,
                     "name", j->name, "token", j->token, "uid", (json_int_t)j->uid, "created_ms",
                     (json_int_t)j->created_ms, "intra", (json_int_t)j->asked.pinned.intra, "inter",
                     (json_int_t)j->asked.pinned.inter, "by", (int)j->asked.pinned_by, "sized",
                     (int)j->asked.sized, "granted", (int)j->asked.granted, "processes", processes,
                     "admission", admission_to_json(j), "container", place_to_json(j), "kept",
                     kept_to_json(j), "energy", energy_of_job_to_json(j));
    for (each_attribute(a)) {
        int64_t value = attribute_get(a, &j->asked.attributes);

        json_object_set_new(json, key_of(a),
                            a->kind == KIND_CHOICE ? json_string(a->choices[value].name)
                                                   : json_integer(value));
    }
    return json;
}

struct stored {
    const char *id, *name, *token;
    json_int_t uid, created_ms, intra, inter;
    int by, granted, sized;
    struct attributes asked;
    json_t *processes, *admission, *container, *kept, *energy; /* parts of the JSON; NULL: absent */
};

/* A file by an older tided lacks newer attributes; they keep their defaults. */
static int asked_parse(const json_t *json, struct attributes *ret)
{
    *ret = attributes_usual();
    for (each_attribute(a)) {
        const json_t *value = json_object_get(json, key_of(a));
        const char *text = json_string_value(value);
        int64_t read = json_integer_value(value);

        if (!value)
            continue;
        if (a->kind == KIND_CHOICE && (!text || attribute_parse(a, text, &read) < 0))
            return -EINVAL;
        if ((a->kind != KIND_CHOICE && !json_is_integer(value)) || !attribute_holds(a, read))
            return -EINVAL;
        attribute_set(a, ret, read);
    }
    return 0;
}

static int stored_parse(json_t *json, struct stored *ret)
{
    struct stored s = {0};
    int r =
        json_unpack(json, "{s:s,s:s,s:s,s:I,s:I,s:I,s:I,s:i,s?i,s?b,s:o,s?o,s?o,s?o,s?o}", "id",
                    &s.id, "name", &s.name, "token", &s.token, "uid", &s.uid, "created_ms",
                    &s.created_ms, "intra", &s.intra, "inter", &s.inter, "by", &s.by, "sized",
                    &s.sized, "granted", &s.granted, "processes", &s.processes, "admission",
                    &s.admission, "container", &s.container, "kept", &s.kept, "energy", &s.energy);

    if (r < 0 || asked_parse(json, &s.asked) < 0 || strlen(s.token) >= PROTO_TOKEN_MAX ||
        s.uid < 0 || s.uid > UINT32_MAX || s.intra < 0 || s.intra > PROTO_THREADS_MAX ||
        s.inter < 0 || s.inter > PROTO_THREADS_MAX || s.by < 0 || s.by >= PROTO_SOURCE_MAX ||
        s.sized < 0 || s.sized > STARTUP_NUMBER_MAX || s.created_ms < 0)
        return -EINVAL;
    *ret = s;
    return 0;
}

/* Policies compare jobs by age, and a restart of the daemon must not make a job younger. */
static void set_created(struct job *j, uint64_t created_ms)
{
    uint64_t now_ms = clock_real_ms();
    uint64_t age_ns = created_ms < now_ms ? (now_ms - created_ms) * NS_PER_MS : 0;

    j->created_ms = created_ms;
    j->created_ns = age_ns < j->met_ns ? j->met_ns - age_ns : 1;
}

/* Whether the job waited or ran. A file by an older tided does not say; its jobs ran. */
static int read_admission(struct job *j, json_t *json)
{
    int phase, wanted, held, submitted;
    json_int_t cores, run_ms, wait_ms, since_ns = 0, held_ms = 0, held_since_ns = 0;

    if (!json)
        return 0;
    if (json_unpack(json, "{s:i,s:b,s:b,s:b,s:I,s:I,s:I,s?I,s?I,s?I}", "phase", &phase, "wanted",
                    &wanted, "held", &held, "submitted", &submitted, "cores", &cores, "run_ms",
                    &run_ms, "wait_ms", &wait_ms, "since_ns", &since_ns, "held_ms", &held_ms,
                    "held_since_ns", &held_since_ns) < 0 ||
        phase < JOB_QUEUED || phase > JOB_PAUSED || cores < 0 || cores > PROTO_THREADS_MAX ||
        run_ms < 0 || wait_ms < 0 || run_ms > INT64_MAX / (json_int_t)NS_PER_MS ||
        wait_ms > INT64_MAX / (json_int_t)NS_PER_MS || held_ms < 0 ||
        held_ms > INT64_MAX / (json_int_t)NS_PER_MS || held_since_ns < 0)
        return -EINVAL;
    j->admission.submitted = submitted;
    j->admission.held = held;
    j->admission.phase = (enum job_phase)phase;
    /* a job that was about to start waits for the policy again */
    j->admission.wanted = wanted && phase != JOB_QUEUED;
    j->admission.cores = (uint32_t)cores;
    j->admission.begun_ns = phase == JOB_QUEUED ? 0 : j->created_ns;
    j->admission.run_ns = (uint64_t)run_ms * NS_PER_MS;
    j->admission.wait_ns = (uint64_t)wait_ms * NS_PER_MS;
    j->admission.held_ns = (uint64_t)held_ms * NS_PER_MS;
    j->admission.held_since_ns = held_since_ns > 0 ? (uint64_t)held_since_ns : j->met_ns;
    /* Times count from the machine's boot, and the job's process has not outlived that. */
    if (since_ns > 0 && (uint64_t)since_ns < j->admission.since_ns)
        j->admission.since_ns = (uint64_t)since_ns;
    return 0;
}

/* Returns -ESRCH when none of the job's processes lives. */
static int job_from_json(struct daemon *d, json_t *json, struct job **ret)
{
    struct stored s;
    struct job_request req = {.again = true};
    struct process *p;
    struct job *j;
    json_t *entry;
    size_t i;
    int r = stored_parse(json, &s);

    if (r < 0)
        return r;
    req.name = job_name_valid(s.name) && !job_find(d, s.name) ? s.name : NULL;
    req.asked = s.asked;
    req.pinned = (struct threads){(uint32_t)s.intra, (uint32_t)s.inter};
    req.sized = (uint32_t)s.sized;
    r = job_new(d, (uid_t)s.uid, &req, &j, NULL);
    if (r < 0)
        return r;
    job_set_id(j, s.id);
    snprintf(j->token, sizeof(j->token), "%s", s.token);
    j->asked.pinned_by = (enum proto_source)s.by;
    j->asked.granted = s.granted;
    set_created(j, (uint64_t)s.created_ms);
    r = read_admission(j, s.admission);
    j->asked.kept = json_is_string(s.kept) &&
                    (!*json_string_value(s.kept) ||
                     cpuset_parse(json_string_value(s.kept), &j->asked.kept_cores) == 0);
    if (r == 0 && s.container && !json_is_null(s.container))
        r = container_from_json(j, s.container);
    energy_of_job_from_json(j, s.energy);
    if (r < 0) {
        job_free(j);
        return r;
    }
    json_array_foreach (s.processes, i, entry) {
        json_int_t pid = json_integer_value(json_object_get(entry, "pid"));
        json_int_t start = json_integer_value(json_object_get(entry, "start"));

        if (pid > 0 && pid <= INT32_MAX && start > 0)
            process_add(j, (pid_t)pid, (uint64_t)start, &p);
    }
    if (!j->processes) {
        job_free(j);
        return -ESRCH;
    }
    *ret = j;
    return 0;
}

/* ---- the directory ---- */

static json_t *read_json(int jobs_fd, const char *name)
{
    _cleanup_free_ char *text = malloc(STORE_MAX);
    size_t len = strlen(name);

    if (!text || name[0] == '.' || len < 6 || strcmp(name + len - 5, ".json") != 0 ||
        state_file_read(jobs_fd, name, text, STORE_MAX) < 0)
        return NULL;
    return json_loads(text, JSON_REJECT_DUPLICATES, NULL);
}

static DIR *open_listing(const struct daemon *d, int *ret_fd)
{
    DIR *dir;

    *ret_fd = open_jobs(d);
    if (*ret_fd < 0)
        return NULL;
    dir = fdopendir(*ret_fd);
    if (!dir)
        *ret_fd = close_fd(*ret_fd);
    return dir;
}

void store_load(struct daemon *d)
{
    int fd;
    DIR *dir = open_listing(d, &fd);

    for (const struct dirent *e; dir && (e = readdir(dir));) {
        _cleanup_json_ json_t *json = read_json(fd, e->d_name);
        struct job *j;
        int r;

        if (!json)
            continue;
        r = job_from_json(d, json, &j);
        if (r == 0)
            daemon_log("job %s (%s) recovered from the previous tided", j->id, j->name);
        else if (r == -ESRCH) /* the job ended while no daemon ran */
            unlinkat(fd, e->d_name, 0);
        else
            daemon_err("%s/" STORE_JOBS "/%s does not describe a job: ignored", d->dir, e->d_name);
    }
    if (dir)
        closedir(dir);
}

static int save_job(int jobs_fd, const struct job *j)
{
    _cleanup_json_ json_t *json = job_to_json(j);
    _cleanup_free_ char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    char name[PROTO_ID_MAX + 8];

    if (!text)
        return -ENOMEM;
    snprintf(name, sizeof(name), "%s.json", j->id);
    return state_file_write(jobs_fd, name, text);
}

/* Removes the file of a job that ended. Files of jobs that this daemon never met stay. */
static void remove_ended(struct daemon *d, int jobs_fd)
{
    for (unsigned i = 0; i < d->store->n_ended; i++) {
        char name[PROTO_ID_MAX + 8];

        snprintf(name, sizeof(name), "j%u.json", d->store->ended[i]);
        unlinkat(jobs_fd, name, 0);
    }
    d->store->n_ended = 0;
}

void store_save(struct daemon *d)
{
    _cleanup_fd_ int fd = -1;
    bool work = d->store->n_ended > 0;
    int r;

    for (const struct job *j = d->jobs->first; j && !work; j = j->next)
        work = j->dirty;
    if (!work) {
        d->store->error = 0; /* all jobs that could not be saved have ended */
        return;
    }
    fd = r = open_jobs(d);
    if (fd >= 0) {
        remove_ended(d, fd);
        r = 0;
    }
    for (struct job *j = d->jobs->first; fd >= 0 && j; j = j->next) {
        int e;

        if (!j->dirty)
            continue;
        e = save_job(fd, j); /* others' files are written all the same */
        j->dirty = e < 0;
        r = r < 0 ? r : e;
    }
    if (r < 0 && r != d->store->error)
        daemon_err("jobs cannot be written to %s/" STORE_JOBS
                   ": %s; after a restart tided finds only "
                   "those whose agents reconnect",
                   d->dir, strerror(-r));
    d->store->error = r;
}

int store_error(const struct daemon *d)
{
    return d->store->error;
}

void store_tick(struct daemon *d)
{
    if (d->store->error < 0)
        store_save(d);
}

static void ended(struct job *j)
{
    struct store *s = j->daemon->store;

    if (s->n_ended < PROTO_JOBS_MAX)
        s->ended[s->n_ended++] = j->number;
}

void store_notes(const struct daemon *d, json_t *notes)
{
    if (d->store->error < 0)
        json_array_append_new(
            notes,
            json_sprintf("jobs cannot be written to %s: %s; after a restart tided finds only "
                         "those whose agents reconnect",
                         d->dir, strerror(-d->store->error)));
    if (d->store->policy_error < 0)
        json_array_append_new(
            notes, json_sprintf("the policy cannot be written to %s: %s; after a restart "
                                "tided has another one",
                                d->dir, strerror(-d->store->policy_error)));
}

const struct job_observer store_observer = {.ended = ended};

int store_new(struct store **ret)
{
    *ret = calloc(1, sizeof(**ret));
    return *ret ? 0 : -ENOMEM;
}

struct store *store_free(struct store *s)
{
    free(s);
    return NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "host/engine/engine_text.h"

#include "base/cleanup.h"
#include "base/clock.h"

#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <string.h>
#include <time.h>

#define ERROR_WORD "engine-fault"

#define PID_MAX  4194304            /* Linux' PID_MAX_LIMIT */
#define NO_LIMIT (INT64_C(1) << 62) /* so many bytes and more limit nothing */

static void cleanup_json(json_t **json)
{
    json_decref(*json);
}

#define _cleanup_json_ _cleanup_(cleanup_json)

/* ---- names ---- */

static const char *const kind_names[] = {
    [ENGINE_DOCKER] = "docker", [ENGINE_PODMAN] = "podman", [ENGINE_PODS] = "pods"};

static const char *const state_names[] = {
    [ENGINE_CREATED] = "created",   [ENGINE_RUNNING] = "running",
    [ENGINE_PAUSED] = "paused",     [ENGINE_RESTARTING] = "restarting",
    [ENGINE_REMOVING] = "removing", [ENGINE_EXITED] = "exited",
    [ENGINE_DEAD] = "dead",
};
static_assert(ARRAY_LEN(state_names) == ENGINE_STATE_MAX, "a name for each state");

static const char *const action_names[] = {
    [ENGINE_CREATE] = "create", [ENGINE_START] = "start",   [ENGINE_DIE] = "die",
    [ENGINE_OOM] = "oom",       [ENGINE_PAUSE] = "pause",   [ENGINE_UNPAUSE] = "unpause",
    [ENGINE_UPDATE] = "update", [ENGINE_RENAME] = "rename", [ENGINE_DESTROY] = "destroy",
};
static_assert(ARRAY_LEN(action_names) == ENGINE_ACTION_MAX, "a name for each action");

/* Podman's words that differ from Docker's. */
static const struct {
    const char *word;
    unsigned value;
} libpod_states[] =
    {
        {"configured", ENGINE_CREATED}, {"initialized", ENGINE_CREATED},
        {"stopping", ENGINE_RUNNING},   {"stopped", ENGINE_EXITED},
        {"unknown", ENGINE_DEAD},
},
  libpod_actions[] = {{"died", ENGINE_DIE}, {"remove", ENGINE_DESTROY}};

const char engine_event_filter[] =
    "{\"type\":[\"container\"],\"event\":[\"create\",\"start\",\"die\",\"died\",\"oom\",\"pause\","
    "\"unpause\",\"update\",\"rename\",\"destroy\",\"remove\"]}";

const char *engine_kind_name(enum engine_kind kind)
{
    return kind_names[kind];
}

const char *engine_state_name(enum engine_state state)
{
    return state_names[state];
}

const char *engine_action_name(enum engine_action action)
{
    return action_names[action];
}

static int find_state(const char *word)
{
    for (unsigned i = 0; i < ENGINE_STATE_MAX; i++)
        if (strcmp(word, state_names[i]) == 0)
            return (int)i;
    for (size_t i = 0; i < ARRAY_LEN(libpod_states); i++)
        if (strcmp(word, libpod_states[i].word) == 0)
            return (int)libpod_states[i].value;
    return -1;
}

static int find_action(const char *word)
{
    for (unsigned i = 0; i < ENGINE_ACTION_MAX; i++)
        if (strcmp(word, action_names[i]) == 0)
            return (int)i;
    for (size_t i = 0; i < ARRAY_LEN(libpod_actions); i++)
        if (strcmp(word, libpod_actions[i].word) == 0)
            return (int)libpod_actions[i].value;
    return -1;
}

/* ---- JSON: a missing or null member is 0, "" or false ---- */

static int load(const char *text, size_t len, json_t **ret, struct error *err)
{
    json_error_t error;
    json_t *root = json_loadb(text, len, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &error);

    if (!root && json_error_code(&error) == json_error_out_of_memory)
        return error_set(err, -ENOMEM, "out of memory");
    if (!root)
        return error_set(err, -EBADMSG, "the answer is no JSON: %s", error.text);
    *ret = root;
    return 0;
}

static json_t *member(const json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);

    return json_is_null(value) ? NULL : value;
}

static int get_text(const json_t *object, const char *key, const char **ret, struct error *err)
{
    json_t *value = member(object, key);

    if (value && !json_is_string(value))
        return error_set(err, -EBADMSG, "\"%s\" is no text", key);
    *ret = value ? json_string_value(value) : "";
    return 0;
}

static int get_number(const json_t *object, const char *key, int64_t min, int64_t max, int64_t *ret,
                      struct error *err)
{
    json_t *value = member(object, key);

    if (value && (!json_is_integer(value) || json_integer_value(value) < min ||
                  json_integer_value(value) > max))
        return error_set(err, -EBADMSG, "\"%s\" is no number from %" PRId64 " to %" PRId64, key,
                         min, max);
    *ret = value ? json_integer_value(value) : 0;
    return 0;
}

static int get_object(const json_t *object, const char *key, json_t **ret, struct error *err)
{
    json_t *value = member(object, key);

    if (!json_is_object(value))
        return error_set(err, -EBADMSG, "\"%s\" is no object", key);
    *ret = value;
    return 0;
}

bool engine_is_id(const char *text)
{
    size_t len = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-");

    return len > 0 && len < ENGINE_ID_MAX && text[len] == '\0' && text[0] != '.';
}

static int get_id(const json_t *object, const char *key, const char **ret, struct error *err)
{
    const char *id = NULL;
    int r = get_text(object, key, &id, err);

    if (r == 0 && !engine_is_id(id))
        r = error_set(err, -EBADMSG, "\"%s\" is no id", key);
    if (r == 0)
        *ret = id;
    return r;
}

/* Reads "2026-11-21T22:28:57.633167352Z", also with +01:00; the year 1 is Docker's "never": 0. */
static int parse_time(const char *text, int64_t *ret_ns)
{
    struct tm tm = {0};
    const char *at = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    int64_t ns = 0, seconds;
    int hours, minutes, n = 0;

    if (!at)
        return -EBADMSG;
    if (*at == '.') {
        int64_t unit = NS_PER_S / 10;

        for (at++; isdigit((unsigned char)*at); at++, unit /= 10)
            ns += (*at - '0') * unit;
    }
    seconds = timegm(&tm);
    if (strcmp(at, "Z") != 0) {
        if (sscanf(at, "%3d:%2d%n", &hours, &minutes, &n) != 2 || n != 6 || at[n] != '\0' ||
            abs(hours) > 23)
            return -EBADMSG;
        seconds -= (hours * 60 + (*at == '-' ? -minutes : minutes)) * 60;
    }
    /* The time is before 1970 or beyond 64 bits. */
    *ret_ns = seconds <= 0 || seconds > INT64_MAX / (int64_t)NS_PER_S - 1
                  ? 0
                  : seconds * (int64_t)NS_PER_S + ns;
    return 0;
}

/* ---- containers ---- */

static int get_labels(const json_t *object, struct engine_container *c, struct error *err)
{
    json_t *labels = member(object, "Labels"), *value;
    struct engine_label *list;
    const char *key;
    size_t n = 0;

    if (!labels)
        return 0;
    if (!json_is_object(labels))
        return error_set(err, -EBADMSG, "\"Labels\" is no object");
    c->labels = list = calloc(json_object_size(labels) + 1, sizeof(*list));
    if (!list)
        return error_set(err, -ENOMEM, "out of memory");
    json_object_foreach (labels, key, value) {
        if (n == ENGINE_LABELS_MAX)
            break; /* its owner's doing must not hide other containers */
        if (!json_is_string(value))
            return error_set(err, -EBADMSG, "a label's value is no text");
        list[n++] = (struct engine_label){key, json_string_value(value)};
    }
    c->n_labels = n;
    return 0;
}

static int get_state(const json_t *object, const char *key, struct engine_container *c,
                     struct error *err)
{
    const char *word = "";
    int r = get_text(object, key, &word, err), state = r == 0 ? find_state(word) : 0;

    if (r == 0 && state < 0)
        return error_set(err, -EBADMSG, "there is no state \"%.40s\"", word);
    c->state = (enum engine_state)state;
    return r;
}

/* Reads numbers that podman's list has and Docker's has not. */
static int get_run(const json_t *object, struct engine_container *c, struct error *err)
{
    int64_t pid = 0, exit_code = 0;
    int r = get_number(object, "Pid", 0, PID_MAX, &pid, err);

    if (r == 0)
        r = get_number(object, "ExitCode", INT_MIN, INT_MAX, &exit_code, err);
    c->pid = (pid_t)pid;
    c->exit_code = (int)exit_code;
    return r;
}

static int list_entry(const json_t *object, struct engine_container *c, struct error *err)
{
    const json_t *names = member(object, "Names");
    const char *name = json_string_value(json_array_get(names, 0));
    int64_t started = 0;
    int r = get_id(object, "Id", &c->id, err);

    if (r == 0)
        r = get_text(object, "Image", &c->image, err);
    if (r == 0)
        r = get_state(object, "State", c, err);
    if (r == 0)
        r = get_labels(object, c, err);
    if (r == 0)
        r = get_run(object, c, err);
    if (r == 0)
        r = get_number(object, "StartedAt", INT64_MIN, INT64_MAX / (int64_t)NS_PER_S, &started,
                       err);
    c->started_ns = started > 0 ? started * (int64_t)NS_PER_S : 0;
    c->name = name ? name + (*name == '/') : "";
    return r;
}

static int get_limits(const json_t *host, struct engine_limits *limits, struct error *err)
{
    int64_t shares = 0, memory = 0, both = 0, nano = 0, period = 0;
    const char *cpus = "";
    int r = get_text(host, "CpusetCpus", &cpus, err);

    if (r == 0 && cpuset_parse(cpus, &limits->cpus) < 0)
        r = error_set(err, -EBADMSG, "\"CpusetCpus\" is no list of CPUs: %.40s", cpus);
    if (r == 0)
        r = get_number(host, "CpuShares", 0, UINT32_MAX, &shares, err);
    if (r == 0)
        r = get_number(host, "NanoCpus", 0, INT64_MAX, &nano, err);
    if (r == 0)
        r = get_number(host, "CpuQuota", -1, INT64_MAX, &limits->quota.quota_us, err);
    if (r == 0)
        r = get_number(host, "CpuPeriod", 0, INT64_MAX, &period, err);
    if (r == 0)
        r = get_number(host, "Memory", -1, INT64_MAX, &memory, err);
    if (r == 0)
        r = get_number(host, "MemorySwap", -1, INT64_MAX, &both, err);
    if (r == 0)
        r = get_text(host, "CgroupParent", &limits->cgroup_parent, err);
    limits->shares = (uint32_t)shares;
    limits->fixed = json_is_true(member(host, "CpusetFixed"));
    limits->quota.nano_cpus = (uint64_t)nano;
    limits->quota.period_us = (uint64_t)period;
    if (memory < 0 || memory >= NO_LIMIT)
        memory = 0;
    limits->memory_bytes = (uint64_t)memory;
    limits->swap_bytes = memory > 0 && both >= memory ? both - memory : -1;
    return r;
}

static int inspected(const json_t *object, struct engine_container *c, struct error *err)
{
    json_t *state = NULL, *config = NULL, *host = NULL;
    const char *started = "";
    int r = get_id(object, "Id", &c->id, err);

    if (r == 0)
        r = get_object(object, "State", &state, err);
    if (r == 0)
        r = get_object(object, "Config", &config, err);
    if (r == 0)
        r = get_object(object, "HostConfig", &host, err);
    if (r == 0)
        r = get_text(object, "Name", &c->name, err);
    if (r == 0)
        r = get_text(config, "Image", &c->image, err);
    if (r == 0)
        r = get_labels(config, c, err);
    if (r == 0)
        r = get_state(state, "Status", c, err);
    if (r == 0)
        r = get_run(state, c, err);
    if (r == 0)
        r = get_text(state, "StartedAt", &started, err);
    if (r == 0 && *started && parse_time(started, &c->started_ns) < 0)
        r = error_set(err, -EBADMSG, "\"StartedAt\" is no time: %.40s", started);
    if (r == 0)
        r = get_limits(host, &c->limits, err);
    if (r == 0)
        c->name += *c->name == '/';
    c->inspected = true;
    return r;
}

void engine_containers_done(struct engine_containers *containers)
{
    for (size_t i = 0; i < containers->n; i++)
        free((struct engine_label *)containers->list[i].labels);
    free(containers->list);
    json_decref(containers->document);
    *containers = (struct engine_containers){0};
}

static void begin_containers(struct engine_container *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        list[i].name = list[i].image = list[i].limits.cgroup_parent = "";
}

/* Fills @ret from the root of @text, an object, or from each element of an array. */
static int parse_containers(const char *text, size_t len, bool array, struct engine_containers *ret,
                            struct error *err)
{
    struct engine_containers found = {0};
    json_t *root = NULL;
    int r = load(text, len, &root, err);

    if (r < 0)
        return r;
    found.document = root;
    found.n = array ? json_array_size(root) : 1;
    if (array ? !json_is_array(root) : !json_is_object(root))
        r = error_set(err, -EBADMSG, "the answer is no %s", array ? "list" : "object");
    else if (found.n > ENGINE_CONTAINERS_MAX)
        r = error_set(err, -EMSGSIZE, "more than %d containers", ENGINE_CONTAINERS_MAX);
    if (r < 0) {
        json_decref(root);
        return r;
    }
    found.list = calloc(found.n + 1, sizeof(*found.list));
    if (!found.list) {
        json_decref(root);
        return error_set(err, -ENOMEM, "out of memory");
    }
    begin_containers(found.list, found.n);
    for (size_t i = 0; i < found.n && r == 0; i++)
        r = array ? list_entry(json_array_get(root, i), &found.list[i], err)
                  : inspected(root, &found.list[i], err);
    if (r < 0)
        engine_containers_done(&found);
    else
        *ret = found;
    return r;
}

int engine_parse_list(const char *text, size_t len, struct engine_containers *ret,
                      struct error *err)
{
    return parse_containers(text, len, true, ret, err);
}

int engine_parse_inspect(const char *text, size_t len, struct engine_containers *ret,
                         struct error *err)
{
    return parse_containers(text, len, false, ret, err);
}

const char *engine_label(const struct engine_container *c, const char *key)
{
    for (size_t i = 0; i < c->n_labels; i++)
        if (strcmp(c->labels[i].key, key) == 0)
            return c->labels[i].value;
    return NULL;
}

/* ---- short answers ---- */

void engine_parse_failure(const char *text, size_t len, char ret_message[ERROR_TEXT_MAX],
                          char *ret_cause, size_t cause_size)
{
    _cleanup_json_ json_t *root = NULL;
    struct error ignored;
    const char *message = "", *cause = "";
    size_t n = 0;

    if (load(text, len, &root, &ignored) == 0 && get_text(root, "message", &message, NULL) == 0)
        len = strlen(text = message);
    if (root && ret_cause && get_text(root, "cause", &cause, NULL) == 0)
        snprintf(ret_cause, cause_size, "%s", cause);
    else if (ret_cause)
        *ret_cause = '\0';
    /* JSON is UTF-8; another body may hold any bytes. */
    for (size_t i = 0; i < len && n < ERROR_TEXT_MAX - 1; i++) {
        unsigned char c = (unsigned char)text[i];

        ret_message[n++] = (char)(c < ' ' || c == 0x7f ? ' ' : c > 0x7f && !*message ? '?' : c);
    }
    if (n == ERROR_TEXT_MAX - 1) { /* does not cut inside a character */
        while (((unsigned char)ret_message[n - 1] & 0xc0) == 0x80)
            n--;
        n -= (unsigned char)ret_message[n - 1] >= 0xc0;
    }
    while (n > 0 && ret_message[n - 1] == ' ')
        n--;
    ret_message[n] = '\0';
    if (n == 0)
        strcpy(ret_message, "no reason given");
}

/* ---- the first answer ---- */

/* Returns the value of a header line, up to the line's end, or NULL. */
static const char *find_header(const char *head, const char *name)
{
    size_t len = strlen(name);

    for (; head; head = strchr(head, '\n')) {
        head += *head == '\n';
        if (strncasecmp(head, name, len) == 0 && head[len] == ':')
            return head + len + 1 + strspn(head + len + 1, " \t");
    }
    return NULL;
}

static int greet_podman(const char *libpod, struct engine_greeting *ret, struct error *err)
{
    unsigned major, minor, patch;

    if (sscanf(libpod, "%4u.%4u.%4u", &major, &minor, &patch) != 3)
        return error_set(err, -EPROTO, "podman does not say its version");
    if (major < ENGINE_LIBPOD_OLDEST)
        return error_set(err, -EOPNOTSUPP,
                         "podman %u.%u.%u is too old: %d.0 or newer can change the CPUs of running "
                         "containers",
                         major, minor, patch, ENGINE_LIBPOD_OLDEST);
    *ret = (struct engine_greeting){.kind = ENGINE_PODMAN, .prefix = "/v4.0.0/libpod"};
    snprintf(ret->version, sizeof(ret->version), "podman %u.%u.%u", major, minor, patch);
    return 0;
}

int engine_parse_greeting(const char *head, struct engine_greeting *ret, struct error *err)
{
    const char *docker = find_header(head, "Api-Version");
    const char *libpod = find_header(head, "Libpod-Api-Version");
    bool pods = find_header(head, "Tide-Pods") != NULL;
    unsigned major, minor;

    if (libpod)
        return greet_podman(libpod, ret, err);
    if (!docker || sscanf(docker, "%4u.%4u", &major, &minor) != 2 || major != 1)
        return error_set(err, -EPROTO, "the program there is neither Docker nor podman");
    if (minor < ENGINE_API_OLDEST)
        return error_set(err, -EOPNOTSUPP,
                         "this Docker speaks API 1.%u; 1.%d is needed (Engine 20.10 or newer)",
                         minor, ENGINE_API_OLDEST);
    *ret = (struct engine_greeting){.kind = pods ? ENGINE_PODS : ENGINE_DOCKER};
    ret->api = minor < ENGINE_API_NEWEST ? minor : ENGINE_API_NEWEST;
    snprintf(ret->prefix, sizeof(ret->prefix), "/v1.%u", ret->api);
    snprintf(ret->version, sizeof(ret->version), "%s 1.%u", kind_names[ret->kind], ret->api);
    return 0;
}

/* ---- events ---- */

static int read_event(const json_t *root, enum engine_action action, struct engine_event *ret,
                      struct error *err)
{
    struct engine_event event = {.action = action, .name = ""};
    json_t *actor = NULL, *attributes;
    const char *code = NULL;
    int64_t time = 0;
    int r = get_object(root, "Actor", &actor, err);

    if (r == 0)
        r = get_id(actor, "ID", &event.id, err);
    if (r == 0)
        r = get_number(root, "timeNano", 0, INT64_MAX, &time, err);
    if (r < 0)
        return r;
    attributes = member(actor, "Attributes");
    if (attributes && (get_text(attributes, "name", &event.name, err) < 0))
        return -EBADMSG;
    if (action == ENGINE_DIE && (code = json_string_value(member(attributes, "exitCode"))) == NULL)
        code = json_string_value(member(attributes, "containerExitCode"));
    event.exit_code = code ? (int)strtol(code, NULL, 10) : 0;
    event.attributes = attributes;
    event.time_ns = (uint64_t)time;
    *ret = event;
    return 1;
}

int engine_parse_event(const char *text, size_t len, struct engine_event_text *ret,
                       struct error *err)
{
    _cleanup_json_ json_t *root = NULL;
    const char *type = "", *word = "";
    int r = load(text, len, &root, err), action;

    if (r == 0 && !json_is_object(root))
        r = error_set(err, -EBADMSG, "an event is no object");
    if (r == 0)
        r = get_text(root, "Type", &type, err);
    if (r == 0)
        r = get_text(root, "Action", &word, err);
    if (r < 0)
        return r;
    action = find_action(word);
    if (strcmp(type, "container") != 0 || action < 0)
        return 0;
    r = read_event(root, (enum engine_action)action, &ret->event, err);
    if (r == 1)
        ret->document = TAKE_PTR(root);
    return r;
}

const char *engine_event_attribute(const struct engine_event *event, const char *key)
{
    return json_string_value(member(event->attributes, key));
}

void engine_event_done(struct engine_event_text *event)
{
    json_decref(event->document);
    event->document = NULL;
}

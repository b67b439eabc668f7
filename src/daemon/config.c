/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/config.h"

#include "base/cleanup.h"
#include "base/devices.h"
#include "base/moment.h"
#include "base/size.h"
#include "base/suggest.h"
#include "daemon/daemon.h"
#include "daemon/energy/model.h"
#include "daemon/plan/decision.h"
#include "daemon/plan/external.h"
#include "daemon/record/history.h"
#include "host/inifile.h"
#include "host/power/sensors.h"
#include "power/measure/amount.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <grp.h>
#include <inttypes.h>
#include <limits.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define ERROR_WORD "config-error"

#define SECTION   "daemon"
#define BLANKS    " \t"
#define HEARTBEAT "250"
#define HISTORY   "64"
#define DEADLINE  "50ms"

#define DECIDER_DEADLINE_MAX_MS 1000

#define IDLE_CORES "lend" /* docs/benchmarks.md, gain: better, or no difference shown */

/* Limits of one user: four users together fill a daemon's own limits (src/proto/proto.h). */
#define USER_JOBS        "128"
#define USER_PROCESSES   "1024"
#define USER_CONNECTIONS "512"

/* ---- values ---- */

static int refuse(const char *value, const char *wanted, struct error *err)
{
    return error_set(err, -EINVAL, "'%.60s' is not possible: use %s", value, wanted);
}

static int set_policy(struct config *c, const char *value, struct error *err)
{
    struct error why = {0};

    c->policy = (struct policy_spec){0};
    if (value && external_parse(value, &c->policy, &why) < 0)
        return error_set(err, -EINVAL, "%s", why.text);
    return 0;
}

static int set_placement(struct config *c, const char *value, struct error *err)
{
    if (placement_parse(value, &c->placement) < 0)
        return refuse(value, "shared, exclusive or quota", err);
    return 0;
}

static int set_idle_cores(struct config *c, const char *value, struct error *err)
{
    if (strcmp(value, "lend") != 0 && strcmp(value, "leave") != 0)
        return refuse(value, "lend or leave", err);
    c->lend_idle = strcmp(value, "lend") == 0;
    return 0;
}

static int set_cpus(struct config *c, const char *value, struct error *err)
{
    struct cpuset cpus = {0};

    if (value && (cpuset_parse(value, &cpus) < 0 || cpuset_count(&cpus) == 0))
        return refuse(value, "a list like 0-3,8", err);
    c->cpus = cpus;
    return 0;
}

static bool is_number(const char *value, unsigned long min, unsigned long max, uint32_t *ret)
{
    char *end;
    unsigned long n = strtoul(value, &end, 10);

    if (*end || *value < '0' || *value > '9' || n < min || n > max)
        return false;
    *ret = (uint32_t)n;
    return true;
}

static int set_heartbeat(struct config *c, const char *value, struct error *err)
{
    if (!is_number(value, DAEMON_HEARTBEAT_MIN_MS, DAEMON_HEARTBEAT_MAX_MS, &c->heartbeat_ms))
        return refuse(value, "a number of milliseconds from 100 to 500", err);
    return 0;
}

static int set_history(struct config *c, const char *value, struct error *err)
{
    if (strcmp(value, "none") == 0)
        c->history_mib = 0;
    else if (!is_number(value, 1, HISTORY_MIB_MAX, &c->history_mib))
        return refuse(value, "a number of MiB from 1 to 1024, or none", err);
    return 0;
}

static const char *const curves_modes[] = {"keep", "share", "none"};
static_assert(ARRAY_LEN(curves_modes) == CURVES_NONE + 1, "a mode without a name");

static int set_curves(struct config *c, const char *value, struct error *err)
{
    for (unsigned i = 0; i < ARRAY_LEN(curves_modes); i++) {
        if (strcmp(value, curves_modes[i]) == 0) {
            c->curves = (enum curves_mode)i;
            return 0;
        }
    }
    return refuse(value, "keep, share or none", err);
}

static int set_promises(struct config *c, const char *value, struct error *err)
{
    if (strcmp(value, "warn") != 0 && strcmp(value, "refuse") != 0)
        return refuse(value, "warn or refuse", err);
    c->promises = strcmp(value, "warn") == 0 ? PROMISES_WARN : PROMISES_REFUSE;
    return 0;
}

static int set_memory(struct config *c, const char *value, struct error *err)
{
    uint64_t bytes = CONFIG_MEMORY_MACHINE;

    if (value && strcmp(value, "none") == 0)
        bytes = 0;
    else if (value && size_parse(value, &bytes) < 0)
        return refuse(value, "an amount like 16G, or none", err);
    c->memory_bytes = bytes;
    return 0;
}

static int set_limit(uint32_t *limit, const char *value, uint32_t max, struct error *err)
{
    if (strcmp(value, "none") == 0)
        *limit = 0;
    else if (!is_number(value, 1, max, limit))
        return error_set(err, -EINVAL,
                         "'%.60s' is not possible: use a number from 1 to %u, or none", value, max);
    return 0;
}

static int set_devices(struct config *c, const char *value, struct error *err)
{
    int64_t counts = CONFIG_DEVICES_MACHINE;

    if (value && strcmp(value, "none") == 0)
        counts = 0;
    else if (value && devices_parse(value, &counts) < 0)
        return refuse(value, "numbers like nvidia=2,uverbs=1, or none", err);
    c->devices = counts;
    return 0;
}

static int set_device_cores(struct config *c, const char *value, struct error *err)
{
    return set_limit(&c->device_cores, value, CPUSET_MAX_CPUS, err);
}

static int set_engines(struct config *c, const char *value, struct error *err)
{
    char engines[CONTAINERS_ENGINES_MAX][CONFIG_SOCKET_MAX];
    unsigned n = 0;

    c->engines_said = value != NULL;
    if (!value || strcmp(value, "none") == 0)
        value = "";
    for (size_t len; *(value += strspn(value, BLANKS)); value += len) {
        len = strcspn(value, BLANKS);
        if (*value != '/' || len >= CONFIG_SOCKET_MAX)
            return refuse(value, "absolute paths of unix sockets with blanks between, or none",
                          err);
        if (n == CONTAINERS_ENGINES_MAX)
            return error_set(err, -EINVAL, "more than %d engines", CONTAINERS_ENGINES_MAX);
        memcpy(engines[n], value, len);
        engines[n++][len] = '\0';
    }
    memcpy(c->engines, engines, n * sizeof(engines[0]));
    c->n_engines = n;
    return 0;
}

static int set_group(char ret[CONFIG_GROUP_MAX], const char *value, struct error *err)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    size_t len = strlen(value);

    if (len >= CONFIG_GROUP_MAX || strspn(value, plain) != len)
        return refuse(value, "the name of a group, or none", err);
    snprintf(ret, CONFIG_GROUP_MAX, "%s", strcmp(value, "none") == 0 ? "" : value);
    return 0;
}

static int set_admin_group(struct config *c, const char *value, struct error *err)
{
    return set_group(c->admin_group, value, err);
}

static int set_power_group(struct config *c, const char *value, struct error *err)
{
    return set_group(c->power_group, value, err);
}

static int set_power(struct config *c, const char *value, struct error *err)
{
    struct error why = {0};

    if (strlen(value) >= sizeof(c->power))
        return refuse(value, "fewer sensors", err);
    if (sensors_check(value, &why) < 0)
        return error_set(err, -EINVAL, "%s", why.text);
    snprintf(c->power, sizeof(c->power), "%s", value);
    return 0;
}

/* For one core: how many the machine has is not known here. */
static int set_power_model(struct config *c, const char *value, struct error *err)
{
    struct error why = {0};
    struct watts model;

    if (!value)
        value = "";
    if (strlen(value) >= sizeof(c->power_model))
        return refuse(value, "fewer digits", err);
    if (model_parse(value, 1, &model, &why) < 0)
        return error_set(err, -EINVAL, "%s", why.text);
    snprintf(c->power_model, sizeof(c->power_model), "%s", value);
    return 0;
}

static int set_power_cap(struct config *c, const char *value, struct error *err)
{
    enum amount_kind kind;
    uint64_t uw;

    if (strcmp(value, "none") == 0)
        c->power_cap_uw = 0;
    else if (amount_parse(value, &uw, &kind) < 0 || kind == AMOUNT_ENERGY || uw == 0 ||
             uw > POWER_UW_MAX)
        return refuse(value, "watts like 120 W or 1.2 kW, or none", err);
    else
        c->power_cap_uw = uw;
    return 0;
}

static int set_power_root(struct config *c, const char *value, struct error *err)
{
    if (*value != '/' || strlen(value) >= sizeof(c->power_root))
        return refuse(value, "the absolute path of a directory", err);
    snprintf(c->power_root, sizeof(c->power_root), "%s", value);
    return 0;
}

/* "0.12 EUR/kWh": a number, a word, "/kWh". Returns false if it is none. */
static bool read_rate(const char *value, uint64_t *ret_micro, char word[CONFIG_CURRENCY_MAX])
{
    char number[24] = "", unit[CONFIG_CURRENCY_MAX] = "";
    enum amount_kind kind;
    int end = 0;

    if (sscanf(value, " %23[0-9.] %7[A-Za-z]/kWh%n", number, unit, &end) != 2 || end == 0 ||
        value[end] || amount_parse(number, ret_micro, &kind) < 0)
        return false;
    memcpy(word, unit, CONFIG_CURRENCY_MAX);
    return true;
}

static int set_tariff(struct config *c, const char *value, struct error *err)
{
    char currency[CONFIG_CURRENCY_MAX] = "";
    uint64_t tariff = 0;

    if (strcmp(value, "none") != 0 && !read_rate(value, &tariff, currency))
        return refuse(value, "a price like 0.12 EUR/kWh, or none", err);
    c->tariff = tariff;
    memcpy(c->currency, currency, sizeof(c->currency));
    return 0;
}

static int set_carbon(struct config *c, const char *value, struct error *err)
{
    char unit[CONFIG_CURRENCY_MAX] = "";
    uint64_t carbon = 0;

    if (strcmp(value, "none") != 0 && (!read_rate(value, &carbon, unit) || strcmp(unit, "g") != 0))
        return refuse(value, "grams of CO2 like 350 g/kWh, or none", err);
    c->carbon = carbon;
    return 0;
}

/* Reads /etc/passwd itself: a name service on the network could block the loop. */
static bool find_user(const char *name, uid_t *ret)
{
    FILE *f = fopen("/etc/passwd", "re");
    const struct passwd *entry;
    uint32_t number = 0;
    bool found = is_number(name, 0, UINT32_MAX - 1, &number);

    *ret = number;
    while (f && !found && (entry = fgetpwent(f))) {
        found = strcmp(entry->pw_name, name) == 0;
        *ret = entry->pw_uid;
    }
    if (f)
        fclose(f);
    return found;
}

static int set_decider(struct config *c, const char *value, struct error *err)
{
    value = value && strcmp(value, "none") != 0 ? value : "";
    if (*value && (*value != '/' || strlen(value) >= sizeof(c->decider)))
        return refuse(value, "the absolute path of a Unix socket, or none", err);
    snprintf(c->decider, sizeof(c->decider), "%s", value);
    return 0;
}

static int set_decider_deadline(struct config *c, const char *value, struct error *err)
{
    uint64_t ms;

    if (moment_duration(value, &ms) < 0 || ms < 1 || ms > DECIDER_DEADLINE_MAX_MS)
        return refuse(value, "a duration from 1ms to 1s", err);
    c->decider_deadline_ms = (uint32_t)ms;
    return 0;
}

static int set_decider_user(struct config *c, const char *value, struct error *err)
{
    uid_t uid = 0;

    value = value && strcmp(value, "none") != 0 ? value : "";
    if (*value && (strlen(value) >= sizeof(c->decider_user) || !find_user(value, &uid)))
        return error_set(err, -EINVAL, "there is no user '%.60s' in /etc/passwd", value);
    snprintf(c->decider_user, sizeof(c->decider_user), "%s", value);
    c->decider_uid = uid;
    return 0;
}

/* "serve:p99=50ms", "alice/api-*:p99=1.5s" */
static int read_slo(char *word, struct config_slo *ret, struct error *err)
{
    const struct attribute *slo = attribute_find("slo", strlen("slo"));
    char *colon = strchr(word, ':'), *slash, *job = word;

    if (!colon || attribute_parse(slo, colon + 1, &ret->us) < 0 || ret->us == 0)
        return refuse(word, "[USER/]NAME:p99=TIME, as serve:p99=50ms, TIME from 1ms to 60s", err);
    *colon = '\0';
    slash = strchr(word, '/');
    *ret->user = '\0';
    if (slash) {
        *slash = '\0';
        job = slash + 1;
        if (strlen(word) >= sizeof(ret->user) || !find_user(word, &ret->uid))
            return error_set(err, -EINVAL, "there is no user '%.60s' in /etc/passwd", word);
        memcpy(ret->user, word, strlen(word) + 1);
    }
    if (!*job || strlen(job) >= sizeof(ret->job))
        return error_set(err, -EINVAL, "'%.60s' is no name of a job", job);
    memcpy(ret->job, job, strlen(job) + 1);
    return 0;
}

/* Each line adds to those before. */
static int set_slo(struct config *c, const char *value, struct error *err)
{
    unsigned n = c->n_slos;

    if (!value || strcmp(value, "none") == 0) {
        c->n_slos = 0;
        return 0;
    }
    for (size_t len; *(value += strspn(value, BLANKS)); value += len) {
        char word[CONFIG_GROUP_MAX + CONFIG_JOB_MAX + 32];
        int r;

        len = strcspn(value, BLANKS);
        if (n == CONFIG_SLOS_MAX)
            return error_set(err, -EINVAL, "more than %d promises", CONFIG_SLOS_MAX);
        snprintf(word, sizeof(word), "%.*s", (int)len, value);
        r = read_slo(word, &c->slos[n], err);
        if (r < 0)
            return r;
        n++;
    }
    c->n_slos = n;
    return 0;
}

/* Not root: whoever breaks into the gateway shall not be it. */
static int set_gateway_user(struct config *c, const char *value, struct error *err)
{
    uid_t uid = 0;

    value = value && strcmp(value, "none") != 0 ? value : "";
    if (*value && (strlen(value) >= sizeof(c->gateway_user) || !find_user(value, &uid)))
        return error_set(err, -EINVAL, "there is no user '%.60s' in /etc/passwd", value);
    if (*value && uid == 0)
        return error_set(err, -EINVAL, "'%.60s' is root: the gateway needs a user of its own",
                         value);
    snprintf(c->gateway_user, sizeof(c->gateway_user), "%s", value);
    c->gateway_uid = uid;
    return 0;
}

/* "alice:200 bob:50" */
static int set_user_weights(struct config *c, const char *value, struct error *err)
{
    struct config_user users[CONFIG_USERS_MAX];
    unsigned n = 0;

    value = value && strcmp(value, "none") != 0 ? value : "";
    for (size_t len; *(value += strspn(value, BLANKS)); value += len) {
        struct config_user *u = &users[n];
        char word[CONFIG_GROUP_MAX + 8], *colon;

        len = strcspn(value, BLANKS);
        if (n == CONFIG_USERS_MAX)
            return error_set(err, -EINVAL, "more than %d users", CONFIG_USERS_MAX);
        if (len >= sizeof(word))
            return refuse(value, "NAME:WEIGHT with blanks between", err);
        snprintf(word, sizeof(word), "%.*s", (int)len, value);
        colon = strrchr(word, ':');
        if (!colon || colon == word || colon - word >= CONFIG_GROUP_MAX ||
            !is_number(colon + 1, 1, POLICY_WEIGHT_MAX, &u->weight))
            return refuse(word, "NAME:WEIGHT, a weight from 1 to 10000 (100 is the usual one)",
                          err);
        *colon = '\0';
        memcpy(u->name, word, strlen(word) + 1);
        if (!find_user(word, &u->uid))
            return error_set(err, -EINVAL, "there is no user '%s' in /etc/passwd", word);
        n++;
    }
    memcpy(c->users, users, n * sizeof(users[0]));
    c->n_users = n;
    return 0;
}

static int set_user_cores(struct config *c, const char *value, struct error *err)
{
    return set_limit(&c->user_cores, value, CPUSET_MAX_CPUS, err);
}

static int set_user_jobs(struct config *c, const char *value, struct error *err)
{
    return set_limit(&c->user_jobs, value, PROTO_JOBS_MAX, err);
}

static int set_user_processes(struct config *c, const char *value, struct error *err)
{
    return set_limit(&c->user_processes, value, PROTO_CONNECTIONS_MAX, err);
}

static int set_user_priority(struct config *c, const char *value, struct error *err)
{
    return set_limit(&c->user_priority, value, PROTO_PRIORITY_MAX, err);
}

static int set_user_connections(struct config *c, const char *value, struct error *err)
{
    return set_limit(&c->user_connections, value, PROTO_CONNECTIONS_MAX, err);
}

static const struct {
    const char *name, *standard; /* standard NULL: the same as an absent key */
    int (*set)(struct config *c, const char *value, struct error *err);
} keys[] = {
    {"policy", NULL, set_policy},
    {"decider", NULL, set_decider},
    {"decider-deadline", DEADLINE, set_decider_deadline},
    {"decider-user", "none", set_decider_user},
    {"gateway-user", "none", set_gateway_user},
    {"placement", "shared", set_placement},
    {"cpus", NULL, set_cpus},
    {"idle-cores", IDLE_CORES, set_idle_cores},
    {"heartbeat", HEARTBEAT, set_heartbeat},
    {"engines", NULL, set_engines},
    {"admin-group", "tide-admin", set_admin_group},
    {"history", HISTORY, set_history},
    {"curves", "keep", set_curves},
    {"promises", "warn", set_promises},
    {"slo", "none", set_slo},
    {"memory", NULL, set_memory},
    {"devices", NULL, set_devices},
    {"device-cores", "1", set_device_cores},
    {"user-weights", NULL, set_user_weights},
    {"user-cores", "none", set_user_cores},
    {"user-jobs", USER_JOBS, set_user_jobs},
    {"user-processes", USER_PROCESSES, set_user_processes},
    {"user-priority", "none", set_user_priority},
    {"user-connections", USER_CONNECTIONS, set_user_connections},
    {"power", "auto", set_power},
    {"power-root", "/", set_power_root},
    {"power-group", "tide-power", set_power_group},
    {"tariff", "none", set_tariff},
    {"carbon", "none", set_carbon},
    {"power-model", NULL, set_power_model},
    {"power-cap", "none", set_power_cap},
};
static_assert(DAEMON_HEARTBEAT_MS == 250, "what HEARTBEAT says");
static_assert(HISTORY_MIB_STD == 64 && HISTORY_MIB_MAX == 1024, "what HISTORY and set_history say");

void config_init(struct config *c)
{
    *c = (struct config){0};
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        config_set(c, keys[i].name, "", NULL);
}

static int unknown_key(const char *key, struct error *err)
{
    const char *names[ARRAY_LEN(keys)], *near;

    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        names[i] = keys[i].name;
    near = suggest_nearest(key, names, ARRAY_LEN(names));
    if (near)
        return error_set(err, -ENOENT, "there is no such key; did you mean %s?", near);
    return error_set(err, -ENOENT, "there is no such key; tide.conf(5) lists them");
}

int config_set(struct config *c, const char *key, const char *value, struct error *err)
{
    size_t i = 0;

    while (i < ARRAY_LEN(keys) && strcmp(keys[i].name, key) != 0)
        i++;
    if (i == ARRAY_LEN(keys))
        return unknown_key(key, err);
    return keys[i].set(c, *value ? value : keys[i].standard, err);
}

/* ---- a file's text ---- */

static int take_key(void *arg, const char *key, const char *value, struct error *err)
{
    return config_set(arg, key, value, err);
}

int config_parse(struct config *c, const char *name, const char *text, struct error *err)
{
    const struct inifile file = {SECTION, "tided's", name};

    return inifile_parse(&file, text, take_key, c, err);
}

/* ---- files ---- */

/* Only root may write the files that root's daemon obeys. */
static int check_owner(const char *path, int fd, mode_t type, struct error *err)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return error_set(err, -errno, "%s: %s", path, strerror(errno));
    if ((st.st_mode & S_IFMT) != type)
        return error_set(err, -EINVAL, "%s is no %s: remove it", path,
                         type == S_IFDIR ? "directory" : "file");
    if (geteuid() != 0)
        return 0;
    if (st.st_uid != 0)
        return error_word(err,
                          error_set(err, -EPERM, "%s belongs to user %u: chown it to root", path,
                                    (unsigned)st.st_uid),
                          "config-unsafe");
    if (st.st_mode & (S_IWGRP | S_IWOTH))
        return error_word(
            err, error_set(err, -EPERM, "others than root may write %s: chmod go-w it", path),
            "config-unsafe");
    return 0;
}

/* @path is for messages; @name is opened in @dir_fd. */
static int read_one(struct config *c, int dir_fd, const char *name, const char *path,
                    struct error *err)
{
    _cleanup_free_ char *text = malloc(CONFIG_BYTES_MAX + 1);
    _cleanup_fd_ int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    size_t len = 0;
    ssize_t n;
    int r;

    if (!text)
        return error_set(err, -ENOMEM, "out of memory");
    if (fd < 0)
        return error_set(err, -errno, "cannot read %s: %s", path, strerror(errno));
    r = check_owner(path, fd, S_IFREG, err);
    if (r < 0)
        return r;
    while ((n = read(fd, text + len, CONFIG_BYTES_MAX + 1 - len)) > 0)
        len += (size_t)n;
    if (n < 0)
        return error_set(err, -errno, "cannot read %s: %s", path, strerror(errno));
    if (len > CONFIG_BYTES_MAX)
        return error_set(err, -EFBIG, "%s is longer than %d bytes", path, CONFIG_BYTES_MAX);
    text[len] = '\0';
    if (strlen(text) != len)
        return error_set(err, -EINVAL, "%s is no text: it holds a NUL byte", path);
    return config_parse(c, path, text, err);
}

static int is_drop_in(const struct dirent *e)
{
    size_t len = strlen(e->d_name);

    return e->d_name[0] != '.' && len > 5 && strcmp(e->d_name + len - 5, ".conf") == 0;
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int read_drop_ins(struct config *c, const char *file, struct error *err)
{
    char dir[PATH_MAX], path[PATH_MAX + NAME_MAX + 2];
    _cleanup_fd_ int fd = -1;
    struct dirent **list;
    int n, r;

    snprintf(dir, sizeof(dir), "%s.d", file);
    fd = open(dir, O_RDONLY | O_CLOEXEC | O_DIRECTORY);
    if (fd < 0 && errno == ENOENT)
        return 0;
    if (fd < 0)
        return error_set(err, -errno, "cannot read %s: %s", dir, strerror(errno));
    r = check_owner(dir, fd, S_IFDIR, err);
    if (r < 0)
        return r;
    n = scandirat(fd, ".", &list, is_drop_in, by_bytes);
    if (n < 0)
        return error_set(err, -errno, "cannot read %s: %s", dir, strerror(errno));
    if (n > CONFIG_DROP_INS_MAX)
        r = error_set(err, -E2BIG, "more than %d files in %s", CONFIG_DROP_INS_MAX, dir);
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, list[i]->d_name);
        if (r == 0)
            r = read_one(c, fd, list[i]->d_name, path, err);
        free(list[i]);
    }
    free(list);
    return r;
}

int config_load(const struct config_source *source, struct config *ret, struct error *err)
{
    struct error why = {0};
    struct config c;
    int r = 0;

    config_init(&c);
    if (source->file) {
        r = read_one(&c, AT_FDCWD, source->file, source->file, err);
        if (r == -ENOENT && source->optional)
            r = 0;
        if (r == 0)
            r = read_drop_ins(&c, source->file, err);
    }
    for (unsigned i = 0; r == 0 && i < source->n_orders; i++)
        if (config_set(&c, source->orders[i].key, source->orders[i].value, &why) < 0)
            r = error_set(err, -EINVAL, "command line: %s: %.*s", source->orders[i].key,
                          ERROR_TEXT_MAX - 32, why.text);
    if (r < 0)
        return r;
    *ret = c;
    return 0;
}

/* ---- the result ---- */

static void print_limit(FILE *out, const char *key, uint32_t limit)
{
    if (limit)
        fprintf(out, "%s=%u\n", key, limit);
    else
        fprintf(out, "%s=none\n", key);
}

static void print_rate(FILE *out, const char *key, uint64_t micro, const char *unit)
{
    if (micro)
        fprintf(out, "%s=%" PRIu64 ".%06" PRIu64 " %s/kWh\n", key, micro / 1000000, micro % 1000000,
                unit);
    else
        fprintf(out, "%s=none\n", key);
}

void config_print(const struct config *c, FILE *out)
{
    char policy[POLICY_SPEC_TEXT_MAX] = "", cpus[CPUSET_TEXT_MAX] = "", devices[DEVICES_TEXT_MAX];
    char promise[PROMISE_TEXT_MAX];

    if (c->policy.policy)
        policy_spec_text(&c->policy, policy, sizeof(policy));
    cpuset_format(&c->cpus, cpus, sizeof(cpus));
    fprintf(out, "[" SECTION "]\npolicy=%s\ndecider=%s\n", policy,
            *c->decider ? c->decider : "none");
    fprintf(out, "decider-deadline=%ums\ndecider-user=%s\ngateway-user=%s\n",
            c->decider_deadline_ms, *c->decider_user ? c->decider_user : "none",
            *c->gateway_user ? c->gateway_user : "none");
    fprintf(out, "placement=%s\ncpus=%s\nidle-cores=%s\nheartbeat=%u\nengines=%s",
            placement_name(c->placement), cpus, c->lend_idle ? "lend" : "leave", c->heartbeat_ms,
            c->engines_said && c->n_engines == 0 ? "none" : "");
    for (unsigned i = 0; i < c->n_engines; i++)
        fprintf(out, "%s%s", i ? " " : "", c->engines[i]);
    fprintf(out, "\nadmin-group=%s\n", *c->admin_group ? c->admin_group : "none");
    if (c->memory_bytes == CONFIG_MEMORY_MACHINE)
        fprintf(out, "memory=\n");
    else if (c->memory_bytes)
        fprintf(out, "memory=%" PRIu64 "\n", c->memory_bytes);
    else
        fprintf(out, "memory=none\n");
    devices_text(c->devices == CONFIG_DEVICES_MACHINE ? 0 : c->devices, devices);
    fprintf(out, "devices=%s\n", c->devices ? devices : "none");
    print_limit(out, "device-cores", c->device_cores);
    fprintf(out, "user-weights=%s", c->n_users ? "" : "none");
    for (unsigned i = 0; i < c->n_users; i++)
        fprintf(out, "%s%s:%u", i ? " " : "", c->users[i].name, c->users[i].weight);
    fputc('\n', out);
    print_limit(out, "user-cores", c->user_cores);
    print_limit(out, "user-jobs", c->user_jobs);
    print_limit(out, "user-processes", c->user_processes);
    print_limit(out, "user-priority", c->user_priority);
    print_limit(out, "user-connections", c->user_connections);
    fprintf(out, "power=%s\npower-root=%s\npower-model=%s\n", c->power, c->power_root,
            c->power_model);
    print_rate(out, "tariff", c->tariff, c->currency);
    print_rate(out, "carbon", c->carbon, "g");
    fprintf(out, "power-group=%s\n", *c->power_group ? c->power_group : "none");
    if (c->power_cap_uw)
        fprintf(out, "power-cap=%" PRIu64 ".%06" PRIu64 " W\n", c->power_cap_uw / 1000000,
                c->power_cap_uw % 1000000);
    else
        fprintf(out, "power-cap=none\n");
    if (c->history_mib)
        fprintf(out, "history=%u\n", c->history_mib);
    else
        fprintf(out, "history=none\n");
    fprintf(out, "curves=%s\n", curves_modes[c->curves]);
    fprintf(out, "promises=%s\nslo=none\n", c->promises == PROMISES_REFUSE ? "refuse" : "warn");
    for (unsigned i = 0; i < c->n_slos; i++)
        fprintf(out, "slo=%s%s%s:%s\n", c->slos[i].user, *c->slos[i].user ? "/" : "",
                c->slos[i].job, promise_text(c->slos[i].us, promise));
}

int64_t config_slo(const struct config *c, uid_t uid, const char *name)
{
    for (unsigned i = 0; name && i < c->n_slos; i++) {
        const struct config_slo *s = &c->slos[i];

        if ((!*s->user || s->uid == uid) && fnmatch(s->job, name, 0) == 0)
            return s->us;
    }
    return 0;
}

gid_t config_group(const char *name)
{
    FILE *file = *name ? fopen("/etc/group", "re") : NULL;
    const struct group *entry;
    gid_t gid = CONFIG_NOBODY;

    if (!file)
        return gid;
    while (gid == CONFIG_NOBODY && (entry = fgetgrent(file)))
        if (strcmp(entry->gr_name, name) == 0)
            gid = entry->gr_gid;
    fclose(file);
    return gid;
}

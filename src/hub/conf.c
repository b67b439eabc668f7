/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/conf.h"

#include "base/cleanup.h"
#include "base/moment.h"
#include "base/suggest.h"
#include "base/wholefile.h"
#include "host/inifile.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#define ERROR_WORD "config-error"

#define DAY_MS        UINT64_C(86400000)
#define BROKER_PORT   8883
#define BLANKS        " \t\r"
#define OPTION_CONFIG 256
#define OPTION_KEY    512 /* and the number of the key */
#define MORE_MAX      8

enum kind { TEXT, FILE_PATH, BROKER, LISTEN, HOST, TIME, COUNT };

struct key {
    const char *name;
    enum kind kind;
    size_t offset, size;
    uint64_t least_ms; /* of a time */
};

#define TEXT_OF(member) offsetof(struct conf, member), sizeof(((struct conf *)NULL)->member)

static const struct key keys[] = {
    {"state", FILE_PATH, TEXT_OF(state), 0},
    {"store", TEXT, TEXT_OF(store), 0},
    {"policy", FILE_PATH, TEXT_OF(policy), 0},
    {"parent", TEXT, TEXT_OF(parent), 0},
    {"parent-name", TEXT, TEXT_OF(parent_name), 0},
    {"parent-files", FILE_PATH, TEXT_OF(parent_files), 0},
    {"carbon-file", FILE_PATH, TEXT_OF(carbon), 0},
    {"broker", BROKER, 0, 0, 0},
    {"listen", LISTEN, TEXT_OF(listen), 0},
    {"host", HOST, 0, 0, 0},
    {"certificate", FILE_PATH, TEXT_OF(certificate), 0},
    {"key", FILE_PATH, TEXT_OF(key), 0},
    {"keep-1s", TIME, TEXT_OF(keep_second_ms), 1},
    {"keep-1min", TIME, TEXT_OF(keep_minute_ms), 1},
    {"keep-15min", TIME, TEXT_OF(keep_quarter_ms), 1},
    {"keep-users", TIME, TEXT_OF(keep_users_ms), 1},
    {"keep-audit", TIME, TEXT_OF(keep_audit_ms), 30 * DAY_MS},
    {"session-idle", TIME, TEXT_OF(session_idle_ms), 1},
    {"session-end", TIME, TEXT_OF(session_end_ms), 1},
    {"connections-per-address", COUNT, 0, 0, 0},
};
_Static_assert(ARRAY_LEN(keys) <= CONF_KEYS_MAX, "too many keys");

void conf_init(struct conf *c)
{
    *c = (struct conf){.state = "/var/lib/tide-hub",
                       .policy = "/etc/tide/policy.yaml",
                       .parent_files = "/var/lib/tide-hub/parent",
                       .broker = "127.0.0.1",
                       .broker_port = BROKER_PORT,
                       .listen = ":8443",
                       .keep_second_ms = 7 * DAY_MS,
                       .keep_minute_ms = 90 * DAY_MS,
                       .keep_quarter_ms = 3650 * DAY_MS,
                       .keep_users_ms = 366 * DAY_MS,
                       .keep_audit_ms = 366 * DAY_MS,
                       .session_idle_ms = DAY_MS / 2,
                       .session_end_ms = 7 * DAY_MS,
                       .per_address = CONF_PER_ADDRESS};
}

/* ---- values ---- */

static int wanted(const char *value, const char *what, struct error *err)
{
    return error_set(err, -EINVAL, "'%.80s': use %s", value, what);
}

/* "HOST:PORT", "[ADDRESS]:PORT"; the port from @least on. */
static bool split(const char *value, size_t *ret_len, unsigned long least, unsigned long *ret_port)
{
    const char *colon = strrchr(value, ':');
    char *end;

    if (!colon || !colon[1] || strspn(colon + 1, "0123456789") != strlen(colon + 1))
        return false;
    *ret_len = (size_t)(colon - value);
    *ret_port = strtoul(colon + 1, &end, 10);
    return *ret_port >= least && *ret_port <= 65535;
}

static int take_broker(struct conf *c, const char *value, struct error *err)
{
    unsigned long port = BROKER_PORT;
    size_t len = strlen(value);

    if ((strchr(value, ':') && !split(value, &len, 1, &port)) || len == 0 ||
        len >= sizeof(c->broker) || strcspn(value, " \t") < len)
        return wanted(value, "HOST or HOST:PORT", err);
    memcpy(c->broker, value, len);
    c->broker[len] = '\0';
    c->broker_port = (uint16_t)port;
    return 0;
}

static int take_listen(struct conf *c, const char *value, struct error *err)
{
    unsigned long port;
    size_t len;

    if (strlen(value) >= sizeof(c->listen) ||
        (strcmp(value, "none") != 0 && !split(value, &len, 0, &port)))
        return wanted(value, "HOST:PORT, :PORT for every address, or none", err);
    strcpy(c->listen, value);
    return 0;
}

/* Several stand with blanks between, in the file as behind one option. */
static int take_hosts(struct conf *c, const char *value, struct error *err)
{
    const char *at = value;

    c->hosts = 0;
    while (*(at += strspn(at, BLANKS)) != '\0') {
        size_t len = strcspn(at, BLANKS);

        if (c->hosts == CONF_HOSTS_MAX || len >= CONF_HOST_MAX)
            return wanted(value, "up to 8 names or addresses with blanks between", err);
        memcpy(c->host[c->hosts], at, len);
        c->host[c->hosts++][len] = '\0';
        at += len;
    }
    return c->hosts ? 0 : wanted(value, "a name or address", err);
}

static int take_time(struct conf *c, const struct key *k, const char *value, struct error *err)
{
    uint64_t ms;

    if (moment_duration(value, &ms) < 0)
        return wanted(value, "a time as 7d or 36h", err);
    if (ms < k->least_ms)
        return error_set(err, -EINVAL, "'%.80s': the least is %u days", value,
                         (unsigned)(k->least_ms / DAY_MS));
    memcpy((char *)c + k->offset, &ms, sizeof(ms));
    return 0;
}

static int take_count(struct conf *c, const char *value, struct error *err)
{
    size_t digits = strspn(value, "0123456789");
    unsigned long n = strtoul(value, NULL, 10);

    if (digits == 0 || value[digits] || digits > 4 || n < 1 || n > CONF_PER_ADDRESS_MAX)
        return error_set(err, -EINVAL, "'%.80s': use a number from 1 to %d", value,
                         CONF_PER_ADDRESS_MAX);
    c->per_address = (unsigned)n;
    return 0;
}

static int take_text(struct conf *c, const struct key *k, const char *value, struct error *err)
{
    size_t len = strlen(value);

    if (len >= k->size)
        return error_set(err, -EINVAL, "longer than %zu bytes", k->size - 1);
    memcpy((char *)c + k->offset, value, len + 1);
    return 0;
}

int conf_set(struct conf *c, const char *key, const char *value, struct error *err)
{
    const char *names[ARRAY_LEN(keys)], *near;
    const struct key *k = NULL;

    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        names[i] = keys[i].name;
        if (strcmp(names[i], key) == 0)
            k = &keys[i];
    }
    if (!k) {
        near = suggest_nearest(key, names, ARRAY_LEN(keys));
        return error_set(err, -ENOENT, "there is no such key%s%s%s", near ? ": did you mean '" : "",
                         near ? near : "", near ? "'?" : "");
    }
    if (!*value)
        return error_set(err, -EINVAL, "it has no value");
    switch (k->kind) {
    case BROKER:
        return take_broker(c, value, err);
    case LISTEN:
        return take_listen(c, value, err);
    case HOST:
        return take_hosts(c, value, err);
    case COUNT:
        return take_count(c, value, err);
    case TIME:
        return take_time(c, k, value, err);
    case TEXT:
    case FILE_PATH:
        break;
    }
    return take_text(c, k, value, err);
}

/* ---- the file ---- */

static int take_key(void *arg, const char *key, const char *value, struct error *err)
{
    return conf_set(arg, key, value, err);
}

int conf_parse(struct conf *c, const char *name, const char *text, struct error *err)
{
    const struct inifile file = {CONF_SECTION, "the hub's", name};

    return inifile_parse(&file, text, take_key, c, err);
}

int conf_read(struct conf *c, const char *path, struct error *err)
{
    _cleanup_free_ char *text = NULL;
    struct stat status;
    size_t len;
    int r = wholefile_read(path ? path : CONF_FILE, CONF_BYTES_MAX, &text, &len, &status);

    if (r == -ENOENT && !path)
        return 0;
    if (r < 0)
        return error_set(err, r, "%.200s: %s", path ? path : CONF_FILE, strerror(-r));
    if (strlen(text) != len)
        return error_set(err, -EINVAL, "%.200s: it holds a NUL byte: this is no text",
                         path ? path : CONF_FILE);
    return conf_parse(c, path ? path : CONF_FILE, text, err);
}

int conf_check(const struct conf *c, struct error *err)
{
    if (!*c->certificate != !*c->key)
        return error_set(err, -EINVAL, "certificate and key belong together: %s is missing",
                         *c->key ? "certificate" : "key");
    if (c->session_idle_ms > c->session_end_ms)
        return error_set(err, -EINVAL, "session-idle is longer than session-end");
    return 0;
}

int conf_path(const struct conf *c, const char *name, char *ret, size_t size, struct error *err)
{
    int n = snprintf(ret, size, "%s/%s", c->state, name);

    return n < 0 || (size_t)n >= size
               ? error_set(err, -ENAMETOOLONG, "the path of the state is too long")
               : 0;
}

/* ---- the command line ---- */

static void fill(struct option *ret, const struct option *more)
{
    size_t n = 0;

    for (; more && more->name && n < MORE_MAX; more++)
        ret[n++] = *more;
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        ret[n++] = (struct option){keys[i].name, required_argument, NULL, OPTION_KEY + (int)i};
    ret[n++] = (struct option){"config", required_argument, NULL, OPTION_CONFIG};
    ret[n++] = (struct option){"help", no_argument, NULL, 'h'};
    ret[n] = (struct option){0};
}

static int say(const struct error *err, int status)
{
    error_print(error_why(err), "tide-hub: %s", err->text);
    return status;
}

static int take(struct conf *c, int option, const struct conf_command *command)
{
    struct error why = {0}, err = {0};
    const char *name;

    if (option < 256)
        return command->take(command->arg, option);
    if (option < OPTION_KEY)
        return 0;
    name = keys[option - OPTION_KEY].name;
    if (conf_set(c, name, optarg, &why) == 0)
        return 0;
    error_set(&err, why.code, "--%s %.*s", name, ERROR_TEXT_MAX - 40, why.text);
    return say(&err, command->wrong);
}

/* Twice: the file that --config names, wherever it stands, is read before the options. */
int conf_options(struct conf *c, int argc, char **argv, const struct conf_command *command)
{
    struct option options[MORE_MAX + CONF_KEYS_MAX + 3];
    const char *path = NULL;
    struct error err = {0};
    int option, r;

    conf_init(c);
    fill(options, command->more);
    while ((option = getopt_long(argc, argv, "", options, NULL)) >= 0) {
        if (option == OPTION_CONFIG)
            path = optarg;
        if (option == 'h' || option == '?') {
            fputs(command->usage, option == 'h' ? stdout : stderr);
            return option == 'h' ? -1 : command->wrong;
        }
    }
    if (conf_read(c, path, &err) < 0)
        return say(&err, command->wrong);
    optind = 0; /* GNU: begin anew */
    while ((option = getopt_long(argc, argv, "", options, NULL)) >= 0) {
        r = take(c, option, command);
        if (r)
            return r;
    }
    if (argc - optind > command->operands) {
        fputs(command->usage, stderr);
        return command->wrong;
    }
    return conf_check(c, &err) < 0 ? say(&err, command->wrong) : 0;
}

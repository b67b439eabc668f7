/* SPDX-License-Identifier: Apache-2.0 */
#include "tfnode/options.h"

#include "base/cleanup.h"
#include "base/suggest.h"

#include <arpa/inet.h>
#include <assert.h>
#include <getopt.h>
#include <string.h>

#define ERROR_WORD "usage"

#define NAME_CHARS                                                                                 \
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"                               \
    "-._"

enum option_id {
    OPTION_JOB,
    OPTION_ROLE,
    OPTION_INDEX,
    OPTION_PORT,
    OPTION_CONTROL_PORT,
    OPTION_BIND,
    OPTION_THREADS,
    OPTION_GRACE,
    OPTION_TENSORFLOW,
    OPTION_LIFELINE,
    OPTION_HELP,
    OPTION_VERSION,
    OPTION_ID_MAX
};

/* In the order of their ids. */
static const struct option flags[] = {
    {"job", required_argument, NULL, OPTION_JOB},
    {"role", required_argument, NULL, OPTION_ROLE},
    {"index", required_argument, NULL, OPTION_INDEX},
    {"port", required_argument, NULL, OPTION_PORT},
    {"control-port", required_argument, NULL, OPTION_CONTROL_PORT},
    {"bind", required_argument, NULL, OPTION_BIND},
    {"threads", required_argument, NULL, OPTION_THREADS},
    {"grace", required_argument, NULL, OPTION_GRACE},
    {"tensorflow", required_argument, NULL, OPTION_TENSORFLOW},
    {"lifeline", no_argument, NULL, OPTION_LIFELINE},
    {"help", no_argument, NULL, OPTION_HELP},
    {"version", no_argument, NULL, OPTION_VERSION},
    {NULL, 0, NULL, 0},
};
static_assert(ARRAY_LEN(flags) == OPTION_ID_MAX + 1, "a flag for each id");

static const char *const variables[OPTION_ID_MAX] = {
    [OPTION_JOB] = "TIDE_JOB",         [OPTION_ROLE] = "TIDE_ROLE",
    [OPTION_INDEX] = "TIDE_INDEX",     [OPTION_PORT] = "TIDE_PORT",
    [OPTION_THREADS] = "TIDE_THREADS", [OPTION_CONTROL_PORT] = "TIDE_CONTROL_PORT",
    [OPTION_GRACE] = "TIDE_GRACE",     [OPTION_TENSORFLOW] = "TIDE_TENSORFLOW",
    [OPTION_BIND] = "TIDE_BIND",
};

static int take_number(const char *name, const char *text, uint32_t max, uint32_t *ret,
                       struct error *err)
{
    uint64_t value = 0;

    if (!*text || strlen(text) > 9 || strspn(text, "0123456789") != strlen(text))
        return error_set(err, -EINVAL, "%s: '%s' is no number from 0 to %u", name, text, max);
    for (; *text; text++)
        value = value * 10 + (uint64_t)(*text - '0');
    if (value > max)
        return error_set(err, -EINVAL, "%s: %llu is more than %u", name, (unsigned long long)value,
                         max);
    *ret = (uint32_t)value;
    return 0;
}

static int take_job(const char *name, const char *text, struct options *o, struct error *err)
{
    if (!*text || strlen(text) >= sizeof(o->job) || strspn(text, NAME_CHARS) != strlen(text))
        return error_set(err, -EINVAL,
                         "%s: '%s' is no name: 1 to %zu letters, digits, '-', '.' and '_'", name,
                         text, sizeof(o->job) - 1);
    strcpy(o->job, text);
    return 0;
}

static int take_role(const char *name, const char *text, struct options *o, struct error *err)
{
    if (strcmp(text, "ps") != 0 && strcmp(text, "worker") != 0)
        return error_set(err, -EINVAL, "%s: '%s' is neither 'ps' nor 'worker'", name, text);
    strcpy(o->role, text);
    return 0;
}

static int take_bind(const char *name, const char *text, struct options *o, struct error *err)
{
    struct in6_addr address = {.s6_addr = {[10] = 0xff, [11] = 0xff}};

    if (inet_pton(AF_INET, text, &address.s6_addr[12]) != 1 &&
        inet_pton(AF_INET6, text, &address) != 1)
        return error_set(err, -EINVAL, "%s: '%s' is no address like 127.0.0.1 or ::1", name, text);
    o->bind = address;
    return 0;
}

/* @name: the flag or variable that gives the value. */
static int take(enum option_id id, const char *name, const char *text, struct options *o,
                struct error *err)
{
    switch (id) {
    case OPTION_JOB:
        return take_job(name, text, o, err);
    case OPTION_ROLE:
        return take_role(name, text, o, err);
    case OPTION_INDEX:
        return take_number(name, text, 999999, &o->index, err);
    case OPTION_PORT:
        return take_number(name, text, 65535, &o->port, err);
    case OPTION_CONTROL_PORT:
        return take_number(name, text, 65535, &o->control_port, err);
    case OPTION_BIND:
        return take_bind(name, text, o, err);
    case OPTION_THREADS:
        return take_number(name, text, 4096, &o->threads, err);
    case OPTION_GRACE:
        return take_number(name, text, 86400, &o->grace_s, err);
    case OPTION_TENSORFLOW:
        o->tensorflow = text;
        return 0;
    case OPTION_LIFELINE:
        o->lifeline = true;
        return 0;
    default:
        return error_set(err, -EINVAL, "%s: unknown option", name);
    }
}

static int take_environment(struct options *o, struct error *err)
{
    for (enum option_id id = 0; id < OPTION_ID_MAX; id++) {
        const char *text = variables[id] ? getenv(variables[id]) : NULL;

        if (text && *text) {
            int r = take(id, variables[id], text, o, err);

            if (r < 0)
                return r;
        }
    }
    return 0;
}

/*
 * Takes the address by which others find the TensorFlow node; its own ServerDef uses it as a name.
 * Neither port asks who is calling, so outside of a pod the default is loopback.
 */
static int take_host(struct options *o, struct error *err)
{
    const char *ip = getenv("POD_IP");
    int n;

    if (!ip || !*ip) {
        ip = "localhost";
        inet_pton(AF_INET6, "::ffff:127.0.0.1", &o->bind);
    }
    n = snprintf(o->host, sizeof(o->host), strchr(ip, ':') ? "[%s]" : "%s", ip);
    if (n >= (int)sizeof(o->host))
        return error_set(err, -EINVAL, "POD_IP: '%s' is no address", ip);
    return 0;
}

static int unknown_flag(const char *word, struct error *err)
{
    const char *names[OPTION_ID_MAX];
    const char *near;

    for (size_t i = 0; i < OPTION_ID_MAX; i++)
        names[i] = flags[i].name;
    near = strncmp(word, "--", 2) == 0 ? suggest_nearest(word + 2, names, OPTION_ID_MAX) : NULL;
    if (near)
        return error_set(err, -EINVAL, "there is no option '%s'; did you mean '--%s'?", word, near);
    return error_set(err, -EINVAL, "there is no option '%s'", word);
}

/* Returns an enum options_verdict or -EINVAL. */
static int take_flags(int argc, char **argv, struct options *o, struct error *err)
{
    char name[32];
    int id, r;

    opterr = 0;
    optind = 0; /* makes glibc begin anew at the second call */
    while ((id = getopt_long(argc, argv, "+:", flags, NULL)) != -1) {
        if (id == ':')
            return error_set(err, -EINVAL, "%s needs a value", argv[optind - 1]);
        if (id == '?' && optopt > 0 && strncmp(argv[optind - 1], "--", 2) == 0)
            return error_set(err, -EINVAL, "%s: this option takes no value", argv[optind - 1]);
        if (id == '?')
            return unknown_flag(argv[optind - 1], err);
        if (id == OPTION_HELP)
            return OPTIONS_HELP;
        if (id == OPTION_VERSION)
            return OPTIONS_VERSION;
        snprintf(name, sizeof(name), "--%s", flags[id].name);
        r = take((enum option_id)id, name, optarg, o, err);
        if (r < 0)
            return r;
    }
    if (optind < argc)
        return error_set(err, -EINVAL, "'%s' is no option: the program takes no other arguments",
                         argv[optind]);
    return OPTIONS_RUN;
}

int options_parse(int argc, char **argv, struct options *ret, struct error *err)
{
    struct options o = {.job = "training",
                        .port = OPTIONS_PORT,
                        .control_port = OPTIONS_CONTROL_PORT,
                        .grace_s = OPTIONS_GRACE_S};
    /* Reads the flags twice: now, so that a wrong variable does not hide --help, and after the
     * environment, because they outrank it. */
    int r = take_flags(argc, argv, &o, err);

    if (r != OPTIONS_RUN)
        return r;
    r = take_host(&o, err);
    if (r == 0)
        r = take_environment(&o, err);
    if (r == 0)
        r = take_flags(argc, argv, &o, err);
    if (r == 0 && !o.role[0])
        return error_set(err, -EINVAL,
                         "the role is missing: --role ps or --role worker (TIDE_ROLE)");
    if (r == 0 && o.port > 0 && o.port == o.control_port)
        return error_set(err, -EINVAL, "--port and --control-port are both %u", o.port);
    if (r == 0)
        *ret = o;
    return r;
}

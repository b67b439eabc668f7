/* SPDX-License-Identifier: Apache-2.0 */
#include "pods/adjust.h"

#include "base/cleanup.h"
#include "base/preload.h"

#include <stdio.h>
#include <string.h>

#define PERIOD_USUAL_US 100000
#define PERIOD_MOST_US  1000000
#define VALUE_MAX       (STARTUP_OWN_MAX + 2) /* one more than startup_apply() takes */

/* The fields of a ContainerAdjustment, a Mount and a KeyValue. */
enum { ADJUST_MOUNTS = 3, ADJUST_ENV = 4 };
enum { MOUNT_DESTINATION = 1, MOUNT_TYPE = 2, MOUNT_SOURCE = 3, MOUNT_OPTIONS = 4 };
enum { ENV_KEY = 1, ENV_VALUE = 2 };

/* The container's environment, and the message into which variables are put. */
struct place {
    const struct nri_container *container;
    struct buffer *to;
    char *value; /* of the variable that was looked up last; VALUE_MAX bytes */
};

/* The last one counts: runtimes set them one by one. */
static bool find(const struct nri_container *c, const char *name, struct span *ret)
{
    struct span rest = c->whole, variable, value;
    bool found = false;

    while (nri_next(&rest, NRI_CONTAINER_ENV, &variable)) {
        if (!span_begins(variable, name, &value) || value.len == 0 || *value.at != '=')
            continue;
        *ret = (struct span){value.at + 1, value.len - 1};
        found = true;
    }
    return found;
}

static const char *look(const void *arg, const char *name)
{
    const struct place *p = arg;
    struct span value;

    if (!find(p->container, name, &value) || value.len == 0)
        return NULL;
    snprintf(p->value, VALUE_MAX, "%.*s", (int)(value.len < VALUE_MAX ? value.len : VALUE_MAX),
             (const char *)value.at);
    return p->value;
}

static void put_variable(struct buffer *to, const char *name, const char *value)
{
    size_t variable = protobuf_open(to, ADJUST_ENV);

    protobuf_put_text(to, ENV_KEY, name);
    protobuf_put_text(to, ENV_VALUE, value);
    protobuf_close(to, variable);
}

static int put(void *arg, const char *name, const char *value)
{
    const struct place *p = arg;

    put_variable(p->to, name, value);
    return 0;
}

static void put_mount(struct buffer *to, const char *destination, const char *source, bool programs)
{
    static const char *const options[] = {"rbind", "ro", "nosuid", "nodev", "rprivate"};
    size_t mount = protobuf_open(to, ADJUST_MOUNTS);

    protobuf_put_text(to, MOUNT_DESTINATION, destination);
    protobuf_put_text(to, MOUNT_TYPE, "bind");
    protobuf_put_text(to, MOUNT_SOURCE, source);
    for (size_t i = 0; i < ARRAY_LEN(options); i++)
        protobuf_put_text(to, MOUNT_OPTIONS, options[i]);
    if (!programs)
        protobuf_put_text(to, MOUNT_OPTIONS, "noexec");
    protobuf_close(to, mount);
}

/* Whether @inner is @outer or lies in it. */
static bool lies_in(struct span inner, struct span outer)
{
    while (outer.len > 1 && outer.at[outer.len - 1] == '/')
        outer.len--;
    return inner.len >= outer.len && memcmp(inner.at, outer.at, outer.len) == 0 &&
           (inner.len == outer.len || inner.at[outer.len] == '/' ||
            (outer.len == 1 && *outer.at == '/'));
}

/*
 * A mount of the container at, around or below @destination: our own would cover it, or its folder
 * would have to be made in a volume that may be read-only.
 */
static bool is_taken(const struct nri_container *c, const char *destination)
{
    struct span rest = c->whole, mount,
                wanted = {(const unsigned char *)destination, strlen(destination)};

    while (nri_next(&rest, NRI_CONTAINER_MOUNTS, &mount)) {
        struct span at = protobuf_bytes(mount, MOUNT_DESTINATION);

        if (at.len > 0 && (lies_in(wanted, at) || lies_in(at, wanted)))
            return true;
    }
    return false;
}

static bool names_agent(struct span preload)
{
    static const char file[] = "/" PRELOAD_FILE;

    return preload.len > 0 && memmem(preload.at, preload.len, file, strlen(file)) != NULL;
}

/* False: the variable would become too long for execve. */
static bool put_preload(struct buffer *to, struct span present)
{
    _cleanup_free_ char *value = NULL;

    if (present.len + sizeof(CONTAINER_PRELOAD) + 1 > PRELOAD_VARIABLE_MAX)
        return false;
    if (asprintf(&value, "%.*s%s" CONTAINER_PRELOAD, (int)present.len,
                 present.len ? (const char *)present.at : "", present.len ? ":" : "") < 0) {
        value = NULL;
        return false;
    }
    if (present.len) /* another plugin may have put it: two that set one variable are an error */
        put_variable(to, "-LD_PRELOAD", "");
    put_variable(to, "LD_PRELOAD", value);
    return true;
}

static unsigned limit_mcpu(const struct nri_limits *limits)
{
    int64_t period = (int64_t)limits->period_us;

    if (period <= 0 || period > PERIOD_MOST_US)
        period = PERIOD_USUAL_US;
    if (limits->quota_us <= 0 || limits->quota_us / period > STARTUP_NUMBER_MAX)
        return 0;
    return (unsigned)((limits->quota_us * 1000 + period - 1) / period); /* a sliver counts, too */
}

static unsigned usable(const struct nri_limits *limits, unsigned cores)
{
    struct cpuset cpus;

    if (!*limits->cpus || cpuset_parse(limits->cpus, &cpus) < 0 || cpuset_count(&cpus) == 0 ||
        cpuset_count(&cpus) > cores)
        return cores;
    return cpuset_count(&cpus);
}

static void put_sizes(struct place *p, const struct adjust_how *how, struct startup *ret)
{
    struct startup_container c = {
        .request = how->request,
        .min = how->min,
        .max = how->max,
        .limit_mcpu = limit_mcpu(&p->container->limits),
        .cores = usable(&p->container->limits, how->cores),
    };

    if (look(p, STARTUP_MARK))
        return;
    *ret = startup_of_container(&c, look, p);
    startup_apply(ret, look, put, p);
}

bool adjust_put(struct buffer *answer, const struct adjust_how *how, const struct nri_container *c,
                struct startup *ret)
{
    _cleanup_free_ char *value = malloc(VALUE_MAX);
    struct place place = {c, answer, value};
    struct span preload = {0}, ignored;
    bool has_agent, put_agent = false, put_control;
    size_t before = answer->len, adjustment;

    find(c, "LD_PRELOAD", &preload);
    has_agent = names_agent(preload);
    put_control = how->control_dir && !is_taken(c, CONTAINER_CONTROL_DIR);
    if (!value || (!has_agent && is_taken(c, CONTAINER_AGENT_DIR)))
        return false;
    adjustment = protobuf_open(answer, 1);
    if (!has_agent)
        put_agent = put_preload(answer, preload);
    if (put_agent)
        put_mount(answer, CONTAINER_AGENT_DIR, how->agent_dir, true);
    if ((put_agent || has_agent) && put_control) {
        put_mount(answer, CONTAINER_CONTROL_DIR, how->control_dir, false);
        if (!find(c, "TIDE_SOCKET", &ignored))
            put_variable(answer, "TIDE_SOCKET", CONTAINER_SOCKET);
    }
    if (put_agent && how->sizes)
        put_sizes(&place, how, ret);
    protobuf_close(answer, adjustment);
    if (put_agent || (has_agent && put_control))
        return true;
    answer->len = before;
    return false;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "runc/sizes.h"

#include "base/container.h"
#include "base/cpuset.h"

#include <stdlib.h>
#include <string.h>

#define PERIOD_USUAL_US 100000
#define PERIOD_MOST_US  1000000
#define VALUE_MAX       (STARTUP_OWN_MAX + 2) /* one more than startup_apply() takes */

/* The environment that is read, and into which variables are put. */
struct place {
    struct jsontext *json; /* NULL: it is only read */
    const struct jsontext *text;
    struct json_span env;
    char *value; /* of the variable that was looked up last; VALUE_MAX bytes */
};

/* As JSON has it, with its escapes: the value is tested for being there, or put back as it is. */
static const char *look(const void *arg, const char *name)
{
    const struct place *p = arg;
    char prefix[STARTUP_VALUE_MAX];
    struct json_item item = {0};
    size_t from = 0, end = 0;

    snprintf(prefix, sizeof(prefix), "%s=", name);
    while (jsontext_next(p->text, p->env, &item))
        if (jsontext_begins(p->text, item.value, prefix, &from))
            end = item.value.end - 1; /* the last one counts: runtimes set them one by one */
    if (end <= from)
        return NULL;
    snprintf(p->value, VALUE_MAX, "%.*s", (int)(end - from), p->text->text + from);
    return p->value;
}

static int put(void *arg, const char *name, const char *value)
{
    const struct place *p = arg;
    _cleanup_free_ char *text = NULL;

    if (asprintf(&text, "\"%s=%s\"", name, value) < 0) {
        text = NULL;
        return -ENOMEM;
    }
    return jsontext_append(p->json, p->env, text);
}

/* Steps from object to object; false: one of @names is missing. */
static bool find(const struct jsontext *json, struct json_span from, const char *const *names,
                 struct json_span *ret)
{
    for (; *names; names++)
        if (jsontext_member(json, from, *names, &from) < 0)
            return false;
    *ret = from;
    return true;
}

static long long number(const struct jsontext *json, struct json_span config, const char *name)
{
    struct json_span at;

    if (!find(json, config, (const char *[]){"linux", "resources", "cpu", name, NULL}, &at))
        return 0;
    return strtoll(json->text + at.start, NULL, 10);
}

/* A count in an annotation, "4"; 0: none. */
static unsigned asked(const struct jsontext *json, struct json_span config, const char *name)
{
    struct json_span at;
    unsigned long count;
    char *end;

    if (!find(json, config, (const char *[]){"annotations", name, NULL}, &at) ||
        json->text[at.start] != '"')
        return 0;
    count = strtoul(json->text + at.start + 1, &end, 10);
    return *end == '"' && count <= STARTUP_NUMBER_MAX ? (unsigned)count : 0;
}

static unsigned limit(const struct jsontext *json, struct json_span config)
{
    long long quota = number(json, config, "quota"), period = number(json, config, "period");

    if (period <= 0 || period > PERIOD_MOST_US)
        period = PERIOD_USUAL_US;
    if (quota <= 0 || quota / period > STARTUP_NUMBER_MAX)
        return 0;
    return (unsigned)((quota * 1000 + period - 1) / period); /* a sliver counts, too */
}

static unsigned usable(const struct jsontext *json, struct json_span config, unsigned cores)
{
    char text[CPUSET_TEXT_MAX];
    struct cpuset cpus;
    struct json_span at;

    if (!find(json, config, (const char *[]){"linux", "resources", "cpu", "cpus", NULL}, &at) ||
        json->text[at.start] != '"' || at.end - at.start < 3 || at.end - at.start > sizeof(text))
        return cores;
    snprintf(text, sizeof(text), "%.*s", (int)(at.end - at.start - 2), json->text + at.start + 1);
    if (cpuset_parse(text, &cpus) < 0 || cpuset_count(&cpus) > cores)
        return cores;
    return cpuset_count(&cpus);
}

struct startup sizes_read(const struct jsontext *json, struct json_span config,
                          struct json_span env, unsigned cores)
{
    struct startup_container c = {
        .request = asked(json, config, CONTAINER_LABEL ".request"),
        .min = asked(json, config, CONTAINER_LABEL ".min"),
        .max = asked(json, config, CONTAINER_LABEL ".max"),
        .limit_mcpu = limit(json, config),
        .cores = usable(json, config, cores),
    };
    _cleanup_free_ char *value = malloc(VALUE_MAX);
    struct place p = {NULL, json, env, value};

    return value ? startup_of_container(&c, look, &p) : (struct startup){0};
}

void sizes_own(const struct jsontext *json, struct json_span env, struct startup *s)
{
    _cleanup_free_ char *value = malloc(VALUE_MAX);
    struct place p = {NULL, json, env, value};

    if (!value)
        return;
    s->spin = startup_spins(look(&p, STARTUP_SPIN));
    if (look(&p, STARTUP_MOST_NAME))
        s->most = 0; /* the process's own stays as it is */
}

int sizes_add(struct jsontext *json, struct json_span env, struct startup *s)
{
    _cleanup_free_ char *value = malloc(VALUE_MAX);
    struct place p = {json, json, env, value};
    int r;

    if (!value)
        return -ENOMEM;
    if (look(&p, STARTUP_MARK))
        return 0;
    r = startup_apply(s, look, put, &p);
    return r < 0 ? r : 1;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/kubectl/kubectl.h"

#include "base/cleanup.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>

#define EVENTS_SHOWN 15

/* ---- tables ---- */

/* The width of a text in characters, not bytes. */
static size_t width(const char *text)
{
    size_t n = 0;

    for (; *text; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

int table_add(struct table *t, const char *const *cells)
{
    char *(*more)[KUBECTL_COLUMNS_MAX] = realloc(t->cells, (t->rows + 1) * sizeof(*more));

    if (!more)
        return -ENOMEM;
    t->cells = more;
    for (size_t i = 0; i < t->columns; i++)
        t->cells[t->rows][i] = strdup(cells[i] && *cells[i] ? cells[i] : "-");
    t->rows++;
    return 0;
}

void table_print(const struct table *t, FILE *to)
{
    size_t widths[KUBECTL_COLUMNS_MAX] = {0};

    for (size_t row = 0; row < t->rows; row++)
        for (size_t i = 0; i < t->columns; i++)
            if (t->cells[row][i] && width(t->cells[row][i]) > widths[i])
                widths[i] = width(t->cells[row][i]);
    for (size_t row = 0; row < t->rows; row++) {
        for (size_t i = 0; i < t->columns; i++) {
            const char *text = t->cells[row][i] ? t->cells[row][i] : "";
            int pad = i + 1 < t->columns ? (int)(widths[i] - width(text)) + 3 : 0;

            fprintf(to, "%s%*s", text, pad, "");
        }
        fputc('\n', to);
    }
}

void table_done(struct table *t)
{
    for (size_t row = 0; row < t->rows; row++)
        for (size_t i = 0; i < t->columns; i++)
            free(t->cells[row][i]);
    free(t->cells);
    *t = (struct table){0};
}

/* ---- values ---- */

const json_t *kubectl_at(const json_t *object, ...)
{
    const char *name;
    va_list ap;

    va_start(ap, object);
    while (object && (name = va_arg(ap, const char *)))
        object = json_object_get(object, name);
    va_end(ap);
    return object;
}

static const char *text_of(const json_t *value)
{
    const char *text = json_string_value(value);

    return text ? text : "";
}

void kubectl_age(const char *time_, char *ret, size_t size)
{
    struct tm tm = {0};
    const char *end = time_ ? strptime(time_, "%Y-%m-%dT%H:%M:%S", &tm) : NULL;
    long s = end ? (long)(time(NULL) - timegm(&tm)) : -1;

    if (!end)
        snprintf(ret, size, "<unknown>");
    else if (s < 120)
        snprintf(ret, size, "%lds", s < 0 ? 0 : s);
    else if (s < 3600 * 2)
        snprintf(ret, size, "%ldm", s / 60);
    else if (s < 86400 * 2)
        snprintf(ret, size, "%ldh", s / 3600);
    else
        snprintf(ret, size, "%ldd", s / 86400);
}

static void number(const json_t *value, const char *format, char *ret, size_t size)
{
    if (json_is_number(value))
        snprintf(ret, size, format, json_number_value(value));
    else
        snprintf(ret, size, "-");
}

/* "2/3 (1-4)": 2 of 3 wanted pods are in the training; the limits are 1 and 4. */
static void counts(const json_t *etj, const char *tasks, char *ret, size_t size)
{
    const json_t *status = kubectl_at(etj, "status", tasks, NULL);
    const json_t *spec = kubectl_at(etj, "spec", tasks, NULL);
    json_int_t min = json_integer_value(json_object_get(spec, "min"));
    json_int_t max = json_integer_value(json_object_get(spec, "max"));

    min = min ? min : 1;
    snprintf(ret, size, "%lld/%lld (%lld-%lld)",
             (long long)json_integer_value(json_object_get(status, "ready")),
             (long long)json_integer_value(json_object_get(status, "desired")), (long long)min,
             (long long)(max > min ? max : min));
}

/* ---- status ---- */

static int add_etj(struct table *t, const json_t *etj, bool with_namespace)
{
    const json_t *progress = kubectl_at(etj, "status", "progress", NULL);
    char ps[64], workers[64], step[32], loss[32], rate[32], efficiency[32], age[32];
    const char *phase = text_of(kubectl_at(etj, "status", "phase", NULL));
    const char *cells[KUBECTL_COLUMNS_MAX] = {
        text_of(kubectl_at(etj, "metadata", "namespace", NULL)),
        text_of(kubectl_at(etj, "metadata", "name", NULL)),
        *phase ? phase : "Unknown",
        text_of(kubectl_at(etj, "spec", "mode", NULL)),
        ps,
        workers,
        step,
        loss,
        rate,
        efficiency,
        age,
    };

    counts(etj, "ps", ps, sizeof(ps));
    counts(etj, "workers", workers, sizeof(workers));
    number(json_object_get(progress, "step"), "%.0f", step, sizeof(step));
    number(json_object_get(progress, "loss"), "%.4g", loss, sizeof(loss));
    number(json_object_get(progress, "examplesPerSecond"), "%.4g", rate, sizeof(rate));
    number(kubectl_at(etj, "status", "efficiency", NULL), "%.0f%%", efficiency, sizeof(efficiency));
    kubectl_age(json_string_value(kubectl_at(etj, "metadata", "creationTimestamp", NULL)), age,
                sizeof(age));
    return table_add(t, with_namespace ? cells : cells + 1);
}

void kubectl_print_status(const json_t *etjs, bool with_namespace, FILE *to)
{
    static const char *const titles[] = {"NAMESPACE",  "NAME",       "PHASE", "MODE",
                                         "PS",         "WORKERS",    "STEP",  "LOSS",
                                         "EXAMPLES/S", "EFFICIENCY", "AGE"};
    size_t skip = with_namespace ? 0 : 1;
    struct table t = {.columns = ARRAY_LEN(titles) - skip};
    const json_t *etj;
    size_t i;

    table_add(&t, titles + skip);
    json_array_foreach (etjs, i, etj)
        add_etj(&t, etj, with_namespace);
    table_print(&t, to);
    table_done(&t);
}

/* ---- explain ---- */

static void print_why(const json_t *etj, FILE *to)
{
    const json_t *status = json_object_get(etj, "status");
    const char *reason = text_of(json_object_get(status, "reason"));
    const char *message = text_of(json_object_get(status, "message"));
    json_int_t replicas = json_integer_value(kubectl_at(etj, "spec", "workers", "replicas", NULL));

    fprintf(to, "%s is %s: %s%s%s\n", text_of(kubectl_at(etj, "metadata", "name", NULL)),
            *text_of(json_object_get(status, "phase")) ? text_of(json_object_get(status, "phase"))
                                                       : "not seen by a controller yet",
            *message  ? message
            : *reason ? reason
                      : "nothing more is known",
            *message && *reason ? " — " : "", *message ? reason : "");
    if (replicas > 0)
        fprintf(to,
                "The number of workers is pinned to %lld; `kubectl tide scale NAME auto` lets "
                "the policy decide again.\n",
                (long long)replicas);
    if (json_is_true(kubectl_at(etj, "spec", "suspend", NULL)))
        fputs("It is to pause; `kubectl tide resume NAME` lets it go on.\n", to);
}

static void print_conditions(const json_t *etj, FILE *to)
{
    static const char *const titles[] = {"CONDITION", "STATUS", "SINCE", "REASON", "MESSAGE"};
    struct table t = {.columns = ARRAY_LEN(titles)};
    const json_t *c;
    size_t i;

    table_add(&t, titles);
    json_array_foreach (kubectl_at(etj, "status", "conditions", NULL), i, c) {
        char age[32];
        const char *cells[] = {
            text_of(json_object_get(c, "type")), text_of(json_object_get(c, "status")), age,
            text_of(json_object_get(c, "reason")), text_of(json_object_get(c, "message"))};

        kubectl_age(json_string_value(json_object_get(c, "lastTransitionTime")), age, sizeof(age));
        table_add(&t, cells);
    }
    fputc('\n', to);
    table_print(&t, to);
    table_done(&t);
}

/* A pod's phase, or what it waits for. */
static const char *pod_state(const json_t *pod)
{
    const json_t *first = json_array_get(kubectl_at(pod, "status", "containerStatuses", NULL), 0);
    const char *waits = text_of(kubectl_at(first, "state", "waiting", "reason", NULL));

    if (kubectl_at(pod, "metadata", "deletionTimestamp", NULL))
        return "Terminating";
    if (*text_of(kubectl_at(pod, "metadata", "annotations", "threadtide.io/leave", NULL)))
        return "Leaving";
    return *waits ? waits : text_of(kubectl_at(pod, "status", "phase", NULL));
}

static void print_pods(const json_t *pods, FILE *to)
{
    static const char *const titles[] = {"POD", "ROLE", "STATE", "NODE", "CPU", "AGE", "WHY"};
    struct table t = {.columns = ARRAY_LEN(titles)};
    const json_t *pod;
    size_t i;

    table_add(&t, titles);
    json_array_foreach (pods, i, pod) {
        const json_t *first = json_array_get(kubectl_at(pod, "spec", "containers", NULL), 0);
        char age[32];
        const char *cells[] = {
            text_of(kubectl_at(pod, "metadata", "name", NULL)),
            text_of(kubectl_at(pod, "metadata", "labels", "threadtide.io/role", NULL)),
            pod_state(pod),
            text_of(kubectl_at(pod, "spec", "nodeName", NULL)),
            text_of(kubectl_at(first, "resources", "requests", "cpu", NULL)),
            age,
            text_of(kubectl_at(pod, "metadata", "annotations", "threadtide.io/leave", NULL)),
        };

        kubectl_age(json_string_value(kubectl_at(pod, "metadata", "creationTimestamp", NULL)), age,
                    sizeof(age));
        table_add(&t, cells);
    }
    fputc('\n', to);
    if (t.rows > 1)
        table_print(&t, to);
    else
        fputs("It has no pods.\n", to);
    table_done(&t);
}

static const char *event_time(const json_t *event)
{
    const char *last = text_of(kubectl_at(event, "series", "lastObservedTime", NULL));

    return *last ? last : text_of(json_object_get(event, "eventTime"));
}

static void print_events(const json_t *events, FILE *to)
{
    static const char *const titles[] = {"LAST SEEN", "TYPE", "REASON", "TIMES", "NOTE"};
    struct table t = {.columns = ARRAY_LEN(titles)};
    size_t n = json_array_size(events);

    table_add(&t, titles);
    for (size_t i = n > EVENTS_SHOWN ? n - EVENTS_SHOWN : 0; i < n; i++) {
        const json_t *e = json_array_get(events, i);
        char age[32], times[32];
        json_int_t count = json_integer_value(kubectl_at(e, "series", "count", NULL));
        const char *cells[] = {age, text_of(json_object_get(e, "type")),
                               text_of(json_object_get(e, "reason")), times,
                               text_of(json_object_get(e, "note"))};

        kubectl_age(event_time(e), age, sizeof(age));
        snprintf(times, sizeof(times), "%lld", (long long)(count ? count : 1));
        table_add(&t, cells);
    }
    fputc('\n', to);
    if (t.rows > 1)
        table_print(&t, to);
    else
        fputs("It had no events in the last hour.\n", to);
    table_done(&t);
}

void kubectl_print_explanation(const json_t *etj, const json_t *pods, const json_t *events,
                               FILE *to)
{
    print_why(etj, to);
    print_conditions(etj, to);
    print_pods(pods, to);
    print_events(events, to);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/views/job_text.h"

#include "base/size.h"
#include "cli/api.h"
#include "cli/power_text.h"
#include "proto/attribute.h"

#include <assert.h>
#include <string.h>
#include <time.h>

static const struct {
    const char *title;
    const char *key; /* the job's member that is shown unchanged */
    bool right;
} fields[] = {
    [JOB_MACHINE] = {"MACHINE", "machine", false},
    [JOB_ID] = {"ID", "id", false},
    [JOB_NAME] = {"NAME", "name", false},
    [JOB_OWNER] = {"OWNER", "owner", false},
    [JOB_STATE] = {"STATE", "state", false},
    [JOB_PIDS] = {"PIDS", NULL, false},
    [JOB_CORES] = {"CORES", "cores", false},
    [JOB_ALLOWED] = {"ALLOWED", NULL, true},
    [JOB_TARGET] = {"TARGET", NULL, true},
    [JOB_ACTIVE] = {"ACTIVE", NULL, true},
    [JOB_MAX] = {"MAX", NULL, true},
    [JOB_PROGRESS] = {"PROGRESS", NULL, true},
    [JOB_RATE] = {"RATE", NULL, true},
    [JOB_REASON] = {"REASON", "reason", false},
    [JOB_PRIORITY] = {"PRIORITY", NULL, true},
    [JOB_REQUEST] = {"REQUEST", NULL, true},
    [JOB_WAITED] = {"WAITED", NULL, true},
    [JOB_PLACE] = {"PLACE", NULL, true},
    [JOB_MEMORY] = {"MEMORY", NULL, true},
    [JOB_POWER] = {"POWER", NULL, true},
    [JOB_ENERGY] = {"ENERGY", NULL, true},
    [JOB_BETWEEN] = {"BETWEEN", NULL, false},
    [JOB_BASIS] = {"BASIS", "energy_basis", false},
};
static_assert(ARRAY_LEN(fields) == JOB_FIELD_MAX, "one entry for each field");

const char *job_field_title(enum job_field field)
{
    return fields[field].title;
}

bool job_field_right(enum job_field field)
{
    return fields[field].right;
}

const char *job_text_calls(const json_t *latency)
{
    static const char *const runtimes[][2] = {{"onnxruntime", "ONNX Runtime"},
                                              {"pytorch", "PyTorch"},
                                              {"tensorflow", "TensorFlow"},
                                              {"sockets", "sockets"}};
    const char *source = member_text(latency, "source");

    for (size_t i = 0; i < ARRAY_LEN(runtimes); i++)
        if (strcmp(source, runtimes[i][0]) == 0)
            return runtimes[i][1];
    return NULL;
}

bool job_text_waits(const json_t *job)
{
    const char *state = member_text(job, "state");

    return strcmp(state, "queued") == 0 || strcmp(state, "held") == 0;
}

void job_text_duration(double seconds, char *buf, size_t size)
{
    long long s = seconds > 0 ? (long long)seconds : 0;

    if (s < 60)
        snprintf(buf, size, "%llds", s);
    else if (s < 3600)
        snprintf(buf, size, "%lldmin%llds", s / 60, s % 60);
    else if (s < 86400)
        snprintf(buf, size, "%lldh%lldmin", s / 3600, s / 60 % 60);
    else
        snprintf(buf, size, "%lldd%lldh", s / 86400, s / 3600 % 24);
}

void job_text_time(double seconds, char *buf, size_t size)
{
    time_t at = (time_t)seconds;
    struct tm tm;

    if (at <= 0 || !localtime_r(&at, &tm) || strftime(buf, size, "%F %T", &tm) == 0)
        snprintf(buf, size, "-");
}

static void text_pids(const json_t *job, char *buf, size_t size)
{
    const json_t *pids = json_object_get(job, "pids");
    long long first = json_integer_value(json_array_get(pids, 0));
    size_t n = json_array_size(pids);

    if (n > 1)
        snprintf(buf, size, "%lld +%zu", first, n - 1);
    else if (n == 1)
        snprintf(buf, size, "%lld", first);
}

/* 0 is "not known yet": no pool exists. */
static void text_count(const json_t *job, const char *key, const char *mark, char *buf, size_t size)
{
    long n = member_long(job, key);

    if (n)
        snprintf(buf, size, "%ld%s", n, mark);
}

/* "p99 43/50ms": what it is ("~43": estimated), and what was promised. */
static void text_latency(const json_t *latency, char *buf, size_t size)
{
    double p99 = member_number(latency, "p99_us") / 1000;
    double promise = member_number(latency, "promise_us") / 1000;

    if (p99 > 0)
        snprintf(buf, size, "p99 %s%.3g/%.4gms", job_text_calls(latency) ? "~" : "", p99, promise);
    else
        snprintf(buf, size, "p99 -/%.4gms", promise);
}

static void text_progress(const json_t *job, char *buf, size_t size)
{
    const json_t *progress = json_object_get(job, "progress");
    const json_t *latency = json_object_get(job, "latency");
    const char *unit = member_text(progress, "unit");
    long done = member_long(progress, "done");
    long total = member_long(progress, "total");
    char waited[32];

    if (job_text_waits(job)) {
        job_text_duration(member_number(job, "wait_s"), waited, sizeof(waited));
        snprintf(buf, size, "waits %s", waited);
    } else if (member_number(latency, "promise_us") > 0)
        text_latency(latency, buf, size);
    else if (total)
        snprintf(buf, size, "%ld/%ld%s%s", done, total, *unit ? " " : "", unit);
    else if (done)
        snprintf(buf, size, "%ld%s%s", done, *unit ? " " : "", unit);
}

static void text_rate(const json_t *job, char *buf, size_t size)
{
    const json_t *latency = json_object_get(job, "latency");
    double rate = member_number(json_object_get(job, "progress"), "rate");

    if (member_number(latency, "promise_us") > 0) /* its requests are its progress */
        rate = member_number(latency, "rate");
    if (rate >= 100)
        snprintf(buf, size, "%.0f/s", rate);
    else if (rate > 0)
        snprintf(buf, size, "%.3g/s", rate);
}

/* True if only jobs that have begun have a value in this column. */
static bool of_running(enum job_field field)
{
    return field == JOB_CORES || field == JOB_ALLOWED || field == JOB_TARGET ||
           field == JOB_ACTIVE || field == JOB_MAX || field == JOB_RATE;
}

void job_text(const json_t *job, enum job_field field, char *buf, size_t size)
{
    char memory[SIZE_TEXT_MAX] = "-";

    snprintf(buf, size, "-");
    if (of_running(field) && job_text_waits(job))
        return;
    switch (field) {
    case JOB_PIDS:
        text_pids(job, buf, size);
        break;
    case JOB_ALLOWED:
        if (member_number(job, "allowed") > 0)
            snprintf(buf, size, "%.4g", member_number(job, "allowed"));
        break;
    case JOB_TARGET:
        text_count(job, "target", member_bool(job, "oversubscribed") ? "!" : "", buf, size);
        break;
    case JOB_ACTIVE:
        text_count(job, "active", "", buf, size);
        break;
    case JOB_MAX:
        text_count(job, member_long(job, "max") ? "max" : "sized", "", buf, size);
        break;
    case JOB_PROGRESS:
        text_progress(job, buf, size);
        break;
    case JOB_RATE:
        text_rate(job, buf, size);
        break;
    case JOB_PRIORITY:
        if (json_is_integer(json_object_get(job, "priority"))) /* 0 is the default */
            snprintf(buf, size, "%ld", member_long(job, "priority"));
        break;
    case JOB_REQUEST:
        text_count(job, "request", "", buf, size);
        break;
    case JOB_PLACE:
        text_count(job, "place", "", buf, size);
        break;
    case JOB_MEMORY:
        if (member_number(job, "memory_counted") > 0)
            size_text((uint64_t)member_number(job, "memory_counted"), memory);
        snprintf(buf, size, "%s", memory);
        break;
    case JOB_POWER:
        text_power(json_object_get(job, "power_uw"), buf, size);
        break;
    case JOB_ENERGY:
        text_energy(json_object_get(job, "energy_uj"), buf, size);
        break;
    case JOB_BETWEEN:
        text_energy_bounds(json_object_get(job, "energy_low_uj"),
                           json_object_get(job, "energy_high_uj"), buf, size);
        break;
    case JOB_WAITED:
        if (member_bool(job, "submitted"))
            job_text_duration(member_number(job, "wait_s"), buf, size);
        break;
    default:
        if (*member_text(job, fields[field].key))
            snprintf(buf, size, "%s", member_text(job, fields[field].key));
        break;
    }
}

void job_text_change(const json_t *answer, char *buf, size_t size)
{
    long from = member_long(answer, "from"); /* 0: the job had no pool and no target */
    long to = member_long(answer, "to");
    const char *threads = to == 1 ? "thread" : "threads";

    if (to == 0)
        snprintf(buf, size, "automatic");
    else if (from == to)
        snprintf(buf, size, "stays at %ld %s", to, threads);
    else if (from)
        snprintf(buf, size, "%ld %s %ld %s", from, cli_glyph(CLI_ARROW), to, threads);
    else
        snprintf(buf, size, "%ld %s", to, threads);
}

void job_text_terms(const json_t *job, char *buf, size_t size)
{
    size_t len = (size_t)snprintf(buf, size, "%s, weight %ld", member_text(job, "placement"),
                                  member_long(job, "weight"));

    for (each_attribute(a)) {
        long value = member_long(job, a->shown ? a->shown : a->key);

        if (a->kind == KIND_NUMBER && a != attribute_table + ATTRIBUTE_WEIGHT && value &&
            len < size)
            len += (size_t)snprintf(buf + len, size - len, ", %s %ld", a->key, value);
    }
}

const char *job_text_devices(const json_t *job, char *buf, size_t size)
{
    const char *held = member_text(job, "devices_held");
    long cores = member_long(job, "device_cores");

    *buf = '\0';
    if (*held && cores)
        snprintf(buf, size, "keeps %ld core%s: feeds %s", cores, cores == 1 ? "" : "s", held);
    else if (*held)
        snprintf(buf, size, "has %s open", held);
    return buf;
}

void job_text_split(const json_t *job, char *buf, size_t size)
{
    const json_t *part;
    size_t len = 0;
    size_t i;

    buf[0] = '\0';
    json_array_foreach (json_object_get(job, "split"), i, part) {
        const json_t *used = json_object_get(part, "used");

        if (len >= size)
            return;
        len += (size_t)snprintf(buf + len, size - len, "%s%ld %s %ld", i ? " + " : "",
                                member_long(part, "threads"), member_text(part, "name"),
                                member_long(part, "pid"));
        if (json_is_number(used) && len < size)
            len += (size_t)snprintf(buf + len, size - len, " (uses %.2g)", json_number_value(used));
    }
}

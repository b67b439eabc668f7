/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/input/requests.h"

#include "base/cleanup.h"

#include <math.h>
#include <string.h>

#define ERROR_WORD "bad-scenario"

#define NS           1e9
#define PROMISE_TEXT 64
#define LINE_MAX_LEN 256

static const struct value_type time_type = {VALUE_DURATION, 0, VALUE_DURATION_MAX, NULL, 0};
static const struct value_type period_type = {VALUE_DURATION, 1000000, VALUE_DURATION_MAX, NULL, 0};
static const struct value_type demand_type = {VALUE_DURATION, 1000, INT64_C(3600000000000), NULL,
                                              0};
static const struct value_type promise_type = {VALUE_DURATION, 1000000, INT64_C(60000000000), NULL,
                                               0};
static const struct value_type rate_type = {VALUE_FACTOR, 1, INT64_C(1000000000), NULL, 0};
static const struct value_type count_type = {VALUE_COUNT, 0, REQUESTS_MAX, NULL, 0};
static const struct value_type workers_type = {VALUE_COUNT, 1, 65536, NULL, 0};

void server_spec_done(struct server_spec *spec)
{
    dist_done(&spec->demand);
    free(spec->times_ns);
    free(spec->works_ns);
    free(spec->counts);
    *spec = (struct server_spec){0};
}

bool server_spec_is_random(const struct server_spec *spec)
{
    return spec->kind != REQUESTS_TIMES || (!spec->works_ns && spec->demand.kind != DIST_FIXED);
}

/* ---- drawing --------------------------------------------------------------------------------- */

/* Requests a second at @s seconds. */
static double rate_at(const struct server_spec *spec, double s)
{
    double every = (double)spec->every_ns / NS, at;

    if (spec->kind == REQUESTS_RATE)
        return spec->rate;
    at = fmod(s, every);
    if (spec->kind == REQUESTS_BURSTS)
        return at < (double)spec->burst_ns / NS ? spec->other : spec->rate;
    return spec->rate + (spec->other - spec->rate) * (1 - fabs(2 * at / every - 1));
}

static double peak_of(const struct server_spec *spec)
{
    return spec->kind == REQUESTS_RATE || spec->rate > spec->other ? spec->rate : spec->other;
}

/* The name of what is drawn for this server, and for no other one. */
static void name_draw(const struct server_spec *spec, const char *what, char buf[PROMISE_TEXT])
{
    snprintf(buf, PROMISE_TEXT, "%s of server %zu", what, spec->index);
}

static uint64_t whole_us(double s)
{
    return (uint64_t)llround(s * 1e6) * 1000;
}

/*
 * A Poisson process of a rate that changes: one of the highest rate, of which each arrival stays
 * with the chance that the present rate is to that one (thinning). Returns how many there are, or
 * one more than are allowed; @ret NULL: only counts.
 */
static size_t draw_arrivals(const struct server_spec *spec, uint64_t seed, uint64_t *ret)
{
    double now = 0, peak = peak_of(spec), until = (double)spec->until_ns / NS;
    char name[PROMISE_TEXT];
    size_t count = 0;

    name_draw(spec, "requests", name);
    for (uint64_t i = 0; count <= REQUESTS_MAX; i++) {
        struct rng rng = rng_at(seed, name, i);

        now -= log(1 - rng_unit(&rng)) / peak;
        if (now >= until)
            break;
        if (rng_unit(&rng) * peak >= rate_at(spec, now))
            continue;
        if (ret)
            ret[count] = whole_us(now);
        count++;
    }
    return count;
}

static int by_size(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static size_t draw_counts(const struct server_spec *spec, uint64_t seed, uint64_t *ret, size_t room)
{
    double every = (double)spec->every_ns / NS;
    char name[PROMISE_TEXT];
    size_t count = 0;

    name_draw(spec, "requests", name);
    for (size_t i = 0; i < spec->count; i++) {
        struct rng rng = rng_at(seed, name, i);
        size_t first = count;

        for (uint32_t n = 0; n < spec->counts[i] && count < room; n++)
            ret[count++] = whole_us(((double)i + rng_unit(&rng)) * every);
        qsort(ret + first, count - first, sizeof(*ret), by_size);
    }
    return count;
}

static size_t sum_of_counts(const struct server_spec *spec)
{
    size_t sum = 0;

    for (size_t i = 0; i < spec->count; i++)
        sum += spec->counts[i];
    return sum;
}

static void draw_work(const struct server_spec *spec, uint64_t seed, uint64_t *ret, size_t count)
{
    char name[PROMISE_TEXT];

    name_draw(spec, "demand", name);
    for (size_t i = 0; i < count; i++) {
        struct rng rng = rng_at(seed, name, i);

        ret[i] = spec->works_ns ? spec->works_ns[i]
                                : (uint64_t)dist_draw(&spec->demand, &demand_type, &rng);
    }
}

int server_requests_make(const struct server_spec *spec, uint64_t seed,
                         struct server_requests **ret, struct error *err)
{
    size_t room = spec->kind == REQUESTS_TIMES    ? spec->count
                  : spec->kind == REQUESTS_COUNTS ? sum_of_counts(spec)
                                                  : draw_arrivals(spec, seed, NULL);
    struct server_requests *made;
    uint64_t *arrival_ns, *work_ns;

    if (room > REQUESTS_MAX)
        return error_set(err, -EINVAL, "server %s: more than %d requests", spec->job.name,
                         REQUESTS_MAX);
    if (room == 0)
        return error_set(err, -EINVAL, "server %s: no request comes", spec->job.name);
    made = calloc(1, sizeof(*made) + 2 * room * sizeof(uint64_t));
    if (!made)
        return error_set(err, -ENOMEM, "out of memory");
    arrival_ns = (uint64_t *)(made + 1);
    work_ns = arrival_ns + room;
    if (spec->kind == REQUESTS_TIMES)
        memcpy(arrival_ns, spec->times_ns, room * sizeof(*arrival_ns));
    else if (spec->kind == REQUESTS_COUNTS)
        draw_counts(spec, seed, arrival_ns, room);
    else
        draw_arrivals(spec, seed, arrival_ns);
    draw_work(spec, seed, work_ns, room);
    made->requests = (struct sim_requests){arrival_ns, work_ns, room};
    for (size_t i = 0; i < room; i++)
        made->work_ns += work_ns[i];
    *ret = made;
    return 0;
}

/* ---- reading times --------------------------------------------------------------------------- */

/* Room for @count times; the works only where @works. */
static int make_room(struct server_spec *spec, size_t count, bool works, struct error *err)
{
    uint64_t *times = reallocarray(spec->times_ns, count ? count : 1, sizeof(*times)), *more = NULL;

    if (!times)
        return error_set(err, -ENOMEM, "out of memory");
    spec->times_ns = times;
    if (!works)
        return 0;
    more = reallocarray(spec->works_ns, count ? count : 1, sizeof(*more));
    if (!more)
        return error_set(err, -ENOMEM, "out of memory");
    spec->works_ns = more;
    return 0;
}

static int read_at(const struct node *list, struct server_spec *spec, struct error *err)
{
    size_t count = json_array_size(list->value);
    int r = node_array(list, 1, REQUESTS_MAX, err);

    if (r == 0)
        r = make_room(spec, count, false, err);
    for (size_t i = 0; r == 0 && i < count; i++) {
        struct node node = node_element(list, i);
        int64_t at = 0;

        r = node_value(&node, &time_type, &at, err);
        if (r == 0 && i && (uint64_t)at < spec->times_ns[i - 1])
            r = node_error(&node, err, "is before the one in front of it; sort them");
        spec->times_ns[spec->count++] = (uint64_t)at;
    }
    return r;
}

/* A file of arrivals while it is read. */
struct arrivals {
    FILE *file;
    const char *path;
    unsigned long line;
    bool works; /* it has the column demand */
    size_t room;
};

static int read_cell(const struct arrivals *a, const char *what, const char *text,
                     const struct value_type *type, uint64_t *ret, struct error *err)
{
    struct error reason;
    int64_t value;

    if (value_from_text(type, text, &value, &reason) < 0)
        return error_set(err, -EINVAL, "%s:%lu: %s: %s", a->path, a->line, what, reason.text);
    *ret = (uint64_t)value;
    return 0;
}

static int read_line(struct arrivals *a, char *text, struct server_spec *spec, struct error *err)
{
    char *work = strchr(text, ',');
    int r = 0;

    if (!work != !a->works)
        return error_set(err, -EINVAL, "%s:%lu: has %s cells than the first line", a->path, a->line,
                         work ? "more" : "fewer");
    if (spec->count == REQUESTS_MAX)
        return error_set(err, -EINVAL, "%s: more than %d requests", a->path, REQUESTS_MAX);
    if (work)
        *work++ = '\0';
    if (spec->count == a->room) {
        a->room = a->room ? 2 * a->room : 1024;
        r = make_room(spec, a->room, a->works, err);
    }
    if (r == 0)
        r = read_cell(a, "arrival", text, &time_type, &spec->times_ns[spec->count], err);
    if (r == 0 && work)
        r = read_cell(a, "demand", work, &demand_type, &spec->works_ns[spec->count], err);
    if (r == 0 && spec->count && spec->times_ns[spec->count] < spec->times_ns[spec->count - 1])
        r = error_set(err, -EINVAL, "%s:%lu: arrival: is before the one in front of it; sort them",
                      a->path, a->line);
    spec->count += r == 0;
    return r;
}

/* CSV: "arrival" or "arrival,demand" in the first line, then a line for each request. */
static int read_csv(const char *path, struct server_spec *spec, struct error *err)
{
    _cleanup_file_ FILE *file = fopen(path, "re");
    struct arrivals a = {.file = file, .path = path};
    char text[LINE_MAX_LEN];
    int r = 0;

    if (!file)
        return error_set(err, -errno, "%s: %s", path, strerror(errno));
    while (r == 0 && fgets(text, sizeof(text), file)) {
        a.line++;
        text[strcspn(text, "\r\n")] = '\0';
        if (a.line == 1) {
            a.works = strcmp(text, "arrival,demand") == 0;
            if (!a.works && strcmp(text, "arrival") != 0)
                return error_set(err, -EINVAL, "%s:1: the first line is arrival, or arrival,demand",
                                 path);
        } else if (*text) {
            r = read_line(&a, text, spec, err);
        }
    }
    if (r == 0 && ferror(file))
        r = error_set(err, -EIO, "%s: cannot be read: %s", path, strerror(errno));
    if (r == 0 && spec->count == 0)
        r = error_set(err, -EINVAL, "%s: there are no arrivals", path);
    return r;
}

static void cleanup_json(json_t **json)
{
    json_decref(*json);
}

/* JSON: a list of times. */
static int read_json(const char *path, struct server_spec *spec, struct error *err)
{
    json_error_t reason;
    _cleanup_(cleanup_json) json_t *list = json_load_file(path, 0, &reason);
    size_t count = json_array_size(list);
    int r;

    if (!list)
        return error_set(err, -EINVAL, "%s:%d: %s", path, reason.line, reason.text);
    if (!json_is_array(list) || count == 0 || count > REQUESTS_MAX)
        return error_set(err, -EINVAL, "%s: must be a list of 1 to %d times of arrival", path,
                         REQUESTS_MAX);
    r = make_room(spec, count, false, err);
    for (size_t i = 0; r == 0 && i < count; i++) {
        const json_t *json = json_array_get(list, i);
        const char *text = json_string_value(json);
        struct error why = {0};
        int64_t at = 0;

        r = text ? value_from_text(&time_type, text, &at, &why)
                 : value_from_number(&time_type, json_number_value(json), &at, &why);
        if (r == 0 && !text && !json_is_number(json))
            r = error_set(&why, -EINVAL, "must be a number or a string");
        if (r == 0 && i && (uint64_t)at < spec->times_ns[i - 1])
            r = error_set(&why, -EINVAL, "is before the one in front of it; sort them");
        if (r < 0)
            error_set(err, r, "%s: [%zu]: %s", path, i, why.text);
        spec->times_ns[spec->count++] = (uint64_t)at;
    }
    return r;
}

static int read_file(const struct node *node, const char *scenario_file, struct server_spec *spec,
                     struct error *err)
{
    const char *slash = strrchr(scenario_file, '/'), *name, *dot;
    _cleanup_free_ char *path = NULL;
    int r = node_string(node, 1024, &name, err);

    if (r < 0)
        return r;
    dot = strrchr(name, '.');
    if (asprintf(&path, "%.*s%s", *name == '/' || !slash ? 0 : (int)(slash - scenario_file) + 1,
                 scenario_file, name) < 0) {
        path = NULL;
        return error_set(err, -ENOMEM, "out of memory");
    }
    if (dot && strcmp(dot, ".json") == 0)
        return read_json(path, spec, err);
    if (dot && strcmp(dot, ".csv") == 0)
        return read_csv(path, spec, err);
    return node_error(node, err, "must end with .csv or .json");
}

static int read_counts(const struct node *list, struct server_spec *spec, struct error *err)
{
    size_t count = json_array_size(list->value);
    int r = node_array(list, 1, REQUESTS_MAX, err);

    if (r < 0)
        return r;
    spec->counts = calloc(count, sizeof(*spec->counts));
    if (!spec->counts)
        return error_set(err, -ENOMEM, "out of memory");
    for (; r == 0 && spec->count < count; spec->count++) {
        struct node node = node_element(list, spec->count);
        int64_t n = 0;

        r = node_value(&node, &count_type, &n, err);
        spec->counts[spec->count] = (uint32_t)n;
    }
    if (r == 0 && sum_of_counts(spec) == 0)
        r = node_error(list, err, "are all 0: no request comes");
    if (r == 0 && sum_of_counts(spec) > REQUESTS_MAX)
        r = node_error(list, err, "are more than %d requests together", REQUESTS_MAX);
    return r;
}

/* ---- reading rates --------------------------------------------------------------------------- */

static int need_value(const struct node *object, const char *key, const struct value_type *type,
                      int64_t *ret, const char *example, struct error *err)
{
    if (!node_member(object, key).value)
        return node_error(object, err, "%s is missing: %s", key, example);
    return node_optional(object, key, type, ret, err);
}

static int read_bursts(const struct node *node, struct server_spec *spec, struct error *err)
{
    int64_t rate = 0, every = 0, length = 0;
    int r = node_object(node, (const char *const[]){"rate", "every", "for", NULL}, err);

    r = r < 0 ? r : need_value(node, "rate", &rate_type, &rate, "requests a second", err);
    r = r < 0 ? r : need_value(node, "every", &period_type, &every, "\"20s\"", err);
    r = r < 0 ? r : need_value(node, "for", &period_type, &length, "\"4s\"", err);
    if (r == 0 && length >= every)
        r = node_error(node, err, "for must be less than every");
    spec->kind = REQUESTS_BURSTS;
    spec->other = (double)rate / 1000;
    spec->every_ns = (uint64_t)every;
    spec->burst_ns = (uint64_t)length;
    return r;
}

static int read_sweep(const struct node *node, struct server_spec *spec, struct error *err)
{
    int64_t to = 0, every = 0;
    int r = node_object(node, (const char *const[]){"to", "every", NULL}, err);

    r = r < 0 ? r : need_value(node, "to", &rate_type, &to, "requests a second", err);
    r = r < 0 ? r : need_value(node, "every", &period_type, &every, "\"2min\"", err);
    spec->kind = REQUESTS_SWEEP;
    spec->other = (double)to / 1000;
    spec->every_ns = (uint64_t)every;
    return r;
}

static int read_rate(const struct node *node, struct server_spec *spec, struct error *err)
{
    struct node bursts = node_member(node, "bursts"), sweep = node_member(node, "sweep");
    int64_t rate = 0, until = 0;
    int r = need_value(node, "rate", &rate_type, &rate, "requests a second", err);

    r = r < 0 ? r : need_value(node, "until", &period_type, &until, "\"10min\"", err);
    if (r < 0)
        return r;
    spec->rate = (double)rate / 1000;
    spec->until_ns = (uint64_t)until;
    if (bursts.value && sweep.value)
        return node_error(node, err, "bursts and sweep exclude each other");
    if (bursts.value)
        r = read_bursts(&bursts, spec, err);
    else if (sweep.value)
        r = read_sweep(&sweep, spec, err);
    if (r == 0 && peak_of(spec) * (double)until / NS > 2.0 * REQUESTS_MAX)
        r = node_error(node, err, "are more than %d: lower rate or until", REQUESTS_MAX);
    return r;
}

static int read_requests(const struct node *server, const char *scenario_file,
                         struct server_spec *spec, struct error *err)
{
    static const char *const keys[] = {"rate",   "until", "bursts", "sweep", "at",
                                       "counts", "every", "file",   NULL};
    struct node node = node_member(server, "requests");
    struct node at = node_member(&node, "at"), counts = node_member(&node, "counts");
    struct node file = node_member(&node, "file"), rate = node_member(&node, "rate");
    int64_t every = (int64_t)NS;
    int kinds = !!at.value + !!counts.value + !!file.value + !!rate.value, r;

    if (!node.value)
        return node_error(server, err, "requests is missing: {\"rate\": 40, \"until\": \"10min\"}");
    r = node_object(&node, keys, err);
    if (r == 0 && kinds != 1)
        r = node_error(&node, err, "needs one of rate, at, counts and file");
    if (r == 0 && !rate.value &&
        (node_member(&node, "until").value || node_member(&node, "bursts").value ||
         node_member(&node, "sweep").value))
        r = node_error(&node, err, "until, bursts and sweep go with rate");
    if (r == 0 && !counts.value && node_member(&node, "every").value)
        r = node_error(&node, err, "every goes with counts");
    if (r < 0)
        return r;
    spec->kind = counts.value ? REQUESTS_COUNTS : rate.value ? REQUESTS_RATE : REQUESTS_TIMES;
    if (at.value)
        return read_at(&at, spec, err);
    if (file.value)
        return read_file(&file, scenario_file, spec, err);
    if (rate.value)
        return read_rate(&node, spec, err);
    r = node_optional(&node, "every", &period_type, &every, err);
    spec->every_ns = (uint64_t)every;
    return r < 0 ? r : read_counts(&counts, spec, err);
}

/* ---- reading a server ------------------------------------------------------------------------ */

/* Fields of jobs that mean nothing here. */
static const enum job_key strange[] = {
    JOB_KEY_WORK,
    JOB_KEY_TIME,
    JOB_KEY_TOLD_SPEEDUP,
    JOB_KEY_ESTIMATE,
    JOB_KEY_ESTIMATE_FACTOR,
    JOB_KEY_ESTIMATE_ERROR,
    JOB_KEY_IDLE,
    JOB_KEY_SERIAL,
    JOB_KEY_SERIAL_EVERY,
    JOB_KEY_DEADLINE,
    JOB_KEY_SLACK,
};

static int read_job(const struct node *node, const struct job_spec *defaults,
                    const struct job_context *context, struct sim_job *ret, struct error *err)
{
    static const char *const more[] = {"slo", "requests", "demand", "workers", "processes", NULL};
    struct job_spec spec = *defaults;
    struct error reason;
    int r;

    for (size_t i = 0; i < ARRAY_LEN(strange); i++) {
        struct node own = node_member(node, job_key_name(strange[i]));

        if (own.value)
            return node_error(&own, err, "is not for servers: their work is their requests'");
        spec.given &= ~(UINT32_C(1) << strange[i]);
    }
    r = job_node_read(node, more, context, &spec, NULL, err);
    if (r < 0)
        return r;
    job_spec_put(&spec, JOB_KEY_WORK, 1); /* until its requests are known */
    if (!job_spec_has(&spec, JOB_KEY_PREEMPTIBLE))
        job_spec_put(&spec, JOB_KEY_PREEMPTIBLE, 0);
    if (job_spec_resolve(&spec, context, ret, &reason) < 0)
        return node_error(node, err, "%s", reason.text);
    ret->told_ns = POLICY_UNKNOWN;
    ret->told_error_ns = 0;
    ret->told_curve = NULL;
    return 0;
}

static int read_promise(const struct node *server, uint64_t *ret_ns, struct error *err)
{
    struct node node = node_member(server, "slo");
    struct error reason;
    const char *text;
    int64_t value;
    int r = node.value ? node_string(&node, PROMISE_TEXT, &text, err) : 0;

    if (r < 0 || !node.value)
        return r;
    if (strncmp(text, "p99=", 4) != 0)
        return node_error(&node, err, "'%s' is no promise (p99=50ms)", text);
    if (value_from_text(&promise_type, text + 4, &value, &reason) < 0)
        return node_error(&node, err, "%s", reason.text);
    *ret_ns = (uint64_t)value;
    return 0;
}

static int read_demand(const struct node *server, struct server_spec *spec, struct error *err)
{
    struct node node = node_member(server, "demand");

    if (spec->works_ns && node.value)
        return node_error(&node, err, "is in the file, too; give only one of them");
    if (!spec->works_ns && !node.value)
        return node_error(server, err,
                          "demand is missing: the work of a request on one core, as \"20ms\"");
    return node.value ? dist_node_read(&node, &demand_type, &spec->demand, err) : 0;
}

/* Several processes serve one request each, so that there is nothing to choose. */
static int read_workers(const struct node *server, int64_t processes, int64_t *ret_workers,
                        struct error *err)
{
    struct node node = node_member(server, "workers");

    if (processes < 2)
        return node_optional(server, "workers", &workers_type, ret_workers, err);
    if (node.value)
        return node_error(&node, err,
                          "is not for servers of several processes, which serve one "
                          "request each; give 'processes' alone");
    *ret_workers = processes;
    return 0;
}

static int read_all(const struct node *node, const struct job_spec *defaults,
                    const struct job_context *context, const char *scenario_file,
                    struct server_spec *spec, struct error *err)
{
    int64_t processes = 1, workers = context->cores;
    int r = read_job(node, defaults, context, &spec->job, err);

    if (r == 0)
        r = read_promise(node, &spec->job.slo_ns, err);
    if (r == 0)
        r = node_optional(node, "processes", &workers_type, &processes, err);
    if (r == 0)
        r = read_workers(node, processes, &workers, err);
    if (r == 0)
        r = read_requests(node, scenario_file, spec, err);
    if (r == 0)
        r = read_demand(node, spec, err);
    spec->job.workers = (uint32_t)workers;
    spec->job.processes = (uint32_t)processes;
    if (!*spec->job.name)
        snprintf(spec->job.name, sizeof(spec->job.name), "server-%zu", node->index + 1);
    return r;
}

int server_spec_read(const struct node *node, const struct job_spec *defaults,
                     const struct job_context *context, const char *scenario_file,
                     struct server_spec *ret, struct error *err)
{
    struct server_spec spec = {.index = node->index};
    int r = read_all(node, defaults, context, scenario_file, &spec, err);

    if (r < 0)
        server_spec_done(&spec);
    else
        *ret = spec;
    return r;
}

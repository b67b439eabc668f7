/* SPDX-License-Identifier: Apache-2.0 */
/* The paths of areas: how they are, what they used, what is in force, their switches. */
#include "hub/serve/call.h"

#include "base/clock.h"
#include "base/moment.h"
#include "base/wallclock.h"
#include "hub/compile/explain.h"
#include "hub/serve/area_view.h"
#include "hub/serve/cost.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define ERROR_WORD "question-too-long"

#define SHRUNK_JOBS_MAX 1000 /* of one answer, but for the last unit's */

/* The area that was asked for; NULL: answered. Whatever comes, area_view_done(). */
static const struct shown_area *find_area(struct call *c, struct shown_areas *ret)
{
    const struct shown_area *area;

    *ret = (struct shown_areas){0};
    if (area_view_make(c->hub, ret) < 0) {
        call_fail(c, HTTP_FAILED, "", "out of memory");
        return NULL;
    }
    area = area_view_find(ret, c->area);
    if (!area)
        call_fail(c, HTTP_NOT_FOUND, "GET /v1/areas lists them.", "there is no area %.100s",
                  c->area);
    return area;
}

void route_areas(struct call *c)
{
    struct shown_areas areas;
    json_t *list;

    if (area_view_make(c->hub, &areas) < 0) {
        call_fail(c, HTTP_FAILED, "", "out of memory");
        return;
    }
    area_view_with_price(&areas);
    list = json_array();
    for (uint32_t i = 0; i < areas.count; i++)
        json_array_append_new(list, area_view_json(c->hub, &areas, &areas.area[i]));
    call_answer(c, HTTP_OK,
                json_pack("{s:o,s:o,s:I,s:o,s:o}", "org",
                          call_text_or_null(areas.policy ? areas.policy->rules.org : NULL), "zone",
                          call_text_or_null(areas.policy ? areas.policy->rules.zone : NULL),
                          "now_ms", (json_int_t)wallclock_ms(), "currency",
                          call_text_or_null(cost_currency(areas.policy)), "areas", list));
    area_view_done(&areas);
}

/* ---- whose jobs a cap shrank ---- */

static void add_shrunk(const struct call *c, const struct payload_shrunk *s, json_t *list)
{
    for (uint32_t i = 0; i < s->jobs; i++) {
        const struct payload_shrunk_job *j = &s->job[i];

        if (c->who.role == ROLE_ADMINISTRATOR || strcmp(j->user, c->who.name) == 0)
            json_array_append_new(list,
                                  json_pack("{s:s,s:s,s:s,s:I}", "node", j->node, "job", j->name,
                                            "user", j->user, "cores", (json_int_t)j->cores));
    }
}

/* Jobs of users are personal data, as their energy is: one's own; an administrator sees all. */
void route_area_shrunk(struct call *c)
{
    struct shown_areas areas;
    const struct shown_area *area = find_area(c, &areas);
    int64_t now_ms = (int64_t)wallclock_ms();
    json_t *list = json_array();

    for (uint32_t i = area ? (uint32_t)(area - areas.area) : 0; area && i < area->end; i++) {
        const struct unit *u = areas.area[i].unit;
        const struct payload_shrunk *s = u ? unit_shrunk(u, now_ms) : NULL;

        if (s && json_array_size(list) < SHRUNK_JOBS_MAX)
            add_shrunk(c, s, list);
    }
    if (area)
        call_answer(c, HTTP_OK, json_pack("{s:s,s:O}", "area", area->path, "jobs", list));
    json_decref(list);
    area_view_done(&areas);
}

/* ---- what is in force ---- */

static void add_line(void *arg, const char *what, uint32_t line, const char *text)
{
    json_array_append_new(arg, json_pack("{s:s,s:o,s:s}", "what", what, "line",
                                         line ? json_integer(line) : json_null(), "text", text));
}

void route_explain(struct call *c)
{
    int64_t at_ms = (int64_t)wallclock_ms(), next_s;
    const struct shown_area *area;
    struct shown_areas areas;
    struct rule_now now;
    json_t *lines;

    area = find_area(c, &areas);
    if (area && !areas.policy) {
        call_fail(c, HTTP_CONFLICT, "PUT /v1/policy sets one.", "no policy is in force");
    } else if (area && call_query_whole(c, "at", 0, INT64_C(1) << 45, &at_ms)) {
        lines = json_array();
        now = area_view_now(c->hub, area, at_ms / 1000);
        next_s = explain_lines(&areas.policy->rules, area->path, &now, add_line, lines);
        call_answer(
            c, HTTP_OK,
            json_pack("{s:s,s:I,s:o,s:o,s:o}", "area", area->path, "at_ms", (json_int_t)at_ms,
                      "zone", call_text_or_null(areas.policy->rules.zone), "lines", lines,
                      "next_ms", next_s == INT64_MAX ? json_null() : json_integer(next_s * 1000)));
    }
    area_view_done(&areas);
}

/* ---- switches ---- */

#define SWITCH_FOR_S 60 /* unless it is said */

void route_switch(struct call *c)
{
    const struct shown_area *area;
    char id[PAYLOAD_WORD_MAX], target[AUDIT_TEXT_MAX];
    struct shown_areas areas;
    struct error err = {0};
    int64_t for_s = SWITCH_FOR_S;
    bool on = false;

    area = find_area(c, &areas);
    if (area && call_take_flag(c, "on", true, &on) &&
        call_take_whole(c, "for_s", false, 1, TREE_ORDER_MAX_S, &for_s)) {
        snprintf(target, sizeof(target), "%.80s %.40s", area->path, c->name);
        if (!area->unit_name)
            error_word(&err, error_set(&err, -ENOENT, "no unit stands in %s", area->path),
                       "hub-has-none");
        else
            tree_switch(c->hub->tree, area->unit_name, c->name, on, (uint32_t)for_s, c->who.name,
                        id, &err);
        call_audit(c, on ? "switch.on" : "switch.off", target, &err);
        if (err.code)
            call_fail_of(c, &err);
        else
            call_answer(c, HTTP_ACCEPTED, json_pack("{s:s}", "id", id));
    }
    area_view_done(&areas);
}

/* ---- what an area used ---- */

#define STEPS_MAX 4096   /* of one answer */
#define FINE_MS   900000 /* the time of one price */
#define CAPS_MAX  1000   /* changes of the cap in it */

/* Sums the energy of several units by step. */
struct stretches {
    struct store_stretch sum[STEPS_MAX], one[STEPS_MAX];
    uint32_t units[STEPS_MAX]; /* of which @sum knows something */
    double cost[STEPS_MAX];    /* of @sum */
    size_t count;
};

static uint64_t at_most(uint64_t ms, int64_t most_ms)
{
    return ms < (uint64_t)most_ms ? ms : (uint64_t)most_ms;
}

/* The gap of several units is the mean of theirs, without those that know nothing of the step. */
static void add_one(struct stretches *s, size_t at, const struct store_stretch *one,
                    int64_t step_ms)
{
    struct store_stretch *sum = &s->sum[at];
    uint64_t gaps_ms = at_most(sum->gap_ms, step_ms) * s->units[at];

    energy_add(&sum->energy, &one->energy);
    if (one->energy.basis != POWER_UNKNOWN)
        sum->gap_ms = (gaps_ms + at_most(one->gap_ms, step_ms)) / ++s->units[at];
}

/* Both rise by time: those of @s->one go to their places. Returns 0 or -ENOSPC. */
static int merge(struct stretches *s, size_t n, int64_t step_ms)
{
    size_t at = 0;

    for (size_t i = 0; i < n; i++) {
        while (at < s->count && s->sum[at].from_ms < s->one[i].from_ms)
            at++;
        if (at < s->count && s->sum[at].from_ms == s->one[i].from_ms) {
            add_one(s, at, &s->one[i], step_ms);
            continue;
        }
        if (s->count == STEPS_MAX)
            return -ENOSPC;
        memmove(&s->sum[at + 1], &s->sum[at], (s->count - at) * sizeof(s->sum[0]));
        memmove(&s->units[at + 1], &s->units[at], (s->count++ - at) * sizeof(s->units[0]));
        s->sum[at] = s->one[i];
        s->units[at] = s->one[i].energy.basis != POWER_UNKNOWN;
    }
    return 0;
}

struct span {
    int64_t from_ms, to_ms, step_ms;
};

/* A unit of an area tells "area", one of a machine "machine". */
static int add_unit(struct call *c, const char *unit, const struct span *span, struct stretches *s,
                    struct error *err)
{
    size_t n = 0;
    int r = store_series(c->hub->store, unit, "area", span->from_ms, span->to_ms, span->step_ms,
                         s->one, STEPS_MAX, &n, err);

    if (r == 0 && n == 0)
        r = store_series(c->hub->store, unit, "machine", span->from_ms, span->to_ms, span->step_ms,
                         s->one, STEPS_MAX, &n, err);
    if (r == 0 && merge(s, n, span->step_ms) < 0)
        r = error_set(err, -ENOSPC, "more than %d steps: ask for longer ones", STEPS_MAX);
    return r;
}

/* The units whose energy adds up to the area's: the topmost ones. */
static int add_area(struct call *c, const struct shown_areas *areas, const struct shown_area *area,
                    const struct span *span, struct stretches *s, struct error *err)
{
    uint64_t until_ns = clock_now_ns() + ANSWERS_LONGEST_NS;
    uint32_t i = (uint32_t)(area - areas->area), end = area->end;
    int r = 0;

    while (r == 0 && i < end) {
        if (clock_now_ns() > until_ns)
            return error_set(err, -E2BIG,
                             "the energy of %.80s takes too long to look up: ask for an area below "
                             "it, or for a shorter time",
                             area->path);
        if (areas->area[i].unit_name) {
            r = add_unit(c, areas->area[i].unit_name, span, s, err);
            i = areas->area[i].end;
        } else {
            i++;
        }
    }
    return r;
}

static bool take_span(struct call *c, struct span *ret)
{
    const char *step = httpd_argument(c->http, "step");
    uint64_t step_ms = 900000;
    int64_t now = (int64_t)wallclock_ms();

    *ret = (struct span){now - 86400000, now, 0};
    if (!call_query_whole(c, "from", 0, INT64_C(1) << 45, &ret->from_ms) ||
        !call_query_whole(c, "to", 0, INT64_C(1) << 45, &ret->to_ms))
        return false;
    if (step && moment_duration(step, &step_ms) < 0) {
        call_fail(c, HTTP_BAD_REQUEST, "", "step is '%.40s': use a time as 15min", step);
        return false;
    }
    ret->step_ms = (int64_t)step_ms;
    if (ret->to_ms <= ret->from_ms || (ret->to_ms - ret->from_ms) / ret->step_ms > STEPS_MAX) {
        call_fail(c, HTTP_BAD_REQUEST, "Use a longer step.",
                  "from %lld to %lld is no time of 1 to %d steps", (long long)ret->from_ms,
                  (long long)ret->to_ms, STEPS_MAX);
        return false;
    }
    return true;
}

/* Asked for in steps of a quarter of an hour, where these are not too many, for their prices. */
static struct span priced_span(const struct span *asked)
{
    struct span fine = {asked->from_ms / asked->step_ms * asked->step_ms, asked->to_ms, FINE_MS};

    return asked->step_ms % FINE_MS == 0 && (fine.to_ms - fine.from_ms) / FINE_MS < STEPS_MAX
               ? fine
               : *asked;
}

/* Prices each stretch, then joins those of one step. */
static void price(struct stretches *s, int64_t priced_ms, int64_t step_ms,
                  const struct in_force *policy)
{
    size_t n = 0;

    for (size_t i = 0; i < s->count; i++) {
        struct store_stretch one = s->sum[i];
        double cost = cost_of(policy, (double)one.energy.uj, one.from_ms, one.from_ms + priced_ms);

        one.from_ms = one.from_ms / step_ms * step_ms;
        if (n && s->sum[n - 1].from_ms == one.from_ms) {
            energy_add(&s->sum[n - 1].energy, &one.energy);
            s->sum[n - 1].gap_ms += one.gap_ms;
            s->cost[n - 1] += cost;
        } else {
            s->sum[n] = one;
            s->cost[n++] = cost;
        }
    }
    s->count = n;
}

static json_t *view_stretches(const struct stretches *s, const struct span *span,
                              const struct in_force *policy)
{
    json_t *list = json_array();

    for (size_t i = 0; i < s->count; i++) {
        const struct store_stretch *one = &s->sum[i];
        bool known = one->energy.basis != POWER_UNKNOWN;
        uint64_t gap_ms = known ? one->gap_ms : (uint64_t)span->step_ms;
        json_t *view = json_pack("{s:I,s:s,s:I}", "from_ms", (json_int_t)one->from_ms, "basis",
                                 power_basis_name(one->energy.basis), "gap_ms", (json_int_t)gap_ms);

        json_object_set_new(view, "low_uj", known ? call_uj(one->energy.low_uj) : json_null());
        json_object_set_new(view, "mid_uj", known ? call_uj(one->energy.uj) : json_null());
        json_object_set_new(view, "high_uj", known ? call_uj(one->energy.high_uj) : json_null());
        json_object_set_new(view, "cost", known ? cost_json(policy, s->cost[i]) : json_null());
        json_array_append_new(list, view);
    }
    return list;
}

/* Which cap was in force when, by today's policy. */
static json_t *view_caps(struct call *c, const struct shown_areas *areas,
                         const struct shown_area *area, const struct span *span)
{
    json_t *list = json_array();
    int64_t at_ms = span->from_ms;

    for (int i = 0; areas->policy && i < CAPS_MAX && at_ms < span->to_ms; i++) {
        const struct power_policy *rules = &areas->policy->rules;
        struct rule_now now = area_view_now(c->hub, area, at_ms / 1000);
        struct rule_view v;

        now.absent_s = 0; /* what is so now was not so then */
        now.carbon = RULE_UNKNOWN;
        rules_view(&rules->set, area->path, &now, &v);
        json_array_append_new(
            list,
            json_pack("{s:I,s:o,s:o}", "from_ms", (json_int_t)at_ms, "uw",
                      v.cap_by == RULE_NONE ? json_null() : json_integer((json_int_t)v.cap_uw),
                      "by", area_view_by(rules, v.cap_by)));
        if (v.next_utc_s == INT64_MAX)
            break;
        at_ms = v.next_utc_s * 1000;
    }
    return list;
}

/* NULL: answered with the error. */
static json_t *make_energy(struct call *c, const struct shown_areas *areas,
                           const struct shown_area *area, const struct span *span)
{
    const struct span priced = priced_span(span);
    struct stretches *s = calloc(1, sizeof(*s));
    json_t *answer = NULL;
    struct error err = {0};

    if (s && add_area(c, areas, area, &priced, s, &err) == 0)
        price(s, priced.step_ms, span->step_ms, areas->policy);
    if (!s)
        call_fail(c, HTTP_FAILED, "", "out of memory");
    else if (err.code)
        call_fail_of(c, &err);
    else
        answer = json_pack("{s:s,s:I,s:o,s:o,s:o,s:o}", "area", area->path, "step_ms",
                           (json_int_t)span->step_ms, "stretches",
                           view_stretches(s, span, areas->policy), "caps",
                           view_caps(c, areas, area, span), "prices",
                           cost_prices(areas->policy, span->from_ms, span->to_ms), "currency",
                           call_text_or_null(cost_currency(areas->policy)));
    if (s && !err.code && !answer)
        call_fail(c, HTTP_FAILED, "", "out of memory");
    free(s);
    return answer;
}

/* A whole organization takes a question to the store for each unit, so viewers share the answer. */
static void answer_energy(struct call *c, const struct shown_areas *areas,
                          const struct shown_area *area)
{
    /* The last day: as of now, whose viewers come at different moments. Else as it was asked for.
     */
    bool now = !httpd_argument(c->http, "from") && !httpd_argument(c->http, "to");
    uint64_t began_ns = clock_now_ns();
    char key[ANSWERS_KEY_MAX];
    struct span span;
    int64_t unit_ms;
    json_t *answer;

    if (!take_span(c, &span))
        return;
    unit_ms = now ? span.step_ms : 1;
    snprintf(key, sizeof(key), "%s %d %" PRId64 " %" PRId64 " %" PRId64 " %" PRIu64, area->path,
             now, span.from_ms / unit_ms, span.to_ms / unit_ms, span.step_ms,
             areas->policy ? areas->policy->number : 0);
    answer = answers_get(c->answers, key, began_ns);
    if (!answer && !answers_may(c->answers, c->who.name, began_ns, &c->http->retry_s)) {
        call_fail(c, HTTP_TOO_MANY, "Ask for an area below it, or for a shorter time.",
                  "what %s asked for has kept the hub busy: try again in %u s", c->who.name,
                  c->http->retry_s);
        return;
    }
    if (!answer) {
        answer = make_energy(c, areas, area, &span);
        answers_took(c->answers, c->who.name, began_ns, clock_now_ns());
        if (answer)
            answers_put(c->answers, key, answer, began_ns, clock_now_ns());
    }
    if (answer)
        call_answer(c, HTTP_OK, answer);
}

void route_area_energy(struct call *c)
{
    struct shown_areas areas;
    const struct shown_area *area = find_area(c, &areas);

    if (area)
        answer_energy(c, &areas, area);
    area_view_done(&areas);
}

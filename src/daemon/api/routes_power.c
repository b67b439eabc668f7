/* SPDX-License-Identifier: Apache-2.0 */
/* The paths about power and energy. */
#include "daemon/api/api.h"

#include "base/clock.h"
#include "daemon/api/view.h"
#include "daemon/daemon.h"
#include "daemon/energy/meter.h"
#include "daemon/record/energy_history.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_WORD "bad-request"

void routes_power(struct request *r, struct job *none)
{
    meter_refresh(r->daemon->meter);
    request_answer(r, HTTP_OK, view_power(r->daemon, &r->who));
}

void routes_power_sources(struct request *r, struct job *none)
{
    meter_refresh(r->daemon->meter);
    request_answer(r, HTTP_OK, view_power_sources(r->daemon, &r->who));
}

/* ---- the history of energy ---- */

#define MICRO_KWH 3.6e12 /* µJ */

/* An argument in seconds since 1970. False: answered with the error. */
static bool take_time(struct request *r, const char *key, uint64_t *ret)
{
    const char *text = httpd_argument(r->http, key);
    unsigned long long value;
    char *end;

    if (!text)
        return true;
    errno = 0;
    value = strtoull(text, &end, 10);
    if (text[0] >= '0' && text[0] <= '9' && !*end && errno == 0 && value <= INT32_MAX * 2ull) {
        *ret = value;
        return true;
    }
    request_fail(r, HTTP_BAD_REQUEST, "", "%s is '%.40s': use seconds since 1970", key, text);
    return false;
}

static bool take_by(struct request *r, enum energy_by *ret)
{
    const char *text = httpd_argument(r->http, "by");

    for (enum energy_by by = 0; by < ENERGY_BY_MAX; by++)
        if (!text || strcmp(text, energy_by_name(by)) == 0) {
            *ret = by;
            return true;
        }
    request_fail(r, HTTP_BAD_REQUEST, "", "by is '%.40s': use job, user, part or day", text);
    return false;
}

/* kWh, and what they have cost by the configuration's tariff and carbon intensity. */
static void add_cost(const struct config *c, json_t *row)
{
    const json_t *uj = json_object_get(row, "uj");
    double kwh = json_number_value(uj) / MICRO_KWH;
    bool known = json_is_number(uj);

    json_object_set_new(row, "kwh", known ? json_real(kwh) : json_null());
    json_object_set_new(
        row, "cost", known && c->tariff ? json_real(kwh * (double)c->tariff / 1e6) : json_null());
    json_object_set_new(
        row, "gco2", known && c->carbon ? json_real(kwh * (double)c->carbon / 1e6) : json_null());
}

void routes_energy(struct request *r, struct job *none)
{
    const struct config *c = &r->daemon->config;
    struct energy_query q = {.until_s = clock_real_ms() / 1000 + 1,
                             .job = httpd_argument(r->http, "job"),
                             .uid = r->who.uid};
    struct error err = {0};
    json_t *rows = NULL, *row;
    size_t i;
    int e;

    if (!take_by(r, &q.by) || !take_time(r, "since", &q.since_s) ||
        !take_time(r, "until", &q.until_s))
        return;
    /* Users' sums go to the area's unit, if an administrator lets it be in the power group. */
    q.all = q.by == ENERGY_BY_USER ? control_may_power(r->daemon, &r->who)
                                   : control_may_govern(r->daemon, &r->who);
    q.since_s = q.since_s / ENERGY_STEP_S * ENERGY_STEP_S; /* a quarter counts as a whole */
    meter_refresh(r->daemon->meter);
    /* Callers who may not see the machine's watts live are told those written each minute. */
    energy_history_tick(r->daemon, control_may_power(r->daemon, &r->who));
    e = energy_history_query(r->daemon->energy_history, &q, &rows, &err);
    if (e < 0) {
        request_fail_with(r, HTTP_UNAVAILABLE, e == -ETIME ? "" : "The jobs are not affected.",
                          &err);
        return;
    }
    json_array_foreach (rows, i, row)
        add_cost(c, row);
    request_answer(r, HTTP_OK,
                   json_pack("{s:o,s:I,s:I,s:o}", "rows", rows, "since", (json_int_t)q.since_s,
                             "until", (json_int_t)q.until_s, "currency",
                             *c->currency ? json_string(c->currency) : json_null()));
}

/* ---- readings that are handed down ---- */

#define READING_OLD_MS 60000

/* A whole number from 0 on; absent or null: *has false. False: answered with the error. */
static bool take_amount(struct request *r, const char *key, bool *has, uint64_t *ret)
{
    const json_t *value = json_object_get(r->body, key);

    *has = json_is_integer(value) && json_integer_value(value) >= 0;
    if (*has)
        *ret = (uint64_t)json_integer_value(value);
    if (*has || !value || json_is_null(value))
        return true;
    request_fail(r, HTTP_BAD_REQUEST, "", "%s is no whole number from 0 on", key);
    return false;
}

void routes_readings(struct request *r, struct job *none)
{
    static const char *const fields[] = {"name",           "uj",     "uw",   "time",
                                         "error_permille", "covers", "slow", NULL};
    struct handed_reading reading = {.name = json_string_value(json_object_get(r->body, "name"))};
    const json_t *covers = json_object_get(r->body, "covers");
    const json_t *slow = json_object_get(r->body, "slow");
    uint64_t time_ms = 0, error = 0, now_ms = clock_real_ms();
    bool has_time, has_error;
    struct error err = {0};
    int e;

    if (!control_may_power(r->daemon, &r->who)) {
        request_fail_as(r, HTTP_FORBIDDEN, "admin-only",
                        "'power-group' in tide.conf(5) names the group.",
                        "only root, the daemon's user, the admin and the power group hand readings "
                        "down");
        return;
    }
    if (!request_only_fields(r, fields) || !take_amount(r, "uj", &reading.has_uj, &reading.uj) ||
        !take_amount(r, "uw", &reading.has_uw, &reading.uw) ||
        !take_amount(r, "time", &has_time, &time_ms) ||
        !take_amount(r, "error_permille", &has_error, &error))
        return;
    if (covers && (!json_is_string(covers) || strcmp(json_string_value(covers), "machine") != 0)) {
        request_fail(r, HTTP_BAD_REQUEST, "", "covers must be \"machine\"");
        return;
    }
    if (slow && !json_is_boolean(slow)) {
        request_fail(r, HTTP_BAD_REQUEST, "", "slow must be true or false");
        return;
    }
    if (has_time && time_ms + READING_OLD_MS < now_ms) {
        request_fail_as(r, HTTP_CONFLICT, "bad-reading",
                        "Send each reading when it is taken; after a minute it is too old.",
                        "the reading is %llu s old",
                        (unsigned long long)((now_ms - time_ms) / 1000));
        return;
    }
    reading.slow = json_is_true(slow);
    reading.name = reading.name ? reading.name : "";
    reading.error_permille = error > HANDED_ERROR ? HANDED_ERROR + 1 : (uint32_t)error;
    e = meter_handed(r->daemon->meter, &reading, &err);
    if (e < 0) {
        request_fail_with(r, e == -ENOSPC ? HTTP_UNAVAILABLE : HTTP_BAD_REQUEST, "", &err);
        return;
    }
    request_answer(r, HTTP_OK, json_pack("{s:s}", "name", reading.name));
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The paths that report events and history. */
#include "base/prometheus.h"
#include "daemon/api/api.h"

#include "base/clock.h"
#include "daemon/api/events.h"
#include "daemon/api/metrics.h"
#include "daemon/api/view.h"
#include "daemon/daemon.h"
#include "daemon/record/chronicle.h"
#include "daemon/record/history.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_WORD "bad-request"

static bool take_argument(struct request *r, const char *key, uint64_t max, uint64_t *ret)
{
    const char *text = httpd_argument(r->http, key);
    char *end;
    unsigned long long value;

    if (!text)
        return true;
    errno = 0;
    value = strtoull(text, &end, 10);
    if (text[0] >= '0' && text[0] <= '9' && !*end && errno == 0 && value >= 1 && value <= max) {
        *ret = value;
        return true;
    }
    request_fail(r, HTTP_BAD_REQUEST, "", "%s is '%.40s': use a whole number from 1 to %llu", key,
                 text, (unsigned long long)max);
    return false;
}

static void no_history(struct request *r, const struct error *err)
{
    request_fail_with(r, HTTP_UNAVAILABLE,
                      "The jobs are not affected; tided(8) says where history lies.", err);
}

static int on_turn(sd_event_source *s, uint64_t usec, void *arg);

/*
 * A step, and another one later. Not by a source that is pending again at once, behind which others
 * of the same priority, and all idle ones, would wait until the search ends.
 */
static void search_on(struct request *r)
{
    struct api *api = r->daemon->api;
    struct error err = {0};
    json_t *list = NULL;
    int e = history_search_go(r->search, clock_now_ns() + HTTPD_TURN_NS, &list, &err);

    if (e > 0 && !r->turn) {
        e = sd_event_add_time(r->daemon->event, &r->turn, CLOCK_MONOTONIC, api_next_turn(api), 1,
                              on_turn, r);
        if (e >= 0)
            e = sd_event_source_set_priority(r->turn, API_PRIORITY);
        if (e >= 0)
            return;
        error_set(&err, e, "%s", strerror(-e));
    } else if (e > 0) {
        sd_event_source_set_time(r->turn, api_next_turn(api));
        sd_event_source_set_enabled(r->turn, SD_EVENT_ONESHOT);
        return;
    }
    if (e < 0) {
        no_history(r, &err);
        return;
    }
    view_history(r->daemon, r->since, list);
    request_answer(r, HTTP_OK, list);
}

static int on_turn(sd_event_source *s, uint64_t usec, void *arg)
{
    uint64_t began = clock_now_ns();

    search_on(arg);
    request_charge(arg, clock_now_ns() - began);
    return 0;
}

void routes_history(struct request *r, struct job *none)
{
    struct history_filter f = {.job = httpd_argument(r->http, "job"),
                               .all = control_may_govern(r->daemon, &r->who),
                               .uid = r->who.uid};
    uint64_t since = 0, until = 0, limit = HISTORY_LIMIT_STD;
    struct error err = {0};

    if (!take_argument(r, "since", INT32_MAX, &since) ||
        !take_argument(r, "until", INT32_MAX, &until) ||
        !take_argument(r, "limit", HISTORY_LIMIT_MAX, &limit) || !request_search(r))
        return;
    f.since_ms = since * 1000;
    f.until_ms = until * 1000;
    f.limit = (uint32_t)limit;
    chronicle_look(r->daemon); /* brings the history up to date */
    if (history_search_new(r->daemon->history, &f, &r->search, &err) < 0) {
        no_history(r, &err);
        return;
    }
    r->since = (double)since;
    search_on(r);
}

void routes_events(struct request *r, struct job *none)
{
    struct events_from from = {.last = httpd_header(r->http, "Last-Event-ID")};
    const char *follow = httpd_argument(r->http, "follow");
    uint64_t since = 0;
    struct stream *stream;

    if (!take_argument(r, "since", INT32_MAX, &since))
        return;
    if (follow && strcmp(follow, "true") != 0 && strcmp(follow, "false") != 0) {
        request_fail(r, HTTP_BAD_REQUEST, "", "follow is '%.40s': use true or false", follow);
        return;
    }
    from.since_ms = since * 1000;
    from.ends = follow && *follow == 'f';
    chronicle_look(r->daemon); /* brings the events up to date */
    if (r->daemon->events && events_open(r->daemon->events, r, &from, &stream) == 0)
        request_answer_stream(r, stream);
    else
        request_fail_as(r, HTTP_UNAVAILABLE, "too-many-streams", "",
                        "there are too many streams of events");
}

void routes_metrics(struct request *r, struct job *none)
{
    request_answer_text(r, PROMETHEUS_TYPE, metrics_text(r));
}

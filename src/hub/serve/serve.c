/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/serve/serve.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hold.h"
#include "base/log_limit.h"
#include "base/visible.h"
#include "base/wallclock.h"
#include "host/net/ends.h"
#include "hub/people/people.h"
#include "hub/serve/cost.h"
#include "hub/serve/web.h"
#include "hub/store/retention.h"
#include "hub/trust/state.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <systemd/sd-daemon.h>
#include <time.h>

#define ERROR_WORD "system-refused"

#define ROLLUP_US    60000000
#define ROLLUP_AGAIN 100000
#define RENEW_US     (12 * 3600 * UINT64_C(1000000))
#define ROLLUP_ROWS  2000 /* of each step at a time: some milliseconds of the loop */
#define BEHIND_MS    (2 * INT64_C(86400000)) /* so far behind the clock retention is worth a line */
#define LOG_BURST    100 /* lines in LOG_WINDOW_S; whoever has a certificate can cause lines */
#define LOG_WINDOW_S 10

#define NO_FILE "is missing: run 'tide-hub broker --host NAME --write' first"

struct serve {
    const struct conf *conf;
    struct store_keep keep;
    char path[3][PATH_MAX]; /* of the certificate as a client, which the tree borrows */
    sd_event *event;
    sd_event_source *rollup, *renew;
    struct store *store;
    struct tree *tree;
    struct people *people;
    struct web *web;
    struct retention retention;
    bool behind, unkept; /* said that it is far behind the clock, that it is not on the disk */
    bool store_owed;     /* it could not be told what the policy says of it */
    struct log_limit log;
    int held;
};

static void say(struct serve *s, const char *who, const char *text)
{
    char line[4 * ERROR_TEXT_MAX];

    if (!log_limit_takes(&s->log, "tide-hub", LOG_BURST, LOG_WINDOW_S))
        return;
    snprintf(line, sizeof(line), "%s%s%s", who ? who : "", who ? ": " : "", text);
    visible(line); /* units' and strangers' words are in it */
    fprintf(stderr, "tide-hub: %s\n", line);
}

static void on_say(void *arg, const char *who, const char *text)
{
    say(arg, who, text);
}

/* Which units add up to the organization. */
static int tell_units(struct serve *s, const struct areas *a, struct error *err)
{
    _cleanup_free_ const char **unit = calloc(a->count + 1, sizeof(*unit));
    size_t n = 0;

    if (!unit)
        return error_set(err, -ENOMEM, "out of memory");
    for (uint32_t i = 0; i < a->count; i++)
        if (areas_topmost(a, i))
            unit[n++] = a->area[i].entry->unit;
    return store_units(s->store, unit, n, err);
}

static double on_price(void *arg, int64_t from_ms, int64_t to_ms)
{
    struct serve *s = arg;

    return s->tree ? cost_price(tree_policy(s->tree), from_ms, to_ms) : -1;
}

/* Days are those of the organization's clock. */
static void tell_store(struct serve *s, const struct in_force *policy)
{
    const struct zone *zone = policy_day_zone(&policy->rules);
    struct error err = {0};

    s->store_owed = store_days(s->store, zone ? zone->name : "UTC", &err) < 0;
    s->store_owed |= tell_units(s, &policy->areas, &err) < 0;
    s->store_owed |= store_prices(s->store, cost_currency(policy), on_price, s,
                                  (int64_t)wallclock_ms(), &err) < 0;
    if (s->store_owed)
        say(s, NULL, error_said(&err));
}

/* The time by which records are old; says when it is not the clock's. */
static int64_t old_ms(struct serve *s)
{
    int64_t now_ms = (int64_t)wallclock_ms(), at_ms;
    char text[ERROR_TEXT_MAX + 256];
    struct error err = {0};
    int r = retention_run(&s->retention, s->store, now_ms, clock_boot_ns(), &err);

    if (r < 0 && !s->unkept)
        say(s, NULL, error_said(&err));
    s->unkept = r < 0;
    at_ms = retention_ms(&s->retention, now_ms);
    if (now_ms - at_ms > BEHIND_MS && !s->behind) {
        snprintf(text, sizeof(text),
                 "the clock is %" PRId64 " days ahead of the time that this hub has seen pass (it "
                 "was set, or the hub was off): until that has caught up, old records stay longer. "
                 "If the clock is right, remove %.200s",
                 (now_ms - at_ms) / 86400000, s->retention.path);
        say(s, NULL, text);
        s->behind = true;
    } else if (now_ms - at_ms < BEHIND_MS / 2 && s->behind) {
        say(s, NULL, "old records go by the clock again");
        s->behind = false;
    }
    return at_ms;
}

static int on_rollup(sd_event_source *source, uint64_t usec, void *arg)
{
    struct serve *s = arg;
    struct error err = {0};
    int r;

    if (s->store_owed)
        tell_store(s, tree_policy(s->tree));
    r = store_rollup(s->store, &s->keep, old_ms(s), ROLLUP_ROWS, &err);
    if (r < 0)
        say(s, NULL, error_said(&err));
    sd_event_source_set_time_relative(source, r > 0 ? ROLLUP_AGAIN : ROLLUP_US);
    sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
    return 0;
}

/*
 * A list of revoked certificates that has ended would have the broker refuse everybody, so it is
 * made again long before, with our own certificate.
 */
static int on_renew(sd_event_source *source, uint64_t usec, void *arg)
{
    struct serve *s = arg;
    struct error err = {0};
    struct state state;
    int r = state_open(s->conf->state, &state, &err);

    if (r == 0) {
        r = state_renew(&state, time(NULL), false, &err);
        if (r == 0)
            r = state_tell_broker(&state, &err);
        state_close(&state);
    }
    if (r < 0)
        say(s, NULL, error_said(&err));
    sd_event_source_set_time_relative(source, RENEW_US);
    sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
    return 0;
}

/* ---- the program ---- */

static int start_loop(struct serve *s)
{
    int r = sd_event_new(&s->event);

    signal(SIGPIPE, SIG_IGN);
    if (r >= 0)
        r = ends_by_signals(s->event, false, NULL, NULL);
    if (r >= 0)
        r = sd_event_add_time_relative(s->event, &s->rollup, CLOCK_BOOTTIME, ROLLUP_AGAIN, 0,
                                       on_rollup, s);
    if (r >= 0)
        r = sd_event_add_time_relative(s->event, &s->renew, CLOCK_BOOTTIME, 0, 0, on_renew, s);
    return r;
}

static void on_changed(void *arg, const struct unit *u, enum tree_what what,
                       const struct payload_event *event)
{
    struct serve *s = arg;

    web_changed(s->web, u, what, event);
}

static void on_ordered(void *arg, const struct tree_order *order)
{
    struct serve *s = arg;

    web_ordered(s->web, order);
}

static void on_ruled(void *arg, const struct in_force *policy)
{
    struct serve *s = arg;

    tell_store(s, policy);
    sd_event_source_set_time_relative(s->rollup, ROLLUP_AGAIN); /* it counts other days again */
    web_ruled(s->web, policy);
}

static int find_files(struct serve *s, struct error *err)
{
    static const char *const names[] = {"trust/ca.crt", "hub.crt", "hub.key"};

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        int r = conf_path(s->conf, names[i], s->path[i], sizeof(s->path[i]), err);

        if (r < 0)
            return r;
        if (access(s->path[i], R_OK) < 0)
            return error_set(err, -errno, "%.200s %s", s->path[i],
                             errno == ENOENT ? NO_FILE : "cannot be read");
    }
    return 0;
}

static int start_tree(struct serve *s, struct error *err)
{
    return tree_new(&(struct tree_options){.event = s->event,
                                           .store = s->store,
                                           .state = s->conf->state,
                                           .host = s->conf->broker,
                                           .port = s->conf->broker_port,
                                           .ca = s->path[0],
                                           .cert = s->path[1],
                                           .key = s->path[2],
                                           .policy = s->conf->policy,
                                           .carbon = s->conf->carbon,
                                           .parent = s->conf->parent,
                                           .parent_name = s->conf->parent_name,
                                           .parent_files = s->conf->parent_files,
                                           .changed = on_changed,
                                           .ordered = on_ordered,
                                           .ruled = on_ruled,
                                           .say = on_say,
                                           .arg = s},
                    &s->tree, err);
}

static int start_web(struct serve *s, struct error *err)
{
    const struct people_options people = {s->conf->session_idle_ms, s->conf->session_end_ms};
    char path[PATH_MAX];
    int r = conf_path(s->conf, PEOPLE_FILE, path, sizeof(path), err);

    if (r >= 0)
        r = people_open(path, &people, &s->people, err);
    if (r < 0 || strcmp(s->conf->listen, "none") == 0)
        return r;
    if (people_count(s->people) == 0)
        say(s, NULL, "nobody may log in yet: tide-hub user add NAME --role administrator");
    return web_new(&(struct web_options){.event = s->event,
                                         .conf = s->conf,
                                         .people = s->people,
                                         .store = s->store,
                                         .retention = &s->retention,
                                         .tree = s->tree,
                                         .say = on_say,
                                         .arg = s},
                   &s->web, err);
}

static int start(struct serve *s, struct error *err)
{
    char path[PATH_MAX];
    const char *store = s->conf->store;
    int r = find_files(s, err);

    /* Two would hang up on each other at the broker, and lend the same watts. */
    if (r >= 0) {
        s->held = hold_file(s->conf->state, "running", false, err);
        r = s->held == -EBUSY ? s->held : 0;
    }
    s->keep = (struct store_keep){s->conf->keep_second_ms, s->conf->keep_minute_ms,
                                  s->conf->keep_quarter_ms, s->conf->keep_users_ms};
    if (r >= 0 && !*store) {
        r = conf_path(s->conf, "hub.db", path, sizeof(path), err);
        store = path;
    }
    if (r >= 0)
        r = store_open(store, &s->store, err);
    if (r >= 0)
        r = retention_begin(&s->retention, s->conf->state, s->store, (int64_t)wallclock_ms(),
                            clock_boot_ns(), err);
    if (r < 0)
        return r;
    r = start_loop(s);
    if (r < 0)
        return error_set(err, r, "no event loop: %s", strerror(-r));
    r = start_tree(s, err);
    return r < 0 ? r : start_web(s, err);
}

int serve_run(const struct conf *conf, struct error *err)
{
    struct serve s = {.conf = conf, .held = -1};
    int r = start(&s, err);

    if (r == 0) {
        sd_notify(0, "READY=1");
        if (sd_event_set_watchdog(s.event, true) < 0) /* 0: no watchdog is configured */
            say(&s, NULL,
                "cannot report to systemd's watchdog: systemd may restart tide-hub" ERROR_WHY);
        r = sd_event_loop(s.event);
        sd_notify(0, "STOPPING=1");
        if (r < 0)
            error_set(err, r, "the event loop ended: %s", strerror(-r));
        else
            r = tree_flush(s.tree, err);
    }
    s.web = web_free(s.web);
    tree_free(s.tree);
    people_close(s.people);
    store_close(s.store);
    sd_event_source_unref(s.rollup);
    sd_event_source_unref(s.renew);
    sd_event_unref(s.event);
    close_fd(s.held);
    return r;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/area/site.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/muldiv.h"
#include "base/visible.h"
#include "base/wallclock.h"
#include "base/wholefile.h"
#include "power/site/presence.h"
#include "power/site/relay.h"
#include "unit/area/orders.h"
#include "unit/log.h"
#include "unit/switch/kinds.h"

#define ERROR_WORD "switch-lost"

#define QUERY_NS  (30 * NS_PER_S) /* each relay is asked how it is */
#define SILENT_NS (90 * NS_PER_S) /* a relay that does not answer for so long is unknown */
#define TRIES     3               /* orders without an answer before people are told */
#define AHEAD_MS  3660000         /* one that ends later is of another clock: an hour is the most */

#define RULED_HEAD    "threadtide ruled 1"
#define RULED_MAX     (CONFIG_SWITCHES_MAX * (CONFIG_NAME_MAX + 8) + 64)
#define RULED_OLD_MS  3600000           /* what said off so long ago may be another rule by now */
#define RULED_KEEP_NS (300 * NS_PER_S)  /* between two notes that it says so still */
#define RULED_TRY_NS  (60 * NS_PER_S)   /* between two tries of a disk that is full */
#define UNSURE_NS     (7200 * NS_PER_S) /* after a start: as long as a sensor may be silent */

enum want { WANT_NOTHING, WANT_BY_RULE, WANT_BY_COMMAND };

struct switched {
    const struct switch_config *config;
    struct site *site;
    struct relay_port port;
    struct relay relay;
    enum want want;
    bool on;             /* what is wanted */
    bool ruled;          /* a rule says off */
    bool off_by_rule;    /* it is off since a rule said so */
    bool recalled;       /* both are from the disk, and no rule was heard since … */
    bool old;            /* … from so long ago that a rule which says off begins */
    bool deaf, chatters; /* people were told */
    unsigned tries;      /* orders without the wanted answer */
    uint64_t until_ms;   /* of a command, by the wall clock … */
    uint64_t until_ns;   /* … and by the monotonic one, since the former may be set back */
    uint64_t queried_ns, heard_ns;
    char id[PAYLOAD_WORD_MAX], by[PAYLOAD_WORD_MAX]; /* of the command */
};

struct sensed {
    struct site *site;
    struct sensor_port port;
    struct presence presence;
};

struct site {
    struct site_hooks hooks;
    struct orders *orders; /* ids of commands that came */
    char path[CONFIG_PATH_MAX + 16];
    uint32_t kept_ruled, kept_off; /* bits: what the disk says of relays … */
    uint64_t kept_ns, tried_ns;    /* … since when, and when it was tried last */
    bool unkept;                   /* said that the disk cannot note it */
    uint64_t begun_ns;
    struct switched *relay;
    unsigned relays;
    struct sensed *sensor;
    unsigned sensors;
};

/* ---- telling people -------------------------------------------------------------------------- */

/* @state: "done", "refused", "expired", "disobeyed"; @id NULL: no command was the reason. */
static void tell(const struct switched *w, const char *state, const char *id, const char *by,
                 const char *text)
{
    json_t *data =
        json_pack("{s:s, s:b, s:s, s:s}", "switch", w->config->name, "on",
                  strcmp(state, "done") == 0 ? w->relay.on : w->on, "state", state, "by", by);
    char *dumped;

    if (data && id)
        json_object_set_new(data, "id", json_string(id));
    dumped = data ? json_dumps(data, JSON_COMPACT) : NULL;
    json_decref(data);
    w->site->hooks.say(w->site->hooks.arg, "switch", text, dumped);
    free(dumped);
}

static const char *word(bool on)
{
    return on ? "on" : "off";
}

/* The end of what was wanted. */
static void finish(struct switched *w, const char *state, const char *why)
{
    char text[PAYLOAD_TEXT_MAX];
    bool command = w->want == WANT_BY_COMMAND;

    snprintf(text, sizeof(text),
             strcmp(state, "done") == 0 ? "%s: %s (%s, by %.40s)"
                                        : "%s: not switched %s: %s (by %.40s)",
             w->config->name, word(w->on), why, command ? w->by : "a rule");
    if (w->want != WANT_NOTHING)
        tell(w, state, command ? w->id : NULL, command ? w->by : "rule", text);
    w->want = WANT_NOTHING;
    w->tries = 0;
}

/* ---- switching ------------------------------------------------------------------------------- */

/* Minimum times and bounds as text. */
static void reason(const struct switched *w, enum relay_answer answer, char *ret, size_t size)
{
    const struct switch_config *c = w->config;

    if (answer == RELAY_NEVER && c->always_on && !w->on)
        snprintf(ret, size, "it stays on by configuration");
    else if (answer == RELAY_NEVER)
        snprintf(ret, size, "it changed too often in this hour");
    else if (!w->relay.known)
        snprintf(ret, size, "the relay does not say whether it is on");
    else
        snprintf(ret, size, "it stays %s for at least %u s", word(w->relay.on),
                 w->relay.on ? c->min_on_s : c->min_off_s);
}

/* @left: milliseconds of the command. */
static void order(struct switched *w, uint64_t left)
{
    uint64_t for_s = w->want == WANT_BY_COMMAND ? (left + 999) / 1000 : UINT32_MAX;
    char text[PAYLOAD_TEXT_MAX];

    if (w->tries < TRIES || w->deaf) {
        /* Fails while the broker is away: relay_ask() allows another order in 10 s. */
        if (w->port.config->ops->order(&w->port, w->on, (uint32_t)for_s) == 0 && !w->deaf)
            w->tries++;
        return;
    }
    w->deaf = true;
    snprintf(text, sizeof(text), "%s does not obey: it was told %u times to switch %s",
             w->config->name, TRIES, word(w->on));
    tell(w, "disobeyed", w->want == WANT_BY_COMMAND ? w->id : NULL,
         w->want == WANT_BY_COMMAND ? w->by : "rule", text);
    if (w->want == WANT_BY_COMMAND) {
        w->want = WANT_NOTHING;
        w->tries = 0;
    }
}

/* How long the command may still be carried out; 0: its time is over. */
static uint64_t left_ms(const struct switched *w, uint64_t wall_ms, uint64_t now_ns)
{
    uint64_t wall = sub_sat(w->until_ms, wall_ms);
    uint64_t monotonic = sub_sat(w->until_ns, now_ns) / NS_PER_MS;

    return wall < monotonic ? wall : monotonic;
}

/* An order that waited for its line: nothing is switched blindly, by nobody's will, or too late. */
static bool wanted(void *arg, bool on)
{
    const struct switched *w = arg;

    if (w->want == WANT_NOTHING || w->on != on || !w->relay.known)
        return false;
    return w->want != WANT_BY_COMMAND || left_ms(w, wallclock_ms(), clock_now_ns()) > 0;
}

static void try(struct switched *w, uint64_t wall_ms, uint64_t now_ns)
{
    uint64_t left = left_ms(w, wall_ms, now_ns), later_ns, wait_ms;
    enum relay_answer answer;
    char why[96];

    if (w->want == WANT_NOTHING)
        return;
    if (w->want == WANT_BY_COMMAND && left == 0) {
        finish(w, "expired", "its time is over");
        return;
    }
    answer = relay_ask(&w->relay, w->on, now_ns, &later_ns);
    wait_ms = later_ns == UINT64_MAX ? 0 : (later_ns - now_ns) / NS_PER_MS;
    if (answer == RELAY_ALREADY) {
        /* It obeyed, and did not say so: the broker was away, or its answer was lost. */
        w->off_by_rule |= w->want == WANT_BY_RULE && !w->on && w->tries;
        finish(w, "done", "it was so already");
    } else if (answer == RELAY_SWITCH) {
        order(w, left);
    } else if (w->want == WANT_BY_COMMAND && !w->relay.ordered_ns &&
               (answer == RELAY_NEVER || wait_ms >= left)) {
        reason(w, answer, why, sizeof(why));
        finish(w, "refused", why);
    } else if (answer == RELAY_NEVER && w->config->always_on) {
        w->want = WANT_NOTHING;
    }
}

/* ---- what relays say ------------------------------------------------------------------------- */

static void watch_chatter(struct switched *w)
{
    uint32_t most = w->config->most_per_hour ? w->config->most_per_hour : RELAY_MOST_PER_HOUR;
    char text[PAYLOAD_TEXT_MAX];

    if (w->relay.changes < most) {
        w->chatters = false;
        return;
    }
    if (w->chatters)
        return;
    w->chatters = true;
    snprintf(text, sizeof(text),
             "%s chatters: %u changes in an hour; it is left alone until the hour is over",
             w->config->name, w->relay.changes);
    w->site->hooks.say(w->site->hooks.arg, "chatter", text, NULL);
}

/* Somebody, or the relay itself, switched it, and we did not. */
static void by_hand(struct switched *w)
{
    char text[PAYLOAD_TEXT_MAX];

    w->off_by_rule = false;
    snprintf(text, sizeof(text), "%s: %s%s", w->config->name, word(w->relay.on),
             w->config->always_on && !w->relay.on
                 ? ", and it is always-on: neither a command nor a rule did it"
                 : " (by hand)");
    tell(w, "done", NULL, "hand", text);
}

static void told(void *arg, bool on)
{
    struct switched *w = arg;
    uint64_t now = clock_now_ns();
    bool was_known = w->relay.known, ours, changed;

    ours = w->want != WANT_NOTHING && w->on == on && w->relay.ordered_ns;
    changed = relay_is(&w->relay, on, now);
    w->heard_ns = now;
    if (!was_known && on) /* whoever has switched it on meanwhile */
        w->off_by_rule = false;
    if (!w->relay.known || (was_known && !changed))
        return;
    watch_chatter(w);
    w->site->hooks.changed(w->site->hooks.arg);
    if (!changed)
        return;
    if (ours) {
        w->deaf = false;
        w->off_by_rule = w->want == WANT_BY_RULE && !on;
        finish(w, "done", "switched");
    } else if (!w->chatters) {
        by_hand(w);
    }
}

static void forget_state(struct switched *w)
{
    if (w->relay.known)
        w->site->hooks.changed(w->site->hooks.arg);
    w->relay.known = false; /* no order goes out until it speaks again */
    w->relay.ordered_ns = 0;
}

static void lost(void *arg, const char *why)
{
    forget_state(arg);
}

static void sensor_told(void *arg, bool present)
{
    struct sensed *s = arg;
    bool was = s->presence.known && s->presence.present, known = s->presence.known;

    presence_is(&s->presence, present, clock_now_ns());
    if (!known || was != present)
        s->site->hooks.changed(s->site->hooks.arg);
}

void site_got(struct site *s, const struct mqtt_message *m)
{
    for (unsigned i = 0; i < s->relays; i++)
        if (s->relay[i].config->ops->got)
            s->relay[i].config->ops->got(&s->relay[i].port, m);
    for (unsigned i = 0; i < s->sensors; i++)
        if (s->sensor[i].port.config->ops->got)
            s->sensor[i].port.config->ops->got(&s->sensor[i].port, m);
}

void site_broker_lost(struct site *s)
{
    for (unsigned i = 0; i < s->relays; i++)
        if (s->relay[i].config->ops->broker)
            forget_state(&s->relay[i]);
}

/* ---- commands -------------------------------------------------------------------------------- */

/* Why the command is refused whatever the relay says; NULL: it is not. */
static const char *forbidden(struct site *s, const struct switched *w,
                             const struct payload_cmd *cmd, uint64_t wall_ms)
{
    int r;

    if (!w)
        return "this unit has no such switch";
    if (!w->config->command)
        return "people may not switch it: its section does not say command = yes";
    if (!cmd->on && w->config->always_on)
        return "it stays on by configuration";
    if (cmd->until_ms > wall_ms + AHEAD_MS)
        return "the command ends more than an hour ahead: the clocks of hub and unit differ";
    r = orders_note(s->orders, cmd->id, cmd->until_ms, wall_ms);
    if (r == -E2BIG)
        return "too many commands came: each is remembered until an hour after its end";
    return r < 0 ? "the unit's disk cannot note the command, which could then be carried out twice"
                 : NULL;
}

static void refuse(struct site *s, const struct payload_cmd *cmd, const char *state,
                   const char *why)
{
    struct switch_config none = {0};
    struct switched w = {.config = &none, .site = s, .on = cmd->on};
    char text[PAYLOAD_TEXT_MAX];

    snprintf(none.name, sizeof(none.name), "%.47s", cmd->name);
    visible(none.name); /* it may be cut inside of a character */
    snprintf(text, sizeof(text), "%.47s: not switched %s: %.100s (by %.40s)", cmd->name,
             word(cmd->on), why, cmd->by);
    tell(&w, state, cmd->id, cmd->by, text);
}

void site_command(struct site *s, const struct payload_cmd *cmd, uint64_t wall_ms, uint64_t now_ns)
{
    struct switched *w = NULL;
    const char *why;

    if (orders_known(s->orders, cmd->id))
        return; /* it came twice */
    if (wall_ms >= cmd->until_ms) {
        refuse(s, cmd, "expired", "the command's time was over when it came");
        return;
    }
    for (unsigned i = 0; i < s->relays; i++)
        if (strcmp(s->relay[i].config->name, cmd->name) == 0)
            w = &s->relay[i];
    why = forbidden(s, w, cmd, wall_ms);
    if (why) {
        refuse(s, cmd, "refused", why);
        return;
    }
    if (w->want == WANT_BY_COMMAND)
        finish(w, "refused", "another command came");
    w->want = WANT_BY_COMMAND;
    w->on = cmd->on;
    w->until_ms = cmd->until_ms;
    w->until_ns = now_ns + (cmd->until_ms - wall_ms) * NS_PER_MS;
    w->tries = 0;
    w->deaf = false;
    snprintf(w->id, sizeof(w->id), "%s", cmd->id);
    snprintf(w->by, sizeof(w->by), "%s", cmd->by);
    try(w, wall_ms, now_ns);
}

/* ---- the disk: a line for each relay of which a rule said something ----------------------------
 */

/*
 * A rule whose order is not carried out yet begins anew after a restart. One that is over and has
 * left the relay off is noted, too: it is to come on.
 */
static void bits_of(const struct site *s, uint32_t *ret_ruled, uint32_t *ret_off)
{
    *ret_ruled = *ret_off = 0;
    for (unsigned i = 0; i < s->relays; i++) {
        const struct switched *w = &s->relay[i];
        bool done = w->want != WANT_BY_RULE || w->on;

        *ret_ruled |= (uint32_t)(w->ruled && done) << i;
        *ret_off |= (uint32_t)w->off_by_rule << i;
    }
}

static int write_ruled(const struct site *s, uint32_t ruled, uint32_t off, uint64_t wall_ms)
{
    char text[RULED_MAX];
    size_t n = (size_t)snprintf(text, sizeof(text), RULED_HEAD " %" PRIu64 "\n", wall_ms);

    for (unsigned i = 0; i < s->relays; i++)
        if ((ruled | off) >> i & 1)
            n += (size_t)snprintf(text + n, sizeof(text) - n, "%s %u %u\n",
                                  s->relay[i].config->name, ruled >> i & 1, off >> i & 1);
    return wholefile_replace(s->path, text, n, NULL);
}

static bool any_recalled(const struct site *s)
{
    for (unsigned i = 0; i < s->relays; i++)
        if (s->relay[i].recalled)
            return true;
    return false;
}

/* When something has changed; and now and then while rules hold, which tells their age. */
static void keep_ruled(struct site *s, uint64_t wall_ms, uint64_t now_ns)
{
    uint32_t ruled, off;
    bool again;
    int r;

    bits_of(s, &ruled, &off);
    again = ruled && !any_recalled(s) && now_ns - s->kept_ns >= RULED_KEEP_NS;
    if (ruled == s->kept_ruled && off == s->kept_off && !again)
        return;
    if (s->unkept && now_ns - s->tried_ns < RULED_TRY_NS)
        return;
    s->tried_ns = now_ns;
    r = write_ruled(s, ruled, off, wall_ms);
    if (r < 0 && !s->unkept)
        unit_log("%s cannot be written: %s; rules that hold begin anew with a restart (tide why "
                 "state-unusable)",
                 s->path, strerror(-r));
    s->unkept = r < 0;
    if (r < 0)
        return;
    s->kept_ruled = ruled;
    s->kept_off = off;
    s->kept_ns = now_ns;
}

static void recall(struct site *s, const char *line, bool old)
{
    char name[CONFIG_NAME_MAX];
    unsigned ruled, off;

    if (sscanf(line, "%47s %u %u", name, &ruled, &off) != 3)
        return;
    for (unsigned i = 0; i < s->relays; i++) {
        struct switched *w = &s->relay[i];

        if (strcmp(w->config->name, name) != 0)
            continue;
        w->ruled = w->recalled = ruled || off;
        w->off_by_rule = off;
        w->old = old || !ruled;
    }
}

static void load_ruled(struct site *s)
{
    _cleanup_free_ char *text = NULL;
    struct stat status;
    uint64_t at_ms;
    size_t len;
    char *next;
    int r = wholefile_read(s->path, RULED_MAX, &text, &len, &status);

    if (r == -ENOENT)
        return;
    next = text;
    if (r < 0 || sscanf(strsep(&next, "\n"), RULED_HEAD " %" SCNu64, &at_ms) != 1) {
        unit_log("%s cannot be read: rules that hold begin anew (tide why state-unusable)",
                 s->path);
        return;
    }
    while (next && *next)
        recall(s, strsep(&next, "\n"), wallclock_ms() > at_ms + RULED_OLD_MS);
    bits_of(s, &s->kept_ruled, &s->kept_off);
}

/* ---- time ------------------------------------------------------------------------------------ */

/* Follows a rule when it begins or ends; between that, a person's hand counts. */
static void follow_rule(struct switched *w, bool off)
{
    bool begins = off && (!w->ruled || w->old), ends = !off && w->ruled;

    w->recalled = w->old = false;
    w->ruled = off;
    if (!w->config->rules || w->config->always_on)
        return;
    if (begins && w->want != WANT_BY_COMMAND) {
        w->want = WANT_BY_RULE;
        w->on = false;
        w->tries = 0;
    } else if (ends && w->want == WANT_BY_RULE) {
        w->want = WANT_NOTHING;
    } else if (ends && w->off_by_rule && w->config->restore && w->want == WANT_NOTHING) {
        w->want = WANT_BY_RULE;
        w->on = true;
        w->tries = 0;
    }
}

static void look_after(struct switched *w, uint64_t now_ns)
{
    if (w->queried_ns && now_ns - w->queried_ns < (w->relay.known ? QUERY_NS : QUERY_NS / 6))
        return;
    w->queried_ns = now_ns;
    w->config->ops->query(&w->port);
    if (w->relay.known && now_ns - w->heard_ns > SILENT_NS)
        forget_state(w);
}

void site_tick(struct site *s, const struct site_rules *rules, uint64_t wall_ms, uint64_t now_ns)
{
    bool young = now_ns - s->begun_ns < UNSURE_NS;

    for (unsigned i = 0; i < s->relays; i++) {
        struct switched *w = &s->relay[i];
        bool off = rules->off >> i & 1, unsure = rules->unsure >> i & 1;

        look_after(w, now_ns);
        if (rules->known && (off || !unsure || !w->recalled || !young))
            follow_rule(w, off);
        try(w, wall_ms, now_ns);
    }
    keep_ruled(s, wall_ms, now_ns);
}

static bool heard(const struct presence *p, uint64_t now_ns)
{
    return p->known && now_ns - p->heard_ns <= PRESENCE_SILENT_S * NS_PER_S;
}

bool site_present(const struct site *s, uint64_t now_ns)
{
    for (unsigned i = 0; i < s->sensors; i++)
        if (heard(&s->sensor[i].presence, now_ns) && s->sensor[i].presence.present)
            return true;
    return false;
}

uint64_t site_absent_s(const struct site *s, uint64_t now_ns)
{
    uint64_t least = UINT64_MAX;

    for (unsigned i = 0; i < s->sensors; i++) {
        uint64_t absent = presence_absent_s(&s->sensor[i].presence, now_ns);

        least = absent < least ? absent : least;
    }
    return least == UINT64_MAX ? 0 : least;
}

void site_state(const struct site *s, uint64_t now_ns, struct payload_state *ret)
{
    ret->switches = s->relays;
    for (unsigned i = 0; i < s->relays; i++) {
        const struct switched *w = &s->relay[i];
        struct payload_switch *p = &ret->item[i];

        snprintf(p->name, sizeof(p->name), "%s", w->config->name);
        p->on = w->relay.known && w->relay.on;
        p->known = w->relay.known;
        p->always_on = w->config->always_on;
        p->command = w->config->command;
    }
    if (s->sensors)
        ret->absent_s = site_absent_s(s, now_ns);
}

/* ---- begin and end --------------------------------------------------------------------------- */

static int open_relay(struct site *s, unsigned i, const struct switch_config *c,
                      struct mqtt *broker, sd_event *event)
{
    struct switched *w = &s->relay[i];

    *w = (struct switched){
        .config = c,
        .site = s,
        .port =
            {.config = c, .broker = broker, .told = told, .lost = lost, .wanted = wanted, .arg = w},
        .relay = {.always_on = c->always_on,
                  .min_on_s = c->min_on_s,
                  .min_off_s = c->min_off_s,
                  .most_per_hour = c->most_per_hour},
    };
    s->relays++;
    return c->ops->open(&w->port, event);
}

static int open_sensor(struct site *s, unsigned i, const struct presence_config *c,
                       struct mqtt *broker, sd_event *event)
{
    struct sensed *w = &s->sensor[i];

    *w = (struct sensed){
        .site = s,
        .port = {.config = c, .broker = broker, .told = sensor_told, .arg = w},
    };
    s->sensors++;
    return c->ops->open(&w->port, event);
}

int site_new(sd_event *event, const struct unit_config *config, struct mqtt *broker,
             const struct site_hooks *hooks, struct site **ret, struct error *err)
{
    struct site *s = calloc(1, sizeof(*s));
    int r = 0;

    if (!s || !(s->relay = calloc(config->switches + 1, sizeof(*s->relay))) ||
        !(s->sensor = calloc(config->sensors + 1, sizeof(*s->sensor)))) {
        site_free(s);
        return error_set(err, -ENOMEM, "out of memory: no switches");
    }
    s->hooks = *hooks;
    r = orders_open(config->state_dir, &s->orders, err);
    for (unsigned i = 0; r >= 0 && i < config->switches; i++) {
        r = open_relay(s, i, &config->relay[i], broker, event);
        if (r < 0)
            error_set(err, r, "switch %s: cannot begin: %s", config->relay[i].name, strerror(-r));
    }
    for (unsigned i = 0; r >= 0 && i < config->sensors; i++) {
        r = open_sensor(s, i, &config->sensor[i], broker, event);
        if (r < 0)
            error_set(err, r, "presence %s: cannot begin: %s", config->sensor[i].name,
                      strerror(-r));
    }
    if (r < 0) {
        site_free(s);
        return r;
    }
    s->begun_ns = clock_now_ns();
    snprintf(s->path, sizeof(s->path), "%s/ruled", config->state_dir);
    load_ruled(s);
    *ret = s;
    return 0;
}

struct site *site_free(struct site *s)
{
    if (!s)
        return NULL;
    for (unsigned i = 0; i < s->relays; i++)
        if (s->relay[i].config->ops->close)
            s->relay[i].config->ops->close(&s->relay[i].port);
    for (unsigned i = 0; i < s->sensors; i++)
        if (s->sensor[i].port.config->ops->close)
            s->sensor[i].port.config->ops->close(&s->sensor[i].port);
    orders_close(s->orders);
    free(s->relay);
    free(s->sensor);
    free(s);
    return NULL;
}

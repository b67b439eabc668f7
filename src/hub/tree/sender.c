/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/tree/tree_state.h"

#include "base/cleanup.h"
#include "base/failpoint.h"
#include "base/wallclock.h"
#include "base/wholefile.h"
#include "edge/sealed.h"
#include "hub/compile/yaml.h"
#include "hub/tree/place.h"
#include "hub/trust/state.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define ERROR_WORD "policy-not-applied"

#define RENEW_MS (24 * INT64_C(3600000))

static int64_t now_ms(void)
{
    return (int64_t)wallclock_ms();
}

/* ---- what units get ---- */

static void fill_bundle(struct tree *t)
{
    const struct in_force *p = &t->policy;
    struct bundle *b = t->bundle;

    *b = (struct bundle){.number = p->number,
                         .made_ms = (uint64_t)p->made_ms,
                         .valid_until_ms = (uint64_t)p->valid_until_ms,
                         .set = p->rules.set,
                         .tariff = p->rules.tariff,
                         .carbons = t->carbon.count};
    memcpy(b->carbon, t->carbon.hour, sizeof(b->carbon));
}

/* Where units stand, by the policy's `areas`; makes those that were never heard. */
static void place_units(struct tree *t)
{
    const struct areas *a = &t->policy.areas;
    size_t n = units_count(t->units);
    _cleanup_free_ char(*before)[AREA_PATH_MAX] = calloc(n + 1, sizeof(*before));

    for (size_t i = 0; i < n; i++) {
        struct unit *u = units_change(t->units, i);

        if (before)
            strcpy(before[i], u->area);
        u->area[0] = '\0';
        u->topmost = false;
    }
    for (uint32_t i = 0; i < a->count; i++) {
        struct unit *u =
            areas_have_unit(a, i) ? units_make(t->units, a->area[i].entry->unit) : NULL;

        if (u) {
            strcpy(u->area, a->area[i].path);
            u->topmost = areas_topmost(a, i);
        }
    }
    for (size_t i = 0; before && i < n; i++)
        if (*before[i] && strcmp(before[i], units_at(t->units, i)->area) != 0)
            caps_left(t, units_change(t->units, i), before[i]);
}

void sender_again(struct tree *t)
{
    t->next_policy = 0;
    if (t->policy.number)
        fill_bundle(t);
    sender_send(t);
}

/* A new policy, or a new number for it. */
static void use(struct tree *t, bool other)
{
    if (other) {
        place_units(t);
        tree_say(t, NULL, "policy %" PRIu64 ": %u rules, %u areas", t->policy.number,
                 t->policy.rules.set.count, t->policy.areas.count);
    }
    sender_again(t);
    if (t->options.ruled) /* the store's days are those of its zone, before caps ask for them */
        t->options.ruled(t->options.arg, &t->policy);
    caps_look(t);
}

/* ---- sending ---- */

static int publish(struct tree *t, const struct unit *u, const void *bytes, size_t len)
{
    char topic[TOPIC_MAX];
    int id;

    return mqtt_publish(t->mqtt, topic_make(u->name, TOPIC_POLICY, topic), bytes, len, 1, true, 0,
                        &id);
}

/* One that cannot be sent leaves the unit with what it has. Returns less than 0: the broker takes
 * no more now. */
static int send_policy(struct tree *t, struct unit *u)
{
    _cleanup_free_ char *text = NULL, *sealed = NULL;
    size_t len;
    int r;

    strcpy(t->bundle->area, u->area);
    text = bundle_text(t->bundle);
    r = !text ? -ENOMEM
        : strlen(text) > BUNDLE_BYTES_MAX
            ? -E2BIG
            : sealed_make(t->seal_key, SEALED_POLICY, u->name, text, &sealed, &len);
    if (r == 0) {
        r = publish(t, u, sealed, len);
        if (r == 0)
            u->policy_sent = t->policy.number;
        return r;
    }
    if (u->policy_said != t->policy.number)
        tree_say(t, u->name,
                 "policy %" PRIu64 " cannot be sent, it keeps what it has: %s" ERROR_WHY,
                 t->policy.number,
                 r == -E2BIG ? "its rules, and those of what lies below its area, are too long"
                             : strerror(-r));
    u->policy_said = t->policy.number;
    return 0;
}

/* A unit that the policy names no longer: who connects anew gets nothing any more. */
static int withdraw(struct tree *t, struct unit *u)
{
    int r = u->state.policy || u->policy_sent ? publish(t, u, NULL, 0) : 0;

    if (r == 0)
        u->policy_sent = 0;
    return r;
}

void sender_send(struct tree *t)
{
    if (!t->policy.number || !t->mqtt)
        return;
    for (; t->next_policy < units_count(t->units); t->next_policy++) {
        struct unit *u = units_change(t->units, t->next_policy);

        if ((*u->area ? send_policy(t, u) : withdraw(t, u)) < 0)
            return; /* the broker is away or takes no more now: on_stored() goes on */
        if (*u->area && u->policy_sent == t->policy.number)
            failpoint(FAILPOINT_POLICY_SENT);
    }
}

/* ---- for people ---- */

const struct in_force *tree_policy(const struct tree *t)
{
    return t->policy.number ? &t->policy : NULL;
}

/*
 * The text that `policy apply` has just left comes first: an editor who has not seen it is refused.
 * The lock of the directory keeps it from coming in between. A text that is wrong is replaced.
 */
int tree_policy_put(struct tree *t, const char *text, size_t len, uint64_t edition,
                    struct error *err)
{
    struct error wrong = {0};
    struct state state;
    int r = state_open(t->options.state, &state, err);

    if (r < 0)
        return r;
    tree_policy_reload(t, &wrong);
    if (edition == 0 && t->policy.number)
        edition = UINT64_MAX; /* there was no policy when the editor looked */
    r = in_force_put(t->options.state, text, len, edition, now_ms(), &t->policy, err);
    state_close(&state);
    if (r == 0)
        use(t, true);
    return r;
}

int tree_place(struct tree *t, const char *name, const char *area, struct error *err)
{
    const struct policy_area *there = policy_unit(&t->policy.rules, name);
    _cleanup_free_ char *text = NULL;
    struct error e = {0};
    int r;

    if (!t->policy.number)
        return error_set(err, -ENOENT,
                         "no policy is in force that could say where the unit stands");
    if (there && strcmp(there->area, area) == 0)
        return 0;
    r = place_in_text(t->policy.text, area, name, &text);
    if (r == 0)
        r = tree_policy_put(t, text, strlen(text), t->policy.edition, &e);
    if (r < 0)
        return error_set(err, r, "cannot put the unit into %s (%.100s): edit the policy", area,
                         *e.text ? e.text : strerror(-r));
    return 0;
}

int tree_policy_reload(struct tree *t, struct error *err)
{
    int r = in_force_read(t->options.state, now_ms(), &t->policy, err);

    if (r > 0)
        use(t, true);
    return r < 0 ? r : 0;
}

/* ---- time ---- */

static bool look_at_carbon(struct tree *t, bool again)
{
    struct error err = {0};
    int r;

    if (!t->options.carbon || !*t->options.carbon)
        return false;
    r = carbon_read(t->options.carbon, again, now_ms(), &t->carbon, &err);
    if (r < 0 && r != t->carbon_said)
        tree_say(t, NULL,
                 "%s; the carbon intensity that was read before counts until its last hour ends "
                 "(tide why %s)",
                 err.text, error_why(&err));
    t->carbon_said = r < 0 ? r : 0;
    return r > 0;
}

/* Each day, so that valid_until is always some days ahead; and for what a unit should know. */
void sender_tick(struct tree *t)
{
    int64_t age = now_ms() - t->policy.made_ms;
    bool old = t->policy.number && (age >= RENEW_MS || age < -RENEW_MS);
    struct error err = {0};

    if ((look_at_carbon(t, old) || old) && t->policy.number) {
        int r;

        tree_policy_reload(t, &err); /* what `policy apply` has left a moment ago stays */
        r = in_force_renew(t->options.state, now_ms(), &t->policy, &err);

        if (r < 0 && !t->unrenewed)
            tree_say(t, NULL,
                     "%s; units keep the policy that they have until it ends (tide why %s)",
                     err.text, error_why(&err));
        t->unrenewed = r < 0;
        if (r == 0)
            use(t, false);
    }
    sender_send(t);
}

/* ---- begin and end ---- */

/* The policy of the first start lies where administrators look for configuration. */
static int take_first(struct tree *t, struct error *err)
{
    _cleanup_free_ char *text = NULL;
    const char *path = t->options.policy;
    struct stat status;
    struct error e = {0};
    size_t len;
    int r = path ? wholefile_read(path, YAML_BYTES_MAX, &text, &len, &status) : -ENOENT;

    if (r == -ENOENT)
        return 0;
    if (r < 0)
        return error_set(err, r, "%s: %s", path, strerror(-r));
    r = in_force_put(t->options.state, text, len, 0, now_ms(), &t->policy, &e);
    return r < 0 ? error_set(err, r, "%s:%.200s", path, e.text) : 0;
}

/* A policy that is wrong stops no energy from being stored: units keep what they have. */
int sender_begin(struct tree *t, struct error *err)
{
    struct error e = {0};
    int r;

    t->bundle = calloc(1, sizeof(*t->bundle));
    if (!t->bundle)
        return error_set(err, -ENOMEM, "out of memory");
    look_at_carbon(t, true);
    r = in_force_read(t->options.state, now_ms(), &t->policy, &e);
    if (r == 0 && !t->policy.number)
        r = take_first(t, &e);
    if (r < 0)
        tree_say(t, NULL, "%s; units keep the policy that they have (tide why %s)", e.text,
                 error_why(&e));
    if (t->policy.number)
        use(t, true);
    return 0;
}

void sender_end(struct tree *t)
{
    free(t->bundle);
    in_force_done(&t->policy);
}

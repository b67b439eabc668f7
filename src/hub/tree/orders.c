/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/tree/tree_state.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/wallclock.h"
#include "edge/sealed.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define ERROR_WORD "switch-refused"

#define ANSWER_MS 10000 /* an answer may be so late */

static void tell(const struct tree *t, const struct tree_order *o)
{
    if (t->options.ordered)
        t->options.ordered(t->options.arg, o);
}

/* ---- switches ---- */

static const struct payload_switch *find_switch(const struct unit *u, const char *name)
{
    for (uint32_t i = 0; i < u->state.switches; i++)
        if (strcmp(u->state.item[i].name, name) == 0)
            return &u->state.item[i];
    return NULL;
}

/* Refuses what can be known here; the unit decides once more. */
static int check(const struct tree *t, const struct unit *u, const char *unit, const char *name,
                 bool on, uint32_t for_s, struct error *err)
{
    const struct payload_switch *s = u ? find_switch(u, name) : NULL;

    if (!u || !u->heard)
        return error_set(err, -ENOENT, "unit %.63s was never connected", unit);
    if (!u->state.online)
        return error_set(err, -EHOSTUNREACH, "unit %s is lost: nothing can be switched there",
                         u->name);
    if (!s)
        return error_set(err, -ENOENT, "unit %s has no switch '%.63s'", u->name, name);
    if (!s->command)
        return error_set(err, -EPERM, "people may not switch '%s' of unit %s", s->name, u->name);
    if (!on && s->always_on)
        return error_set(err, -EPERM, "'%s' of unit %s stays on by its configuration", s->name,
                         u->name);
    if (for_s < 1 || for_s > TREE_ORDER_MAX_S)
        return error_set(err, -EINVAL,
                         "a command may wait for its switch for 1 to %d seconds, not %u",
                         TREE_ORDER_MAX_S, (unsigned)for_s);
    if (t->orders == ORDERS_MAX)
        return error_set(err, -EAGAIN, "%d commands wait for their units: try again", ORDERS_MAX);
    return 0;
}

static int send_order(struct tree *t, const struct tree_order *o, uint32_t for_s, struct error *err)
{
    struct payload_cmd cmd = {.until_ms = (uint64_t)o->until_ms, .on = o->on};
    _cleanup_free_ char *text = NULL, *sealed = NULL;
    char topic[TOPIC_MAX];
    size_t len;
    int id, r;

    strcpy(cmd.unit, o->unit);
    strcpy(cmd.id, o->id);
    strcpy(cmd.name, o->name);
    strcpy(cmd.by, o->by);
    text = payload_cmd_text(&cmd);
    r = text ? sealed_make(t->seal_key, SEALED_CMD, o->unit, text, &sealed, &len) : -ENOMEM;
    if (r == 0)
        r = mqtt_publish(t->mqtt, topic_make(o->unit, TOPIC_CMD, topic), sealed, len, 1, false,
                         for_s, &id);
    if (r < 0)
        return error_set(err, -EAGAIN, "the command cannot be sent now: %s", strerror(-r));
    return 0;
}

int tree_switch(struct tree *t, const char *unit, const char *name, bool on, uint32_t for_s,
                const char *by, char ret_id[PAYLOAD_WORD_MAX], struct error *err)
{
    const struct unit *u = units_find(t->units, unit);
    struct tree_order o = {.on = on, .state = "ordered"};
    uint64_t chance[2];
    int r = check(t, u, unit, name, on, for_s, err);

    if (r < 0)
        return r;
    if (getrandom(chance, sizeof(chance), 0) != sizeof(chance))
        return error_set(err, -EIO, "no random numbers");
    snprintf(o.id, sizeof(o.id), "%016" PRIx64 "%016" PRIx64, chance[0], chance[1]);
    snprintf(o.unit, sizeof(o.unit), "%s", u->name);
    snprintf(o.name, sizeof(o.name), "%s", name);
    snprintf(o.by, sizeof(o.by), "%s", by);
    o.until_ms = (int64_t)wallclock_ms() + for_s * INT64_C(1000);
    o.end_ns = clock_boot_ns() + for_s * NS_PER_S + ANSWER_MS * NS_PER_MS;
    r = send_order(t, &o, for_s, err);
    if (r < 0)
        return r;
    t->order[t->orders++] = o;
    strcpy(ret_id, o.id);
    tell(t, &o);
    return 0;
}

static void end_order(struct tree *t, size_t i, const char *state, const char *text)
{
    struct tree_order o = t->order[i];

    t->order[i] = t->order[--t->orders];
    snprintf(o.state, sizeof(o.state), "%s", state);
    snprintf(o.text, sizeof(o.text), "%s", text);
    tell(t, &o);
}

void orders_event(struct tree *t, const struct unit *u, const struct payload_event *event)
{
    json_t *data = event->data ? json_loads(event->data, 0, NULL) : NULL;
    const char *id = json_string_value(json_object_get(data, "id"));
    const char *state = json_string_value(json_object_get(data, "state"));

    for (size_t i = 0; id && state && i < t->orders; i++)
        if (strcmp(t->order[i].id, id) == 0 && strcmp(t->order[i].unit, u->name) == 0) {
            end_order(t, i, state, event->text);
            break;
        }
    json_decref(data);
}

void orders_tick(struct tree *t)
{
    int64_t now = (int64_t)wallclock_ms();
    uint64_t now_ns = clock_boot_ns();

    for (size_t i = t->orders; i-- > 0;)
        if (now > t->order[i].until_ms + ANSWER_MS || now_ns > t->order[i].end_ns)
            end_order(t, i, "expired", "the unit gave no answer in time");
}

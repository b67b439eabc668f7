/* SPDX-License-Identifier: Apache-2.0 */
#include "edge/bundle.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "edge/message_private.h"
#include "power/cap/caps.h"
#include "power/rules/rules_check.h"

#define ERROR_WORD "bad-broker-message"

#define HOUR_S      3600
#define HOUR_MS     UINT64_C(3600000)
#define SPREAD      4 /* the cheapest hour of a budget gets so much more than the dearest */
#define TIME_MAX_MS UINT64_C(253402300800000) /* the year 10000 */

static const char *const verbs[] = {
    [RULE_CAP] = "cap",     [RULE_FLOOR] = "floor", [RULE_BUDGET] = "budget",
    [RULE_SCALE] = "scale", [RULE_OFF] = "off",
};
static const char *const shapes[] = {
    [SHAPE_FLAT] = "flat", [SHAPE_TARIFF] = "tariff", [SHAPE_CARBON] = "carbon"};
static const char *const conditions[] = {
    [IF_ALWAYS] = "always", [IF_WINDOW] = "window", [IF_CARBON] = "carbon",
    [IF_PRICE] = "price",   [IF_ABSENT] = "absent",
};
static_assert(ARRAY_LEN(verbs) == RULE_VERB_MAX, "a verb without a name");
static_assert(ARRAY_LEN(shapes) == SHAPE_MAX, "a shape without a name");
static_assert(ARRAY_LEN(conditions) == IF_MAX, "a condition without a name");
static_assert((int)KIND_MAX == (int)CAP_KIND_MAX, "a kind of cap that rules do not know");

static const char *verb_name(uint32_t i)
{
    return verbs[i];
}

static const char *shape_name(uint32_t i)
{
    return shapes[i];
}

static const char *condition_name(uint32_t i)
{
    return conditions[i];
}

static const char *kind_name(uint32_t i)
{
    return cap_kind_name((enum cap_kind)i);
}

bool bundle_concerns(const struct power_rule *rule, const char *area)
{
    return area_below(area, rule->area) || area_below(rule->area, area);
}

/* ---- writing --------------------------------------------------------------------------------- */

static json_t *window_json(const struct window *w)
{
    return json_pack("{s:i, s:i, s:i, s:i}", "days", (int)w->days, "from", (int)w->from_min, "to",
                     (int)w->to_min, "zone", (int)w->zone);
}

/* Members that say nothing of this rule stay away. */
static json_t *rule_json(const struct power_rule *r)
{
    json_t *j = json_pack("{s:s, s:s, s:i, s:i}", "verb", verbs[r->verb], "area", r->area, "line",
                          (int)r->line, "column", (int)r->column);

    if (!j)
        return NULL;
    if (r->verb == RULE_OFF)
        json_object_set_new(j, "off", json_string(r->off));
    else
        json_object_set_new(j, "amount", message_number(r->amount));
    if (r->verb == RULE_CAP)
        json_object_set_new(j, "kind", json_string(kind_name(r->kind)));
    if (r->verb == RULE_BUDGET)
        json_object_set_new(j, "shape", json_string(shapes[r->shape]));
    if (r->verb == RULE_BUDGET && r->alone)
        json_object_set_new(j, "alone", message_number(r->alone));
    if (r->condition != IF_ALWAYS)
        json_object_set_new(j, "if", json_string(conditions[r->condition]));
    if (r->condition == IF_WINDOW)
        json_object_set_new(j, "window", window_json(&r->window));
    if (r->condition == IF_CARBON || r->condition == IF_PRICE)
        json_object_set_new(j, "above", message_number(r->above));
    if (r->condition == IF_ABSENT)
        json_object_set_new(j, "absent", message_number(r->absent_s));
    return j;
}

static json_t *tariff_json(const struct policy_tariff *t)
{
    json_t *windows = json_array();

    for (uint32_t i = 0; i < t->count; i++) {
        json_t *w = window_json(&t->window[i].window);

        json_object_set_new(w, "price", message_number(t->window[i].milli));
        json_array_append_new(windows, w);
    }
    return json_pack("{s:s, s:o, s:o}", "currency", t->currency, "price", message_number(t->milli),
                     "windows", windows);
}

static json_t *zones_json(const struct rule_set *s)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < s->zone_count; i++)
        json_array_append_new(list, json_string(s->zone[i]->name));
    return list;
}

static json_t *carbon_json(const struct bundle *b)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < b->carbons; i++)
        json_array_append_new(list, json_pack("[o, o]", message_number(b->carbon[i].from_ms),
                                              message_number(b->carbon[i].g)));
    return list;
}

char *bundle_text(const struct bundle *b)
{
    json_t *rules = json_array(), *j;

    for (uint32_t i = 0; i < b->set.count; i++) {
        if (!bundle_concerns(&b->set.rule[i], b->area))
            continue;
        if (json_array_append_new(rules, rule_json(&b->set.rule[i])) < 0) {
            json_decref(rules);
            return NULL;
        }
    }
    j = json_pack("{s:i, s:o, s:o, s:o, s:s, s:o, s:o, s:o}", "v", MESSAGE_VERSION, "number",
                  message_number(b->number), "made", message_number(b->made_ms), "until",
                  message_number(b->valid_until_ms), "area", b->area, "zones", zones_json(&b->set),
                  "carbon", carbon_json(b), "rules", rules);
    if (j && b->tariff.currency[0] &&
        json_object_set_new(j, "tariff", tariff_json(&b->tariff)) < 0) {
        json_decref(j);
        return NULL;
    }
    return message_text(j);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* The list of that name, which has at most @most members; NULL after a complaint, or if absent. */
static const json_t *list_of(struct reader *r, const json_t *in, const char *name, size_t most,
                             bool needed)
{
    const json_t *list = reader_member(r, in, name, needed);

    if (list && !json_is_array(list))
        reader_complain(r, "is no list", name);
    else if (json_array_size(list) > most)
        reader_complain(r, "is too long", name);
    return r->code == 0 ? list : NULL;
}

/* A zone without a file makes no policy wrong: its windows alone are in doubt. */
static void read_zones(struct reader *r, struct bundle *b)
{
    const json_t *list = list_of(r, r->message, "zones", RULES_ZONES_MAX, true), *j;
    struct error why;
    uint32_t number;
    size_t i;

    json_array_foreach (list, i, j) {
        const char *name = json_string_value(j);
        int code = zones_name(&b->zones, name ? name : "", &number, &why);

        if (code < 0) {
            r->code = error_set(r->err, code, "%s: 'zones': %s", r->what, why.text);
            return;
        }
        if (number != i) { /* named twice: indices behind it would be others' */
            reader_complain(r, "names a zone twice", "zones");
            return;
        }
        (void)zones_read(&b->zones, number, NULL);
    }
}

static void read_window(struct reader *r, const json_t *in, struct window *ret)
{
    ret->days = (uint8_t)reader_number_of(r, in, "days", 0x7f);
    ret->from_min = (uint16_t)reader_number_of(r, in, "from", WINDOW_DAY_MIN);
    ret->to_min = (uint16_t)reader_number_of(r, in, "to", WINDOW_DAY_MIN);
    ret->zone = (uint32_t)reader_number_of(r, in, "zone", RULES_ZONES_MAX);
}

static void read_tariff(struct reader *r, struct bundle *b)
{
    const json_t *j = reader_member(r, r->message, "tariff", false), *list, *w;
    struct policy_tariff *t = &b->tariff;
    size_t i;

    if (!j)
        return;
    reader_text_of(r, j, "currency", t->currency, sizeof(t->currency));
    t->milli = reader_number_of(r, j, "price", MESSAGE_NUMBER_MAX);
    list = list_of(r, j, "windows", POLICY_TARIFFS_MAX, true);
    json_array_foreach (list, i, w) {
        read_window(r, w, &t->window[i].window);
        t->window[i].milli = reader_number_of(r, w, "price", MESSAGE_NUMBER_MAX);
        if (window_check(&t->window[i].window, b->zones.count) < 0)
            reader_complain(r, "has an entry that is no window of the week", "tariff");
        t->count++;
    }
    if (r->code == 0 && !t->currency[0])
        reader_complain(r, "is empty", "currency");
}

static void read_carbon(struct reader *r, struct bundle *b)
{
    const json_t *list = list_of(r, r->message, "carbon", BUNDLE_CARBON_MAX, true), *j;
    size_t i;

    json_array_foreach (list, i, j) {
        const json_t *from = json_array_get(j, 0), *g = json_array_get(j, 1);
        struct carbon_hour *c = &b->carbon[b->carbons];

        if (json_array_size(j) != 2 || !json_is_integer(from) || !json_is_integer(g) ||
            json_integer_value(from) < 0 || json_integer_value(g) < 0) {
            reader_complain(r, "is no list of pairs of whole numbers", "carbon");
            return;
        }
        *c = (struct carbon_hour){(uint64_t)json_integer_value(from),
                                  (uint64_t)json_integer_value(g)};
        if (b->carbons && c->from_ms <= c[-1].from_ms) {
            reader_complain(r, "is not in the order of time", "carbon");
            return;
        }
        b->carbons++;
    }
}

static void read_condition(struct reader *r, const json_t *in, struct power_rule *ret)
{
    const json_t *window;

    if (!reader_member(r, in, "if", false))
        return;
    ret->condition = reader_word(r, in, "if", condition_name, IF_MAX);
    if (ret->condition == IF_WINDOW && (window = reader_member(r, in, "window", true)))
        read_window(r, window, &ret->window);
    if (ret->condition == IF_CARBON || ret->condition == IF_PRICE)
        ret->above = reader_number_of(r, in, "above", MESSAGE_NUMBER_MAX);
    if (ret->condition == IF_ABSENT)
        ret->absent_s = reader_number_of(r, in, "absent", UINT32_MAX);
}

static void read_rule(struct reader *r, const json_t *in, struct power_rule *ret)
{
    ret->verb = reader_word(r, in, "verb", verb_name, RULE_VERB_MAX);
    reader_text_of(r, in, "area", ret->area, sizeof(ret->area));
    ret->line = (uint32_t)reader_number_of(r, in, "line", INT32_MAX);
    ret->column = (uint32_t)reader_number_of(r, in, "column", INT32_MAX);
    if (reader_member(r, in, "class", false)) /* of an earlier hub: it is no rule of all jobs */
        reader_complain(r, "is in a rule, and no rule has one any more", "class");
    if (ret->verb == RULE_OFF)
        reader_text_of(r, in, "off", ret->off, sizeof(ret->off));
    else
        ret->amount = reader_number_of(r, in, "amount", RULE_AMOUNT_MAX);
    if (ret->verb == RULE_CAP)
        ret->kind = reader_word(r, in, "kind", kind_name, CAP_KIND_MAX);
    if (ret->verb == RULE_BUDGET)
        ret->shape = reader_word(r, in, "shape", shape_name, SHAPE_MAX);
    if (ret->verb == RULE_BUDGET && reader_member(r, in, "alone", false))
        ret->alone = reader_number_of(r, in, "alone", RULE_AMOUNT_MAX);
    read_condition(r, in, ret);
}

static void read_rules(struct reader *r, struct bundle *b)
{
    const json_t *list = list_of(r, r->message, "rules", RULES_MAX, true), *j;
    struct rule_fault fault;
    size_t i;

    b->rule = calloc(json_array_size(list) + 1, sizeof(*b->rule));
    if (!b->rule) {
        if (r->code == 0)
            r->code = error_set(r->err, -ENOMEM,
                                "out of memory: the rules of the %s cannot be read", r->what);
        return;
    }
    json_array_foreach (list, i, j) {
        read_rule(r, j, &b->rule[i]);
        if (r->code < 0)
            return;
    }
    b->set = (struct rule_set){b->rule, (uint32_t)json_array_size(list),
                               (const struct zone *const *)b->zones.zone, b->zones.count};
    if (r->code == 0 && rules_check(&b->set, (int64_t)(b->made_ms / 1000), &fault) < 0)
        r->code = error_set(r->err, -EINVAL,
                            "%s: the rule of line %u of the organization's policy is no rule, or "
                            "contradicts another one",
                            r->what, fault.rule < b->set.count ? b->rule[fault.rule].line : 0);
}

int bundle_read(const void *bytes, size_t len, const char *zoneinfo, struct bundle **ret,
                struct error *err)
{
    struct bundle *b = calloc(1, sizeof(*b));
    struct reader r;

    if (!b)
        return error_set(err, -ENOMEM, "out of memory: the policy cannot be read");
    b->zones.root = zoneinfo;
    reader_open(&r, "policy", bytes, len, BUNDLE_BYTES_MAX, err);
    b->number = reader_number(&r, "number");
    b->made_ms = reader_number_of(&r, r.message, "made", TIME_MAX_MS);
    b->valid_until_ms = reader_number_of(&r, r.message, "until", TIME_MAX_MS);
    reader_text(&r, "area", b->area, sizeof(b->area));
    if (r.code == 0 && b->number == 0)
        reader_complain(&r, "is zero", "number");
    if (r.code == 0 && !area_valid(b->area))
        reader_complain(&r, "is no path of an area", "area");
    if (r.code == 0)
        read_zones(&r, b);
    if (r.code == 0)
        read_tariff(&r, b);
    if (r.code == 0)
        read_carbon(&r, b);
    if (r.code == 0)
        read_rules(&r, b);
    if (r.code == 0)
        *ret = TAKE_PTR(b);
    bundle_free(b);
    return reader_close(&r);
}

int bundle_zones(struct bundle *b, struct error *err)
{
    int first = 0;

    for (uint32_t i = 0; i < b->zones.count; i++) {
        int r = zones_read(&b->zones, i, first ? NULL : err);

        first = first ? first : r;
    }
    return first;
}

struct bundle *bundle_free(struct bundle *b)
{
    if (!b)
        return NULL;
    free(b->rule);
    zones_done(&b->zones);
    free(b);
    return NULL;
}

uint64_t bundle_carbon(const struct bundle *b, uint64_t utc_ms)
{
    uint64_t g = RULE_UNKNOWN, end_ms = 0;

    for (uint32_t i = 0; i < b->carbons && b->carbon[i].from_ms <= utc_ms; i++) {
        g = b->carbon[i].g;
        end_ms = i + 1 < b->carbons ? b->carbon[i + 1].from_ms : b->carbon[i].from_ms + HOUR_MS;
    }
    return utc_ms < end_ms ? g : RULE_UNKNOWN;
}

void bundle_weigh(const struct bundle *b, uint32_t shape, struct budget *budget)
{
    uint64_t price[BUDGET_HOURS];

    for (int h = 0; h < BUDGET_HOURS; h++) {
        int64_t at_s = budget->begin_utc_s + h * HOUR_S + HOUR_S / 2;
        uint64_t value = shape == SHAPE_TARIFF   ? tariff_price(&b->tariff, b->set.zone, at_s)
                         : shape == SHAPE_CARBON ? bundle_carbon(b, (uint64_t)at_s * 1000)
                                                 : 0;

        price[h] = value == RULE_UNKNOWN ? 0 : value;
    }
    budget_weigh(price, BUDGET_HOURS, SPREAD, budget->weight);
}

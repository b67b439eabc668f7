/* SPDX-License-Identifier: Apache-2.0 */
#include "edge/payload.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "power/cap/caps.h"

#define VERSION    1
#define NUMBER_MAX ((uint64_t)INT64_MAX)

/* ---- writing --------------------------------------------------------------------------------- */

static json_t *number(uint64_t n)
{
    return json_integer((json_int_t)(n < NUMBER_MAX ? n : NUMBER_MAX));
}

static char *text_of(json_t *message)
{
    char *text = message ? json_dumps(message, JSON_COMPACT) : NULL;

    json_decref(message);
    return text;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* A message that is being read: the first problem counts, later reads do nothing. */
struct reader {
    json_t *message;
    const char *what; /* "lease" */
    struct error *err;
    int code;
};

static void complain(struct reader *r, const char *problem, const char *member)
{
    if (r->code == 0)
        r->code = error_set(r->err, -EINVAL, "%s: %s '%s'", r->what, problem, member);
}

static json_t *member(struct reader *r, const json_t *in, const char *name, bool needed)
{
    json_t *j = json_object_get(in, name);

    if (j && !json_is_null(j))
        return j;
    if (needed)
        complain(r, "no member", name);
    return NULL;
}

static uint64_t read_number_of(struct reader *r, const json_t *in, const char *name, uint64_t most)
{
    const json_t *j = member(r, in, name, true);

    if (!j)
        return 0;
    if (!json_is_integer(j) || json_integer_value(j) < 0)
        complain(r, "no whole number from 0 on is", name);
    else if ((uint64_t)json_integer_value(j) > most)
        complain(r, "too large is", name);
    else
        return (uint64_t)json_integer_value(j);
    return 0;
}

static uint64_t read_number(struct reader *r, const char *name)
{
    return read_number_of(r, r->message, name, NUMBER_MAX);
}

static bool read_bool(struct reader *r, const char *name)
{
    const json_t *j = member(r, r->message, name, true);

    if (j && !json_is_boolean(j))
        complain(r, "neither true nor false is", name);
    return json_is_true(j);
}

/* Control characters would end up in a log or on a terminal. */
static void read_text_of(struct reader *r, const json_t *in, const char *name, char *ret,
                         size_t size)
{
    const json_t *j = member(r, in, name, true);
    const char *text = json_string_value(j);

    if (!j)
        return;
    if (!text || json_string_length(j) != strlen(text)) {
        complain(r, "no text is", name);
        return;
    }
    for (const char *c = text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f) {
            complain(r, "a control character is in", name);
            return;
        }
    if ((size_t)snprintf(ret, size, "%s", text) >= size)
        complain(r, "too long is", name);
}

static void read_text(struct reader *r, const char *name, char *ret, size_t size)
{
    read_text_of(r, r->message, name, ret, size);
}

/* Index of the text among the names, as enums of ours have them. */
static uint32_t read_word(struct reader *r, const json_t *in, const char *name,
                          const char *(*name_of)(uint32_t), uint32_t count)
{
    char word[PAYLOAD_WORD_MAX] = "";

    read_text_of(r, in, name, word, sizeof(word));
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(word, name_of(i)) == 0)
            return i;
    complain(r, "an unknown word is", name);
    return 0;
}

static const char *basis_name(uint32_t i)
{
    return power_basis_name((enum power_basis)i);
}

static const char *kind_name(uint32_t i)
{
    return cap_kind_name((enum cap_kind)i);
}

static void open_message(struct reader *r, const char *what, const void *bytes, size_t len,
                         struct error *err)
{
    json_error_t problem;

    *r = (struct reader){.what = what, .err = err};
    if (len > PAYLOAD_BYTES_MAX) {
        r->code =
            error_set(err, -EINVAL, "%s: %zu bytes are more than %d", what, len, PAYLOAD_BYTES_MAX);
        return;
    }
    r->message = json_loadb(bytes, len, JSON_REJECT_DUPLICATES, &problem);
    if (!r->message)
        r->code = error_set(err, -EINVAL, "%s: no JSON: %s at byte %d", what, problem.text,
                            problem.position);
    else if (!json_is_object(r->message))
        r->code = error_set(err, -EINVAL, "%s: no JSON object", what);
    else if (read_number(r, "v") != VERSION)
        complain(r, "an unknown version is", "v");
}

static int close_message(struct reader *r)
{
    json_decref(r->message);
    return r->code;
}

/* ---- state ----------------------------------------------------------------------------------- */

char *payload_state_text(const struct payload_state *s)
{
    json_t *j = json_pack("{s:i, s:b}", "v", VERSION, "online", s->online);

    if (j && s->online) {
        json_object_set_new(j, "role", json_string(s->role));
        json_object_set_new(j, "version", json_string(s->version));
        json_object_set_new(j, "boot", number(s->boot));
        json_object_set_new(j, "policy", number(s->policy));
        json_object_set_new(j, "synced", json_boolean(s->synced));
    }
    return text_of(j);
}

int payload_state_read(const void *bytes, size_t len, struct payload_state *ret, struct error *err)
{
    struct payload_state s = {0};
    struct reader r;

    open_message(&r, "state", bytes, len, err);
    s.online = read_bool(&r, "online");
    if (s.online) {
        read_text(&r, "role", s.role, sizeof(s.role));
        read_text(&r, "version", s.version, sizeof(s.version));
        s.boot = read_number(&r, "boot");
        s.policy = read_number(&r, "policy");
        s.synced = read_bool(&r, "synced");
    }
    if (r.code == 0)
        *ret = s;
    return close_message(&r);
}

/* ---- energy ---------------------------------------------------------------------------------- */

char *payload_energy_text(const struct payload_energy *e)
{
    json_t *records = json_array(), *j;

    j = json_pack("{s:i, s:I, s:o}", "v", VERSION, "boot",
                  (json_int_t)(e->count ? e->record[0].boot & INT64_MAX : 0), "records", records);
    for (size_t i = 0; j && i < e->count; i++) {
        const struct outbox_record *o = &e->record[i];
        json_t *r = json_pack(
            "{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:i}", "point", o->point, "seq",
            number(o->seq), "from", number(o->from_ms), "to", number(o->to_ms), "mono",
            number(o->mono_ns), "uj", number(o->total.uj), "low", number(o->total.low_uj), "high",
            number(o->total.high_uj), "basis", basis_name(o->total.basis), "gap", (int)o->gap_ms);

        if (json_array_append_new(records, r) < 0) {
            json_decref(j);
            return NULL;
        }
    }
    return text_of(j);
}

static void read_record(struct reader *r, const json_t *in, uint64_t boot,
                        const struct outbox_record *before, struct outbox_record *ret)
{
    ret->boot = boot;
    read_text_of(r, in, "point", ret->point, sizeof(ret->point));
    ret->seq = read_number_of(r, in, "seq", NUMBER_MAX);
    ret->from_ms = read_number_of(r, in, "from", NUMBER_MAX);
    ret->to_ms = read_number_of(r, in, "to", NUMBER_MAX);
    ret->mono_ns = read_number_of(r, in, "mono", NUMBER_MAX);
    ret->total.uj = read_number_of(r, in, "uj", NUMBER_MAX);
    ret->total.low_uj = read_number_of(r, in, "low", ret->total.uj);
    ret->total.high_uj = read_number_of(r, in, "high", NUMBER_MAX);
    ret->total.basis = read_word(r, in, "basis", basis_name, POWER_BASIS_MAX);
    ret->gap_ms = (uint32_t)read_number_of(r, in, "gap", INT32_MAX);
    if (r->code == 0 && ret->total.high_uj < ret->total.uj)
        complain(r, "less than 'uj' is", "high");
    if (r->code == 0 && ret->to_ms < ret->from_ms)
        complain(r, "before 'from' is", "to");
    if (r->code == 0 && (ret->seq == 0 || (before && ret->seq <= before->seq)))
        complain(r, "not larger than before is", "seq");
    if (r->code == 0 && ret->point[0] == '\0')
        complain(r, "empty is", "point");
}

int payload_energy_read(const void *bytes, size_t len, struct payload_energy *ret,
                        struct error *err)
{
    struct payload_energy *e = calloc(1, sizeof(*e));
    json_t *records;
    struct reader r;
    uint64_t boot;

    if (!e)
        return error_set(err, -ENOMEM, "no memory for records");
    open_message(&r, "energy", bytes, len, err);
    boot = read_number(&r, "boot");
    records = member(&r, r.message, "records", true);
    e->count = json_array_size(records);
    if (records && !json_is_array(records))
        complain(&r, "no list is", "records");
    if (e->count > PAYLOAD_RECORDS_MAX)
        complain(&r, "too long is", "records");
    for (size_t i = 0; r.code == 0 && i < e->count; i++)
        read_record(&r, json_array_get(records, i), boot, i ? &e->record[i - 1] : NULL,
                    &e->record[i]);
    if (r.code == 0)
        *ret = *e;
    free(e);
    return close_message(&r);
}

/* ---- demand ---------------------------------------------------------------------------------- */

char *payload_demand_text(const struct payload_demand *d)
{
    json_t *points = json_array(), *j;

    for (uint32_t i = 0; i < d->demand.count; i++)
        json_array_append_new(points, json_pack("[o, o]", number(d->demand.point[i].uw),
                                                number(d->demand.point[i].value)));
    j = json_pack("{s:i, s:o, s:o}", "v", VERSION, "points", points, "floor", number(d->floor_uw));
    if (j && d->draw.basis != POWER_UNKNOWN)
        json_object_set_new(j, "draw",
                            json_pack("{s:o, s:o, s:o, s:s}", "uw", number(d->draw.uw), "low",
                                      number(d->draw.low_uw), "high", number(d->draw.high_uw),
                                      "basis", basis_name(d->draw.basis)));
    return text_of(j);
}

static void read_points(struct reader *r, struct demand *ret)
{
    json_t *points = member(r, r->message, "points", true);

    if (points && !json_is_array(points))
        complain(r, "no list is", "points");
    if (json_array_size(points) > DEMAND_POINTS)
        complain(r, "too long is", "points");
    for (size_t i = 0; r->code == 0 && i < json_array_size(points); i++) {
        json_t *p = json_array_get(points, i), *uw = json_array_get(p, 0);
        json_t *value = json_array_get(p, 1);

        if (json_array_size(p) != 2 || !json_is_integer(uw) || !json_is_integer(value) ||
            json_integer_value(uw) < 0 || json_integer_value(value) < 0) {
            complain(r, "no pairs of whole numbers are", "points");
            return;
        }
        ret->point[i] = (struct demand_point){(uint64_t)json_integer_value(uw),
                                              (uint64_t)json_integer_value(value)};
        ret->count++;
    }
    if (r->code == 0 && ret->count && demand_check(ret) < 0)
        complain(r, "no curve that rises ever more slowly is", "points");
}

int payload_demand_read(const void *bytes, size_t len, struct payload_demand *ret,
                        struct error *err)
{
    struct payload_demand d = {0};
    struct reader r;
    json_t *draw;

    open_message(&r, "demand", bytes, len, err);
    read_points(&r, &d.demand);
    d.floor_uw = read_number_of(&r, r.message, "floor", DEMAND_MAX);
    draw = member(&r, r.message, "draw", false);
    if (draw) {
        d.draw.uw = read_number_of(&r, draw, "uw", DEMAND_MAX);
        d.draw.low_uw = read_number_of(&r, draw, "low", d.draw.uw);
        d.draw.high_uw = read_number_of(&r, draw, "high", DEMAND_MAX);
        d.draw.basis = read_word(&r, draw, "basis", basis_name, POWER_BASIS_MAX);
        if (r.code == 0 && d.draw.high_uw < d.draw.uw)
            complain(&r, "less than 'uw' is", "high");
    }
    if (r.code == 0)
        *ret = d;
    return close_message(&r);
}

/* ---- leases ---------------------------------------------------------------------------------- */

char *payload_ask_text(const struct payload_ask *a)
{
    return text_of(json_pack("{s:i, s:o, s:o}", "v", VERSION, "boot", number(a->boot), "stamp",
                             number(a->stamp_ns)));
}

int payload_ask_read(const void *bytes, size_t len, struct payload_ask *ret, struct error *err)
{
    struct payload_ask a;
    struct reader r;

    open_message(&r, "ask", bytes, len, err);
    a.boot = read_number(&r, "boot");
    a.stamp_ns = read_number(&r, "stamp");
    if (r.code == 0)
        *ret = a;
    return close_message(&r);
}

char *payload_ack_text(const struct payload_ack *a)
{
    return text_of(json_pack("{s:i, s:o, s:o, s:o, s:b}", "v", VERSION, "boot", number(a->boot),
                             "number", number(a->number), "uw", number(a->uw), "kept", a->kept));
}

int payload_ack_read(const void *bytes, size_t len, struct payload_ack *ret, struct error *err)
{
    struct payload_ack a;
    struct reader r;

    open_message(&r, "ack", bytes, len, err);
    a.boot = read_number(&r, "boot");
    a.number = read_number(&r, "number");
    a.uw = read_number(&r, "uw");
    a.kept = read_bool(&r, "kept");
    if (r.code == 0)
        *ret = a;
    return close_message(&r);
}

char *payload_lease_text(const struct lease_message *m)
{
    return text_of(json_pack("{s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:s}", "v", VERSION, "boot",
                             number(m->boot), "stamp", number(m->stamp_ns), "number",
                             number(m->number), "uw", number(m->uw), "floor", number(m->floor_uw),
                             "ttl", number(m->ttl_ms), "kind", kind_name(m->kind)));
}

int payload_lease_read(const void *bytes, size_t len, struct lease_message *ret, struct error *err)
{
    struct lease_message m;
    struct reader r;

    open_message(&r, "lease", bytes, len, err);
    m.boot = read_number(&r, "boot");
    m.stamp_ns = read_number(&r, "stamp");
    m.number = read_number(&r, "number");
    m.uw = read_number_of(&r, r.message, "uw", DEMAND_MAX);
    m.floor_uw = read_number_of(&r, r.message, "floor", DEMAND_MAX);
    m.ttl_ms = read_number_of(&r, r.message, "ttl", LEASE_TTL_MS);
    m.kind = read_word(&r, r.message, "kind", kind_name, CAP_KIND_MAX);
    if (r.code == 0)
        *ret = m;
    return close_message(&r);
}

/* ---- events, receipts, orders ---------------------------------------------------------------- */

char *payload_event_text(const struct payload_event *e)
{
    json_t *j = json_pack("{s:i, s:o, s:s, s:s}", "v", VERSION, "time", number(e->time_ms), "type",
                          e->type, "text", e->text);

    if (j && e->data)
        json_object_set_new(j, "data", json_loads(e->data, 0, NULL));
    return text_of(j);
}

int payload_event_read(const void *bytes, size_t len, struct payload_event *ret, struct error *err)
{
    struct payload_event e = {0};
    struct reader r;
    json_t *data;

    open_message(&r, "event", bytes, len, err);
    e.time_ms = read_number(&r, "time");
    read_text(&r, "type", e.type, sizeof(e.type));
    read_text(&r, "text", e.text, sizeof(e.text));
    data = member(&r, r.message, "data", false);
    if (data && !json_is_object(data))
        complain(&r, "no object is", "data");
    if (r.code == 0 && data && !(e.data = json_dumps(data, JSON_COMPACT)))
        r.code = error_set(err, -ENOMEM, "event: no memory");
    if (r.code == 0)
        *ret = e;
    return close_message(&r);
}

char *payload_receipt_text(const struct payload_receipt *r)
{
    return text_of(
        json_pack("{s:i, s:o, s:o}", "v", VERSION, "boot", number(r->boot), "seq", number(r->seq)));
}

int payload_receipt_read(const void *bytes, size_t len, struct payload_receipt *ret,
                         struct error *err)
{
    struct payload_receipt p;
    struct reader r;

    open_message(&r, "receipt", bytes, len, err);
    p.boot = read_number(&r, "boot");
    p.seq = read_number(&r, "seq");
    if (r.code == 0)
        *ret = p;
    return close_message(&r);
}

char *payload_cmd_text(const struct payload_cmd *c)
{
    return text_of(json_pack("{s:i, s:s, s:s, s:o, s:s, s:b, s:s}", "v", VERSION, "unit", c->unit,
                             "id", c->id, "until", number(c->until_ms), "switch", c->name, "on",
                             c->on, "by", c->by));
}

int payload_cmd_read(const void *bytes, size_t len, struct payload_cmd *ret, struct error *err)
{
    struct payload_cmd c = {0};
    struct reader r;

    open_message(&r, "cmd", bytes, len, err);
    read_text(&r, "unit", c.unit, sizeof(c.unit));
    read_text(&r, "id", c.id, sizeof(c.id));
    read_text(&r, "switch", c.name, sizeof(c.name));
    read_text(&r, "by", c.by, sizeof(c.by));
    c.until_ms = read_number(&r, "until");
    c.on = read_bool(&r, "on");
    if (r.code == 0 && !edge_name_valid(c.unit))
        complain(&r, "no name of a unit is", "unit");
    if (r.code == 0)
        *ret = c;
    return close_message(&r);
}

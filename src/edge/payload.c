/* SPDX-License-Identifier: Apache-2.0 */
#include "edge/payload.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "edge/message_private.h"
#include "power/cap/caps.h"

#define ERROR_WORD "bad-broker-message"

static const char *basis_name(uint32_t i)
{
    return power_basis_name((enum power_basis)i);
}

static const char *kind_name(uint32_t i)
{
    return cap_kind_name((enum cap_kind)i);
}

/* ---- state ----------------------------------------------------------------------------------- */

static json_t *switches_json(const struct payload_state *s)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < s->switches; i++) {
        const struct payload_switch *w = &s->item[i];

        json_array_append_new(list, json_pack("{s:s, s:b, s:b, s:b, s:b}", "name", w->name, "on",
                                              w->on, "known", w->known, "always_on", w->always_on,
                                              "command", w->command));
    }
    return list;
}

static void set_told(json_t *j, const char *name, uint64_t value)
{
    if (value != PAYLOAD_UNTOLD)
        json_object_set_new(j, name, message_number(value));
}

char *payload_state_text(const struct payload_state *s)
{
    json_t *j = json_pack("{s:i, s:b}", "v", MESSAGE_VERSION, "online", s->online);

    if (j && s->online) {
        json_object_set_new(j, "role", json_string(s->role));
        json_object_set_new(j, "version", json_string(s->version));
        json_object_set_new(j, "boot", message_number(s->boot));
        json_object_set_new(j, "policy", message_number(s->policy));
        json_object_set_new(j, "synced", json_boolean(s->synced));
        if (s->switches)
            json_object_set_new(j, "switches", switches_json(s));
        set_told(j, "absent_s", s->absent_s);
        set_told(j, "cap_uw", s->cap_uw);
        set_told(j, "budget_uj", s->budget_uj);
        set_told(j, "budget_used_uj", s->budget_used_uj);
    }
    return message_text(j);
}

static void read_switches(struct reader *r, struct payload_state *s)
{
    json_t *list = reader_member(r, r->message, "switches", false), *j;
    size_t i;

    if (list && !json_is_array(list))
        reader_complain(r, "is no list", "switches");
    if (json_array_size(list) > PAYLOAD_SWITCHES)
        reader_complain(r, "is too long", "switches");
    if (r->code < 0)
        return;
    json_array_foreach (list, i, j) {
        struct payload_switch *w = &s->item[s->switches++];

        reader_text_of(r, j, "name", w->name, sizeof(w->name));
        w->on = reader_bool_of(r, j, "on");
        w->known = reader_bool_of(r, j, "known");
        w->always_on = reader_bool_of(r, j, "always_on");
        w->command = reader_bool_of(r, j, "command");
    }
}

static uint64_t read_told(struct reader *r, const char *name)
{
    return reader_member(r, r->message, name, false) ? reader_number(r, name) : PAYLOAD_UNTOLD;
}

int payload_state_read(const void *bytes, size_t len, struct payload_state *ret, struct error *err)
{
    struct payload_state s = {0};
    struct reader r;

    reader_open(&r, "state", bytes, len, PAYLOAD_BYTES_MAX, err);
    s.online = reader_bool(&r, "online");
    if (s.online) {
        reader_text(&r, "role", s.role, sizeof(s.role));
        reader_text(&r, "version", s.version, sizeof(s.version));
        s.boot = reader_number(&r, "boot");
        s.policy = reader_number(&r, "policy");
        s.synced = reader_bool(&r, "synced");
        read_switches(&r, &s);
    }
    s.absent_s = read_told(&r, "absent_s");
    s.cap_uw = read_told(&r, "cap_uw");
    s.budget_uj = read_told(&r, "budget_uj");
    s.budget_used_uj = read_told(&r, "budget_used_uj");
    if (r.code == 0)
        *ret = s;
    return reader_close(&r);
}

/* ---- energy ---------------------------------------------------------------------------------- */

char *payload_energy_text(const struct payload_energy *e)
{
    json_t *records = json_array(), *j;

    j = json_pack("{s:i, s:I, s:o, s:o}", "v", MESSAGE_VERSION, "boot",
                  (json_int_t)(e->count ? e->record[0].boot & INT64_MAX : 0), "after",
                  message_number(e->after), "records", records);
    for (size_t i = 0; j && i < e->count; i++) {
        const struct outbox_record *o = &e->record[i];
        json_t *r =
            json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:i}", "point", o->point,
                      "seq", message_number(o->seq), "from", message_number(o->from_ms), "to",
                      message_number(o->to_ms), "mono", message_number(o->mono_ns), "uj",
                      message_number(o->total.uj), "low", message_number(o->total.low_uj), "high",
                      message_number(o->total.high_uj), "basis", basis_name(o->total.basis), "gap",
                      (int)o->gap_ms);

        if (json_array_append_new(records, r) < 0) {
            json_decref(j);
            return NULL;
        }
    }
    return message_text(j);
}

static void read_record(struct reader *r, const json_t *in, uint64_t boot,
                        const struct outbox_record *before, struct outbox_record *ret)
{
    ret->boot = boot;
    reader_text_of(r, in, "point", ret->point, sizeof(ret->point));
    ret->seq = reader_number_of(r, in, "seq", MESSAGE_NUMBER_MAX);
    ret->from_ms = reader_number_of(r, in, "from", MESSAGE_NUMBER_MAX);
    ret->to_ms = reader_number_of(r, in, "to", MESSAGE_NUMBER_MAX);
    ret->mono_ns = reader_number_of(r, in, "mono", MESSAGE_NUMBER_MAX);
    ret->total.uj = reader_number_of(r, in, "uj", MESSAGE_NUMBER_MAX);
    ret->total.low_uj = reader_number_of(r, in, "low", ret->total.uj);
    ret->total.high_uj = reader_number_of(r, in, "high", MESSAGE_NUMBER_MAX);
    ret->total.basis = reader_word(r, in, "basis", basis_name, POWER_BASIS_MAX);
    ret->gap_ms = (uint32_t)reader_number_of(r, in, "gap", INT32_MAX);
    if (r->code == 0 && ret->total.high_uj < ret->total.uj)
        reader_complain(r, "is less than 'uj'", "high");
    if (r->code == 0 && ret->to_ms < ret->from_ms)
        reader_complain(r, "is before 'from'", "to");
    if (r->code == 0 && (ret->seq == 0 || (before && ret->seq <= before->seq)))
        reader_complain(r, "is not larger than before", "seq");
    if (r->code == 0 && ret->point[0] == '\0')
        reader_complain(r, "is empty", "point");
}

int payload_energy_read(const void *bytes, size_t len, struct payload_energy *ret,
                        struct error *err)
{
    struct payload_energy *e = calloc(1, sizeof(*e));
    json_t *records;
    struct reader r;
    uint64_t boot;

    if (!e)
        return error_set(err, -ENOMEM, "out of memory: the records cannot be read");
    reader_open(&r, "energy", bytes, len, PAYLOAD_BYTES_MAX, err);
    boot = reader_number(&r, "boot");
    if (reader_member(&r, r.message, "after", false))
        e->after = reader_number(&r, "after");
    records = reader_member(&r, r.message, "records", true);
    e->count = json_array_size(records);
    if (records && !json_is_array(records))
        reader_complain(&r, "is no list", "records");
    if (e->count > PAYLOAD_RECORDS_MAX)
        reader_complain(&r, "is too long", "records");
    for (size_t i = 0; r.code == 0 && i < e->count; i++)
        read_record(&r, json_array_get(records, i), boot, i ? &e->record[i - 1] : NULL,
                    &e->record[i]);
    if (r.code == 0)
        *ret = *e;
    free(e);
    return reader_close(&r);
}

/* ---- demand ---------------------------------------------------------------------------------- */

char *payload_demand_text(const struct payload_demand *d)
{
    json_t *points = json_array(), *j;

    for (uint32_t i = 0; i < d->demand.count; i++)
        json_array_append_new(points, json_pack("[o, o]", message_number(d->demand.point[i].uw),
                                                message_number(d->demand.point[i].value)));
    j = json_pack("{s:i, s:o, s:o}", "v", MESSAGE_VERSION, "points", points, "floor",
                  message_number(d->floor_uw));
    if (j && d->draw.basis != POWER_UNKNOWN)
        json_object_set_new(j, "draw",
                            json_pack("{s:o, s:o, s:o, s:s}", "uw", message_number(d->draw.uw),
                                      "low", message_number(d->draw.low_uw), "high",
                                      message_number(d->draw.high_uw), "basis",
                                      basis_name(d->draw.basis)));
    return message_text(j);
}

static void read_points(struct reader *r, struct demand *ret)
{
    json_t *points = reader_member(r, r->message, "points", true);

    if (points && !json_is_array(points))
        reader_complain(r, "is no list", "points");
    if (json_array_size(points) > DEMAND_POINTS)
        reader_complain(r, "is too long", "points");
    for (size_t i = 0; r->code == 0 && i < json_array_size(points); i++) {
        json_t *p = json_array_get(points, i), *uw = json_array_get(p, 0);
        json_t *value = json_array_get(p, 1);

        if (json_array_size(p) != 2 || !json_is_integer(uw) || !json_is_integer(value) ||
            json_integer_value(uw) < 0 || json_integer_value(value) < 0) {
            reader_complain(r, "is no list of pairs of whole numbers", "points");
            return;
        }
        ret->point[i] = (struct demand_point){(uint64_t)json_integer_value(uw),
                                              (uint64_t)json_integer_value(value)};
        ret->count++;
    }
    if (r->code == 0 && ret->count && demand_check(ret) < 0)
        reader_complain(r, "is no curve that rises ever more slowly", "points");
}

int payload_demand_read(const void *bytes, size_t len, struct payload_demand *ret,
                        struct error *err)
{
    struct payload_demand d = {0};
    struct reader r;
    json_t *draw;

    reader_open(&r, "demand", bytes, len, PAYLOAD_BYTES_MAX, err);
    read_points(&r, &d.demand);
    d.floor_uw = reader_number_of(&r, r.message, "floor", DEMAND_MAX);
    draw = reader_member(&r, r.message, "draw", false);
    if (draw) {
        d.draw.uw = reader_number_of(&r, draw, "uw", DEMAND_MAX);
        d.draw.low_uw = reader_number_of(&r, draw, "low", d.draw.uw);
        d.draw.high_uw = reader_number_of(&r, draw, "high", DEMAND_MAX);
        d.draw.basis = reader_word(&r, draw, "basis", basis_name, POWER_BASIS_MAX);
        if (r.code == 0 && d.draw.high_uw < d.draw.uw)
            reader_complain(&r, "is less than 'uw'", "high");
    }
    if (r.code == 0)
        *ret = d;
    return reader_close(&r);
}

/* ---- who was shrunk -------------------------------------------------------------------------- */

char *payload_shrunk_text(const struct payload_shrunk *s)
{
    json_t *nodes = json_array(), *jobs = json_array();

    for (uint32_t i = 0; i < s->nodes; i++)
        json_array_append_new(nodes, json_pack("{s:s, s:I, s:I}", "node", s->node[i].name, "jobs",
                                               (json_int_t)s->node[i].jobs, "cores",
                                               (json_int_t)s->node[i].cores));
    for (uint32_t i = 0; i < s->jobs; i++)
        json_array_append_new(jobs, json_pack("{s:s, s:s, s:s, s:I}", "node", s->job[i].node, "job",
                                              s->job[i].name, "user", s->job[i].user, "cores",
                                              (json_int_t)s->job[i].cores));
    return message_text(
        json_pack("{s:i, s:o, s:o}", "v", MESSAGE_VERSION, "nodes", nodes, "jobs", jobs));
}

/* The list of that name; NULL: there is none, or it is refused. */
static json_t *read_list(struct reader *r, const char *name, size_t most)
{
    json_t *list = reader_member(r, r->message, name, true);

    if (list && !json_is_array(list))
        reader_complain(r, "is no list", name);
    if (json_array_size(list) > most)
        reader_complain(r, "is too long", name);
    return r->code < 0 ? NULL : list;
}

static void read_node_name(struct reader *r, const json_t *in, char ret[EDGE_NAME_MAX])
{
    reader_text_of(r, in, "node", ret, EDGE_NAME_MAX);
    if (r->code == 0 && !edge_name_valid(ret))
        reader_complain(r, "is no name of a unit", "node");
}

int payload_shrunk_read(const void *bytes, size_t len, struct payload_shrunk *ret,
                        struct error *err)
{
    struct payload_shrunk *s = calloc(1, sizeof(*s));
    json_t *list, *j;
    struct reader r;
    size_t i;

    if (!s)
        return error_set(err, -ENOMEM, "out of memory: the message cannot be read");
    reader_open(&r, "shrunk", bytes, len, PAYLOAD_BYTES_MAX, err);
    list = read_list(&r, "nodes", PAYLOAD_NODES_MAX);
    json_array_foreach (list, i, j) {
        struct payload_shrunk_node *n = &s->node[s->nodes++];

        read_node_name(&r, j, n->name);
        n->jobs = (uint32_t)reader_number_of(&r, j, "jobs", INT32_MAX);
        n->cores = (uint32_t)reader_number_of(&r, j, "cores", INT32_MAX);
    }
    list = read_list(&r, "jobs", PAYLOAD_SHRUNK_JOBS);
    json_array_foreach (list, i, j) {
        struct payload_shrunk_job *one = &s->job[s->jobs++];

        read_node_name(&r, j, one->node);
        reader_text_of(&r, j, "job", one->name, sizeof(one->name));
        reader_text_of(&r, j, "user", one->user, sizeof(one->user));
        one->cores = (uint32_t)reader_number_of(&r, j, "cores", INT32_MAX);
    }
    if (r.code == 0)
        *ret = *s;
    free(s);
    return reader_close(&r);
}

/* ---- leases ---------------------------------------------------------------------------------- */

char *payload_ask_text(const struct payload_ask *a)
{
    return message_text(json_pack("{s:i, s:o, s:o}", "v", MESSAGE_VERSION, "boot",
                                  message_number(a->boot), "stamp", message_number(a->stamp_ns)));
}

int payload_ask_read(const void *bytes, size_t len, struct payload_ask *ret, struct error *err)
{
    struct payload_ask a;
    struct reader r;

    reader_open(&r, "ask", bytes, len, PAYLOAD_BYTES_MAX, err);
    a.boot = reader_number(&r, "boot");
    a.stamp_ns = reader_number(&r, "stamp");
    if (r.code == 0)
        *ret = a;
    return reader_close(&r);
}

char *payload_ack_text(const struct payload_ack *a)
{
    return message_text(json_pack("{s:i, s:o, s:o, s:o, s:b}", "v", MESSAGE_VERSION, "boot",
                                  message_number(a->boot), "number", message_number(a->number),
                                  "uw", message_number(a->uw), "kept", a->kept));
}

int payload_ack_read(const void *bytes, size_t len, struct payload_ack *ret, struct error *err)
{
    struct payload_ack a;
    struct reader r;

    reader_open(&r, "ack", bytes, len, PAYLOAD_BYTES_MAX, err);
    a.boot = reader_number(&r, "boot");
    a.number = reader_number(&r, "number");
    a.uw = reader_number(&r, "uw");
    a.kept = reader_bool(&r, "kept");
    if (r.code == 0)
        *ret = a;
    return reader_close(&r);
}

char *payload_lease_text(const struct lease_message *m)
{
    return message_text(json_pack("{s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:s}", "v", MESSAGE_VERSION,
                                  "boot", message_number(m->boot), "stamp",
                                  message_number(m->stamp_ns), "number", message_number(m->number),
                                  "uw", message_number(m->uw), "floor", message_number(m->floor_uw),
                                  "ttl", message_number(m->ttl_ms), "kind", kind_name(m->kind)));
}

int payload_lease_read(const void *bytes, size_t len, struct lease_message *ret, struct error *err)
{
    struct lease_message m;
    struct reader r;

    reader_open(&r, "lease", bytes, len, PAYLOAD_BYTES_MAX, err);
    m.boot = reader_number(&r, "boot");
    m.stamp_ns = reader_number(&r, "stamp");
    m.number = reader_number(&r, "number");
    m.uw = reader_number_of(&r, r.message, "uw", DEMAND_MAX);
    m.floor_uw = reader_number_of(&r, r.message, "floor", DEMAND_MAX);
    m.ttl_ms = reader_number_of(&r, r.message, "ttl", LEASE_TTL_MS);
    m.kind = reader_word(&r, r.message, "kind", kind_name, CAP_KIND_MAX);
    if (r.code == 0)
        *ret = m;
    return reader_close(&r);
}

/* ---- events, receipts, orders ---------------------------------------------------------------- */

char *payload_event_text(const struct payload_event *e)
{
    json_t *j = json_pack("{s:i, s:o, s:s, s:s}", "v", MESSAGE_VERSION, "time",
                          message_number(e->time_ms), "type", e->type, "text", e->text);

    if (j && e->data)
        json_object_set_new(j, "data", json_loads(e->data, 0, NULL));
    return message_text(j);
}

int payload_event_read(const void *bytes, size_t len, struct payload_event *ret, struct error *err)
{
    struct payload_event e = {0};
    struct reader r;
    json_t *data;

    reader_open(&r, "event", bytes, len, PAYLOAD_BYTES_MAX, err);
    e.time_ms = reader_number(&r, "time");
    reader_text(&r, "type", e.type, sizeof(e.type));
    reader_text(&r, "text", e.text, sizeof(e.text));
    data = reader_member(&r, r.message, "data", false);
    if (data && !json_is_object(data))
        reader_complain(&r, "is no object", "data");
    if (r.code == 0 && data && !(e.data = json_dumps(data, JSON_COMPACT)))
        r.code = error_set(err, -ENOMEM, "out of memory: the event cannot be read");
    if (r.code == 0)
        *ret = e;
    return reader_close(&r);
}

char *payload_reading_text(const struct payload_reading *m)
{
    json_t *j = json_pack("{s:i, s:s, s:i, s:b}", "v", MESSAGE_VERSION, "name", m->name, "error",
                          (int)m->error_permille, "slow", m->slow);

    if (j && m->has_uw)
        json_object_set_new(j, "uw", message_number(m->uw));
    if (j && m->has_uj)
        json_object_set_new(j, "uj", message_number(m->uj));
    return message_text(j);
}

int payload_reading_read(const void *bytes, size_t len, struct payload_reading *ret,
                         struct error *err)
{
    struct payload_reading m = {0};
    struct reader r;

    reader_open(&r, "reading", bytes, len, PAYLOAD_BYTES_MAX, err);
    reader_text(&r, "name", m.name, sizeof(m.name));
    m.error_permille = (uint32_t)reader_number_of(&r, r.message, "error", 1000);
    m.slow = reader_bool(&r, "slow");
    m.has_uw = reader_member(&r, r.message, "uw", false) != NULL;
    m.has_uj = reader_member(&r, r.message, "uj", false) != NULL;
    if (m.has_uw)
        m.uw = reader_number_of(&r, r.message, "uw", POWER_UW_MAX);
    if (m.has_uj)
        m.uj = reader_number(&r, "uj");
    if (r.code == 0 && !m.has_uw && !m.has_uj)
        reader_complain(&r, "is missing", "uw");
    if (r.code == 0)
        *ret = m;
    return reader_close(&r);
}

char *payload_receipt_text(const struct payload_receipt *r)
{
    return message_text(json_pack("{s:i, s:o, s:o}", "v", MESSAGE_VERSION, "boot",
                                  message_number(r->boot), "seq", message_number(r->seq)));
}

int payload_receipt_read(const void *bytes, size_t len, struct payload_receipt *ret,
                         struct error *err)
{
    struct payload_receipt p;
    struct reader r;

    reader_open(&r, "receipt", bytes, len, PAYLOAD_BYTES_MAX, err);
    p.boot = reader_number(&r, "boot");
    p.seq = reader_number(&r, "seq");
    if (r.code == 0)
        *ret = p;
    return reader_close(&r);
}

char *payload_cmd_text(const struct payload_cmd *c)
{
    return message_text(json_pack(
        "{s:i, s:s, s:s, s:o, s:s, s:b, s:s}", "v", MESSAGE_VERSION, "unit", c->unit, "id", c->id,
        "until", message_number(c->until_ms), "switch", c->name, "on", c->on, "by", c->by));
}

int payload_cmd_read(const void *bytes, size_t len, struct payload_cmd *ret, struct error *err)
{
    struct payload_cmd c = {0};
    struct reader r;

    reader_open(&r, "cmd", bytes, len, PAYLOAD_BYTES_MAX, err);
    reader_text(&r, "unit", c.unit, sizeof(c.unit));
    reader_text(&r, "id", c.id, sizeof(c.id));
    reader_text(&r, "switch", c.name, sizeof(c.name));
    reader_text(&r, "by", c.by, sizeof(c.by));
    c.until_ms = reader_number(&r, "until");
    c.on = reader_bool(&r, "on");
    if (r.code == 0 && !edge_name_valid(c.unit))
        reader_complain(&r, "is no name of a unit", "unit");
    if (r.code == 0)
        *ret = c;
    return reader_close(&r);
}

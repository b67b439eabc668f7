/* SPDX-License-Identifier: Apache-2.0 */
/* The paths of units: which there are, who may be one, and how one becomes one. */
#include "hub/serve/call.h"

#include "base/cleanup.h"
#include "base/wallclock.h"
#include "base/wholefile.h"
#include "hub/trust/enrol.h"
#include "hub/trust/state.h"
#include "hub/trust/tokens.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- which there are ---- */

struct listing {
    struct call *call;
    json_t *list;
};

static json_t *view_unit(const struct listing *l, const char *name, int64_t until_ms, bool revoked)
{
    const struct unit *u = units_find(tree_units(l->call->hub->tree), name);
    const struct in_force *p = tree_policy(l->call->hub->tree);
    const struct policy_area *area = p ? policy_unit(&p->rules, name) : NULL;
    bool heard = u && u->heard;

    return json_pack("{s:s,s:o,s:s,s:o,s:o,s:o,s:o,s:o,s:b,s:b}", "name", name, "area",
                     area ? json_string(area->area) : json_null(), "state",
                     !heard            ? "never"
                     : u->state.online ? "connected"
                                       : "lost",
                     "since_ms", heard ? json_integer(u->since_ms) : json_null(), "version",
                     heard ? json_string(u->state.version) : json_null(), "role",
                     heard ? json_string(u->state.role) : json_null(), "policy",
                     heard ? json_integer((json_int_t)u->state.policy) : json_null(),
                     "certificate_until_ms", until_ms ? json_integer(until_ms) : json_null(),
                     "revoked", revoked, "two_of_a_name",
                     u && unit_has_twin(u, (int64_t)wallclock_ms()));
}

static void add_certificate(void *arg, const char *name, int64_t until_ms, bool revoked)
{
    struct listing *l = arg;

    json_array_append_new(l->list, view_unit(l, name, until_ms, revoked));
}

void route_units(struct call *c)
{
    struct listing l = {c, json_array()};
    struct error err = {0};

    if (tree_certificates(c->hub->tree, add_certificate, &l, &err) < 0) {
        json_decref(l.list);
        call_fail_of(c, &err);
        return;
    }
    call_answer(c, HTTP_OK, l.list);
}

/* ---- who may be one ---- */

static void answer_unit(struct call *c, const char *what, const struct error *err)
{
    call_audit(c, what, c->name, err);
    if (err->code)
        call_fail_of(c, err);
    else
        call_answer(c, HTTP_OK, json_pack("{s:s}", "name", c->name));
}

void route_revoke(struct call *c)
{
    struct error err = {0};

    tree_revoke(c->hub->tree, c->name, &err);
    answer_unit(c, "unit.revoke", &err);
}

void route_admit(struct call *c)
{
    struct error err = {0};

    tree_admit(c->hub->tree, c->name, &err);
    answer_unit(c, "unit.admit", &err);
}

/* ---- how one becomes one ---- */

#define CA_MAX      65536
#define TOKEN_FOR_S (7 * 86400)

/* A unit that enrols has no reason to trust this answer: the token has its fingerprint. */
void route_ca(struct call *c)
{
    _cleanup_free_ char *text = NULL;
    char path[PATH_MAX];
    struct stat status;
    struct error err = {0};
    size_t len;
    int r = conf_path(c->hub->conf, "trust/ca.crt", path, sizeof(path), &err);

    if (r == 0)
        r = wholefile_read(path, CA_MAX, &text, &len, &status);
    if (r < 0)
        call_fail_as(c, HTTP_FAILED, "authority-fault", "",
                     "the authority's certificate cannot be read: %s", strerror(-r));
    else
        call_answer(c, HTTP_OK, json_pack("{s:s}", "ca", text));
}

void route_make_token(struct call *c)
{
    const char *name = NULL, *area = NULL;
    char text[TOKENS_TEXT_MAX];
    struct error err = {0};
    struct state state;

    if (!call_take_text(c, "name", true, &name) || !call_take_text(c, "area", false, &area))
        return;
    if (state_open(c->hub->conf->state, &state, &err) >= 0) {
        tokens_make(c->hub->conf->state, name, area, TOKEN_FOR_S, time(NULL), text, &err);
        state_close(&state);
    }
    call_audit(c, "unit.token", name, &err);
    if (err.code)
        call_fail_of(c, &err);
    else
        call_answer(c, HTTP_CREATED,
                    json_pack("{s:s,s:s,s:i}", "name", name, "token", text, "for_s", TOKEN_FOR_S));
}

/* The unit's area is a convenience: without it the unit is there, in no area. */
static void place(struct call *c, const struct enrol_answer *a)
{
    struct error err = {0};

    if (*a->area && tree_place(c->hub->tree, a->name, a->area, &err) < 0)
        c->hub->say(c->hub->arg, a->name, error_said(&err));
}

void route_enrol(struct call *c)
{
    const char *token = NULL, *request = NULL;
    struct enrol_answer a = {0};
    struct error err = {0};

    if (!call_take_text(c, "token", true, &token) || !call_take_text(c, "request", true, &request))
        return;
    enrol_take(c->hub->conf->state, token, request, c->http->address, &a, &err);
    call_audit(c, "unit.enrol", a.name, &err);
    if (err.code) {
        call_fail_of(c, &err);
        return;
    }
    place(c, &a);
    call_answer(c, HTTP_CREATED,
                json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:s}", "name", a.name, "certificate",
                          a.certificate, "ca", a.ca, "seal", a.seal, "broker", a.broker, "unit",
                          a.unit, "local", a.local, "revoked", a.revoked ? a.revoked : ""));
    enrol_answer_done(&a);
}

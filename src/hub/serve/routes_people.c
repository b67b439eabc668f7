/* SPDX-License-Identifier: Apache-2.0 */
/* The paths of logins, users and the audit log. */
#include "hub/serve/call.h"

#include "base/clock.h"

#include <errno.h>
#include <string.h>

#define ERROR_WORD "login-refused"

#define KEPT ", tokens kept" /* in the audit log */

/* ---- logins ---- */

static json_t *rights(const struct who *who)
{
    json_t *may = json_array();

    if (who->role >= ROLE_OPERATOR)
        json_array_append_new(may, json_string("switch"));
    if (who->role >= ROLE_ADMINISTRATOR) {
        json_array_append_new(may, json_string("policy"));
        json_array_append_new(may, json_string("users"));
        json_array_append_new(may, json_string("units"));
    }
    return may;
}

static json_t *view_who(const struct who *who)
{
    return json_pack("{s:s,s:s,s:o}", "user", who->name, "role", role_name(who->role), "may",
                     rights(who));
}

void route_me(struct call *c)
{
    call_answer(c, HTTP_OK, view_who(&c->who));
}

/* The first question of the page, to whichever program serves it. */
void route_session(struct call *c)
{
    const struct in_force *policy = tree_policy(c->hub->tree);
    json_t *answer =
        c->known ? view_who(&c->who) : json_pack("{s:n,s:n,s:[]}", "user", "role", "may");

    json_object_set_new(answer, "server", json_string("hub"));
    json_object_set_new(answer, "org", policy ? json_string(policy->rules.org) : json_null());
    json_object_set_new(answer, "version", json_string(TIDE_VERSION));
    call_answer(c, HTTP_OK, answer);
}

/* "__Host-": over TLS alone, for this host alone, for all of its paths. */
static bool set_cookie(struct call *c, const char *value, const char *more)
{
    char text[256];

    snprintf(text, sizeof(text), "%s=%s; Path=/; Secure; HttpOnly; SameSite=Strict%s",
             c->cookie_name, value, more);
    if (httpd_add_header(c->http, "Set-Cookie", text) == 0)
        return true;
    call_fail(c, HTTP_FAILED, "", "out of memory");
    return false;
}

static void refuse_password(struct call *c, unsigned wait_s, const struct error *err)
{
    if (err->code == -EAGAIN) {
        c->http->retry_s = wait_s;
        call_fail_as(c, HTTP_TOO_MANY, error_why(err), "", "%s", err->text);
    } else if (err->code == -EACCES) {
        call_fail_as(c, HTTP_UNAUTHORIZED, error_why(err), "", "%s", err->text);
    } else {
        call_fail_of(c, err);
    }
}

void route_login(struct call *c)
{
    const char *user = NULL, *password = NULL;
    char cookie[SECRET_LEN + 1];
    struct error err = {0};
    struct who who;
    unsigned wait_s;

    if (!call_take_text(c, "user", true, &user) || !call_take_text(c, "password", true, &password))
        return;
    if (people_count(c->hub->people) == 0) {
        call_fail(c, HTTP_UNAUTHORIZED, "On the hub: tide-hub user add NAME --role administrator",
                  "there are no users");
        return;
    }
    if (people_login(c->hub->people, user, password, c->http->address, &who, cookie, &wait_s,
                     &err) < 0) {
        call_audit(c, "login", user, &err);
        refuse_password(c, wait_s, &err);
        return;
    }
    c->who = who;
    c->known = true;
    call_audit(c, "login", user, NULL);
    if (set_cookie(c, cookie, ""))
        call_answer(c, HTTP_OK, view_who(&who));
}

void route_logout(struct call *c)
{
    struct error err = {0};

    if (!c->who.session) {
        call_fail(c, HTTP_BAD_REQUEST, "Revoke it with 'tide-hub user token NAME --revoke'.",
                  "a token is no session");
        return;
    }
    if (people_logout(c->hub->people, &c->who, &err) < 0) {
        call_fail_of(c, &err);
        return;
    }
    call_audit(c, "logout", c->who.name, NULL);
    streams_review(c->streams, false);
    if (set_cookie(c, "", "; Max-Age=0"))
        call_answer(c, HTTP_OK, json_object());
}

void route_own_password(struct call *c)
{
    const char *old = NULL, *new = NULL;
    struct error err = {0};
    unsigned wait_s = 0;
    bool keep = false;

    if (!call_take_text(c, "old", true, &old) || !call_take_text(c, "new", true, &new) ||
        !call_take_flag(c, "keep_tokens", false, &keep))
        return;
    if (people_check(c->hub->people, c->who.name, old, c->http->address, &wait_s, &err) < 0) {
        call_audit(c, "user.password", c->who.name, &err);
        refuse_password(c, wait_s, &err);
        return;
    }
    people_password(c->hub->people, c->who.name, new, keep, &err);
    call_audit(c, keep ? "user.password" KEPT : "user.password", c->who.name, &err);
    streams_review(c->streams, false);
    if (err.code)
        call_fail_of(c, &err);
    else
        call_answer(c, HTTP_OK, json_object()); /* all sessions have ended, this one, too */
}

/* ---- users ---- */

static json_t *time_or_null(int64_t ms)
{
    return ms ? json_integer(ms) : json_null();
}

static void add_person(void *arg, const struct person *p)
{
    json_array_append_new(arg, json_pack("{s:s,s:s,s:I,s:o,s:i,s:i}", "user", p->name, "role",
                                         role_name(p->role), "created_ms", (json_int_t)p->made_ms,
                                         "last_ms", time_or_null(p->last_ms), "sessions",
                                         (int)p->sessions, "tokens", (int)p->tokens));
}

void route_users(struct call *c)
{
    json_t *list = json_array();
    struct error err = {0};

    if (people_list(c->hub->people, add_person, list, &err) < 0) {
        json_decref(list);
        call_fail_of(c, &err);
        return;
    }
    call_answer(c, HTTP_OK, list);
}

static bool take_role(struct call *c, bool needed, bool *ret_given, enum role *ret)
{
    const char *text = NULL;

    if (!call_take_text(c, "role", needed, &text))
        return false;
    *ret_given = text;
    if (!text || role_parse(text, ret) == 0)
        return true;
    call_fail(c, HTTP_BAD_REQUEST, "", "role is '%.40s': use viewer, operator or administrator",
              text);
    return false;
}

static void answer_change(struct call *c, const char *what, const char *user, unsigned status,
                          const struct error *err)
{
    call_audit(c, what, user, err);
    streams_review(c->streams, false);
    if (err->code)
        call_fail_of(c, err);
    else
        call_answer(c, status, json_pack("{s:s}", "user", user));
}

void route_add_user(struct call *c)
{
    const char *user = NULL, *password = NULL;
    char what[64];
    struct error err = {0};
    enum role role = ROLE_VIEWER;
    bool given;

    if (!call_take_text(c, "user", true, &user) || !take_role(c, true, &given, &role) ||
        !call_take_text(c, "password", true, &password))
        return;
    people_add(c->hub->people, user, role, password, &err);
    snprintf(what, sizeof(what), "user.add as %s", role_name(role));
    answer_change(c, what, user, HTTP_CREATED, &err);
}

void route_change_user(struct call *c)
{
    const char *password = NULL;
    char what[64];
    struct error err = {0};
    enum role role = ROLE_VIEWER;
    bool given, keep = false;

    if (!take_role(c, false, &given, &role) || !call_take_text(c, "password", false, &password) ||
        !call_take_flag(c, "keep_tokens", false, &keep))
        return;
    if (!given && !password) {
        call_fail(c, HTTP_BAD_REQUEST, "", "send a role, a password, or both");
        return;
    }
    if (given && password)
        people_role_and_password(c->hub->people, c->name, role, password, keep, &err);
    else if (given)
        people_role(c->hub->people, c->name, role, keep, &err);
    else
        people_password(c->hub->people, c->name, password, keep, &err);
    snprintf(what, sizeof(what), "user.%s%s%s%s", given ? "role " : "",
             given ? role_name(role) : "",
             !password ? ""
             : given   ? ", password"
                       : "password",
             keep ? KEPT : "");
    answer_change(c, what, c->name, HTTP_OK, &err);
}

void route_remove_user(struct call *c)
{
    struct error err = {0};

    people_remove(c->hub->people, c->name, &err);
    answer_change(c, "user.remove", c->name, HTTP_OK, &err);
}

/* ---- the audit log ---- */

static void add_row(void *arg, const struct audit_row *r)
{
    json_array_append_new(arg, json_pack("{s:I,s:I,s:s,s:s,s:s,s:s,s:s}", "id", (json_int_t)r->id,
                                         "time_ms", (json_int_t)r->time_ms, "user", r->user, "what",
                                         r->what, "target", r->target, "outcome", r->outcome,
                                         "from", r->from));
}

void route_audit(struct call *c)
{
    int64_t since = 0, before = 0, limit = 100;
    json_t *list;
    struct error err = {0};

    if (!call_query_whole(c, "since", 0, INT64_MAX, &since) ||
        !call_query_whole(c, "before", 1, INT64_MAX, &before) ||
        !call_query_whole(c, "limit", 1, AUDIT_LIST_MAX, &limit))
        return;
    list = json_array();
    if (audit_list(c->hub->people, since, before, (uint32_t)limit, add_row, list, &err) < 0) {
        json_decref(list);
        call_fail_of(c, &err);
        return;
    }
    call_answer(c, HTTP_OK, list);
}

void route_events(struct call *c)
{
    int r = stream_begin(c->streams, c->http, &c->who, httpd_header(c->http, "Last-Event-ID"),
                         WEB_STREAMS_MAX, WEB_STREAMS_USER, &c->stream);

    if (r == -EAGAIN)
        call_fail_as(c, HTTP_TOO_MANY, "too-many-streams", "Close a page.",
                     "there are too many streams of events");
    else if (r < 0)
        call_fail(c, HTTP_FAILED, "", "out of memory");
}

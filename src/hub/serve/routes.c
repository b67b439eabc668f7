/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/serve/routes.h"

#include <string.h>

/* docs/permissions.md has the roles, docs/openapi-hub.yaml the rest: both are tested. */
const struct route routes[] = {
    {"GET", "/v1/session", CALL_ANYBODY, route_session, {0}},
    {"POST", "/v1/login", CALL_ANYBODY, route_login, {"user", "password"}},
    {"POST", "/v1/logout", ROLE_VIEWER, route_logout, {0}},
    {"GET", "/v1/me", ROLE_VIEWER, route_me, {0}},
    {"POST", "/v1/me/password", ROLE_VIEWER, route_own_password, {"old", "new", "keep_tokens"}},
    {"GET", "/v1/areas", ROLE_VIEWER, route_areas, {0}},
    {"GET", "/v1/areas/**/energy", ROLE_VIEWER, route_area_energy, {0}},
    {"GET", "/v1/areas/**/shrunk", ROLE_VIEWER, route_area_shrunk, {0}},
    {"GET", "/v1/areas/**/explain", ROLE_VIEWER, route_explain, {0}},
    {"POST", "/v1/areas/**/switches/*", ROLE_OPERATOR, route_switch, {"on", "for_s"}},
    {"GET", "/v1/energy", ROLE_VIEWER, route_energy, {0}},
    {"DELETE", "/v1/energy", ROLE_ADMINISTRATOR, route_erase, {0}},
    {"GET", "/v1/policy", ROLE_VIEWER, route_policy, {0}},
    {"PUT", "/v1/policy", ROLE_ADMINISTRATOR, route_put_policy, {"text", "number"}},
    {"POST", "/v1/policy/check", ROLE_ADMINISTRATOR, route_check_policy, {"text"}},
    {"GET", "/v1/units", ROLE_VIEWER, route_units, {0}},
    {"POST", "/v1/units/*/revoke", ROLE_ADMINISTRATOR, route_revoke, {0}},
    {"POST", "/v1/units/*/admit", ROLE_ADMINISTRATOR, route_admit, {0}},
    {"POST", "/v1/tokens", ROLE_ADMINISTRATOR, route_make_token, {"name", "area"}},
    {"POST", "/v1/enrol", CALL_ANYBODY, route_enrol, {"token", "request"}},
    {"GET", "/v1/ca", CALL_ANYBODY, route_ca, {0}},
    {"GET", "/v1/users", ROLE_ADMINISTRATOR, route_users, {0}},
    {"POST", "/v1/users", ROLE_ADMINISTRATOR, route_add_user, {"user", "role", "password"}},
    {"PATCH",
     "/v1/users/*",
     ROLE_ADMINISTRATOR,
     route_change_user,
     {"role", "password", "keep_tokens"}},
    {"DELETE", "/v1/users/*", ROLE_ADMINISTRATOR, route_remove_user, {0}},
    {"GET", "/v1/audit", ROLE_ADMINISTRATOR, route_audit, {0}},
    {"GET", "/v1/events", ROLE_VIEWER, route_events, {0}},
    {"GET", "/metrics", ROLE_VIEWER, route_metrics, {0}},
    {0},
};

const struct route *routes_find(const char *method, const char *path, struct call *c,
                                bool *ret_other)
{
    const char *as = strcmp(method, "HEAD") == 0 ? "GET" : method;

    *ret_other = false;
    for (const struct route *r = routes; r->method; r++) {
        if (!request_matches(r->path, path, c->area, c->name))
            continue;
        if (strcmp(r->method, as) == 0)
            return r;
        *ret_other = true;
    }
    return NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* What users may ask for at the cost of others: the second table of docs/permissions.md. */
#include "daemon/api/api.h"
#include "daemon/job/limits.h"
#include "proto/attribute.h"

#define ASK_ADMIN "Use less, or ask somebody of the admin group: docs/permissions.md."

/* Administrators may give more than limits and a user's share allow. */
bool routes_within_limits(struct request *r, uid_t uid, const struct attributes *asked,
                          uint32_t threads)
{
    struct error err = {0};

    if (control_may_govern(r->daemon, &r->who) ||
        ((!asked || limits_check_priority(r->daemon, uid, asked->priority, &err) == 0) &&
         limits_check_pin(r->daemon, uid, threads, &err) == 0))
        return true;
    request_fail(r, HTTP_FORBIDDEN, ASK_ADMIN, "%s", err.text);
    return false;
}

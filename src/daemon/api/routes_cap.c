/* SPDX-License-Identifier: Apache-2.0 */
/* Paths of power caps: a person's, the power lease's, and what watts are worth here. */
#include "base/clock.h"
#include "base/failpoint.h"
#include "daemon/api/api.h"
#include "daemon/api/view_cap.h"
#include "daemon/daemon.h"
#include "daemon/energy/cap.h"
#include "daemon/energy/meter.h"
#include "daemon/job/job.h"
#include "daemon/plan/decision.h"
#include "daemon/plan/plan.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define ERROR_WORD "bad-request"

#define UNTIL_MAX_S (366 * UINT64_C(86400))

/* A whole number up to @max; absent: *ret stays. False: answered with the error. */
bool request_take_amount(struct request *r, const char *key, uint64_t min, uint64_t max,
                         uint64_t *ret)
{
    const json_t *value = json_object_get(r->body, key);

    if (!value || json_is_null(value))
        return true;
    if (json_is_integer(value) && json_integer_value(value) >= 0 &&
        (uint64_t)json_integer_value(value) >= min && (uint64_t)json_integer_value(value) <= max) {
        *ret = (uint64_t)json_integer_value(value);
        return true;
    }
    request_fail(r, HTTP_BAD_REQUEST, "", "%s must be a whole number from %" PRIu64 " to %" PRIu64,
                 key, min, max);
    return false;
}

/* Carries out a cap that has been set, and answers with its state. */
static void answer_state(struct request *r)
{
    char why[ERROR_TEXT_MAX];

    plan_make_now(r->daemon);
    failpoint(FAILPOINT_CAP_PLACED);
    request_answer(r,
                   cap_state(r->daemon, why, sizeof(why)) == CAP_NOT_YET ? HTTP_ACCEPTED : HTTP_OK,
                   view_cap(r->daemon));
}

void request_answer_cap(struct request *r, int e, const struct error *err)
{
    if (e == -ENODATA)
        request_fail_with(r, HTTP_CONFLICT,
                          "Name a source (power=) or a model (power-model=) in tide.conf(5).", err);
    else if (e == -EALREADY)
        request_fail_with(r, HTTP_CONFLICT, "Send the newest one.", err);
    else if (e == -EINVAL)
        request_fail_with(r, HTTP_BAD_REQUEST, "", err);
    else if (e < 0)
        request_fail_with(r, 507, "Make room there or make that disk writable, then set it again.",
                          err);
    else
        answer_state(r);
}

static void set_by_hand(struct request *r, const struct cap *cap)
{
    struct error err = {0};

    request_answer_cap(r, cap_set(r->daemon, CAP_PERSON, cap, &err), &err);
}

/* ---- a person's ---- */

void routes_get_cap(struct request *r, struct job *none)
{
    meter_refresh(r->daemon->meter);
    power_caps_tick(r->daemon->power_caps);
    request_answer(r, HTTP_OK, view_cap(r->daemon));
}

static bool may_set(struct request *r)
{
    if (control_may_govern(r->daemon, &r->who))
        return true;
    request_fail_as(r, HTTP_FORBIDDEN, "admin-only",
                    r->daemon->uid == 0 ? "Ask to be added to the admin group, tide.conf(5)." : "",
                    "only the daemon's user, root and the admin group set power caps");
    return false;
}

void routes_put_cap(struct request *r, struct job *none)
{
    static const char *const fields[] = {"uw", "until", NULL};
    struct cap cap = {.until_ns = CAP_NO_END, .kind = CAP_BUDGET, .held = true};
    uint64_t until_s = 0, now_ms = clock_real_ms();

    if (!may_set(r) || !request_only_fields(r, fields) ||
        !request_take_amount(r, "uw", 1, POWER_UW_MAX, &cap.uw) ||
        !request_take_amount(r, "until", 1, now_ms / 1000 + UNTIL_MAX_S, &until_s))
        return;
    if (cap.uw == 0) {
        request_fail(r, HTTP_BAD_REQUEST, "Send {\"uw\": MICROWATTS}.", "uw is missing");
        return;
    }
    if (until_s && until_s * 1000 <= now_ms) {
        request_fail_as(r, HTTP_BAD_REQUEST, "bad-time", "It is in seconds since 1970.",
                        "until is in the past: the cap would end before it begins");
        return;
    }
    if (until_s)
        cap.until_ns = clock_boot_ns() + (until_s * 1000 - now_ms) * NS_PER_MS;
    daemon_log("a power cap of %" PRIu64 " W is set by user %u", cap.uw / 1000000,
               (unsigned)r->who.uid);
    set_by_hand(r, &cap);
}

void routes_delete_cap(struct request *r, struct job *none)
{
    static const struct cap lifted;

    if (!may_set(r))
        return;
    daemon_log("the power cap set by hand is lifted by user %u", (unsigned)r->who.uid);
    set_by_hand(r, &lifted);
}

/* ---- who has fewer cores for it ---- */

static void add_shrunk(void *arg, const struct job *j, uint32_t cores)
{
    json_array_append_new(arg, json_pack("{s:s,s:s,s:s,s:i}", "id", j->id, "name", j->name, "user",
                                         j->owner, "cores", (int)cores));
}

/* No more than `tide ps` tells everybody: names and cores. */
void routes_get_shrunk(struct request *r, struct job *none)
{
    json_t *list = json_array();
    int e = decision_shrunk(r->daemon, add_shrunk, list);

    if (e < 0) {
        json_decref(list);
        request_fail_as(
            r, HTTP_UNAVAILABLE, "no-decision", "",
            "cannot tell which jobs the power cap shrinks: the policy fails without it: %s",
            strerror(-e));
        return;
    }
    request_answer(r, HTTP_OK, json_pack("{s:o}", "jobs", list));
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The memory limit of a container that runs. */
#include "base/size.h"
#include "daemon/api/api.h"
#include "daemon/api/view.h"
#include "daemon/containers/container.h"
#include "daemon/daemon.h"
#include "daemon/job/job.h"

#include <errno.h>

#define ERROR_WORD "bad-request"

#define LEAST_BYTES (UINT64_C(1) << 20) /* no program needs so little: the unit was forgotten */

static void refuse(struct request *r, const struct error *err)
{
    static const struct {
        int code;
        unsigned status;
        const char *hint;
    } refusals[] = {
        {-EOPNOTSUPP, HTTP_CONFLICT, "Nothing was changed."},
        {-EPERM, HTTP_FORBIDDEN, "Use less, or ask somebody of the admin group."},
        {-ENOSPC, HTTP_CONFLICT, "Use less, or wait until another job ends."},
        {-ERANGE, HTTP_CONFLICT, "Nothing was changed."},
        {-EAGAIN, HTTP_CONFLICT, "Try again later. Nothing was changed."},
        {-EBUSY, HTTP_CONFLICT, "Try again."},
        {-EINVAL, HTTP_CONFLICT, "Nothing was changed."},
        {-EREMOTEIO, HTTP_CONFLICT, "Nothing was changed."},
        {-ENOENT, HTTP_NOT_FOUND, ""},
        {0, HTTP_UNAVAILABLE, "'tide memory JOB' shows what is in force."},
    };
    size_t i = 0;

    while (refusals[i].code && refusals[i].code != err->code)
        i++;
    request_fail_with(r, refusals[i].status, refusals[i].hint, err);
}

static void limited(void *arg, struct job *j, const struct error *err)
{
    struct request *r = arg;

    r->memory = NULL;
    if (err->code < 0)
        refuse(r, err);
    else if (!j)
        request_fail_as(r, HTTP_NOT_FOUND, "no-such-job", "", "the job has ended");
    else
        request_answer(r, HTTP_OK, view_job(j, &r->who));
}

static bool take_bytes(struct request *r, uint64_t *ret)
{
    const json_t *value = json_object_get(r->body, "bytes");

    *ret = 0;
    if (json_is_null(value))
        return true;
    if (json_is_integer(value) && json_integer_value(value) >= (json_int_t)LEAST_BYTES &&
        json_integer_value(value) <= (json_int_t)SIZE_MAX_BYTES) {
        *ret = (uint64_t)json_integer_value(value);
        return true;
    }
    request_fail_as(r, HTTP_BAD_REQUEST, "bad-memory",
                    "Send {\"bytes\": N}, or null for what it began with.",
                    "bytes is no number of bytes, at least a MiB");
    return false;
}

void routes_put_memory_limit(struct request *r, struct job *j)
{
    static const char *const fields[] = {"bytes", NULL};
    struct memory_order order = {
        .uid = r->who.uid,
        .governs = control_may_govern(r->daemon, &r->who),
        .done = limited,
        .arg = r,
    };
    struct error err = {0};

    if (!control_may_change(r->daemon, &r->who, j)) {
        request_fail_as(r, HTTP_FORBIDDEN, "not-your-job", "Ask its owner, or run as root.",
                        "job %s is %s's", j->id, j->owner);
        return;
    }
    if (!request_only_fields(r, fields) || !take_bytes(r, &order.bytes))
        return;
    if (container_memory_change(j, &order, &r->memory, &err) < 0)
        refuse(r, &err);
}

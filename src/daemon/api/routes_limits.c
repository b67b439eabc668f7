/* SPDX-License-Identifier: Apache-2.0 */
/* Checks what users may ask for at others' cost (docs/permissions.md), or at their own; a full
 * disk. */
#include "base/size.h"
#include "daemon/api/api.h"
#include "daemon/daemon.h"
#include "daemon/job/census.h"
#include "daemon/job/job.h"
#include "daemon/job/limits.h"
#include "daemon/record/promised.h"
#include "daemon/record/store.h"
#include "proto/attribute.h"

#include <errno.h>
#include <string.h>

#define ASK_ADMIN "Use less, or ask somebody of the admin group: docs/permissions.md."

/* Administrators may exceed limits and a user's share. */
bool routes_within_limits(struct request *r, uid_t uid, const struct attributes *asked,
                          uint32_t threads)
{
    struct error err = {0};

    if (control_may_govern(r->daemon, &r->who) ||
        ((!asked || limits_check_priority(r->daemon, uid, asked->priority, &err) == 0) &&
         limits_check_pin(r->daemon, uid, threads, &err) == 0))
        return true;
    request_fail_with(r, HTTP_FORBIDDEN, ASK_ADMIN, &err);
    return false;
}

bool routes_fits_machine(struct request *r, const struct attributes *asked)
{
    uint64_t bytes = (uint64_t)asked->memory_bytes, most_bytes = r->daemon->memory_bytes;
    char text[SIZE_TEXT_MAX], most[SIZE_TEXT_MAX], devices[DEVICES_TEXT_MAX];

    for (int kind = 0; kind < DEVICE_KINDS; kind++) {
        if (devices_of(asked->devices, kind) <= devices_of(r->daemon->devices.machine, kind))
            continue;
        devices_text(r->daemon->devices.machine, devices);
        request_fail_as(r, HTTP_BAD_REQUEST, "devices-exceed-machine",
                        "'devices' in tide.conf(5) says how many there are.",
                        "devices is %s=%u: this machine has %s", device_kind_name(kind),
                        devices_of(asked->devices, kind), *devices ? devices : "none");
        return false;
    }
    if (most_bytes == 0 || bytes <= most_bytes)
        return true;
    size_text(bytes, text);
    size_text(most_bytes, most);
    request_fail_as(r, HTTP_BAD_REQUEST, "memory-exceeds-machine",
                    "'memory' in tide.conf(5) says how much that is.",
                    "memory is %s: jobs can have %s on this machine", text, most);
    return false;
}

bool routes_take_promise(struct request *r, const struct job *j, uid_t uid, const char *name,
                         pid_t pid, const struct attributes *asked, struct promised_verdict *ret)
{
    char promise[PROMISE_TEXT_MAX];

    *ret = (struct promised_verdict){0};
    if (asked->slo_us == 0 || (j && asked->slo_us == j->asked.attributes.slo_us))
        return true;
    promised_judge(r->daemon, j, uid, name, pid, asked, ret);
    if (ret->keepable != PROMISE_UNKEEPABLE || r->daemon->config.promises != PROMISES_REFUSE ||
        control_may_govern(r->daemon, &r->who))
        return true;
    request_fail_as(r, HTTP_FORBIDDEN, "promise-refused",
                    "Promise more, or ask somebody of the admin group: 'promises' in tide.conf(5).",
                    "the promise %s cannot be kept: %s", promise_text(asked->slo_us, promise),
                    ret->text);
    return false;
}

bool routes_take_new_promise(struct request *r, uid_t uid, pid_t pid, struct job_request *req,
                             struct promised_verdict *ret)
{
    bool asked = req->asked.slo_us > 0;

    if (!routes_take_promise(r, NULL, uid, req->name, pid, &req->asked, ret))
        return false;
    if (req->name)
        job_request_promise(r->daemon, uid, req, promised_name_len(req->name, pid));
    if (!asked && req->asked.slo_us)
        promised_judge(r->daemon, NULL, uid, req->name, pid, &req->asked, ret);
    return true;
}

bool routes_may_hold(struct request *r, const struct job *j)
{
    if (j->admission.held || j->admission.phase != JOB_RUNNING ||
        !census_has(r->daemon, j, r->who.pid))
        return true;
    request_fail_as(r, HTTP_CONFLICT, "cannot-be-paused", "Ask from another terminal.",
                    "job %s cannot be paused from inside: whoever asks would stand still, too",
                    j->id);
    return false;
}

/* A running job goes on even without a record. */
bool routes_write_down(struct request *r, struct job *j)
{
    struct daemon *d = r->daemon;
    bool locked;

    daemon_log("job %s (%s) of user %s created: first process %d", j->id, j->name, j->owner,
               (int)j->processes->pid);
    store_save(d);
    if (!j->dirty || !j->admission.submitted)
        return true;
    daemon_log_as("queue-disk-full", "job %s (%s) refused: it cannot be saved to disk", j->id,
                  j->name);
    job_free(j);
    locked = store_error(d) == -EROFS;
    request_fail_as(r, 507, "queue-disk-full",
                    locked ? "Make that disk writable, then submit it again."
                           : "Make room there, then submit it again.",
                    "the job was not queued: it cannot be written to %s: %s", d->dir,
                    strerror(-store_error(d)));
    return false;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/job/limits.h"

#include "daemon/daemon.h"
#include "daemon/job/job.h"

#include <errno.h>

#define ERROR_WORD "too-many-jobs"

bool limits_exempt(const struct daemon *d, uid_t uid)
{
    return uid == 0 || uid == d->uid;
}

uint32_t limits_user_weight(const struct daemon *d, uid_t uid)
{
    const struct config *c = &d->config;

    for (unsigned i = 0; i < c->n_users; i++)
        if (c->users[i].uid == uid)
            return c->users[i].weight;
    return CONFIG_USER_WEIGHT;
}

int limits_check_job(const struct daemon *d, uid_t uid, struct error *err)
{
    uint32_t most = d->config.user_jobs;
    unsigned own = 0;

    if (limits_exempt(d, uid))
        return d->jobs->n < PROTO_JOBS_MAX
                   ? 0
                   : error_word(err,
                                error_set(err, -ENOSPC,
                                          "this daemon has as many jobs as it can, %d",
                                          PROTO_JOBS_MAX),
                                "too-many-jobs");
    for (const struct job *j = d->jobs->first; j; j = j->next)
        own += j->uid == uid;
    if (most && own >= most)
        return error_word(err,
                          error_set(err, -ENOSPC,
                                    "user %u has as many jobs as one user may have, %u (user-jobs)",
                                    (unsigned)uid, most),
                          "too-many-jobs");
    if (d->jobs->n >= PROTO_JOBS_MAX - LIMITS_KEPT_JOBS)
        return error_word(
            err,
            error_set(err, -ENOSPC,
                      "this daemon has as many jobs as users may have, %d: the rest is root's",
                      PROTO_JOBS_MAX - LIMITS_KEPT_JOBS),
            "too-many-jobs");
    return 0;
}

int limits_check_process(const struct job *j)
{
    const struct daemon *d = j->daemon;
    uint32_t most = d->config.user_processes;
    unsigned own = 0;

    if (!most || limits_exempt(d, j->uid))
        return 0;
    for (const struct job *k = d->jobs->first; k; k = k->next)
        own += k->uid == j->uid ? k->n_processes : 0;
    return own < most ? 0 : -ENOSPC;
}

/* ---- who may ask for more ---- */

static bool takes_part(const struct job *j)
{
    return j->wanted.share > 0 || (j->admission.phase != JOB_RUNNING && !j->admission.held);
}

/* Weights of all users with jobs, including @uid. */
static uint64_t sum_of_weights(const struct daemon *d, uid_t uid, unsigned *ret_users)
{
    uint64_t sum = limits_user_weight(d, uid);

    *ret_users = 1;
    for (const struct job *j = d->jobs->first; j; j = j->next) {
        const struct job *first = d->jobs->first;

        if (j->uid == uid || !takes_part(j))
            continue;
        while (first != j && (first->uid != j->uid || !takes_part(first)))
            first = first->next;
        if (first != j)
            continue;
        sum += limits_user_weight(d, j->uid);
        ++*ret_users;
    }
    return sum;
}

int limits_check_pin(const struct daemon *d, uid_t uid, uint32_t threads, struct error *err)
{
    unsigned users, cpus = cpuset_count(&d->cpus);
    uint64_t weights = sum_of_weights(d, uid, &users);
    uint64_t share = cpus * (uint64_t)limits_user_weight(d, uid) / weights;

    if (share < 1)
        share = 1;
    if (d->config.user_cores && !limits_exempt(d, uid) && share > d->config.user_cores)
        share = d->config.user_cores;
    else if (users == 1)
        return 0;
    if (threads <= share)
        return 0;
    return error_word(err,
                      error_set(err, -EPERM,
                                "%u cores exceed the user's share: %u of %u cores, with %u user%s",
                                threads, (unsigned)share, cpus, users, users == 1 ? "" : "s"),
                      "share-exceeded");
}

int limits_check_priority(const struct daemon *d, uid_t uid, int32_t priority, struct error *err)
{
    uint32_t most = d->config.user_priority;

    if (!most || priority <= (int32_t)most || limits_exempt(d, uid))
        return 0;
    return error_word(err,
                      error_set(err, -EPERM,
                                "priority is %d: that of a user's job is at most %u "
                                "(user-priority)",
                                (int)priority, most),
                      "priority-too-high");
}

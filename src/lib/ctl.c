/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The controlling program's side of tide.h. A handle owns its connection, the reason of its last
 * failure and the unread failures of asynchronous requests. One thread at a time; no lock, no
 * thread of its own.
 *
 * Cookies tell the answers apart. A synchronous request takes the next number below ASYNC_BIT and
 * ignores answers with another, so that a late answer does no harm. Cookies of asynchronous
 * requests have the bit set.
 */
#include "tide/tide.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "lib/channel.h"
#include "lib/sized.h"
#include "proto/proto.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_WORD "order-refused"

#define DEFAULT_TIMEOUT_MS 5000
#define GRACE_MS           500 /* the daemon may answer at the deadline; time for that to arrive */
#define FAILURES_MAX       64  /* unread failures of asynchronous requests that are kept */
#define ASYNC_BIT          0x80000000u

static_assert(TIDE_ID_MAX == PROTO_ID_MAX && TIDE_NAME_MAX == PROTO_NAME_MAX, "texts");
static_assert(TIDE_CORES_MAX == PROTO_NOTE_MAX && TIDE_UNIT_MAX == PROTO_SHORT_MAX, "texts");
static_assert(TIDE_PARTIAL == PROTO_RESULT_PARTIAL, "results");

struct tide_ctl {
    struct channel channel;
    uint32_t timeout_ms;
    uint32_t cookie; /* of the last synchronous request */
    uint32_t sent;   /* number of the last asynchronous request */
    struct error error;
    struct proto_result failures[FAILURES_MAX]; /* ring */
    unsigned failures_first;
    unsigned failures_count;
};

static uint32_t next_number(uint32_t number)
{
    return number + 1 < ASYNC_BIT ? number + 1 : 1;
}

static uint64_t deadline_after(uint32_t ms)
{
    return clock_now_ns() + (uint64_t)ms * NS_PER_MS;
}

/* Starts each call. Avoids snprintf(), whose cost would show in an asynchronous call. */
static void forget_error(struct tide_ctl *ctl)
{
    ctl->error.code = 0;
    ctl->error.text[0] = '\0';
}

static void keep_failure(struct tide_ctl *ctl, const struct proto_result *failure)
{
    unsigned at = (ctl->failures_first + ctl->failures_count) % FAILURES_MAX;

    ctl->failures[at] = *failure;
    if (ctl->failures_count < FAILURES_MAX)
        ctl->failures_count++;
    else
        ctl->failures_first = (ctl->failures_first + 1) % FAILURES_MAX;
}

/*
 * Receives until a message with @cookie comes; no message has 0. Keeps failures of asynchronous
 * requests. Closes the connection on a failure other than -EAGAIN and -ETIMEDOUT.
 */
static int receive(struct tide_ctl *ctl, uint32_t cookie, uint64_t deadline_ns,
                   union proto_message *ret_m)
{
    union proto_message m;

    for (;;) {
        int r = channel_receive(&ctl->channel, &m, deadline_ns, &ctl->error);

        if (r == 0 && m.h.type != PROTO_RESULT && m.h.type != PROTO_JOB)
            r = error_set(&ctl->error, -EBADMSG,
                          "the daemon's answer is of type %u, which no request has", m.h.type);
        if (r < 0) {
            if (r != -EAGAIN && r != -ETIMEDOUT)
                channel_hang_up(&ctl->channel);
            return r;
        }
        if (m.h.type == PROTO_RESULT && (m.h.cookie & ASYNC_BIT)) {
            keep_failure(ctl, &m.result);
        } else if (cookie && m.h.cookie == cookie) {
            *ret_m = m;
            return 0;
        }
    }
}

static int fail_send(struct tide_ctl *ctl, int code)
{
    return error_set(&ctl->error, code, "%s", tide_strerror(code));
}

/* Connects if necessary and sends. If the daemon died since the last call, connects once more. */
static int transmit(struct tide_ctl *ctl, const union proto_message *m, uint64_t deadline_ns)
{
    union proto_message unused;
    int r;

    for (int attempt = 0; attempt < 2; attempt++) {
        r = channel_connect(&ctl->channel, deadline_ns, &ctl->error);
        if (r < 0)
            return r;
        r = channel_send(&ctl->channel, m, deadline_ns);
        if (r != -EPIPE)
            return r < 0 ? fail_send(ctl, r) : 0;
        /* Reads the failures that the dead daemon had sent before; then closes the connection. */
        receive(ctl, 0, 0, &unused);
        channel_hang_up(&ctl->channel);
    }
    return fail_send(ctl, -ECONNREFUSED);
}

static int control_init(struct tide_ctl *ctl, enum proto_verb verb, const char *job,
                        union proto_message *ret_m)
{
    size_t length;

    proto_init(ret_m, PROTO_CONTROL, 0);
    ret_m->control.verb = verb;
    length = strnlen(job ? job : "", sizeof(ret_m->control.job));
    if (length == sizeof(ret_m->control.job))
        return error_set(&ctl->error, -EINVAL, "a job's name has at most %zu bytes", length - 1);
    memcpy(ret_m->control.job, job ? job : "", length);
    return 0;
}

static int control_async(struct tide_ctl *ctl, union proto_message *m)
{
    uint32_t number = next_number(ctl->sent);
    int r;

    m->h.cookie = number | ASYNC_BIT;
    m->control.flags = PROTO_CONTROL_QUIET;
    m->control.sent_ns = clock_now_ns();
    r = transmit(ctl, m, 0);
    if (r == 0)
        ctl->sent = number;
    return r;
}

static void result_from_proto(const struct proto_result *from, struct tide_result *ret_result)
{
    struct tide_result own = {
        .size = sizeof(own),
        .status = from->status,
        .from = from->from,
        .to = from->to,
        .oversubscribed = from->oversubscribed,
        .latency_ns = from->latency_ns,
        .request = from->h.cookie & ASYNC_BIT ? from->h.cookie & ~ASYNC_BIT : 0,
    };

    sized_copy(ret_result, &own, sizeof(own));
}

static int control_wait(struct tide_ctl *ctl, union proto_message *m, uint32_t deadline_ms,
                        struct tide_result *ret_result)
{
    uint64_t deadline_ns = deadline_after(deadline_ms) + GRACE_MS * NS_PER_MS;
    union proto_message answer;
    int r;

    ctl->cookie = next_number(ctl->cookie);
    m->h.cookie = ctl->cookie;
    m->control.flags = PROTO_CONTROL_WAIT;
    m->control.deadline_ms = deadline_ms;
    m->control.sent_ns = clock_now_ns();
    r = transmit(ctl, m, deadline_ns);
    if (r == 0)
        r = receive(ctl, ctl->cookie, deadline_ns, &answer);
    if (r < 0)
        return r;
    if (answer.h.type != PROTO_RESULT) {
        channel_hang_up(&ctl->channel);
        return error_set(&ctl->error, -EBADMSG, "the daemon answered with a job, not a result");
    }
    error_set(&ctl->error, answer.result.status, "%s", answer.result.text);
    if (ret_result && answer.result.status >= 0)
        result_from_proto(&answer.result, ret_result);
    return answer.result.status;
}

static int control(struct tide_ctl *ctl, enum proto_verb verb, const char *job, uint32_t intra,
                   uint32_t inter, uint32_t deadline_ms, struct tide_result *ret_result)
{
    union proto_message m;
    int r;

    forget_error(ctl);
    if (ret_result && ret_result->size < SIZED_END(struct tide_result, reserved))
        return error_set(&ctl->error, -EINVAL, "tide_result.size is not set");
    if (inter && !intra)
        return error_set(&ctl->error, -ERANGE, "inter is %u without intra: set both", inter);
    if (intra > TIDE_THREADS_MAX || inter > TIDE_THREADS_MAX)
        return error_set(&ctl->error, -ERANGE, "%u and %u threads or cores: the maximum is %d",
                         intra, inter, TIDE_THREADS_MAX);
    r = control_init(ctl, verb, job, &m);
    if (r < 0)
        return r;
    m.control.intra = intra;
    m.control.inter = inter;
    if (deadline_ms == TIDE_ASYNC)
        return control_async(ctl, &m);
    return control_wait(ctl, &m, deadline_ms ? deadline_ms : ctl->timeout_ms, ret_result);
}

int tide_ctl_open(const struct tide_ctl_options *options, tide_ctl **ret_ctl)
{
    struct tide_ctl *ctl;
    int r;

    if (options && options->size < SIZED_END(struct tide_ctl_options, timeout_ms))
        return -EINVAL;
    ctl = calloc(1, sizeof(*ctl));
    if (!ctl)
        return -ENOMEM;
    ctl->timeout_ms =
        options && options->timeout_ms ? options->timeout_ms : (uint32_t)DEFAULT_TIMEOUT_MS;
    r = channel_init(&ctl->channel, options ? options->path : NULL, &ctl->error);
    if (r == 0)
        r = channel_connect(&ctl->channel, deadline_after(ctl->timeout_ms), &ctl->error);
    if (r < 0) {
        tide_ctl_close(ctl);
        return r;
    }
    *ret_ctl = ctl;
    return 0;
}

tide_ctl *tide_ctl_close(tide_ctl *ctl)
{
    if (ctl) {
        channel_hang_up(&ctl->channel);
        free(ctl);
    }
    return NULL;
}

int tide_ctl_fd(const tide_ctl *ctl)
{
    return ctl->channel.fd >= 0 ? ctl->channel.fd : -ENOTCONN;
}

const char *tide_ctl_message(const tide_ctl *ctl)
{
    return ctl->error.text;
}

/* The list is complete before the first callback, so that a callback may use the handle. */
struct rows {
    struct proto_job *row;
    size_t count;
};

static void rows_done(struct rows *rows)
{
    free(rows->row);
}

static int receive_rows(struct tide_ctl *ctl, uint64_t deadline_ns, struct rows *rows)
{
    union proto_message m;

    for (;;) {
        int r = receive(ctl, ctl->cookie, deadline_ns, &m);

        if (r < 0)
            return r;
        if (m.h.type == PROTO_RESULT)
            return error_set(&ctl->error, m.result.status, "%s", m.result.text);
        if (rows->count == PROTO_JOBS_MAX) {
            channel_hang_up(&ctl->channel);
            return error_set(&ctl->error, -EBADMSG, "the daemon lists more than %d jobs",
                             PROTO_JOBS_MAX);
        }
        rows->row[rows->count++] = m.job;
    }
}

static void job_from_proto(const struct proto_job *from, struct tide_job *ret_job)
{
    *ret_job = (struct tide_job){
        .size = sizeof(*ret_job),
        .pid = from->pid,
        .allowed_mcpu = from->allowed_mcpu,
        .target = from->target,
        .active = from->active,
        .max = from->max,
        .oversubscribed = from->oversubscribed,
        .lent = from->lent,
        .borrowed = from->borrowed,
        .progress_done = from->progress_done,
        .progress_total = from->progress_total,
        .rate_milli = from->rate_milli,
    };
    memcpy(ret_job->id, from->id, sizeof(ret_job->id));
    memcpy(ret_job->state, from->state, sizeof(ret_job->state));
    memcpy(ret_job->name, from->name, sizeof(ret_job->name));
    memcpy(ret_job->cores, from->cores, sizeof(ret_job->cores));
    memcpy(ret_job->unit, from->unit, sizeof(ret_job->unit));
}

int tide_ctl_list(tide_ctl *ctl, tide_job_fn fn, void *arg)
{
    _cleanup_(rows_done) struct rows rows = {0};
    uint64_t deadline_ns = deadline_after(ctl->timeout_ms) + GRACE_MS * NS_PER_MS;
    union proto_message m;
    int r;

    forget_error(ctl);
    rows.row = malloc(PROTO_JOBS_MAX * sizeof(*rows.row));
    if (!rows.row)
        return error_set(&ctl->error, -ENOMEM, "out of memory: jobs cannot be listed");
    ctl->cookie = next_number(ctl->cookie);
    proto_init(&m, PROTO_CONTROL, ctl->cookie);
    m.control.verb = PROTO_VERB_LIST;
    m.control.sent_ns = clock_now_ns();
    r = transmit(ctl, &m, deadline_ns);
    if (r == 0)
        r = receive_rows(ctl, deadline_ns, &rows);
    for (size_t i = 0; r == 0 && i < rows.count; i++) {
        struct tide_job job;

        job_from_proto(&rows.row[i], &job);
        r = fn(&job, arg);
    }
    return r;
}

int tide_ctl_set(tide_ctl *ctl, const char *job, uint32_t intra, uint32_t inter,
                 uint32_t deadline_ms, struct tide_result *ret_result)
{
    return control(ctl, PROTO_VERB_SET, job, intra, inter, deadline_ms, ret_result);
}

static int refuse_zero(struct tide_ctl *ctl, const char *verb)
{
    return error_set(&ctl->error, -EINVAL, "cannot %s 0 cores", verb);
}

int tide_ctl_lend(tide_ctl *ctl, const char *job, uint32_t cores, uint32_t deadline_ms,
                  struct tide_result *ret_result)
{
    if (cores == 0)
        return refuse_zero(ctl, "lend");
    return control(ctl, PROTO_VERB_LEND, job, cores, 0, deadline_ms, ret_result);
}

int tide_ctl_borrow(tide_ctl *ctl, const char *job, uint32_t cores, uint32_t deadline_ms,
                    struct tide_result *ret_result)
{
    if (cores == 0)
        return refuse_zero(ctl, "borrow");
    return control(ctl, PROTO_VERB_BORROW, job, cores, 0, deadline_ms, ret_result);
}

int tide_ctl_reclaim(tide_ctl *ctl, const char *job, uint32_t deadline_ms,
                     struct tide_result *ret_result)
{
    return control(ctl, PROTO_VERB_RECLAIM, job, 0, 0, deadline_ms, ret_result);
}

int tide_ctl_return(tide_ctl *ctl, const char *job, uint32_t deadline_ms,
                    struct tide_result *ret_result)
{
    return control(ctl, PROTO_VERB_RETURN, job, 0, 0, deadline_ms, ret_result);
}

uint32_t tide_ctl_sent(const tide_ctl *ctl)
{
    return ctl->sent;
}

int tide_ctl_poll(tide_ctl *ctl, struct tide_result *ret_result)
{
    const struct proto_result *failure;
    union proto_message unused;
    int r = -EAGAIN;

    forget_error(ctl);
    if (ret_result->size < SIZED_END(struct tide_result, reserved))
        return error_set(&ctl->error, -EINVAL, "tide_result.size is not set");
    if (ctl->channel.fd >= 0)
        r = receive(ctl, 0, 0, &unused);
    if (ctl->failures_count == 0)
        return r == -EAGAIN ? 0 : r;
    failure = &ctl->failures[ctl->failures_first];
    ctl->failures_first = (ctl->failures_first + 1) % FAILURES_MAX;
    ctl->failures_count--;
    error_set(&ctl->error, failure->status, "%s", failure->text);
    result_from_proto(failure, ret_result);
    return 1;
}

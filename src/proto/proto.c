/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/proto.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#define ERROR_WORD "bad-packet"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wire is little-endian");
static_assert(sizeof(struct proto_header) == 16, "header layout");
static_assert(sizeof(union proto_message) == PROTO_MESSAGE_MAX, "a type outgrew the maximum");

static const size_t sizes[] = {
    [PROTO_NONE] = 0,
    [PROTO_HELLO] = sizeof(struct proto_hello),
    [PROTO_BACKEND] = sizeof(struct proto_backend),
    [PROTO_ACK] = sizeof(struct proto_ack),
    [PROTO_HEARTBEAT] = sizeof(struct proto_heartbeat),
    [PROTO_LOCAL] = sizeof(struct proto_local),
    [PROTO_WELCOME] = sizeof(struct proto_welcome),
    [PROTO_TARGET] = sizeof(struct proto_target),
    [PROTO_LEASE] = sizeof(struct proto_lease),
    [PROTO_CONTROL] = sizeof(struct proto_control),
    [PROTO_JOB] = sizeof(struct proto_job),
    [PROTO_RESULT] = sizeof(struct proto_result),
    [PROTO_LATENCY] = sizeof(struct proto_latency),
};
static_assert(sizeof(sizes) / sizeof(sizes[0]) == PROTO_TYPE_MAX, "a type without a size");

size_t proto_size(unsigned type)
{
    return type < PROTO_TYPE_MAX ? sizes[type] : 0;
}

void proto_init(union proto_message *m, enum proto_type type, uint32_t cookie)
{
    memset(m, 0, sizeof(*m));
    m->h.magic = PROTO_MAGIC;
    m->h.version = PROTO_VERSION;
    m->h.type = (uint16_t)type;
    m->h.size = (uint32_t)proto_size(type);
    m->h.cookie = cookie;
}

#define TERMINATE(text) ((text)[sizeof(text) - 1] = '\0')

static void terminate_texts(union proto_message *m)
{
    switch ((enum proto_type)m->h.type) {
    case PROTO_HELLO:
        TERMINATE(m->hello.token);
        TERMINATE(m->hello.job_id);
        TERMINATE(m->hello.job_name);
        TERMINATE(m->hello.comm);
        TERMINATE(m->hello.agent_version);
        break;
    case PROTO_BACKEND:
        TERMINATE(m->backend.name);
        TERMINATE(m->backend.version);
        TERMINATE(m->backend.note);
        break;
    case PROTO_HEARTBEAT:
        TERMINATE(m->heartbeat.unit);
        break;
    case PROTO_WELCOME:
        TERMINATE(m->welcome.job_id);
        TERMINATE(m->welcome.job_name);
        break;
    case PROTO_CONTROL:
        TERMINATE(m->control.job);
        break;
    case PROTO_JOB:
        TERMINATE(m->job.id);
        TERMINATE(m->job.state);
        TERMINATE(m->job.name);
        TERMINATE(m->job.cores);
        TERMINATE(m->job.unit);
        break;
    case PROTO_RESULT:
        TERMINATE(m->result.text);
        break;
    default:
        break;
    }
}

static int check_range(struct error *err, const char *field, uint64_t value, uint64_t max)
{
    if (value <= max)
        return 0;
    return error_set(err, -ERANGE, "%s is %llu, the maximum is %llu", field,
                     (unsigned long long)value, (unsigned long long)max);
}

static int check_fields(const union proto_message *m, struct error *err)
{
    int r = 0;

    switch ((enum proto_type)m->h.type) {
    case PROTO_HELLO:
        return check_range(err, "max", m->hello.max, PROTO_THREADS_MAX);
    case PROTO_BACKEND:
        r = check_range(err, "index", m->backend.index, PROTO_BACKENDS_MAX - 1);
        if (r == 0)
            r = check_range(err, "max_intra", m->backend.max_intra, PROTO_THREADS_MAX);
        return r == 0 ? check_range(err, "max_inter", m->backend.max_inter, PROTO_THREADS_MAX) : r;
    case PROTO_ACK:
        return check_range(err, "status", m->ack.status, PROTO_ACK_STATUS_MAX - 1);
    case PROTO_HEARTBEAT:
        return check_range(err, "source", m->heartbeat.source, PROTO_SOURCE_MAX - 1);
    case PROTO_LOCAL:
        r = check_range(err, "source", m->local.source, PROTO_SOURCE_MAX - 1);
        if (r == 0)
            r = check_range(err, "intra", m->local.intra, PROTO_THREADS_MAX);
        return r == 0 ? check_range(err, "inter", m->local.inter, PROTO_THREADS_MAX) : r;
    case PROTO_LATENCY:
        r = check_range(err, "source", m->latency.source, PROTO_REQUESTS_MAX - 1);
        if (r == 0)
            r = check_range(err, "most_in_flight", m->latency.most_in_flight, PROTO_IN_FLIGHT_MAX);
        if (r == 0)
            r = check_range(err, "ended", m->latency.ended, m->latency.begun);
        return r == 0 ? check_range(err, "in flight", m->latency.begun - m->latency.ended,
                                    m->latency.most_in_flight)
                      : r;
    case PROTO_TARGET:
        r = check_range(err, "intra", m->target.intra, PROTO_THREADS_MAX);
        return r == 0 ? check_range(err, "inter", m->target.inter, PROTO_THREADS_MAX) : r;
    case PROTO_CONTROL:
        r = check_range(err, "verb", m->control.verb, PROTO_VERB_MAX - 1);
        if (r == 0)
            r = check_range(err, "intra", m->control.intra, PROTO_THREADS_MAX);
        return r == 0 ? check_range(err, "inter", m->control.inter, PROTO_THREADS_MAX) : r;
    default:
        return 0;
    }
}

int proto_check(union proto_message *m, size_t len, struct error *err)
{
    if (len < sizeof(m->h))
        return error_set(err, -EBADMSG, "a packet of %zu bytes is shorter than a header", len);
    if (m->h.magic != PROTO_MAGIC)
        return error_set(err, -EBADMSG, "not a Threadtide message (magic %08x)", m->h.magic);
    if (m->h.version != PROTO_VERSION)
        return error_set(err, -EPROTONOSUPPORT,
                         "protocol version %u, this side speaks %u: restart the older of the two",
                         m->h.version, PROTO_VERSION);
    if (proto_size(m->h.type) == 0)
        return error_set(err, -EBADMSG, "unknown message type %u", m->h.type);
    if (len != proto_size(m->h.type) || m->h.size != len)
        return error_set(err, -EBADMSG, "message type %u has %zu bytes, expected %zu", m->h.type,
                         len, proto_size(m->h.type));
    terminate_texts(m);
    return check_fields(m, err);
}

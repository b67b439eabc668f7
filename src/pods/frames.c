/* SPDX-License-Identifier: Apache-2.0 */
#include "pods/frames.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#define TRUNK_HEAD   8
#define MESSAGE_HEAD 10

/* The other end reads a piece into a buffer of this size, or into one that has room for all. */
#define PIECE_MAX 4096

enum { KIND_CALL = 1, KIND_ANSWER = 2 };

static uint32_t get_u32(const unsigned char *at)
{
    uint32_t value;

    memcpy(&value, at, sizeof(value));
    return be32toh(value);
}

static void add_u32(struct buffer *b, uint32_t value)
{
    value = htobe32(value);
    buffer_add(b, &value, sizeof(value));
}

/* ---- receiving ---- */

/* Moves complete pieces of the trunk to their streams. */
static int sort(struct frames *f)
{
    struct buffer *t = &f->trunk;
    size_t done = 0;

    while (t->len - done >= TRUNK_HEAD) {
        uint32_t to = get_u32(t->bytes + done), len = get_u32(t->bytes + done + 4);

        if (len > FRAMES_MESSAGE_MAX + MESSAGE_HEAD)
            return -EBADMSG;
        if (t->len - done - TRUNK_HEAD < len)
            break;
        if (to == FRAMES_PLUGIN || to == FRAMES_RUNTIME) /* another connection is none of ours */
            buffer_add(&f->streams[to - 1], t->bytes + done + TRUNK_HEAD, len);
        done += TRUNK_HEAD + len;
    }
    buffer_drop(t, done);
    return t->failed || f->streams[0].failed || f->streams[1].failed ? -ENOMEM : 0;
}

static int read_call(struct span body, struct frames_message *ret)
{
    ret->is_call = true;
    ret->service = protobuf_bytes(body, 1);
    ret->method = protobuf_bytes(body, 2);
    ret->payload = protobuf_bytes(body, 3);
    return 0;
}

static int read_answer(struct span body, struct frames_message *ret)
{
    struct span status = protobuf_bytes(body, 1);

    if (protobuf_check(status) < 0)
        return -EBADMSG;
    ret->code = protobuf_value(status, 1);
    span_text(protobuf_bytes(status, 2), ret->text, sizeof(ret->text));
    ret->payload = protobuf_bytes(body, 2);
    return 0;
}

/* The stream's first message is complete. Messages of kinds that we do not use are errors. */
static int read_message(const struct buffer *stream, enum frames_connection connection,
                        struct frames_message *ret)
{
    struct span body = {stream->bytes + MESSAGE_HEAD, get_u32(stream->bytes)};
    unsigned char kind = stream->bytes[8];

    *ret = (struct frames_message){.connection = connection, .stream = get_u32(stream->bytes + 4)};
    if (protobuf_check(body) < 0)
        return -EBADMSG;
    if (kind == KIND_CALL && connection == FRAMES_PLUGIN)
        return read_call(body, ret);
    if (kind == KIND_ANSWER && connection == FRAMES_RUNTIME)
        return read_answer(body, ret);
    return -EBADMSG;
}

int frames_next(struct frames *f, struct frames_message *ret)
{
    int r;

    for (unsigned i = 0; i < 2; i++) { /* what was returned last is read */
        buffer_drop(&f->streams[i], f->read[i]);
        f->read[i] = 0;
    }
    r = sort(f);
    for (unsigned i = 0; r == 0 && i < 2; i++) {
        const struct buffer *s = &f->streams[i];

        if (s->len < MESSAGE_HEAD)
            continue;
        if (get_u32(s->bytes) > FRAMES_MESSAGE_MAX)
            return -EBADMSG;
        if (s->len - MESSAGE_HEAD < get_u32(s->bytes))
            continue;
        f->read[i] = MESSAGE_HEAD + get_u32(s->bytes);
        r = read_message(s, (enum frames_connection)(i + 1), ret);
        return r < 0 ? r : 1;
    }
    return r;
}

void frames_done(struct frames *f)
{
    buffer_done(&f->trunk);
    buffer_done(&f->streams[0]);
    buffer_done(&f->streams[1]);
}

/* ---- sending ---- */

static void add_message(struct buffer *out, enum frames_connection connection, uint32_t stream,
                        unsigned char kind, const struct buffer *body)
{
    struct buffer message = {0};
    const unsigned char tail[2] = {kind, 0};

    add_u32(&message, (uint32_t)body->len);
    add_u32(&message, stream);
    buffer_add(&message, tail, sizeof(tail));
    buffer_add(&message, body->bytes, body->len);
    for (size_t at = 0, len; at < message.len; at += len) {
        len = message.len - at < PIECE_MAX ? message.len - at : PIECE_MAX;
        add_u32(out, connection);
        add_u32(out, (uint32_t)len);
        buffer_add(out, message.bytes + at, len);
    }
    out->failed |= message.failed || body->failed;
    buffer_done(&message);
}

void frames_call(struct buffer *out, uint32_t stream, const char *service, const char *method,
                 const struct buffer *payload)
{
    struct buffer body = {0};

    protobuf_put_text(&body, 1, service);
    protobuf_put_text(&body, 2, method);
    protobuf_put_bytes(&body, 3, payload->bytes, payload->len);
    body.failed |= payload->failed;
    add_message(out, FRAMES_RUNTIME, stream, KIND_CALL, &body);
    buffer_done(&body);
}

void frames_answer(struct buffer *out, uint32_t stream, unsigned code, const char *text,
                   const struct buffer *payload)
{
    struct buffer body = {0};
    size_t status;

    if (code != 0) {
        status = protobuf_open(&body, 1);
        protobuf_put_value(&body, 1, code);
        protobuf_put_text(&body, 2, text);
        protobuf_close(&body, status);
    } else if (payload) {
        protobuf_put_bytes(&body, 2, payload->bytes, payload->len);
        body.failed |= payload->failed;
    }
    add_message(out, FRAMES_PLUGIN, stream, KIND_ANSWER, &body);
    buffer_done(&body);
}

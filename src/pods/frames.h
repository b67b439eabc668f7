/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layers below NRI's messages, on one Unix socket:
 *
 *   multiplexer   two connections in one: 4 bytes of its number, 4 of a length, bytes
 *   ttrpc         a message: 4 bytes of a length, 4 of a stream's number, kind, flags; then the
 *                 call or the answer, a message of Protocol Buffers with the payload inside
 *
 * All numbers are big-endian. On connection 1 the runtime calls the plugin, on connection 2 the
 * plugin calls the runtime. Pure; any thread.
 */
#pragma once

#include "pods/protobuf.h"

#define FRAMES_MESSAGE_MAX (4u << 20) /* bytes of a message of ttrpc, by its specification */
#define FRAMES_TEXT_MAX    256        /* of an error's text */

enum frames_connection { FRAMES_PLUGIN = 1, FRAMES_RUNTIME = 2 };

/* Bytes that were received and are no complete message yet. */
struct frames {
    struct buffer trunk, streams[2];
    size_t read[2]; /* bytes of the message that was returned last */
};

/* A complete message; its spans are valid until frames_next() is called again. */
struct frames_message {
    enum frames_connection connection;
    bool is_call;    /* else an answer to a call of ours */
    uint32_t stream; /* an answer has the number of its call */
    struct span service, method, payload;
    uint64_t code;              /* of an answer: 0, or a status code of gRPC … */
    char text[FRAMES_TEXT_MAX]; /* … and the reason */
};

/*
 * Takes the next message out of what was added to frames->trunk. Returns 1, 0 (more bytes are
 * needed) or -EBADMSG, -ENOMEM: the connection is of no use any more.
 */
int frames_next(struct frames *f, struct frames_message *ret);
void frames_done(struct frames *f);

/* Append a whole message, as it goes over the socket. */
void frames_call(struct buffer *out, uint32_t stream, const char *service, const char *method,
                 const struct buffer *payload);
/* @code 0: with the payload (NULL: an empty one); else with the reason. */
void frames_answer(struct buffer *out, uint32_t stream, unsigned code, const char *text,
                   const struct buffer *payload);

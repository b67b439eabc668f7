/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The requests on one connection of a server, from the bytes that it receives and sends: HTTP/1.1
 * by the ends of its messages, HTTP/2 and so gRPC by the ends of its streams. Nothing of the
 * content is kept beyond the line of a head that is being read.
 *
 * A request begins when its first line, or in HTTP/2 its head, has been received, and ends when the
 * last byte of the answer has been handed to the kernel. Streams of events (text/event-stream, an
 * answer of more than HTTP_FRAMES_MAX frames of HTTP/2) and requests without an answer are dropped.
 * What is neither protocol, as TLS, is not read further.
 *
 * Pure: no clock, no memory of its own. RFC 9112 (HTTP/1.1), RFC 9113 (HTTP/2).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_PIPE_MAX    8   /* requests of HTTP/1.1 that wait for their answers */
#define HTTP_STREAMS_MAX 64  /* open streams of HTTP/2 that are watched; further ones are not */
#define HTTP_LINE_MAX    64  /* bytes of a head's line that are looked at */
#define HTTP_FRAMES_MAX  256 /* of an answer; with more it is a stream */
#define HTTP_FRAME_LEN   9

/* The outcomes of a request; @request is what begin() has returned. */
struct http_events {
    uint64_t (*begin)(void);
    void (*end)(uint64_t request);
    void (*drop)(uint64_t request); /* how long it took says nothing */
};

enum http_protocol { HTTP_UNKNOWN, HTTP_1, HTTP_2, HTTP_OTHER, HTTP_PROTOCOL_MAX };

/* One direction. */
struct http_reader {
    int state;                /* enum state of the .c file */
    uint64_t left;            /* bytes to pass over */
    unsigned len;             /* of @line */
    char line[HTTP_LINE_MAX]; /* the line that is being read, or a frame's head */
    bool has_length, chunked, events;
    bool answered;   /* its request has been dropped already */
    unsigned status; /* of an answer */
};

struct http_stream {
    uint32_t id;     /* 0: free */
    unsigned frames; /* of the answer */
    uint64_t request;
};

struct http_connection {
    enum http_protocol protocol;
    struct http_reader in, out;
    struct {
        uint64_t request;
        bool is_head; /* HEAD: its answer has no body */
    } pipe[HTTP_PIPE_MAX];
    unsigned first, count; /* in the pipe */
    bool settings;         /* the server has sent those of HTTP/2 */
    uint32_t last_stream;
    struct http_stream stream[HTTP_STREAMS_MAX];
};

/* A connection in which nothing has been read yet is all zeros. */
void http_received(struct http_connection *c, const struct http_events *events, const void *data,
                   size_t len);
void http_sent(struct http_connection *c, const struct http_events *events, const void *data,
               size_t len);
/* @len bytes were sent that nobody has seen (sendfile). */
void http_sent_unseen(struct http_connection *c, const struct http_events *events, size_t len);
/* The server closes it: an answer without a length ends here, other requests are dropped. */
void http_closed(struct http_connection *c, const struct http_events *events);
/* It is not read any more: all its requests are dropped. */
void http_given_up(struct http_connection *c, const struct http_events *events);

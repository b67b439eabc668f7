/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small blocking HTTP/1.1 client over a unix socket: one request, one answer, connection closed.
 * Made for `tide`, whose whole run has to take only a few milliseconds. Any thread, no state;
 * called by the CLI and by daemon_start.
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

#define HTTP_BODY_MAX (4u << 20)  /* bytes of an answer's body; a longer one is refused */
#define HTTP_HEAD_MAX (16u << 10) /* bytes of its status line and headers */
#define HTTP_LINE_MAX (64u << 10) /* about the longest line of a stream that is read */

/*
 * Sends @method @path with @body (JSON; NULL: none) to the server listening on @socket_path.
 * @path must be URL-encoded already (http_escape). @timeout_ms bounds the whole exchange.
 * Returns 0 with the status (100 … 599) and the body (terminated, never NULL; the caller frees);
 *   -ENOENT        no such socket
 *   -ECONNREFUSED  a socket file without a listener
 *   -EACCES        not allowed to connect
 *   -EPERM         the listener is neither root's nor this user's: nothing was sent
 *   -ETIMEDOUT     no complete answer in time
 *   -EBADMSG       the answer is truncated or no HTTP; -EMSGSIZE: it is too long
 *   -EINVAL        @method or @path holds a blank or control character
 *   another -errno.
 */
int http_request(const char *socket_path, const char *method, const char *path, const char *body,
                 unsigned timeout_ms, int *ret_status, char **ret_body, struct error *err);

/*
 * Connects to the server listening on @socket_path, with the checks above, for a caller that
 * exchanges by itself. Returns 0 with a descriptor that does not block, or as http_request() does.
 */
int http_connect(const char *socket_path, unsigned timeout_ms, int *ret_fd, struct error *err);

/* An endless answer: server-sent events, line by line. */
struct http_stream {
    int fd; /* to poll for POLLIN; does not block */
    char *buf;
    size_t from, len, size;
};

/*
 * GETs @path, with @last as Last-Event-ID (may be empty). Returns as http_request() does. If
 * *ret_status is 200, *ret is a stream (the caller calls http_stream_done()) and *ret_body NULL;
 * otherwise *ret_body is as with http_request() and there is no stream.
 */
int http_stream_open(const char *socket_path, const char *path, const char *last,
                     unsigned timeout_ms, struct http_stream *ret, int *ret_status, char **ret_body,
                     struct error *err);
void http_stream_done(struct http_stream *s); /* also after the server closed the stream */

/*
 * Reads the next line, without its end, valid until the next call. Returns 0, -EAGAIN (not yet),
 * -ENODATA (the server closed; half a line is dropped), -EMSGSIZE, -ENOMEM or another -errno.
 */
int http_stream_line(struct http_stream *s, const char **ret);

struct http_response;

/*
 * The same over the connection @fd, which does not block and may be the way to another machine.
 * @headers are further lines of the head, each with its end, or "". http_exchange() leaves the
 * connection open, for the next request unless ret->closes; the caller frees ret->body.
 * http_stream_over() owns @fd. Both return 0 or an error as http_request() does, without its text;
 * -ENODATA: the connection was closed before a byte of the answer.
 */
int http_exchange(int fd, const char *method, const char *path, const char *headers,
                  const char *body, unsigned timeout_ms, struct http_response *ret);
int http_stream_over(int fd, const char *path, const char *last, const char *headers,
                     unsigned timeout_ms, struct http_stream *ret, int *ret_status,
                     char **ret_body);

/* Percent-encodes @text as one path segment. Returns 0 or -ENAMETOOLONG. */
int http_escape(const char *text, char *buf, size_t size);

/* The answer in a received buffer. */
struct http_response {
    int status;
    bool closes; /* the server takes no further request on this connection */
    char *body;  /* allocated, terminated */
    size_t body_len;
};

/*
 * Parses the @len bytes received so far; @eof: the server closed the connection. Returns 0
 * (complete; the caller frees ret->body), -EAGAIN (incomplete, only without @eof), -EBADMSG,
 * -EMSGSIZE or -ENOMEM. Trailing bytes after a complete answer are -EBADMSG.
 */
int http_parse_response(const char *buf, size_t len, bool eof, struct http_response *ret);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the heads of HTTP/1.1 messages, requests and answers alike. Pure; any thread; used by
 * host/net/http.c and tfnode/request.c.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* A part of the buffer, without a terminating NUL. */
struct http_text {
    const char *start;
    size_t len;
};

struct http_head {
    size_t size;   /* of the head itself, blank line included */
    size_t length; /* Content-Length */
    bool have_length;
    bool chunked;
};

/* The caller's limits, and its functions for the rest of the head. */
struct http_reader {
    size_t body_max; /* a longer body is refused */
    bool chunked;    /* chunks are accepted; no other transfer coding ever is */
    /* Gets the first line without CR LF. http_head_parse() returns its result below 0. */
    int (*first)(void *arg, struct http_text line);
    /* Gets each header but Content-Length and Transfer-Encoding; may be NULL. */
    void (*header)(void *arg, struct http_text name, struct http_text value);
};

/*
 * Reads the head at the start of @buf. Returns 0, -EAGAIN (no blank line yet), -EBADMSG (no head of
 * HTTP/1, or headers that disagree about the body's end), -ENOTSUP (a transfer coding, and @reader
 * accepts none), -EMSGSIZE (a length above body_max), or what first() returned. Bytes that arrive
 * later change no result but -EAGAIN.
 */
int http_head_parse(const char *buf, size_t len, const struct http_reader *reader, void *arg,
                    struct http_head *ret);

/* Whether @text is @word; upper and lower case are the same. */
bool http_text_is(struct http_text text, const char *word);

/* Finds the end of the line at @from. *ret_len excludes CR LF. Returns 0, -EAGAIN or -EBADMSG. */
int http_find_line(const char *buf, size_t len, size_t from, size_t *ret_len);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heads of HTTP/1.1 messages, for those who read requests and those who read answers. Pure; any
 * thread; used by host/net/http.c and tfnode/request.c.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* A part of the buffer, not terminated. */
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

/* What a kind of message may be, and who reads the rest of its head. */
struct http_reader {
    size_t body_max; /* a longer body is refused */
    bool chunked;    /* it may come in chunks; no other transfer coding is read */
    /* The first line, without its CR LF. What it returns below 0, http_head_parse() returns. */
    int (*first)(void *arg, struct http_text line);
    /* Each header but Content-Length and Transfer-Encoding; may be NULL. */
    void (*header)(void *arg, struct http_text name, struct http_text value);
};

/*
 * Reads the head at the start of @buf. Returns 0, -EAGAIN (no blank line yet), -EBADMSG (no head of
 * HTTP/1, or two opinions about where the body ends), -ENOTSUP (a transfer coding, and @reader
 * reads none), -EMSGSIZE (a length above its limit), or what its first() returned. No byte that
 * arrives later changes any answer but -EAGAIN.
 */
int http_head_parse(const char *buf, size_t len, const struct http_reader *reader, void *arg,
                    struct http_head *ret);

/* Whether it is @word, in capitals or not. */
bool http_text_is(struct http_text text, const char *word);

/* Finds the end of a line at @from; *ret_len is without its CR LF. -EAGAIN: not there yet. */
int http_find_line(const char *buf, size_t len, size_t from, size_t *ret_len);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests on the control port: HTTP/1.1, one a connection, small. Pure; called by control.c, its
 * unit test and the fuzzer.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REQUEST_MAX         2048 /* bytes, head and body; more is refused */
#define REQUEST_BODY_MAX    256
#define REQUEST_PATH_MAX    64 /* with its NUL */
#define REQUEST_THREADS_MAX 4096
#define REQUEST_HOST_MAX    46 /* with its NUL: an address, no name */

enum request_method { REQUEST_GET, REQUEST_POST, REQUEST_OTHER, REQUEST_METHOD_MAX };

struct request {
    enum request_method method;
    bool http_1_0;
    char path[REQUEST_PATH_MAX]; /* without its query */
    const char *body;            /* in the buffer that was parsed, not terminated */
    size_t body_len;
};

/*
 * Reads the request at the start of @buf. Returns 0, or
 *   -EAGAIN    incomplete so far
 *   -EMSGSIZE  larger than the limits above
 *   -EBADMSG   no HTTP/1 request, or one with two lengths
 *   -ENOTSUP   a transfer coding
 *   -EPERM     a web page may have sent it: it has an Origin, or its Host is a name, no address
 *   -EMEDIUMTYPE  a POST whose Content-Type is not application/json, as from a web page's form
 * Bytes that arrive later change no result but -EAGAIN.
 */
int request_parse(const char *buf, size_t len, struct request *ret);

/*
 * Reads the number in a body {"threads": N}; ignores other members.
 * Returns 0, -EBADMSG (no such JSON), or -ERANGE (above REQUEST_THREADS_MAX).
 */
int request_threads(const char *body, size_t len, uint32_t *ret_threads);

/*
 * Reads the address in a body {"host": "10.0.0.7", "port": N}. Returns 0 or -EBADMSG.
 */
int request_address(const char *body, size_t len, char ret_host[REQUEST_HOST_MAX],
                    uint32_t *ret_port);

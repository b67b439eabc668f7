/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An answer of an HTTP server that arrives in pieces. The first prefix that is complete or bad
 * decides; later bytes must not change the result.
 */
#include "host/net/http.h"
#include "input.h"

#include <errno.h>

static int parse(const uint8_t *data, size_t size, bool eof)
{
    char *exact = malloc(size ? size : 1);
    struct http_response response;
    int r;

    CHECK(exact);
    if (size)
        memcpy(exact, data, size);
    r = http_parse_response(exact, size, eof, &response);
    if (r == 0) {
        CHECK(response.status >= 100 && response.status <= 599);
        CHECK(response.body_len <= HTTP_BODY_MAX && response.body[response.body_len] == '\0');
        free(response.body);
    }
    free(exact);
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int open = parse(data, size, false), closed = parse(data, size, true);

    CHECK(closed != -EAGAIN);
    if (open != -EAGAIN)
        CHECK(open == closed);
    if (open == 0 && size > 0)
        CHECK(parse(data, size - 1, false) == -EAGAIN);
    if (open == -EAGAIN && size > 0)
        CHECK(parse(data, size / 2, false) == -EAGAIN);
    return 0;
}

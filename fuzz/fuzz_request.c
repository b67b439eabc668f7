/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request on the control port of a TensorFlow node that arrives in pieces. The first prefix that
 * is complete or bad decides; later bytes must not change the result.
 */
#include "input.h"
#include "tfnode/request.h"

#include <errno.h>

static int parse(const uint8_t *data, size_t size, struct request *ret)
{
    char *exact = malloc(size ? size : 1);
    int r;

    CHECK(exact);
    if (size)
        memcpy(exact, data, size);
    r = request_parse(exact, size, ret);
    if (r == 0) {
        char host[REQUEST_HOST_MAX] = "";
        uint32_t threads = 0, port = 0;

        CHECK(ret->body_len <= REQUEST_BODY_MAX);
        CHECK((size_t)(ret->body - exact) + ret->body_len <= size && size >= ret->body_len);
        CHECK(ret->path[0] == '/' && strlen(ret->path) < sizeof(ret->path));
        request_threads(ret->body, ret->body_len, &threads);
        CHECK(threads <= REQUEST_THREADS_MAX);
        request_address(ret->body, ret->body_len, host, &port);
        CHECK(strlen(host) < sizeof(host) && port <= UINT16_MAX);
    } else {
        CHECK(r == -EAGAIN || r == -EMSGSIZE || r == -EBADMSG || r == -ENOTSUP || r == -EPERM ||
              r == -EMEDIUMTYPE);
    }
    CHECK(r != -EAGAIN || size < REQUEST_MAX);
    free(exact);
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct request whole, part;
    int r = parse(data, size, &whole);

    for (size_t n = size / 2; n < size; n += 1 + (size - n) / 4) {
        int early = parse(data, n, &part);

        CHECK(early == -EAGAIN || early == r);
        CHECK(early != 0 || (part.method == whole.method && part.body_len == whole.body_len));
    }
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes on a server's connection, both ways: a byte for the direction and the length of the next
 * piece, then the piece. Every request that begins ends or is dropped once, and the same becomes of
 * them when the bytes pass one by one.
 */
#include "agent/sockets/http_requests.h"
#include "input.h"

#define REQUESTS 4096

static uint64_t begun, ended, dropped;
static bool open[REQUESTS];

static uint64_t begin(void)
{
    CHECK(++begun < REQUESTS);
    open[begun] = true;
    return begun;
}

static void close_request(uint64_t request)
{
    CHECK(request > 0 && request < REQUESTS && open[request]);
    open[request] = false;
}

static void end(uint64_t request)
{
    ended++;
    close_request(request);
}

static void drop(uint64_t request)
{
    dropped++;
    close_request(request);
}

static void talk(const uint8_t *data, size_t size, bool one_by_one)
{
    static const struct http_events events = {begin, end, drop};
    static struct http_connection c;

    memset(&c, 0, sizeof(c));
    begun = ended = dropped = 0;
    while (size > 1) {
        bool sent = data[0] & 1;
        size_t len = (size_t)(data[0] >> 1) + 1, step;

        data++;
        size--;
        len = len < size ? len : size;
        step = one_by_one ? 1 : len;
        for (size_t at = 0; at < len; at += step)
            (sent ? http_sent : http_received)(&c, &events, data + at, step);
        data += len;
        size -= len;
    }
    http_closed(&c, &events);
    CHECK(begun == ended + dropped);
    CHECK(c.protocol == HTTP_OTHER && c.count == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t counts[3];

    if (size > REQUESTS)
        return 0;
    talk(data, size, false);
    counts[0] = begun;
    counts[1] = ended;
    counts[2] = dropped;
    talk(data, size, true);
    CHECK(counts[0] == begun && counts[1] == ended && counts[2] == dropped);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* A packet on agent.sock: an accepted one has a known type, its exact size, terminated texts. */
#include "input.h"
#include "proto/proto.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    union proto_message m;
    struct error err = {0};

    if (size > sizeof(m))
        return 0;
    memset(&m, 0xff, sizeof(m)); /* the bytes behind the packet terminate no text */
    if (size)
        memcpy(&m, data, size);
    if (proto_check(&m, size, &err) < 0) {
        CHECK(err.code < 0 && memchr(err.text, '\0', sizeof(err.text)));
        return 0;
    }
    CHECK(size == proto_size(m.h.type));
    if (m.h.type == PROTO_HELLO)
        CHECK(memchr(m.hello.token, 0, PROTO_TOKEN_MAX) &&
              memchr(m.hello.agent_version, 0, PROTO_SHORT_MAX));
    if (m.h.type == PROTO_CONTROL)
        CHECK(m.control.verb < PROTO_VERB_MAX && memchr(m.control.job, 0, PROTO_NAME_MAX));
    if (m.h.type == PROTO_TARGET)
        CHECK(m.target.intra <= PROTO_THREADS_MAX && m.target.inter <= PROTO_THREADS_MAX);
    if (m.h.type == PROTO_LATENCY)
        CHECK(m.latency.ended <= m.latency.begun &&
              m.latency.begun - m.latency.ended <= m.latency.most_in_flight &&
              m.latency.most_in_flight <= PROTO_IN_FLIGHT_MAX);
    return 0;
}

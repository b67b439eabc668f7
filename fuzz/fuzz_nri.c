/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Words of a container runtime by NRI: pieces of the multiplexer, calls in them, and the pods and
 * containers that these tell of. What a container is given stays a message.
 */
#include "input.h"
#include "pods/adjust.h"
#include "pods/choose.h"
#include "pods/frames.h"

#include <stdio.h>

static void check_container(const struct nri_pod *pod, const struct nri_container *c)
{
    static const struct choice choice = {.qos = 7, .inject = true};
    const struct adjust_how how = {.agent_dir = "/agent",
                                   .control_dir = "/control",
                                   .cores = 4,
                                   .request = choose_number(pod, "request"),
                                   .sizes = true};
    struct chosen chosen = choose(&choice, pod, c->name);
    char name[CHOOSE_NAME_MAX];
    struct buffer answer = {0};
    struct startup size = {0};

    CHECK(strlen(c->id) > 0 && !strchr(c->id, '/') && c->pid >= 0 && c->started_ns >= 0);
    CHECK(strlen(choose_name(pod, c->name, name)) < CHOOSE_NAME_MAX);
    json_decref(choose_labels(&chosen, pod));
    adjust_put(&answer, &how, c, &size);
    CHECK(protobuf_check((struct span){answer.bytes, answer.len}) == 0);
    buffer_done(&answer);
}

static void check_call(struct span payload)
{
    for (unsigned first = 1; first < 3; first++) {
        struct nri_container c;
        struct nri_pod pod;
        struct span rest = payload, one;

        if (nri_read_pod(protobuf_bytes(payload, first), &pod) < 0)
            continue;
        if (nri_read_container(protobuf_bytes(payload, first + 1), &c) == 0)
            check_container(&pod, &c);
        while (nri_next(&rest, 2, &one)) /* a list */
            if (nri_read_container(one, &c) == 0)
                check_container(&pod, &c);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t half = size / 2;
    struct frames f = {0};
    struct frames_message m;

    for (unsigned part = 0; part < 2; part++) {
        buffer_add(&f.trunk, part ? data + half : data, part ? size - half : half);
        while (frames_next(&f, &m) > 0) {
            CHECK(memchr(m.text, '\0', sizeof(m.text)));
            check_call(m.payload);
            nri_update_failed(m.payload);
        }
    }
    frames_done(&f);
    return 0;
}

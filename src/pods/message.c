/* SPDX-License-Identifier: Apache-2.0 */
#include "pods/message.h"

#include "runc/control_dir.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#define BIT(event) (UINT64_C(1) << ((event)-1))

#define PID_MAX 4194304 /* Linux' PID_MAX_LIMIT */

int nri_read_pod(struct span message, struct nri_pod *ret)
{
    struct nri_pod pod = {
        .whole = message,
        .id = protobuf_bytes(message, 1),
        .name = protobuf_bytes(message, 2),
        .name_space = protobuf_bytes(message, 4),
    };
    struct span host = protobuf_bytes(message, 8);

    if (protobuf_check(message) < 0 || protobuf_check(host) < 0)
        return -EBADMSG;
    pod.cgroup_parent = protobuf_bytes(host, 3);
    *ret = pod;
    return 0;
}

/* A number in a message of its own: it may be 0 and was given all the same. */
static bool optional(struct span message, unsigned number, uint64_t *ret)
{
    struct protobuf_field field;
    bool found = false;

    while (protobuf_next(&message, &field) > 0) {
        if (field.number != number || field.is_number)
            continue;
        *ret = protobuf_value(field.bytes, 1);
        found = true;
    }
    return found;
}

int nri_read_limits(struct span resources, struct nri_limits *limits)
{
    struct span memory = protobuf_bytes(resources, 1), cpu = protobuf_bytes(resources, 2);
    struct span cpus = protobuf_bytes(cpu, 6);
    uint64_t value;

    if (protobuf_check(resources) < 0 || protobuf_check(memory) < 0 || protobuf_check(cpu) < 0 ||
        cpus.len >= sizeof(limits->cpus))
        return -EBADMSG;
    if (optional(memory, 1, &value))
        limits->memory_bytes = (int64_t)value > 0 ? value : 0;
    if (optional(cpu, 1, &value))
        limits->shares = value <= UINT32_MAX ? value : UINT32_MAX;
    if (optional(cpu, 2, &value))
        limits->quota_us = (int64_t)value > 0 ? (int64_t)value : 0;
    if (optional(cpu, 3, &value))
        limits->period_us = (int64_t)value > 0 ? value : 0;
    if (cpus.len > 0)
        span_text(cpus, limits->cpus, sizeof(limits->cpus));
    return 0;
}

int nri_read_container(struct span message, struct nri_container *ret)
{
    struct nri_container c = {
        .whole = message,
        .pod = protobuf_bytes(message, 2),
        .name = protobuf_bytes(message, 3),
        .state = (enum nri_state)protobuf_value(message, 4),
        .started_ns = (int64_t)protobuf_value(message, 15),
        .exit_code = (int)protobuf_value(message, 17),
    };
    struct span host = protobuf_bytes(message, 11), image = protobuf_bytes(message, 22);
    struct span id = protobuf_bytes(message, 1), resources = protobuf_bytes(host, 3);
    uint64_t pid = protobuf_value(message, 12);

    if (protobuf_check(message) < 0 || protobuf_check(host) < 0 || id.len > CONTAINER_KEY_MAX ||
        nri_read_limits(resources, &c.limits) < 0)
        return -EBADMSG;
    span_text(id, c.id, sizeof(c.id));
    if (!control_dir_is_key(c.id))
        return -EBADMSG;
    c.pid = pid <= PID_MAX ? (pid_t)pid : 0;
    c.has_limits = host.len > 0;
    if (c.started_ns < 0)
        c.started_ns = 0;
    c.image = protobuf_bytes(image, 1);
    if (c.image.len == 0)
        protobuf_map(message, NRI_CONTAINER_ANNOTATIONS, "io.kubernetes.cri.image-name", &c.image);
    *ret = c;
    return 0;
}

bool nri_next(struct span *rest, unsigned number, struct span *ret)
{
    struct protobuf_field field;

    while (protobuf_next(rest, &field) > 0) {
        if (field.number != number || field.is_number)
            continue;
        *ret = field.bytes;
        return true;
    }
    return false;
}

bool nri_note(struct span pod, const char *key, struct span *ret)
{
    return protobuf_map(pod, 5, key, ret) || protobuf_map(pod, 6, key, ret);
}

/* ---- writing ---- */

void nri_put_registration(struct buffer *b, const char *name, const char *index)
{
    protobuf_put_text(b, 1, name);
    protobuf_put_text(b, 2, index);
}

void nri_put_events(struct buffer *b)
{
    protobuf_put_value(b, 2,
                       BIT(NRI_CREATE) | BIT(NRI_POST_START) | BIT(NRI_UPDATE) | BIT(NRI_STOP) |
                           BIT(NRI_REMOVE));
}

void nri_put_update(struct buffer *b, const char *id, const char *cpus)
{
    size_t update = protobuf_open(b, 1), host, resources, cpu;

    protobuf_put_text(b, 1, id);
    host = protobuf_open(b, 2);
    resources = protobuf_open(b, 1);
    cpu = protobuf_open(b, 2);
    protobuf_put_text(b, 6, cpus);
    protobuf_close(b, cpu);
    protobuf_close(b, resources);
    protobuf_close(b, host);
    protobuf_close(b, update);
}

bool nri_update_failed(struct span answer)
{
    struct span failed;

    return nri_next(&answer, 1, &failed);
}

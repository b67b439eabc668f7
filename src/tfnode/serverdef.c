/* SPDX-License-Identifier: Apache-2.0 */
#include "tfnode/serverdef.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

enum wire_type { WIRE_VARINT = 0, WIRE_BYTES = 2 };

/* The numbers of the fields that are written, message by message. */
enum server_field { SERVER_CLUSTER = 1, SERVER_JOB, SERVER_INDEX, SERVER_CONFIG, SERVER_PROTOCOL };
enum cluster_field { CLUSTER_JOB = 1 };
enum job_field { JOB_NAME = 1, JOB_TASKS };
enum map_field { MAP_KEY = 1, MAP_VALUE };
enum config_field { CONFIG_INTRA = 2, CONFIG_INTER = 5 };

struct message {
    size_t len;
    bool full; /* a field did not fit */
    uint8_t data[SERVERDEF_MAX];
};

static void put_byte(struct message *m, uint8_t byte)
{
    if (m->len == sizeof(m->data))
        m->full = true;
    else
        m->data[m->len++] = byte;
}

static void put_varint(struct message *m, uint64_t value)
{
    for (; value > 0x7f; value >>= 7)
        put_byte(m, (uint8_t)(value | 0x80));
    put_byte(m, (uint8_t)value);
}

static void put_number(struct message *m, unsigned field, uint32_t value)
{
    put_varint(m, field << 3 | WIRE_VARINT);
    put_varint(m, value);
}

static void put_bytes(struct message *m, unsigned field, const void *data, size_t len)
{
    put_varint(m, field << 3 | WIRE_BYTES);
    put_varint(m, len);
    for (size_t i = 0; i < len; i++)
        put_byte(m, ((const uint8_t *)data)[i]);
}

static void put_text(struct message *m, unsigned field, const char *text)
{
    put_bytes(m, field, text, strlen(text));
}

static void put_message(struct message *m, unsigned field, const struct message *inner)
{
    put_bytes(m, field, inner->data, inner->len);
    m->full |= inner->full;
}

/* cluster { job { name: JOB tasks { key: INDEX value: ADDRESS } } } */
static void put_cluster(struct message *m, const struct serverdef *def)
{
    struct message task = {0}, job = {0}, cluster = {0};

    put_number(&task, MAP_KEY, def->index);
    put_text(&task, MAP_VALUE, def->address);
    put_text(&job, JOB_NAME, def->job);
    put_message(&job, JOB_TASKS, &task);
    put_message(&cluster, CLUSTER_JOB, &job);
    put_message(m, SERVER_CLUSTER, &cluster);
}

int serverdef_encode(const struct serverdef *def, uint8_t ret_data[SERVERDEF_MAX], size_t *ret_len)
{
    struct message m = {0}, config = {0};

    put_cluster(&m, def);
    put_text(&m, SERVER_JOB, def->job);
    if (def->index > 0) /* proto3 omits zeroes, except in keys of maps */
        put_number(&m, SERVER_INDEX, def->index);
    if (def->intra > 0)
        put_number(&config, CONFIG_INTRA, def->intra);
    if (def->inter > 0)
        put_number(&config, CONFIG_INTER, def->inter);
    if (config.len > 0)
        put_message(&m, SERVER_CONFIG, &config);
    put_text(&m, SERVER_PROTOCOL, "grpc");
    if (m.full)
        return -EMSGSIZE;
    memcpy(ret_data, m.data, m.len);
    *ret_len = m.len;
    return 0;
}

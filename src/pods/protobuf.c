/* SPDX-License-Identifier: Apache-2.0 */
#include "pods/protobuf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WIRE_VARINT 0
#define WIRE_8      1
#define WIRE_BYTES  2
#define WIRE_4      5

#define VARINT_MAX 10 /* bytes of 64 bits */
#define LENGTH_MAX 5  /* of a length, padded, so that it can be written behind what it counts */

/* ---- reading ---- */

static int read_varint(struct span *from, uint64_t *ret)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < VARINT_MAX && i < from->len; i++) {
        value |= (uint64_t)(from->at[i] & 0x7f) << (7 * i);
        if (from->at[i] & 0x80)
            continue;
        from->at += i + 1;
        from->len -= i + 1;
        *ret = value;
        return 0;
    }
    return -EBADMSG;
}

static int take_bytes(struct span *from, uint64_t len, struct span *ret)
{
    if (len > from->len)
        return -EBADMSG;
    *ret = (struct span){from->at, (size_t)len};
    from->at += len;
    from->len -= (size_t)len;
    return 0;
}

int protobuf_next(struct span *message, struct protobuf_field *ret)
{
    struct protobuf_field field = {0};
    struct span passed;
    uint64_t tag, len;
    int r;

    if (message->len == 0)
        return 0;
    r = read_varint(message, &tag);
    if (r < 0 || tag >> 3 == 0 || tag >> 3 > (1u << 29) - 1)
        return -EBADMSG;
    field.number = (unsigned)(tag >> 3);
    switch (tag & 7) {
    case WIRE_VARINT:
        field.is_number = true;
        r = read_varint(message, &field.value);
        break;
    case WIRE_BYTES:
        r = read_varint(message, &len);
        if (r == 0)
            r = take_bytes(message, len, &field.bytes);
        break;
    case WIRE_8:
    case WIRE_4:
        field.is_number = true;
        r = take_bytes(message, (tag & 7) == WIRE_8 ? 8 : 4, &passed);
        break;
    default:
        r = -EBADMSG;
    }
    if (r < 0)
        return r;
    *ret = field;
    return 1;
}

int protobuf_check(struct span message)
{
    struct protobuf_field field;
    int r;

    do
        r = protobuf_next(&message, &field);
    while (r > 0);
    return r;
}

struct span protobuf_bytes(struct span message, unsigned number)
{
    struct protobuf_field field;
    struct span found = {0};

    while (protobuf_next(&message, &field) > 0)
        if (field.number == number && !field.is_number)
            found = field.bytes;
    return found;
}

uint64_t protobuf_value(struct span message, unsigned number)
{
    struct protobuf_field field;
    uint64_t found = 0;

    while (protobuf_next(&message, &field) > 0)
        if (field.number == number && field.is_number)
            found = field.value;
    return found;
}

bool protobuf_map(struct span message, unsigned number, const char *key, struct span *ret)
{
    struct protobuf_field field;
    bool found = false;

    while (protobuf_next(&message, &field) > 0) {
        if (field.number != number || field.is_number ||
            !span_is(protobuf_bytes(field.bytes, 1), key))
            continue;
        *ret = protobuf_bytes(field.bytes, 2);
        found = true;
    }
    return found;
}

char *span_text(struct span text, char *buf, size_t size)
{
    size_t n = 0;

    for (size_t i = 0; i < text.len && n + 1 < size; i++)
        if (text.at[i] >= ' ' && text.at[i] != 0x7f)
            buf[n++] = (char)text.at[i];
    buf[n] = '\0';
    return buf;
}

bool span_is(struct span text, const char *word)
{
    return text.len == strlen(word) && memcmp(text.at, word, text.len) == 0;
}

bool span_begins(struct span text, const char *word, struct span *ret_rest)
{
    size_t n = strlen(word);

    if (text.len < n || memcmp(text.at, word, n) != 0)
        return false;
    *ret_rest = (struct span){text.at + n, text.len - n};
    return true;
}

/* ---- writing ---- */

void buffer_add(struct buffer *b, const void *bytes, size_t len)
{
    size_t size = b->size ? b->size : 256;
    unsigned char *larger;

    if (b->failed || len == 0)
        return;
    while (size - b->len < len && size < SIZE_MAX / 2)
        size *= 2;
    if (size != b->size) {
        larger = realloc(b->bytes, size);
        if (!larger) {
            b->failed = true;
            return;
        }
        b->bytes = larger;
        b->size = size;
    }
    memcpy(b->bytes + b->len, bytes, len);
    b->len += len;
}

void buffer_drop(struct buffer *b, size_t len)
{
    if (len >= b->len) {
        b->len = 0;
        return;
    }
    b->len -= len;
    memmove(b->bytes, b->bytes + len, b->len);
}

void buffer_done(struct buffer *b)
{
    free(b->bytes);
    *b = (struct buffer){0};
}

static void put_varint(struct buffer *b, uint64_t value)
{
    unsigned char bytes[VARINT_MAX];
    size_t n = 0;

    do {
        bytes[n++] = (unsigned char)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        value >>= 7;
    } while (value);
    buffer_add(b, bytes, n);
}

void protobuf_put_value(struct buffer *b, unsigned number, uint64_t value)
{
    put_varint(b, (uint64_t)number << 3 | WIRE_VARINT);
    put_varint(b, value);
}

void protobuf_put_bytes(struct buffer *b, unsigned number, const void *bytes, size_t len)
{
    put_varint(b, (uint64_t)number << 3 | WIRE_BYTES);
    put_varint(b, len);
    buffer_add(b, bytes, len);
}

void protobuf_put_text(struct buffer *b, unsigned number, const char *text)
{
    protobuf_put_bytes(b, number, text, strlen(text));
}

size_t protobuf_open(struct buffer *b, unsigned number)
{
    static const unsigned char length[LENGTH_MAX];

    put_varint(b, (uint64_t)number << 3 | WIRE_BYTES);
    buffer_add(b, length, sizeof(length));
    return b->len;
}

void protobuf_close(struct buffer *b, size_t opened)
{
    size_t len = b->len - opened;

    if (b->failed)
        return;
    for (unsigned i = 0; i < LENGTH_MAX; i++)
        b->bytes[opened - LENGTH_MAX + i] =
            (unsigned char)((len >> (7 * i) & 0x7f) | (i + 1 < LENGTH_MAX ? 0x80 : 0));
}

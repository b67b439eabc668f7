/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads and writes messages of Protocol Buffers, field by field, without a schema: the parts of NRI
 * that we use are some thirty fields (message.c). Pure; any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- reading ---- */

/* Borrowed bytes of a received message. */
struct span {
    const unsigned char *at;
    size_t len;
};

struct protobuf_field {
    unsigned number;
    bool is_number;    /* else bytes: a text or a message */
    uint64_t value;    /* of a number; signed ones are two's complement */
    struct span bytes; /* empty for a number */
};

/*
 * Takes the next field off @message. Fields of the fixed kinds, which NRI does not have, and groups
 * are passed over or refused. Returns 1, 0 (the end) or -EBADMSG.
 */
int protobuf_next(struct span *message, struct protobuf_field *ret);

/* Checks a message's own fields, not those of messages inside. Returns 0 or -EBADMSG. */
int protobuf_check(struct span message);

/* The last field @number of a checked message, as the format wants it; empty or 0: none. */
struct span protobuf_bytes(struct span message, unsigned number);
uint64_t protobuf_value(struct span message, unsigned number);

/* The value of @key in the map that is field @number of a checked message. False: none. */
bool protobuf_map(struct span message, unsigned number, const char *key, struct span *ret);

/* Copies a text, cut to @size, without bytes that are control characters. Returns @buf. */
char *span_text(struct span text, char *buf, size_t size);
bool span_is(struct span text, const char *word);
bool span_begins(struct span text, const char *word, struct span *ret_rest);

/* ---- writing ---- */

/* A message in the making. Out of memory is noted and told at the end. */
struct buffer {
    unsigned char *bytes;
    size_t len, size;
    bool failed;
};

void buffer_add(struct buffer *b, const void *bytes, size_t len);
void buffer_drop(struct buffer *b, size_t len); /* the first bytes; as many as there are at most */
void buffer_done(struct buffer *b);

void protobuf_put_value(struct buffer *b, unsigned number, uint64_t value);
void protobuf_put_bytes(struct buffer *b, unsigned number, const void *bytes, size_t len);
void protobuf_put_text(struct buffer *b, unsigned number, const char *text);

/* A message inside: what is put between the two belongs to it. */
size_t protobuf_open(struct buffer *b, unsigned number);
void protobuf_close(struct buffer *b, size_t opened);

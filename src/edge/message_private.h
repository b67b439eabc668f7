/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to this room: members of a message's JSON object, read with a check of each, and written.
 * Any thread; used by payload.c and bundle.c.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define MESSAGE_VERSION    1
#define MESSAGE_NUMBER_MAX ((uint64_t)INT64_MAX)
#define MESSAGE_WORD_MAX   64

json_t *message_number(uint64_t n);

/* Takes the message over (NULL: no memory) and returns its text, which the caller frees. */
char *message_text(json_t *message);

/* A message that is being read: the first problem counts, later reads do nothing. */
struct reader {
    json_t *message;
    const char *what; /* "lease" */
    struct error *err;
    int code;
};

/* @most: bytes of the text. A message that cannot be read has no members. */
void reader_open(struct reader *r, const char *what, const void *bytes, size_t len, size_t most,
                 struct error *err);
int reader_close(struct reader *r); /* the code: 0 or -errno */

void reader_complain(struct reader *r, const char *problem, const char *member);

/* NULL: there is none, which is a problem if it is @needed. */
json_t *reader_member(struct reader *r, const json_t *in, const char *name, bool needed);
uint64_t reader_number_of(struct reader *r, const json_t *in, const char *name, uint64_t most);
uint64_t reader_number(struct reader *r, const char *name);
bool reader_bool_of(struct reader *r, const json_t *in, const char *name);
bool reader_bool(struct reader *r, const char *name);

/* Control characters, which would end up in a log or on a terminal, are refused. */
void reader_text_of(struct reader *r, const json_t *in, const char *name, char *ret, size_t size);
void reader_text(struct reader *r, const char *name, char *ret, size_t size);

/* Index of the text among the names, as enums of ours have them. */
uint32_t reader_word(struct reader *r, const json_t *in, const char *name,
                     const char *(*name_of)(uint32_t), uint32_t count);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Edits a JSON text: what is not changed keeps its bytes, with its order, its spacing and numbers
 * that no C type holds. A library that reads and writes anew cannot promise that: a limit of
 * 2^64-1, which containers' config.json has, is beyond jansson. Any thread (each caller owns its
 * text); used by runc (config.json) and cli (daemon.json).
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

#define JSONTEXT_DEPTH_MAX 128 /* arrays and objects in each other; a deeper text is refused */

struct jsontext {
    char *text; /* allocated, terminated; the caller frees */
    size_t len;
};

/*
 * A value in the text: [start, end). A change moves what lies behind it; of an array or object
 * only the start is ever looked at, so a change inside of it does no harm.
 */
struct json_span {
    size_t start, end;
};

struct json_item {
    struct json_span key; /* of an object's member, with its quotes; empty in an array */
    struct json_span value;
};

/*
 * Checks that the text is one JSON value (RFC 8259; bytes from 0x80 on are taken as they come).
 * Returns 0, or -EBADMSG with the line in *err. The other functions want a text that was checked,
 * and spans of it; after one of them has changed it, it is still good.
 */
int jsontext_check(const struct jsontext *json, struct json_span *ret, struct error *err);

/* The items of an array or object one by one: *item starts as zeroes. False after the last one. */
bool jsontext_next(const struct jsontext *json, struct json_span container, struct json_item *item);

/*
 * The value of a member. Returns 0, -ENOENT (no such member), -EINVAL (@object is none), -EEXIST
 * (the name is there twice: readers differ in which one they take).
 */
int jsontext_member(const struct jsontext *json, struct json_span object, const char *name,
                    struct json_span *ret);

/*
 * True if the value is a string that begins with @prefix (ASCII), however it is escaped. *ret_rest
 * (may be NULL) is where the text goes on behind it.
 */
bool jsontext_begins(const struct jsontext *json, struct json_span value, const char *prefix,
                     size_t *ret_rest);

/* True if the value is the string @text (ASCII). */
bool jsontext_is(const struct jsontext *json, struct json_span value, const char *text);

/* True if the value is null, or an array or object when @open is '[' or '{'. */
bool jsontext_null(const struct jsontext *json, struct json_span value);
bool jsontext_opens(const struct jsontext *json, struct json_span value, char open);

/* Puts @with in the place of @span. 0 or -ENOMEM, then nothing is changed. */
int jsontext_replace(struct jsontext *json, struct json_span span, const char *with);

/*
 * Adds @item (a value, or "name": value) behind the last one of @container, spaced like the first.
 * 0 or -ENOMEM.
 */
int jsontext_append(struct jsontext *json, struct json_span container, const char *item);

/* Takes a member out; after jsontext_append() the text is what it was. 0, -ENOENT or -ENOMEM. */
int jsontext_remove(struct jsontext *json, struct json_span object, const char *name);

/* @text as a JSON string in quotes (allocated), or NULL. */
char *jsontext_quote(const char *text);

static inline void cleanup_jsontext(struct jsontext *json)
{
    cleanup_free(&json->text);
}

#define _cleanup_jsontext_ _cleanup_(cleanup_jsontext)

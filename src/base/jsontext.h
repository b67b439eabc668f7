/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Edits a JSON text in place. The rest keeps its bytes, and so its order, its spacing and numbers
 * that no C type holds. A library that parses and prints cannot promise that: jansson cannot hold
 * 2^64-1, a limit that containers' config.json has. Any thread (each caller owns its text); used
 * by runc (config.json) and cli (daemon.json).
 */
#pragma once

#include "base/cleanup.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

#define JSONTEXT_DEPTH_MAX 128 /* a text whose values are nested deeper is refused */

struct jsontext {
    char *text; /* allocated, terminated; the caller frees */
    size_t len;
};

/*
 * A value in the text: [start, end). A change moves the text behind it. The functions use only
 * the start of an array or object, so its span stays good after a change inside it.
 */
struct json_span {
    size_t start, end;
};

struct json_item {
    struct json_span key; /* the name of an object's member, with quotes; empty in an array */
    struct json_span value;
};

/*
 * Checks that the text is one JSON value (RFC 8259; bytes from 0x80 on are accepted unchecked).
 * Returns 0, or -EBADMSG with the line in *err. The other functions need a checked text and spans
 * of it; their changes keep it valid.
 */
int jsontext_check(const struct jsontext *json, struct json_span *ret, struct error *err);

/* Steps through the items of an array or object; *item starts as zeroes. False after the last. */
bool jsontext_next(const struct jsontext *json, struct json_span container, struct json_item *item);

/*
 * Finds the value of a member. Returns 0, -ENOENT (no such member), -EINVAL (@object is no object),
 * -EEXIST (two members have the name, and readers differ in which one they take).
 */
int jsontext_member(const struct jsontext *json, struct json_span object, const char *name,
                    struct json_span *ret);

/*
 * True if the value is a string that begins with @prefix (ASCII), however it is escaped. *ret_rest
 * (may be NULL) is the position behind the prefix.
 */
bool jsontext_begins(const struct jsontext *json, struct json_span value, const char *prefix,
                     size_t *ret_rest);

/* True if the value is the string @text (ASCII). */
bool jsontext_is(const struct jsontext *json, struct json_span value, const char *text);

/* True if the value is null, or an array or object when @open is '[' or '{'. */
bool jsontext_null(const struct jsontext *json, struct json_span value);
bool jsontext_opens(const struct jsontext *json, struct json_span value, char open);

/* Puts @with in the place of @span. Returns 0, or -ENOMEM and the text is unchanged. */
int jsontext_replace(struct jsontext *json, struct json_span span, const char *with);

/*
 * Adds @item (a value, or "name": value) behind the last item of @container, spaced like the first.
 * Returns 0 or -ENOMEM.
 */
int jsontext_append(struct jsontext *json, struct json_span container, const char *item);

/* Removes a member, and so undoes jsontext_append() byte by byte. 0, -ENOENT or -ENOMEM. */
int jsontext_remove(struct jsontext *json, struct json_span object, const char *name);

/* Returns @text as a JSON string in quotes (allocated), or NULL. */
char *jsontext_quote(const char *text);

static inline void cleanup_jsontext(struct jsontext *json)
{
    cleanup_free(&json->text);
}

#define _cleanup_jsontext_ _cleanup_(cleanup_jsontext)

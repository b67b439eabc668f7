/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A JSON file whose error messages name the place: "mix.json:14: jobs[3].request: 0 is out of
 * range: 1 to 65536". jansson knows only the lines of syntax errors. So each JSON value remembers
 * its path from the root, and an error searches the text for the line. Any thread; used by
 * scenario.c and workload.c.
 */
#pragma once

#include "base/error.h"
#include "sim/input/value.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define DOCUMENT_SIZE_MAX (8u << 20) /* larger lists of jobs belong into a trace */

struct document {
    const char *name; /* of the file, borrowed */
    char *text;
    json_t *root;
};

/*
 * Reads a JSON object from @text, of which the document takes ownership, also on failure. 0, or
 * -EINVAL, -EFBIG, -ENOMEM with the reason.
 */
int document_init(struct document *doc, const char *name, char *text, size_t size,
                  struct error *err);
void document_done(struct document *doc);

/* A value and the path to it; nodes live on their users' stacks, a parent longer than its child. */
struct node {
    const struct document *doc;
    const struct node *parent; /* NULL: the root */
    const char *key;           /* key in the parent, an object; NULL: */
    size_t index;              /* index in the parent, an array */
    json_t *value;             /* borrowed; NULL: absent */
};

struct node node_root(const struct document *doc);
struct node node_member(const struct node *object, const char *key); /* value NULL: has none */
struct node node_element(const struct node *array, size_t index);

/* Writes "FILE:LINE: a.b[2]: text" to *err; returns -EINVAL. */
__attribute__((format(printf, 3, 4))) int node_error(const struct node *node, struct error *err,
                                                     const char *fmt, ...);

/*
 * Each returns 0, or -EINVAL with the reason. node_object checks that the node is an object without
 * other keys than @keys (ended by NULL).
 */
int node_object(const struct node *node, const char *const *keys, struct error *err);
int node_array(const struct node *node, size_t min, size_t max, struct error *err);

/* Reads a number, a string or, for types with the words "false" and "true", a boolean. */
int node_value(const struct node *node, const struct value_type *type, int64_t *ret_value,
               struct error *err);

/* Reads a member of that type; leaves *ret untouched when it is absent. */
int node_optional(const struct node *object, const char *key, const struct value_type *type,
                  int64_t *ret_value, struct error *err);

/* Reads a string, borrowed; shorter than @size, without control characters. */
int node_string(const struct node *node, size_t size, const char **ret_text, struct error *err);

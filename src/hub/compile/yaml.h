/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A YAML text as a tree whose every node knows its line and column. It reads the plain part of
 * YAML: mappings, sequences, scalars. Anchors, aliases, tags, several documents, a key given twice
 * and tabs are refused, each with its place, so that a small text cannot become a large tree and
 * nobody has to know the language's corners. Any thread, no state. Used by policy.c.
 */
#pragma once

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

#define YAML_BYTES_MAX (1 << 20)
#define YAML_NODES_MAX 65536
#define YAML_DEPTH_MAX 16
#define YAML_KEYS_MAX  256 /* of one mapping */
#define YAML_NONE      0   /* no node: number 0 is never one */

enum yamldoc_kind { YAMLDOC_TEXT, YAMLDOC_LIST, YAMLDOC_MAP };

struct yamldoc_node {
    uint32_t kind;
    uint32_t line, column; /* from 1 on */
    uint32_t first, next;  /* of a list or map its first entry; the next entry of its parent */
    uint32_t count;        /* entries */
    char *key;             /* of an entry of a map; else NULL */
    char *text;            /* of a scalar; else NULL */
};

struct yamldoc {
    struct yamldoc_node *node;
    uint32_t count, root;
};

/*
 * Reads @text. Returns 0; or -EINVAL with "line:column: what is wrong" in *err, -E2BIG, -ENOMEM.
 */
int yamldoc_parse(const char *text, size_t len, struct yamldoc *ret, struct error *err);
void yamldoc_done(struct yamldoc *doc);

/* The entry of that name of the map, or YAML_NONE. */
uint32_t yamldoc_get(const struct yamldoc *doc, uint32_t map, const char *key);

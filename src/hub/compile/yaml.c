/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/compile/yaml.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <yaml.h>

#define ERROR_WORD "bad-policy-file"

struct level {
    uint32_t node, last; /* the list or map, its last entry so far */
    char *key;           /* of a map: the key whose value comes next */
    yaml_mark_t key_mark;
};

struct reading {
    struct yamldoc doc;
    uint32_t room;
    struct level level[YAML_DEPTH_MAX];
    uint32_t depth;
    struct error *err;
};

__attribute__((format(printf, 3, 4))) static int wrong(struct reading *r, const yaml_mark_t *mark,
                                                       const char *fmt, ...)
{
    char text[ERROR_TEXT_MAX];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    return error_set(r->err, -EINVAL, "%zu:%zu: %s", mark->line + 1, mark->column + 1, text);
}

/* Refuses tabs, which libyaml accepts at some places, and NUL bytes. */
static int look_at_bytes(const char *text, size_t len, struct error *err)
{
    size_t line = 1, column = 1;

    if (len > YAML_BYTES_MAX)
        return error_set(err, -E2BIG, "the text has %zu bytes, the most is %d", len,
                         YAML_BYTES_MAX);
    for (size_t i = 0; i < len; i++, column++) {
        if (text[i] == '\t')
            return error_set(err, -EINVAL, "%zu:%zu: a tab: use blanks", line, column);
        if (text[i] == '\0')
            return error_set(err, -EINVAL, "%zu:%zu: a NUL byte: this is no text", line, column);
        if (text[i] == '\n') {
            line++;
            column = 0;
        }
    }
    return 0;
}

static int add_node(struct reading *r, uint32_t kind, const yaml_mark_t *mark, uint32_t *ret)
{
    struct yamldoc *d = &r->doc;

    if (d->count == YAML_NODES_MAX)
        return wrong(r, mark, "more than %d values", YAML_NODES_MAX);
    if (d->count == r->room) {
        uint32_t room = r->room ? 2 * r->room : 64;
        struct yamldoc_node *node = realloc(d->node, room * sizeof(*node));

        if (!node)
            return error_set(r->err, -ENOMEM, "out of memory");
        d->node = node;
        r->room = room;
    }
    *ret = d->count++;
    d->node[*ret] = (struct yamldoc_node){
        .kind = kind, .line = (uint32_t)mark->line + 1, .column = (uint32_t)mark->column + 1};
    return 0;
}

/* Puts the node into the list or map that is open, if any. */
static int attach(struct reading *r, uint32_t node, const yaml_mark_t *mark)
{
    struct level *l;
    struct yamldoc_node *parent;

    if (r->depth == 0) {
        r->doc.root = node;
        return 0;
    }
    l = &r->level[r->depth - 1];
    parent = &r->doc.node[l->node];
    if (parent->kind == YAMLDOC_MAP) {
        uint32_t twin = yamldoc_get(&r->doc, l->node, l->key);

        if (parent->count == YAML_KEYS_MAX)
            return wrong(r, &l->key_mark, "more than %d keys", YAML_KEYS_MAX);
        if (twin != YAML_NONE)
            return wrong(r, &l->key_mark, "'%.60s' is given twice, first in line %u", l->key,
                         r->doc.node[twin].line);
        r->doc.node[node].key = TAKE_PTR(l->key);
    }
    if (parent->first == YAML_NONE)
        parent->first = node;
    else
        r->doc.node[l->last].next = node;
    parent->count++;
    l->last = node;
    return 0;
}

static bool wants_key(const struct reading *r)
{
    const struct level *l = r->depth ? &r->level[r->depth - 1] : NULL;

    return l && r->doc.node[l->node].kind == YAMLDOC_MAP && !l->key;
}

static int take_scalar(struct reading *r, const yaml_event_t *e)
{
    const char *value = (const char *)e->data.scalar.value;
    uint32_t node;
    char *copy;
    int k;

    if (e->data.scalar.anchor)
        return wrong(r, &e->start_mark, "an anchor: write the value where it is needed");
    if (e->data.scalar.tag)
        return wrong(r, &e->start_mark, "a tag: values have no types here");
    if (strlen(value) != e->data.scalar.length)
        return wrong(r, &e->start_mark, "a NUL in a text");
    copy = strdup(value);
    if (!copy)
        return error_set(r->err, -ENOMEM, "out of memory");
    if (wants_key(r)) {
        r->level[r->depth - 1].key = copy;
        r->level[r->depth - 1].key_mark = e->start_mark;
        return 0;
    }
    k = add_node(r, YAMLDOC_TEXT, &e->start_mark, &node);
    if (k < 0) {
        free(copy);
        return k;
    }
    r->doc.node[node].text = copy;
    return attach(r, node, &e->start_mark);
}

static int take_begin(struct reading *r, const yaml_event_t *e, uint32_t kind)
{
    const yaml_char_t *anchor =
        kind == YAMLDOC_MAP ? e->data.mapping_start.anchor : e->data.sequence_start.anchor;
    const yaml_char_t *tag =
        kind == YAMLDOC_MAP ? e->data.mapping_start.tag : e->data.sequence_start.tag;
    uint32_t node;
    int k;

    if (anchor)
        return wrong(r, &e->start_mark, "an anchor: write the value where it is needed");
    if (tag)
        return wrong(r, &e->start_mark, "a tag: values have no types here");
    if (wants_key(r))
        return wrong(r, &e->start_mark, "a key has to be a plain word");
    if (r->depth == YAML_DEPTH_MAX)
        return wrong(r, &e->start_mark, "more than %d levels", YAML_DEPTH_MAX);
    k = add_node(r, kind, &e->start_mark, &node);
    if (k >= 0)
        k = attach(r, node, &e->start_mark);
    if (k >= 0)
        r->level[r->depth++] = (struct level){.node = node};
    return k;
}

static int take(struct reading *r, const yaml_event_t *e)
{
    switch (e->type) {
    case YAML_SCALAR_EVENT:
        return take_scalar(r, e);
    case YAML_MAPPING_START_EVENT:
        return take_begin(r, e, YAMLDOC_MAP);
    case YAML_SEQUENCE_START_EVENT:
        return take_begin(r, e, YAMLDOC_LIST);
    case YAML_MAPPING_END_EVENT:
    case YAML_SEQUENCE_END_EVENT:
        r->depth--;
        return 0;
    case YAML_ALIAS_EVENT:
        return wrong(r, &e->start_mark, "an alias: write the value where it is needed");
    case YAML_DOCUMENT_START_EVENT:
        if (r->doc.root != YAML_NONE)
            return wrong(r, &e->start_mark, "a second document: a file holds one");
        return 0;
    default:
        return 0;
    }
}

static int read_all(struct reading *r, yaml_parser_t *parser)
{
    for (bool over = false; !over;) {
        yaml_event_t e;
        int k;

        if (!yaml_parser_parse(parser, &e)) {
            if (parser->error == YAML_MEMORY_ERROR)
                return error_set(r->err, -ENOMEM, "out of memory");
            return wrong(r, &parser->problem_mark, "%s%s%s",
                         parser->problem ? parser->problem : "no YAML", parser->context ? " " : "",
                         parser->context ? parser->context : "");
        }
        over = e.type == YAML_STREAM_END_EVENT;
        k = take(r, &e);
        yaml_event_delete(&e);
        if (k < 0)
            return k;
    }
    return 0;
}

int yamldoc_parse(const char *text, size_t len, struct yamldoc *ret, struct error *err)
{
    struct reading r = {.err = err};
    yaml_mark_t start = {0};
    yaml_parser_t parser;
    uint32_t none;
    int k = look_at_bytes(text, len, err);

    if (k < 0)
        return k;
    if (!yaml_parser_initialize(&parser))
        return error_set(err, -ENOMEM, "out of memory");
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, len);
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    k = add_node(&r, YAMLDOC_LIST, &start, &none); /* YAML_NONE */
    if (k >= 0)
        k = read_all(&r, &parser);
    yaml_parser_delete(&parser);
    for (uint32_t i = 0; i < YAML_DEPTH_MAX; i++)
        free(r.level[i].key);
    if (k >= 0 && r.doc.root == YAML_NONE)
        k = error_set(err, -EINVAL, "1:1: the text is empty");
    if (k < 0)
        yamldoc_done(&r.doc);
    else
        *ret = r.doc;
    return k;
}

void yamldoc_done(struct yamldoc *doc)
{
    for (uint32_t i = 0; i < doc->count; i++) {
        free(doc->node[i].key);
        free(doc->node[i].text);
    }
    free(doc->node);
    *doc = (struct yamldoc){0};
}

uint32_t yamldoc_get(const struct yamldoc *doc, uint32_t map, const char *key)
{
    for (uint32_t i = doc->node[map].first; i != YAML_NONE; i = doc->node[i].next)
        if (doc->node[i].key && strcmp(doc->node[i].key, key) == 0)
            return i;
    return YAML_NONE;
}

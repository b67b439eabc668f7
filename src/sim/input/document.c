/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/input/document.h"

#include "base/cleanup.h"
#include "base/suggest.h"

#include <stdarg.h>
#include <string.h>

#define ERROR_WORD "bad-scenario"

#define DEPTH_MAX     16 /* depth of the paths shown; scenarios are less deep */
#define PATH_TEXT_MAX 96
#define NAME_SHOWN    64 /* last bytes of the file's name that a message shows */
#define KEYS_MAX      40

int document_init(struct document *doc, const char *name, char *text, size_t size,
                  struct error *err)
{
    json_error_t reason;

    *doc = (struct document){.name = name, .text = text};
    if (size > DOCUMENT_SIZE_MAX)
        return error_set(err, -EFBIG, "%s: more than %u MiB: put the jobs into a trace (CSV)", name,
                         DOCUMENT_SIZE_MAX >> 20);
    doc->root = json_loadb(text, size, JSON_REJECT_DUPLICATES, &reason);
    if (!doc->root)
        return error_set(err, -EINVAL, "%s:%d: %s", name, reason.line, reason.text);
    if (!json_is_object(doc->root))
        return error_set(err, -EINVAL, "%s:1: a scenario is an object: { … }", name);
    return 0;
}

void document_done(struct document *doc)
{
    json_decref(doc->root);
    free(doc->text);
    *doc = (struct document){0};
}

struct node node_root(const struct document *doc)
{
    return (struct node){.doc = doc, .value = doc->root};
}

struct node node_member(const struct node *object, const char *key)
{
    return (struct node){.doc = object->doc,
                         .parent = object,
                         .key = key,
                         .value = json_object_get(object->value, key)};
}

struct node node_element(const struct node *array, size_t index)
{
    return (struct node){.doc = array->doc,
                         .parent = array,
                         .index = index,
                         .value = json_array_get(array->value, index)};
}

/* ---- finding a node in the text, whose syntax jansson has accepted --------------------------- */

static const char *skip_blanks(const char *p)
{
    return p + strspn(p, " \t\r\n");
}

/* Returns the end of the string that begins at @p. */
static const char *skip_string(const char *p)
{
    for (p++; *p && *p != '"'; p++)
        if (*p == '\\' && p[1])
            p++;
    return *p ? p + 1 : p;
}

/* Returns the end of the value that begins at @p. */
static const char *skip_value(const char *p)
{
    size_t depth = 0;

    do {
        if (*p == '"') {
            p = skip_string(p);
            continue;
        }
        if (*p == '{' || *p == '[')
            depth++;
        else if (*p == '}' || *p == ']')
            depth--;
        else if (!strchr(" \t\r\n,:", *p)) {
            p += strcspn(p, " \t\r\n,:{}[]\"");
            continue;
        }
        p++;
    } while (depth > 0 && *p);
    return p;
}

/* Finds the member or element in the object or array that begins at @p; NULL: absent. */
static const char *enter(const char *p, const struct node *node)
{
    size_t length = node->key ? strlen(node->key) : 0;

    p = skip_blanks(p + 1);
    for (size_t i = 0; *p && *p != '}' && *p != ']'; i++) {
        const char *begin = p;

        if (node->key) {
            const char *end = skip_string(p);

            if ((size_t)(end - begin) == length + 2 && memcmp(begin + 1, node->key, length) == 0)
                return begin;
            p = skip_blanks(skip_blanks(end) + 1);
        } else if (i == node->index) {
            return begin;
        }
        p = skip_blanks(skip_value(p));
        if (*p == ',')
            p = skip_blanks(p + 1);
    }
    return NULL;
}

/* An absent node counts as beginning where its parent begins. */
static unsigned line_of(const struct node *node)
{
    const struct node *way[DEPTH_MAX];
    const char *at = skip_blanks(node->doc->text);
    unsigned line = 1;
    size_t depth = 0;

    for (; node->parent && depth < DEPTH_MAX; node = node->parent)
        way[depth++] = node;
    while (depth-- > 0) {
        const char *next = enter(at, way[depth]);

        if (!next)
            break;
        at = next;
        if (way[depth]->key && depth > 0) /* goes from the key to its value */
            at = skip_blanks(skip_blanks(skip_string(at)) + 1);
    }
    for (const char *p = node->doc->text; p < at; p++)
        line += *p == '\n';
    return line;
}

static void write_path(const struct node *node, char *buf, size_t size)
{
    size_t length;

    buf[0] = '\0';
    if (!node->parent)
        return;
    write_path(node->parent, buf, size);
    length = strlen(buf);
    if (node->key)
        snprintf(buf + length, size - length, "%s%s", length ? "." : "", node->key);
    else
        snprintf(buf + length, size - length, "[%zu]", node->index);
}

int node_error(const struct node *node, struct error *err, const char *fmt, ...)
{
    char path[PATH_TEXT_MAX], text[ERROR_TEXT_MAX];
    const char *name = node->doc->name;
    size_t length = strlen(name);
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    write_path(node, path, sizeof(path));
    return error_set(err, -EINVAL, "%s%s:%u: %s%s%s", length > NAME_SHOWN ? "…" : "",
                     length > NAME_SHOWN ? name + length - NAME_SHOWN : name, line_of(node), path,
                     *path ? ": " : "", text);
}

/* ---- reading a node -------------------------------------------------------------------------- */

int node_object(const struct node *node, const char *const *keys, struct error *err)
{
    const char *key, *near;
    json_t *value;
    size_t n = 0;

    if (!json_is_object(node->value))
        return node_error(node, err, "must be an object: { … }");
    while (keys[n])
        n++;
    json_object_foreach (node->value, key, value) {
        struct node member = node_member(node, key);
        bool known = false;

        for (size_t i = 0; i < n; i++)
            known |= strcmp(key, keys[i]) == 0;
        if (known)
            continue;
        near = suggest_nearest(key, keys, n);
        return near ? node_error(&member, err, "is not a key here: did you mean '%s'?", near)
                    : node_error(&member, err, "is not a key here");
    }
    return 0;
}

int node_array(const struct node *node, size_t min, size_t max, struct error *err)
{
    size_t size = json_array_size(node->value);

    if (!json_is_array(node->value))
        return node_error(node, err, "must be a list: [ … ]");
    if (size < min || size > max)
        return node_error(node, err, "has %zu entries: %zu to %zu are possible", size, min, max);
    return 0;
}

int node_value(const struct node *node, const struct value_type *type, int64_t *ret_value,
               struct error *err)
{
    struct error reason;
    int r;

    if (json_is_number(node->value))
        r = value_from_number(type, json_number_value(node->value), ret_value, &reason);
    else if (json_is_string(node->value))
        r = value_from_text(type, json_string_value(node->value), ret_value, &reason);
    else if (json_is_boolean(node->value))
        r = value_from_text(type, json_is_true(node->value) ? "true" : "false", ret_value, &reason);
    else
        return node_error(node, err, "must be a number or a string");
    return r < 0 ? node_error(node, err, "%s", reason.text) : 0;
}

int node_optional(const struct node *object, const char *key, const struct value_type *type,
                  int64_t *ret_value, struct error *err)
{
    struct node node = node_member(object, key);

    return node.value ? node_value(&node, type, ret_value, err) : 0;
}

int node_string(const struct node *node, size_t size, const char **ret_text, struct error *err)
{
    const char *text = json_string_value(node->value);

    if (!text)
        return node_error(node, err, "must be a string");
    if (strlen(text) >= size)
        return node_error(node, err, "is longer than %zu bytes", size - 1);
    for (const char *p = text; *p; p++)
        if ((unsigned char)*p < ' ' || *p == 0x7f)
            return node_error(node, err, "holds a control character");
    *ret_text = text;
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "base/jsontext.h"

#include <ctype.h>
#include <stdint.h>
#include <string.h>

#define ERROR_WORD "bad-json-file"

/* ---- the grammar: each function moves *pos behind its part of it, or returns false ---- */

static char at(const struct jsontext *json, size_t pos)
{
    return pos < json->len ? json->text[pos] : '\0';
}

static void skip_space(const struct jsontext *json, size_t *pos)
{
    char c;

    while (c = at(json, *pos), c == ' ' || c == '\t' || c == '\n' || c == '\r')
        ++*pos;
}

static int hex_digit(char c)
{
    if (isdigit((unsigned char)c))
        return c - '0';
    return isxdigit((unsigned char)c) ? (c | 0x20) - 'a' + 10 : -1;
}

/* Reads a character of a string: a byte, or an escape's code point (or half of a pair). */
static bool skip_char(const struct jsontext *json, size_t *pos, unsigned *ret)
{
    static const char names[] = "\"\\/bfnrt", codes[] = "\"\\/\b\f\n\r\t";
    unsigned char c = (unsigned char)at(json, (*pos)++);
    const char *name;

    *ret = c;
    if (c != '\\')
        return c >= 0x20;
    c = (unsigned char)at(json, (*pos)++);
    if (c != 'u') {
        name = c ? strchr(names, c) : NULL;
        *ret = name ? (unsigned char)codes[name - names] : 0;
        return name;
    }
    *ret = 0;
    for (int i = 0; i < 4; i++) {
        int digit = hex_digit(at(json, (*pos)++));

        if (digit < 0)
            return false;
        *ret = *ret << 4 | (unsigned)digit;
    }
    return true;
}

static bool skip_string(const struct jsontext *json, size_t *pos)
{
    unsigned c;

    if (at(json, *pos) != '"')
        return false;
    for (++*pos; at(json, *pos) != '"';)
        if (!skip_char(json, pos, &c))
            return false;
    ++*pos;
    return true;
}

static bool skip_digits(const struct jsontext *json, size_t *pos)
{
    size_t start = *pos;

    while (isdigit((unsigned char)at(json, *pos)))
        ++*pos;
    return *pos > start;
}

static bool skip_number(const struct jsontext *json, size_t *pos)
{
    if (at(json, *pos) == '-')
        ++*pos;
    if (at(json, *pos) == '0')
        ++*pos;
    else if (!skip_digits(json, pos))
        return false;
    if (at(json, *pos) == '.') {
        ++*pos;
        if (!skip_digits(json, pos))
            return false;
    }
    if ((at(json, *pos) | 0x20) == 'e') {
        ++*pos;
        if (at(json, *pos) == '-' || at(json, *pos) == '+')
            ++*pos;
        return skip_digits(json, pos);
    }
    return true;
}

static bool skip_word(const struct jsontext *json, size_t *pos)
{
    static const char *const words[] = {"true", "false", "null"};

    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        size_t n = strlen(words[i]);

        if (json->len - *pos >= n && memcmp(json->text + *pos, words[i], n) == 0) {
            *pos += n;
            return true;
        }
    }
    return false;
}

static bool skip_value(const struct jsontext *json, size_t *pos, unsigned depth);

static bool skip_item(const struct jsontext *json, size_t *pos, bool member, unsigned depth,
                      struct json_item *ret)
{
    *ret = (struct json_item){0};
    if (member) {
        ret->key.start = *pos;
        if (!skip_string(json, pos))
            return false;
        ret->key.end = *pos;
        skip_space(json, pos);
        if (at(json, *pos) != ':')
            return false;
        ++*pos;
        skip_space(json, pos);
    }
    ret->value.start = *pos;
    if (!skip_value(json, pos, depth))
        return false;
    ret->value.end = *pos;
    return true;
}

static bool skip_container(const struct jsontext *json, size_t *pos, unsigned depth)
{
    bool member = at(json, (*pos)++) == '{';
    char close = member ? '}' : ']';
    struct json_item item;

    skip_space(json, pos);
    if (at(json, *pos) == close) {
        ++*pos;
        return true;
    }
    for (;;) {
        if (!skip_item(json, pos, member, depth, &item))
            return false;
        skip_space(json, pos);
        if (at(json, *pos) != ',')
            break;
        ++*pos;
        skip_space(json, pos);
    }
    return at(json, (*pos)++) == close;
}

static bool skip_value(const struct jsontext *json, size_t *pos, unsigned depth)
{
    char c = at(json, *pos);

    if (c == '{' || c == '[')
        return depth < JSONTEXT_DEPTH_MAX && skip_container(json, pos, depth + 1);
    if (c == '"')
        return skip_string(json, pos);
    return c == '-' || isdigit((unsigned char)c) ? skip_number(json, pos) : skip_word(json, pos);
}

/* ---- reading ---- */

int jsontext_check(const struct jsontext *json, struct json_span *ret, struct error *err)
{
    struct json_span whole;
    size_t pos = 0, line = 1;
    bool good;

    skip_space(json, &pos);
    whole.start = pos;
    good = skip_value(json, &pos, 0);
    whole.end = pos;
    if (good)
        skip_space(json, &pos);
    if (good && pos == json->len) {
        *ret = whole;
        return 0;
    }
    for (size_t i = 0; i < pos && i < json->len; i++)
        line += json->text[i] == '\n';
    return error_set(err, -EBADMSG, "line %zu is no JSON", line);
}

bool jsontext_next(const struct jsontext *json, struct json_span container, struct json_item *item)
{
    size_t pos = item->value.end ? item->value.end : container.start + 1;
    bool member = jsontext_opens(json, container, '{');

    if (!member && !jsontext_opens(json, container, '['))
        return false;
    skip_space(json, &pos);
    if (at(json, pos) == ',')
        pos++;
    skip_space(json, &pos);
    return at(json, pos) != (member ? '}' : ']') && skip_item(json, &pos, member, 0, item);
}

bool jsontext_begins(const struct jsontext *json, struct json_span value, const char *prefix,
                     size_t *ret_rest)
{
    size_t pos = value.start + 1;
    unsigned c;

    if (at(json, value.start) != '"')
        return false;
    for (; *prefix; prefix++)
        if (pos + 1 >= value.end || !skip_char(json, &pos, &c) || c != (unsigned char)*prefix)
            return false;
    if (ret_rest)
        *ret_rest = pos;
    return true;
}

bool jsontext_is(const struct jsontext *json, struct json_span value, const char *text)
{
    size_t rest;

    return jsontext_begins(json, value, text, &rest) && rest + 1 == value.end;
}

bool jsontext_opens(const struct jsontext *json, struct json_span value, char open)
{
    return at(json, value.start) == open;
}

bool jsontext_null(const struct jsontext *json, struct json_span value)
{
    return at(json, value.start) == 'n';
}

int jsontext_member(const struct jsontext *json, struct json_span object, const char *name,
                    struct json_span *ret)
{
    struct json_item item = {0};
    struct json_span found = {0};

    if (!jsontext_opens(json, object, '{'))
        return -EINVAL;
    while (jsontext_next(json, object, &item)) {
        if (!jsontext_is(json, item.key, name))
            continue;
        if (found.end)
            return -EEXIST;
        found = item.value;
    }
    if (!found.end)
        return -ENOENT;
    *ret = found;
    return 0;
}

/* ---- changing ---- */

int jsontext_replace(struct jsontext *json, struct json_span span, const char *with)
{
    size_t n = strlen(with);
    size_t len = json->len - (span.end - span.start) + n;
    char *text = malloc(len + 1);

    if (!text)
        return -ENOMEM;
    memcpy(text, json->text, span.start);
    memcpy(text + span.start, with, n);
    memcpy(text + span.start + n, json->text + span.end, json->len - span.end);
    text[len] = '\0';
    free(json->text);
    *json = (struct jsontext){text, len};
    return 0;
}

static size_t item_start(const struct json_item *item)
{
    return item->key.end ? item->key.start : item->value.start;
}

int jsontext_append(struct jsontext *json, struct json_span container, const char *item)
{
    struct json_item first = {0}, last = {0}, next = {0};
    _cleanup_free_ char *spaced = NULL;
    size_t space;

    while (jsontext_next(json, container, &next)) {
        if (!first.value.end)
            first = next;
        last = next;
    }
    if (!first.value.end)
        return jsontext_replace(json, (struct json_span){container.start + 1, container.start + 1},
                                item);
    space = item_start(&first) - (container.start + 1);
    if (asprintf(&spaced, ",%.*s%s", (int)space, json->text + container.start + 1, item) < 0) {
        spaced = NULL;
        return -ENOMEM;
    }
    return jsontext_replace(json, (struct json_span){last.value.end, last.value.end}, spaced);
}

int jsontext_remove(struct jsontext *json, struct json_span object, const char *name)
{
    struct json_item item = {0}, next;
    size_t before = 0;

    while (jsontext_next(json, object, &item)) {
        if (!jsontext_is(json, item.key, name)) {
            before = item.value.end;
            continue;
        }
        if (before) /* removes the comma in front, too */
            return jsontext_replace(json, (struct json_span){before, item.value.end}, "");
        next = item;
        if (jsontext_next(json, object, &next))
            return jsontext_replace(json, (struct json_span){item.key.start, next.key.start}, "");
        return jsontext_replace(json, (struct json_span){object.start + 1, item.value.end}, "");
    }
    return -ENOENT;
}

char *jsontext_quote(const char *text)
{
    char *quoted = malloc(6 * strlen(text) + 3);
    char *p = quoted;

    if (!quoted)
        return NULL;
    *p++ = '"';
    for (; *text; text++) {
        if ((unsigned char)*text < 0x20) {
            p += sprintf(p, "\\u%04x", (unsigned)*text);
            continue;
        }
        if (*text == '"' || *text == '\\')
            *p++ = '\\';
        *p++ = *text;
    }
    strcpy(p, "\"");
    return quoted;
}

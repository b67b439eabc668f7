/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/api/lenient_json.h"

#include "base/cleanup.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS_SURE 18 /* a number of so many digits always fits into an int64_t */

/* Returns the end of the string that begins at @at; replaces its NULs by as many bytes. */
static char *mend_string(char *at, const char *end)
{
    for (at++; at < end && *at != '"'; at++) {
        if (*at != '\\')
            continue;
        if (end - at >= 6 && memcmp(at, "\\u0000", 6) == 0)
            memcpy(at, "\\ufffd", 6);
        at++;
    }
    return at < end ? at + 1 : at;
}

/* "-12345678901234567890" becomes "-1.234567890123456e19": as long, and as good as a double. */
static char *mend_number(char *at, const char *end)
{
    static const char most[] = "9223372036854775807";
    char *digits = at + (*at == '-'), *last = digits, exponent[16];
    size_t n, len;

    while (last < end && *last >= '0' && *last <= '9')
        last++;
    n = (size_t)(last - digits);
    if (n <= DIGITS_SURE || (last < end && strchr(".eE", *last)) ||
        (n == sizeof(most) - 1 && memcmp(digits, most, n) <= 0))
        return last;
    len = (size_t)snprintf(exponent, sizeof(exponent), "e%zu", n - 1);
    memmove(digits + 2, digits + 1, n - 2);
    digits[1] = '.';
    memcpy(last - len, exponent, len);
    return last;
}

/* Blanks what lies between the bracket at @at and its partner; returns the end of the partner. */
static char *empty(char *at, const char *end)
{
    size_t depth = 0;
    char *next;

    for (char *from = at; from < end; from = next) {
        bool closes = *from == '}' || *from == ']';

        next = *from == '"' ? mend_string(from, end) : from + 1;
        depth += *from == '{' || *from == '[';
        depth -= closes;
        if (depth == 0)
            return next;
        if (from > at)
            memset(from, ' ', (size_t)(next - from));
    }
    return (char *)end;
}

static void mend(char *text, size_t len)
{
    const char *end = text + len;
    size_t depth = 0;

    while (text < end) {
        if (*text == '"') {
            text = mend_string(text, end);
        } else if (*text == '-' || (*text >= '0' && *text <= '9')) {
            text = mend_number(text, end);
            while (text < end && strchr("0123456789.eE+-", *text))
                text++;
        } else if ((*text == '{' || *text == '[') && depth == LENIENT_JSON_DEPTH_MAX) {
            text = empty(text, end);
        } else {
            depth += *text == '{' || *text == '[';
            depth -= depth > 0 && (*text == '}' || *text == ']');
            text++;
        }
    }
}

json_t *lenient_json_load(const char *text, size_t len)
{
    json_t *json = json_loadb(text, len, 0, NULL);
    _cleanup_free_ char *copy = NULL;

    if (json || len == 0)
        return json;
    copy = malloc(len);
    if (!copy)
        return NULL;
    memcpy(copy, text, len);
    mend(copy, len);
    return json_loadb(copy, len, 0, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/device/jsonpath.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>
#include <strings.h>

#define NAME_MAX_BYTES 64
#define DEPTH_MAX      8
#define RESULT_MAX     9.2e18 /* below 2^63, and exact enough */

/* Takes one step of the path: a name, or an index in brackets. Returns the rest, or NULL. */
static const char *step(const char *at, char name[NAME_MAX_BYTES], size_t *ret_index)
{
    size_t n;

    if (*at == '[') {
        *ret_index = 0;
        n = strspn(at + 1, "0123456789");
        if (n == 0 || n > 4 || at[n + 1] != ']')
            return NULL;
        for (size_t i = 1; i <= n; i++)
            *ret_index = *ret_index * 10 + (size_t)(at[i] - '0');
        name[0] = '\0';
        return at + n + 2;
    }
    n = strcspn(at, ".[");
    if (n == 0 || n >= NAME_MAX_BYTES)
        return NULL;
    memcpy(name, at, n);
    name[n] = '\0';
    return at + n;
}

/* Between two steps stands a dot, or the bracket of an index. */
static const char *between(const char *at)
{
    if (*at == '.')
        return at[1] && at[1] != '[' && at[1] != '.' ? at + 1 : NULL;
    return *at == '[' || *at == '\0' ? at : NULL;
}

int jsonpath_check(const char *path)
{
    char name[NAME_MAX_BYTES];
    size_t index;

    if (*path == '\0')
        return -EINVAL;
    for (int depth = 0; depth < DEPTH_MAX; depth++) {
        path = step(path, name, &index);
        path = path ? between(path) : NULL;
        if (!path)
            return -EINVAL;
        if (*path == '\0')
            return 0;
    }
    return -EINVAL;
}

static const json_t *find(const json_t *at, const char *path)
{
    char name[NAME_MAX_BYTES];
    size_t index;

    if (*path == '\0')
        return NULL;
    for (int depth = 0; at && path && *path && depth < DEPTH_MAX; depth++) {
        path = step(path, name, &index);
        if (!path)
            return NULL;
        at = name[0] ? json_object_get(at, name) : json_array_get(at, index);
        path = between(path);
    }
    return path && *path == '\0' ? at : NULL;
}

int jsonpath_number(const void *text, size_t len, const char *path, uint64_t scale, uint64_t *ret)
{
    json_t *j = len <= JSONPATH_BYTES_MAX ? json_loadb(text, len, JSON_DECODE_ANY, NULL) : NULL;
    const json_t *found = j ? find(j, path) : NULL;
    double value;
    int r = 0;

    if (!j)
        return -EINVAL;
    if (!found) {
        r = -ENOENT;
    } else if (!json_is_number(found)) {
        r = -EINVAL;
    } else {
        value = json_number_value(found) * (double)scale;
        if (!(value >= 0 && value < RESULT_MAX)) /* and no NaN */
            r = -ERANGE;
        else
            *ret = (uint64_t)(value + 0.5);
    }
    json_decref(j);
    return r;
}

int jsonpath_switch(const void *text, size_t len, const char *path, bool *ret)
{
    json_t *j = len <= JSONPATH_BYTES_MAX ? json_loadb(text, len, JSON_DECODE_ANY, NULL) : NULL;
    const json_t *found = j ? find(j, path) : NULL;
    const char *word = json_string_value(found);
    int r = !j ? -EINVAL : !found ? -ENOENT : 0;

    if (json_is_boolean(found))
        *ret = json_is_true(found);
    else if (json_is_integer(found) && json_integer_value(found) >> 1 == 0)
        *ret = json_integer_value(found) == 1;
    else if (word && (strcasecmp(word, "on") == 0 || strcasecmp(word, "off") == 0))
        *ret = strcasecmp(word, "on") == 0;
    else if (r == 0)
        r = -EINVAL;
    json_decref(j);
    return r;
}

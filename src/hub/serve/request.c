/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/serve/request.h"

#include <errno.h>
#include <string.h>

#define ERROR_WORD "bad-request"

static bool keep(char *ret, size_t size, const char *from, size_t len)
{
    if (len == 0 || len >= size)
        return false;
    memcpy(ret, from, len);
    ret[len] = '\0';
    return true;
}

/* An area may have any of our words in its path, so the longest one counts. */
bool request_matches(const char *pattern, const char *path, char ret_area[AREA_PATH_MAX],
                     char ret_name[REQUEST_NAME_MAX])
{
    size_t len;

    while (*pattern && *pattern != '*') {
        if (*pattern++ != *path++)
            return false;
    }
    if (!*pattern)
        return !*path;
    if (pattern[1] != '*') {
        len = strcspn(path, "/");
        return keep(ret_name, REQUEST_NAME_MAX, path, len) &&
               request_matches(pattern + 1, path + len, ret_area, ret_name);
    }
    for (len = strnlen(path, AREA_PATH_MAX); len > 0; len--)
        if (path[len] == '/' && request_matches(pattern + 2, path + len, ret_area, ret_name))
            return keep(ret_area, AREA_PATH_MAX, path, len);
    return false;
}

bool request_cookie(const char *cookies, const char *name, char ret[SECRET_LEN + 1])
{
    size_t len = strlen(name);

    for (const char *at = cookies; at && *at; at = strchr(at, ';'), at = at ? at + 1 : NULL) {
        at += strspn(at, " ");
        if (strncmp(at, name, len) != 0 || at[len] != '=')
            continue;
        if (strcspn(at + len + 1, "; ") != SECRET_LEN)
            return false;
        return keep(ret, SECRET_LEN + 1, at + len + 1, SECRET_LEN);
    }
    return false;
}

int request_body(const char *text, size_t len, const char *const fields[REQUEST_FIELDS_MAX],
                 json_t **ret, struct error *err)
{
    json_error_t error;
    json_t *body, *value;
    const char *key;

    *ret = NULL;
    if (len == 0)
        return 0;
    body = json_loadb(text, len, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object(body)) {
        error_set(err, -EINVAL, body ? "the body is no JSON object" : "the body is no JSON: %s",
                  error.text);
        json_decref(body);
        return -EINVAL;
    }
    json_object_foreach (body, key, value) {
        size_t i = 0;

        while (i < REQUEST_FIELDS_MAX && fields[i] && strcmp(fields[i], key) != 0)
            i++;
        if (i < REQUEST_FIELDS_MAX && fields[i])
            continue;
        error_set(err, -EINVAL, "unknown field '%.60s'", key);
        json_decref(body);
        return -EINVAL;
    }
    *ret = body;
    return 0;
}

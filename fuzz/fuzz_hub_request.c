/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request to the hub: path, newline, cookies, newline, body. What is found of the path and of the
 * cookies stands in them.
 */
#include "hub/serve/request.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void match(const char *path)
{
    static const char *const patterns[] = {"/v1/areas/**/switches/*", "/v1/areas/**/energy",
                                           "/v1/units/*/revoke", "/v1/users/*", "/v1/areas"};

    for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++) {
        char area[AREA_PATH_MAX] = "", name[REQUEST_NAME_MAX] = "";

        if (request_matches(patterns[i], path, area, name) &&
            (!strstr(path, area) || !strstr(path, name) || strchr(name, '/')))
            abort();
    }
}

static void cookie(const char *cookies)
{
    char value[SECRET_LEN + 1] = "";

    if (request_cookie(cookies, "__Host-tide-8443", value) &&
        (strlen(value) != SECRET_LEN || !strstr(cookies, value)))
        abort();
}

static void body(const char *text, size_t len)
{
    static const char *const fields[REQUEST_FIELDS_MAX] = {"user", "password", "role", "text"};
    struct error err = {0};
    const char *key;
    json_t *object, *value;

    if (request_body(text, len, fields, &object, &err) < 0) {
        if (!*err.text)
            abort();
        return;
    }
    json_object_foreach (object, key, value)
        if (strcmp(key, "user") != 0 && strcmp(key, "password") != 0 && strcmp(key, "role") != 0 &&
            strcmp(key, "text") != 0)
            abort();
    json_decref(object);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), *cookies, *rest;

    if (!text)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    cookies = text + strcspn(text, "\n");
    if (*cookies)
        *cookies++ = '\0';
    rest = cookies + strcspn(cookies, "\n");
    if (*rest)
        *rest++ = '\0';
    match(text);
    cookie(cookies);
    body(rest, size - (size_t)(rest - text));
    free(text);
    return 0;
}

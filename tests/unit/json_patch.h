/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Carries out a JSON patch (RFC 6902) as the API server does, as far as we write any: `add` alone.
 * For tests and the fuzzer.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Reads the next part of a pointer, with ~1 and ~0 as they are meant. Returns what follows it. */
static inline const char *patch_part(const char *pointer, char ret[256])
{
    size_t n = 0;

    for (pointer++; *pointer && *pointer != '/' && n < 255; pointer++) {
        char c = *pointer;

        if (c == '~' && (pointer[1] == '0' || pointer[1] == '1'))
            c = *++pointer == '1' ? '/' : '~';
        ret[n++] = c;
    }
    ret[n] = '\0';
    return pointer;
}

static inline bool patch_add(json_t *in, const char *part, json_t *value)
{
    char *end;
    unsigned long index;

    if (json_is_object(in))
        return json_object_set(in, part, value) == 0;
    if (!json_is_array(in))
        return false;
    if (strcmp(part, "-") == 0)
        return json_array_append(in, value) == 0;
    index = strtoul(part, &end, 10);
    return end != part && *end == '\0' && index <= json_array_size(in) &&
           json_array_insert(in, index, value) == 0;
}

/* Returns false where the API server would refuse the patch, and with it the pod. */
static inline bool patch_apply(json_t *to, const json_t *patch)
{
    const json_t *operation;
    size_t i;

    json_array_foreach (patch, i, operation) {
        const char *pointer = json_string_value(json_object_get(operation, "path"));
        const char *what = json_string_value(json_object_get(operation, "op"));
        json_t *value = json_object_get(operation, "value"), *in = to;
        char part[256];

        if (!pointer || *pointer != '/' || !what || strcmp(what, "add") != 0 || !value)
            return false;
        while (*(pointer = patch_part(pointer, part)))
            in = json_is_array(in) ? json_array_get(in, strtoul(part, NULL, 10))
                                   : json_object_get(in, part);
        if (!patch_add(in, part, value))
            return false;
    }
    return true;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.json and process.json of a container. A refused text stays unchanged. An edited text is
 * the same value for another reader of JSON, apart from the additions, and needs no second edit.
 */
#include "input.h"
#include "runc/spec.h"

#include <jansson.h>

#define FLAGS (JSON_DECODE_INT_AS_REAL | JSON_DECODE_ANY)

/* Removes the last @n elements of an array, and an array that is then empty. */
static void cut(json_t *object, const char *name, size_t n)
{
    json_t *array = json_object_get(object, name);

    CHECK(json_array_size(array) >= n);
    while (n--)
        CHECK(json_array_remove(array, json_array_size(array) - 1) == 0);
    if (json_array_size(array) == 0)
        json_object_del(object, name);
}

static void forget_empty(json_t *object, const char *name)
{
    json_t *member = json_object_get(object, name);

    if (json_is_null(member) || (json_is_array(member) && json_array_size(member) == 0))
        json_object_del(object, name);
}

/* Expects two more mounts; does not compare the environment. */
static void compare(const char *before, const struct jsontext *after)
{
    json_t *old = json_loads(before, FLAGS, NULL);
    json_t *new = json_loadb(after->text, after->len, FLAGS, NULL);

    if (old) { /* jansson refuses some texts that we accept: bad UTF-8, reals out of range */
        CHECK(new);
        forget_empty(old, "mounts");
        cut(new, "mounts", 2);
        json_object_del(json_object_get(old, "process"), "env");
        CHECK(json_is_array(json_object_get(json_object_get(new, "process"), "env")));
        json_object_del(json_object_get(new, "process"), "env");
        CHECK(json_equal(old, new));
    }
    json_decref(old);
    json_decref(new);
}

static void check_config(const uint8_t *data, size_t size)
{
    _cleanup_jsontext_ struct jsontext json = {input_text(data, size), size};
    _cleanup_free_ char *before = input_text(data, size);
    struct error err = {0};
    struct startup sizes;
    int r = spec_edit_config(&json, "/a", "/b", 8, &sizes, &err);

    CHECK(json.text[json.len] == '\0');
    if (r <= 0) {
        CHECK(json.len == size && memcmp(json.text, before, size) == 0);
        CHECK(r == 0 || (err.code == r && *err.text));
        return;
    }
    compare(before, &json);
    CHECK(spec_edit_config(&json, "/a", "/b", 8, &sizes, &err) == 0);
}

static void check_process(const uint8_t *data, size_t size)
{
    _cleanup_jsontext_ struct jsontext json = {input_text(data, size), size};
    struct startup sizes = {.size = 3};
    struct error err;

    if (spec_edit_process(&json, &sizes, &err) >= 0)
        CHECK(spec_edit_process(&json, &sizes, &err) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_config(data, size);
    check_process(data, size);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines of a watch, the first one a list. For any lines the consumer gets an object's beginning,
 * changes and end in this order.
 */
#include "input.h"
#include "kube/api/lenient_json.h"
#include "kube/api/watch_delta.h"

#include <string.h>

static json_t *alive;

static void hear(void *arg, enum watch_change change, json_t *object)
{
    const json_t *meta = json_object_get(object, "metadata");
    const char *space = json_string_value(json_object_get(meta, "namespace"));
    const char *name = json_string_value(json_object_get(meta, "name"));
    char key[600];

    if (!object)
        return;
    CHECK(name && json_string_value(json_object_get(meta, "uid")));
    snprintf(key, sizeof(key), "%s/%s", space ? space : "", name);
    CHECK(!!json_object_get(alive, key) == (change != WATCH_ADDED));
    if (change == WATCH_DELETED)
        json_object_del(alive, key);
    else
        json_object_set(alive, key, json_object_get(meta, "uid"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = input_text(data, size), *rest = text, *line = strsep(&rest, "\n");
    struct watch_delta *k = watch_delta_new(hear, NULL);
    json_t *list = lenient_json_load(line, strlen(line));
    const char *next = NULL;

    alive = json_object();
    watch_delta_list_begin(k);
    if (watch_delta_list_page(k, list, &next, NULL) == 0) {
        CHECK(next && watch_delta_count(k) == json_object_size(alive));
        watch_delta_list_end(k);
        CHECK(*watch_delta_version(k));
    }
    while ((line = strsep(&rest, "\n")))
        watch_delta_event(k, line, strlen(line), NULL);
    CHECK(watch_delta_count(k) == json_object_size(alive));
    json_decref(alive);
    json_decref(list);
    watch_delta_free(k);
    free(text);
    return 0;
}

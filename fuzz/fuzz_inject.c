/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A question of the API server about a pod, whose text is the user's. The patch can be carried out,
 * adds nothing that is there already, and leaves the containers' number; what was patched is not
 * patched again; every answer is JSON.
 */
#include "../tests/unit/json_patch.h"
#include "input.h"
#include "kube/inject/patch.h"
#include "kube/inject/review.h"

static size_t count(const json_t *list, const char *key, const char *value)
{
    const json_t *one;
    size_t i, n = 0;

    json_array_foreach (list, i, one) {
        const char *found = json_string_value(json_object_get(one, key));

        n += found && strcmp(found, value) == 0;
    }
    return n;
}

static void check_container(const json_t *before, const json_t *after)
{
    size_t here = count(json_object_get(after, "volumeMounts"), "mountPath", "/opt/threadtide");
    size_t there = count(json_object_get(before, "volumeMounts"), "mountPath", "/opt/threadtide");

    if (here == there) { /* left alone */
        CHECK(json_equal(before, after));
        return;
    }
    CHECK(here == 1 && there == 0);
    CHECK(count(json_object_get(after, "env"), "name", "LD_PRELOAD") == 1);
}

static void check_patch(const json_t *pod, json_t *patch)
{
    json_t *copy = json_deep_copy(pod), *again;
    const json_t *spec = json_object_get(copy, "spec");
    const json_t *before = json_object_get(json_object_get(pod, "spec"), "containers");
    const json_t *after = json_object_get(spec, "containers"), *one;
    size_t i;

    CHECK(patch_apply(copy, patch));
    CHECK(json_array_size(before) == json_array_size(after));
    json_array_foreach (after, i, one)
        check_container(json_array_get(before, i), one);
    if (json_array_size(patch) > 1)
        CHECK(count(json_object_get(spec, "volumes"), "name", INJECT_CONFIG_MAP) <= 1);
    again = inject_patch(copy, true, NULL);
    CHECK(!again);
    json_decref(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = input_text(data, size), *answer;
    struct error err = {0};
    struct review r;
    json_t *patch, *whole;

    if (review_read(text, size, &r, &err) == 0) {
        patch = r.pod ? inject_patch(r.pod, true, NULL) : NULL;
        if (patch)
            check_patch(r.pod, patch);
        answer = review_answer(&r, patch);
        CHECK(answer);
        whole = json_loads(answer, 0, NULL);
        CHECK(json_is_true(json_object_get(json_object_get(whole, "response"), "allowed")));
        json_decref(whole);
        free(answer);
        review_done(&r);
    } else {
        CHECK(*err.text);
    }
    free(text);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/inject/review.h"

#include "base/cleanup.h"
#include "kube/api/base64.h"
#include "kube/api/lenient_json.h"

#include <errno.h>
#include <string.h>

#define ERROR_WORD "bad-object"

#define VERSION "admission.k8s.io/v1"
#define KIND    "AdmissionReview"

static const char *text(const json_t *object, const char *key)
{
    const char *found = json_string_value(json_object_get(object, key));

    return found ? found : "";
}

static bool is(const json_t *object, const char *key, const char *wanted)
{
    return strcmp(text(object, key), wanted) == 0;
}

/* A namespace's name becomes a part of a path. */
static bool is_name(const char *name)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-");

    return n > 0 && n < REVIEW_SPACE_MAX && name[n] == '\0';
}

static bool is_new_pod(const json_t *request)
{
    const json_t *kind = json_object_get(request, "kind");

    return is(kind, "group", "") && is(kind, "version", "v1") && is(kind, "kind", "Pod") &&
           is(request, "operation", "CREATE") && is(request, "subResource", "") &&
           is_name(text(request, "namespace")) &&
           json_is_object(json_object_get(request, "object"));
}

int review_read(const char *body, size_t len, struct review *ret, struct error *err)
{
    struct review r = {.whole = lenient_json_load(body, len)};
    const json_t *request = json_object_get(r.whole, "request");

    r.uid = text(request, "uid");
    if (!is(r.whole, "apiVersion", VERSION) || !is(r.whole, "kind", KIND) || !*r.uid) {
        review_done(&r);
        return error_set(err, -EBADMSG, "this is no " KIND " of " VERSION);
    }
    r.dry_run = json_is_true(json_object_get(request, "dryRun"));
    if (len <= REVIEW_POD_MAX && is_new_pod(request)) {
        r.pod = json_object_get(request, "object");
        snprintf(r.name_space, sizeof(r.name_space), "%s", text(request, "namespace"));
    }
    *ret = r;
    return 0;
}

char *review_answer(const struct review *r, json_t *patch)
{
    json_t *response = json_pack("{s:s,s:b}", "uid", r->uid, "allowed", 1);
    _cleanup_free_ char *operations = patch ? json_dumps(patch, JSON_COMPACT) : NULL;
    char *answer = NULL;
    json_t *whole;

    json_decref(patch);
    if (response && operations) {
        json_object_set_new(response, "patchType", json_string("JSONPatch"));
        json_object_set_new(response, "patch", base64_value(operations, strlen(operations)));
        if (json_object_size(response) < 4) { /* half of it would be an error */
            json_decref(response);
            response = NULL;
        }
    }
    whole = response ? json_pack("{s:s,s:s,s:o}", "apiVersion", VERSION, "kind", KIND, "response",
                                 response)
                     : NULL;
    if (whole)
        answer = json_dumps(whole, JSON_COMPACT);
    json_decref(whole);
    return answer;
}

void review_done(struct review *r)
{
    json_decref(r->whole);
    *r = (struct review){0};
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/kubectl/kubectl.h"

#include "base/cleanup.h"
#include "kube/api/access.h"
#include "kube/object/object.h"

#include <errno.h>
#include <string.h>

#define ERROR_WORD "cluster-refused"

struct waiting {
    struct kubectl *k;
    json_t *body;
    int code;
    bool done;
};

int kubectl_connect(struct kubectl *k)
{
    struct access access;
    struct error err = {0};
    int r = access_load(k->kubeconfig, k->context, &access, &err);

    if (r == -ENOENT && !k->kubeconfig && !k->context &&
        access_in_cluster(ACCESS_SERVICE_FILES, &access, &err) == 0)
        r = 0;
    if (r == 0)
        r = sd_event_new(&k->event) < 0 ? error_set(&err, -ENOMEM, "out of memory")
                                        : client_new(k->event, &access, NULL, &k->client, &err);
    if (r < 0) {
        error_print(error_why(&err), "error: %s", err.text);
        return r;
    }
    if (!k->name_space)
        k->name_space = client_namespace(k->client);
    return 0;
}

void kubectl_done(struct kubectl *k)
{
    k->client = client_free(k->client);
    k->event = sd_event_unref(k->event);
}

/* The server's own words, without what was asked: the person knows that. */
static void complain(const struct client_answer *answer)
{
    const char *message = json_string_value(json_object_get(answer->body, "message"));

    if (message && answer->reason[0])
        error_print(ERROR_WORD, "Error from server (%s): %s", answer->reason, message);
    else if (answer->status == 404)
        error_print("not-installed",
                    "error: this cluster knows no ElasticTrainingJobs: install their definition, "
                    "kubectl apply -f crd.yaml");
    else
        error_print(ERROR_WORD, "error: %s", answer->text);
}

static void on_answer(void *arg, const struct client_answer *answer)
{
    struct waiting *w = arg;

    w->code = answer->code;
    w->done = true;
    if (answer->code < 0)
        complain(answer);
    else
        w->body = json_incref(answer->body);
}

int kubectl_ask(struct kubectl *k, enum client_verb verb, const char *path, const json_t *body,
                json_t **ret)
{
    struct waiting w = {.k = k};
    struct client_request request = {.verb = verb,
                                     .path = path,
                                     .body = body,
                                     .done = on_answer,
                                     .arg = &w,
                                     .timeout_ms = 30000};
    int64_t ticket = client_send(k->client, &request);

    if (ticket < 0)
        return (int)ticket;
    while (!w.done)
        if (sd_event_run(k->event, UINT64_MAX) < 0)
            return -EIO;
    if (w.code < 0)
        return w.code;
    *ret = w.body;
    return 0;
}

int kubectl_path(const struct kubectl *k, const char *name, char *ret, size_t size)
{
    char space[256], escaped[800] = "";
    int n;

    if (client_escape(k->name_space, space, sizeof(space)) < 0 ||
        (name && client_escape(name, escaped, sizeof(escaped)) < 0)) {
        error_print("usage", "error: the name of the training or of the namespace is too long");
        return -ENAMETOOLONG;
    }
    if (k->all_spaces && !name)
        n = snprintf(ret, size, "/apis/" KUBE_GROUP "/" KUBE_VERSION "/" KUBE_PLURAL);
    else
        n = snprintf(ret, size,
                     "/apis/" KUBE_GROUP "/" KUBE_VERSION "/namespaces/%s/" KUBE_PLURAL "%s%s",
                     space, name ? "/" : "", escaped);
    return n < (int)size ? 0 : -ENAMETOOLONG;
}

int kubectl_get(struct kubectl *k, const char *name, json_t **ret)
{
    char path[1200];
    int r = kubectl_path(k, name, path, sizeof(path));

    return r < 0 ? r : kubectl_ask(k, CLIENT_GET, path, NULL, ret);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/inject/token.h"

#include "base/cleanup.h"
#include "kube/api/base64.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define ERROR_WORD "cluster-refused"

struct token {
    struct client *client;
    token_fn *fn;
    void *arg;
    sd_event_source *timer;
    int64_t call;
    char path[700];
    char text[TOKEN_MAX + 1];
};

bool token_is_good(const char *text)
{
    size_t n = strspn(text, "0123456789abcdefghijklmnopqrstuvwxyz");

    return n >= TOKEN_MIN && n <= TOKEN_MAX && text[n] == '\0';
}

static void wake_in(struct token *t, unsigned ms)
{
    sd_event_source_set_time_relative(t->timer, ms * 1000ull);
    sd_event_source_set_enabled(t->timer, SD_EVENT_ONESHOT);
}

static void troubled(struct token *t, const char *problem)
{
    t->fn(t->arg, NULL, problem);
    wake_in(t, TOKEN_AGAIN_MS);
}

static void send(struct token *t, struct client_request *request)
{
    request->path = t->path;
    request->arg = t;
    t->call = client_send(t->client, request);
    if (t->call < 0) {
        t->call = 0;
        troubled(t, "out of memory");
    }
}

/* Whoever wrote it: the next look reads what counts. */
static void on_kept(void *arg, const struct client_answer *answer)
{
    struct token *t = arg;

    t->call = 0;
    if (answer->code < 0 && answer->code != -EAGAIN)
        troubled(t, answer->text);
    else
        wake_in(t, 0);
}

/* Into the version of the Secret that we saw, so that only one of two replicas succeeds. */
static void keep(struct token *t, const char *version)
{
    struct client_request request = {.verb = CLIENT_MERGE, .done = on_kept};
    unsigned char bytes[TOKEN_BYTES];
    char text[2 * TOKEN_BYTES + 1];
    json_t *body;

    if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes)) {
        troubled(t, "the kernel has no random bytes");
        return;
    }
    for (size_t i = 0; i < sizeof(bytes); i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    body = json_pack("{s:{s:s},s:{s:o}}", "metadata", "resourceVersion", version, "data", TOKEN_KEY,
                     base64_value(text, strlen(text)));
    if (!body) {
        troubled(t, "out of memory");
        return;
    }
    request.body = body;
    send(t, &request);
    json_decref(body);
}

/* Returns false: what is there is no token. */
static bool decode(const char *base64, char ret[TOKEN_MAX + 1])
{
    _cleanup_free_ char *text = NULL;
    size_t n;

    if (base64_decode(base64, &text, &n) < 0 || n > TOKEN_MAX || !token_is_good(text))
        return false;
    memcpy(ret, text, n + 1);
    return true;
}

static void on_secret(void *arg, const struct client_answer *answer)
{
    struct token *t = arg;
    const json_t *metadata = json_object_get(answer->body, "metadata");
    const char *version = json_string_value(json_object_get(metadata, "resourceVersion"));
    const char *kept =
        json_string_value(json_object_get(json_object_get(answer->body, "data"), TOKEN_KEY));
    char text[TOKEN_MAX + 1];

    t->call = 0;
    if (answer->code < 0) {
        troubled(t, answer->text);
        return;
    }
    if (!kept) {
        keep(t, version ? version : "");
        return;
    }
    if (!decode(kept, text)) {
        troubled(t, "the Secret's key '" TOKEN_KEY "' holds no token: remove that key");
        return;
    }
    if (strcmp(text, t->text) != 0) {
        memcpy(t->text, text, sizeof(text));
        t->fn(t->arg, t->text, NULL);
    }
    wake_in(t, TOKEN_LOOK_MS);
}

static int on_timer(sd_event_source *s, uint64_t usec, void *arg)
{
    struct client_request request = {.verb = CLIENT_GET, .done = on_secret};

    (void)s;
    (void)usec;
    send(arg, &request);
    return 0;
}

int token_new(struct client *client, sd_event *event, const char *name_space, const char *secret,
              token_fn *fn, void *arg, struct token **ret, struct error *err)
{
    struct token *t = calloc(1, sizeof(*t));
    int r;

    if (!t)
        return error_set(err, -ENOMEM, "out of memory");
    t->client = client;
    t->fn = fn;
    t->arg = arg;
    snprintf(t->path, sizeof(t->path), "/api/v1/namespaces/%s/secrets/%s", name_space, secret);
    r = sd_event_add_time_relative(event, &t->timer, CLOCK_MONOTONIC, 0, 1000, on_timer, t);
    if (r < 0) {
        free(t);
        return error_set(err, r, "no timer: %s", strerror(-r));
    }
    *ret = t;
    return 0;
}

struct token *token_free(struct token *t)
{
    if (!t)
        return NULL;
    client_cancel(t->client, t->call);
    sd_event_source_disable_unref(t->timer);
    free(t);
    return NULL;
}

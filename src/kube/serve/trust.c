/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/serve/trust.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "host/trust/identity.h"
#include "kube/api/access.h"
#include "kube/api/base64.h"

#include <errno.h>
#include <string.h>

#define ERROR_WORD "cluster-refused"

#define RENEW_MS (60 * 1000) /* between two checks of our certificate: the clock may be set */
#define DAY_S    86400

struct trust {
    struct client *client;
    const struct trust_options *options;
    trust_fn *fn;
    void *arg;
    sd_event_source *timer;
    struct access files; /* only its members that are files: cert, key and ca */
    struct identity_pem ca;
    char *ca_pem;        /* the authorities that pods have to trust: the present, then the last */
    size_t ca_len;       /* length of the present one in it */
    uint64_t changed_ns; /* when the present one came; 0: it is the only one */
    bool held;           /* the files' certificate is not served yet */
    int64_t call;
    int64_t issued_s, expires_s; /* our own certificate was, will be */
};

static int64_t now_s(void)
{
    return (int64_t)(clock_real_ms() / 1000);
}

static unsigned look_ms(const struct trust *t)
{
    return t->options->look_ms ? t->options->look_ms : TRUST_LOOK_MS;
}

static void wake_in(struct trust *t, unsigned ms)
{
    sd_event_source_set_time_relative(t->timer, ms * 1000ull);
    sd_event_source_set_enabled(t->timer, SD_EVENT_ONESHOT);
}

static int serve(const struct identity_pem *pem, struct error *err)
{
    struct identity *identity;
    int r = identity_load(pem, &identity, err);

    if (r == 0)
        identity_serve(identity);
    return r;
}

static int keep_ca(struct trust *t, const char *pem)
{
    char *copy = strdup(pem);

    if (!copy)
        return -ENOMEM;
    free(t->ca_pem);
    t->ca_pem = copy;
    t->ca_len = strlen(copy);
    return 0;
}

/* ---- files ---- */

/* Adds a new authority in front of the last one: both count for a while. */
static int join_ca(struct trust *t, const char *pem)
{
    _cleanup_free_ char *both = NULL;
    int r;

    if (!t->ca_pem)
        return keep_ca(t, pem);
    if (asprintf(&both, "%s\n%.*s", pem, (int)t->ca_len, t->ca_pem) < 0) {
        both = NULL;
        return -ENOMEM;
    }
    r = keep_ca(t, both);
    if (r < 0)
        return r;
    t->ca_len = strlen(pem);
    t->changed_ns = clock_now_ns();
    return 0;
}

/* Returns 1 if something changed, 0 or -errno. */
static int read_files(struct trust *t, struct error *err)
{
    int r = access_refresh(&t->files, err), changed = 0;
    const struct identity_pem pem = {t->files.cert.text, t->files.key.text};
    const char *ca = t->files.ca.text;
    uint64_t age; /* in looks */

    if (r < 0)
        return r;
    t->held |= r > 0;
    if (!t->ca_pem || strlen(ca) != t->ca_len || strncmp(ca, t->ca_pem, t->ca_len) != 0) {
        if (join_ca(t, ca) < 0)
            return error_set(err, -ENOMEM, "out of memory");
        changed = 1;
    }
    age = t->changed_ns ? (clock_now_ns() - t->changed_ns) / NS_PER_MS / look_ms(t) : UINT64_MAX;
    if (t->held && age >= TRUST_SPREAD) {
        /* files are replaced one after the other: at the next look they may fit */
        r = serve(&pem, err);
        if (r < 0)
            return r;
        t->held = false;
        changed = 1;
    }
    if (t->changed_ns && age >= 2 * TRUST_SPREAD) {
        t->ca_pem[t->ca_len] = '\0';
        t->changed_ns = 0;
        changed = 1;
    }
    return changed;
}

static int take_files(struct trust *t, struct error *err)
{
    t->files.cert.file = strdup(t->options->cert_file);
    t->files.key.file = strdup(t->options->key_file);
    t->files.ca.file = strdup(t->options->ca_file);
    if (!t->files.cert.file || !t->files.key.file || !t->files.ca.file)
        return error_set(err, -ENOMEM, "out of memory");
    return read_files(t, err);
}

/* ---- our own authority ---- */

static void look(struct trust *t);

static void troubled(struct trust *t, const char *problem)
{
    t->fn(t->arg, problem);
    wake_in(t, look_ms(t));
}

static void issue(struct trust *t)
{
    struct identity_pem leaf = {0};
    struct error err = {0};
    int r;

    t->issued_s = now_s();
    r = identity_issue(&t->ca, t->options->hosts, t->options->n_hosts, t->issued_s, &leaf, &err);
    if (r == 0)
        r = serve(&leaf, &err);
    if (r == 0 && keep_ca(t, t->ca.cert) < 0)
        r = error_set(&err, -ENOMEM, "out of memory");
    if (r == 0)
        t->expires_s = identity_expires_s(leaf.cert);
    identity_pem_done(&leaf);
    if (r < 0) {
        troubled(t, err.text);
        return;
    }
    t->fn(t->arg, NULL);
    wake_in(t, RENEW_MS);
}

/* The text of a key of the Secret; NULL: there is none. */
static char *decode(const json_t *data, const char *key)
{
    const char *base64 = json_string_value(json_object_get(data, key));
    char *text = NULL;
    size_t n;

    if (base64)
        (void)base64_decode(base64, &text, &n);
    return text;
}

static void on_kept(void *arg, const struct client_answer *answer)
{
    struct trust *t = arg;

    t->call = 0;
    if (answer->code == 0) {
        issue(t);
        return;
    }
    identity_pem_done(&t->ca);
    if (answer->code == -EAGAIN || answer->code == -EEXIST)
        look(t); /* another replica was quicker: its authority counts */
    else
        troubled(t, answer->text);
}

/* Writes into the version of the Secret that we saw, so that only one of two replicas succeeds. */
static void keep(struct trust *t, const char *version)
{
    char path[700];
    struct error err = {0};
    struct client_request request = {.verb = CLIENT_MERGE, .path = path, .done = on_kept, .arg = t};
    json_t *body;

    if (identity_make_ca("tide-kube", now_s(), &t->ca, &err) < 0) {
        troubled(t, err.text);
        return;
    }
    body = json_pack("{s:{s:s},s:{s:o,s:o}}", "metadata", "resourceVersion", version, "data",
                     "ca.crt", base64_value(t->ca.cert, strlen(t->ca.cert)), "ca.key",
                     base64_value(t->ca.key, strlen(t->ca.key)));
    snprintf(path, sizeof(path), "/api/v1/namespaces/%s/secrets/%s", t->options->name_space,
             t->options->secret);
    request.body = body;
    t->call = body ? client_send(t->client, &request) : -ENOMEM;
    json_decref(body);
    if (t->call < 0) {
        t->call = 0;
        identity_pem_done(&t->ca);
        troubled(t, "out of memory");
    }
}

/* Seconds that an authority has to count yet, to be kept. */
static int64_t left_s(const struct trust *t)
{
    return t->options->told ? 0 : (int64_t)2 * IDENTITY_LEAF_DAYS * DAY_S;
}

static void on_secret(void *arg, const struct client_answer *answer)
{
    struct trust *t = arg;
    const json_t *data = json_object_get(answer->body, "data");
    const char *version = json_string_value(
        json_object_get(json_object_get(answer->body, "metadata"), "resourceVersion"));

    t->call = 0;
    if (answer->code < 0) {
        troubled(t, answer->text);
        return;
    }
    identity_pem_done(&t->ca); /* of a look whose certificate could not be issued */
    t->ca.cert = decode(data, "ca.crt");
    t->ca.key = decode(data, "ca.key");
    if (t->ca.cert && t->ca.key && identity_expires_s(t->ca.cert) > now_s() + left_s(t)) {
        issue(t);
        return;
    }
    identity_pem_done(&t->ca);
    keep(t, version ? version : "");
}

static void look(struct trust *t)
{
    char path[700];
    struct client_request request = {.verb = CLIENT_GET, .path = path, .done = on_secret, .arg = t};

    snprintf(path, sizeof(path), "/api/v1/namespaces/%s/secrets/%s", t->options->name_space,
             t->options->secret);
    t->call = client_send(t->client, &request);
    if (t->call < 0) {
        t->call = 0;
        wake_in(t, look_ms(t));
    }
}

/* Whether our certificate is half over, or issued while the clock was far ahead: not valid yet. */
static bool is_due(const struct trust *t)
{
    return t->expires_s - now_s() < (int64_t)IDENTITY_LEAF_DAYS / 2 * DAY_S ||
           now_s() < t->issued_s - DAY_S / 2;
}

/* ---- both ---- */

static int on_timer(sd_event_source *s, uint64_t usec, void *arg)
{
    struct trust *t = arg;
    struct error err = {0};
    int r;

    if (t->options->cert_file) {
        r = read_files(t, &err);
        if (r != 0)
            t->fn(t->arg, r < 0 ? err.text : NULL);
        wake_in(t, look_ms(t));
    } else if (!t->ca_pem) {
        look(t);
    } else if (is_due(t)) {
        issue(t);
    } else {
        wake_in(t, RENEW_MS);
    }
    return 0;
}

int trust_new(struct client *client, sd_event *event, const struct trust_options *options,
              trust_fn *fn, void *arg, struct trust **ret, struct error *err)
{
    struct trust *t = calloc(1, sizeof(*t));
    int r;

    if (!t)
        return error_set(err, -ENOMEM, "out of memory");
    t->client = client;
    t->options = options;
    t->fn = fn;
    t->arg = arg;
    r = sd_event_add_time_relative(event, &t->timer, CLOCK_MONOTONIC,
                                   options->cert_file ? look_ms(t) * 1000ull : 0, 1000, on_timer,
                                   t);
    if (r < 0)
        error_set(err, r, "no timer: %s", strerror(-r));
    else if (options->cert_file)
        r = take_files(t, err);
    if (r < 0) {
        trust_free(t);
        return r;
    }
    *ret = t;
    return 0;
}

struct trust *trust_free(struct trust *t)
{
    if (!t)
        return NULL;
    client_cancel(t->client, t->call);
    sd_event_source_disable_unref(t->timer);
    access_done(&t->files);
    identity_pem_done(&t->ca);
    free(t->ca_pem);
    free(t);
    return NULL;
}

const char *trust_ca(const struct trust *t)
{
    return t->ca_pem;
}

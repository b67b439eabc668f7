/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/serve/chiefs_channel.h"

#include "base/bucket.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fnv.h"
#include "host/net/httpd.h"
#include "host/trust/identity.h"
#include "kube/serve/token_claims.h"

#include <assert.h>
#include <errno.h>
#include <gnutls/crypto.h>
#include <string.h>
#include <strings.h>

#define ERROR_WORD "cannot-listen"

#define HASH_BYTES   32
#define ACCOUNT_USER "system:serviceaccount:"
#define POD_UID      "authentication.kubernetes.io/pod-uid"
#define ADDRESSES    1024 /* buckets for addresses; a power of two */

#define NOT_A_POD "the token is not a pod's: send the one that is projected into the pod"
#define ELSEWHERE "the token is that of a pod in another namespace"

/* The API server's verdict on a token; only the token's hash is kept. */
struct verdict {
    struct verdict *next;
    uint64_t until_ns; /* end of validity; that of a known token is kept as long again */
    struct bucket bucket;
    bool known;
    unsigned char hash[HASH_BYTES];
    char uid[64];
    char name_space[64];
};

/* A request that waits for a verdict. */
struct question {
    struct question *next;
    struct channel *channel;
    struct httpd_request *request;
    int64_t call;
    unsigned char hash[HASH_BYTES];
    char name_space[64];
    char job[KUBE_NAME_MAX + 1];
};

/* The parsed head of a request. */
struct head {
    char name_space[64], job[KUBE_NAME_MAX + 1];
    const char *token;
    unsigned char hash[HASH_BYTES]; /* of the token */
};

struct channel {
    struct client *client;
    struct httpd *server;
    channel_report *report;
    void *arg;
    struct verdict *verdicts;
    struct question *questions;
    struct bucket reviews_left, left_of[ADDRESSES];
    uint64_t seed; /* for hashes of addresses: nobody can choose whose bucket to share */
    uint64_t reports, refused, reviews;
    unsigned n_verdicts;
};

/* ---- answers ---- */

static void answer(struct channel *c, struct httpd_request *r, unsigned status, json_t *body)
{
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;

    c->reports += status == 200;
    c->refused += status != 200;
    json_decref(body);
    /* 503: another replica may lead, and a new connection may reach it */
    httpd_answer(r, status, "application/json", text, status == 503);
}

static void refuse(struct channel *c, struct httpd_request *r, unsigned status, const char *text)
{
    json_t *message = json_string(text);

    if (!message)
        message = json_string("refused");
    answer(c, r, status, json_pack("{s:{s:o}}", "error", "message", message));
}

/* ---- reports ---- */

static void accept_report(struct channel *c, struct httpd_request *r, const char *name_space,
                          const char *job, const char *uid)
{
    struct kube_report *report = NULL;
    struct error err = {0};
    json_t *body = json_loadb(r->body, r->body_len, JSON_REJECT_DUPLICATES, NULL), *members = NULL;
    unsigned status;

    if (!json_is_object(body)) {
        json_decref(body);
        refuse(c, r, r->cut ? 503 : 400,
               r->cut ? "too many large reports: try again" : "the body is no JSON object");
        return;
    }
    if (kube_report_parse(body, &report, &err) < 0) {
        json_decref(body);
        refuse(c, r, 400, err.text);
        return;
    }
    json_decref(body);
    report->at_ns = (int64_t)clock_now_ns();
    report->namespace = strdup(name_space);
    report->job = strdup(job);
    report->chief_uid = strdup(uid);
    if (!report->namespace || !report->job || !report->chief_uid) {
        kube_report_free(report);
        refuse(c, r, 503, "out of memory");
        return;
    }
    status = c->report(c->arg, report, &members, &err);
    if (status == 200)
        answer(c, r, 200, json_pack("{s:o}", "members", members));
    else
        refuse(c, r, status, err.text);
}

/* Accepts the report if the token is of a pod in this namespace that does not report too often. */
static void judge(struct channel *c, struct httpd_request *r, struct verdict *v,
                  const char *name_space, const char *job)
{
    if (!v->known)
        refuse(c, r, 401, "the API server does not know this token, or it is for another audience");
    else if (!v->uid[0])
        refuse(c, r, 403, NOT_A_POD);
    else if (strcmp(v->name_space, name_space) != 0)
        refuse(c, r, 403, ELSEWHERE);
    else if (!bucket_take(&v->bucket, CHANNEL_POD_RATE, CHANNEL_POD_BURST, clock_now_ns()))
        refuse(c, r, 429, "too many reports of this pod: report less often");
    else
        accept_report(c, r, name_space, job, v->uid);
}

/* ---- tokens ---- */

/* Finds the verdict on a token; a good one even for a while after its end. */
static struct verdict *find_verdict(struct channel *c, const unsigned char *hash, uint64_t now)
{
    struct verdict **at = &c->verdicts;

    while (*at) {
        struct verdict *v = *at;

        if (v->until_ns + (v->known ? CHANNEL_TRUST_S * NS_PER_S : 0) <= now) {
            *at = v->next;
            c->n_verdicts--;
            free(v);
            continue;
        }
        if (memcmp(v->hash, hash, HASH_BYTES) == 0)
            return v;
        at = &v->next;
    }
    return NULL;
}

/* The first text of a list: all values of `extra` are lists. */
static const char *extra_of(const json_t *user, const char *key)
{
    return json_string_value(
        json_array_get(json_object_get(json_object_get(user, "extra"), key), 0));
}

static void read_review(const json_t *review, struct verdict *v)
{
    const json_t *status = json_object_get(review, "status");
    const json_t *user = json_object_get(status, "user"), *audience;
    const char *name = json_string_value(json_object_get(user, "username"));
    const char *uid = extra_of(user, POD_UID);
    size_t i;

    if (!json_is_true(json_object_get(status, "authenticated")))
        return;
    json_array_foreach (json_object_get(status, "audiences"), i, audience)
        if (json_string_value(audience) &&
            strcmp(json_string_value(audience), CHANNEL_AUDIENCE) == 0)
            v->known = true;
    if (!v->known || !name || strncmp(name, ACCOUNT_USER, strlen(ACCOUNT_USER)) != 0)
        return;
    name += strlen(ACCOUNT_USER);
    if (!uid || strlen(uid) >= sizeof(v->uid) || strcspn(name, ":") >= sizeof(v->name_space))
        return;
    strcpy(v->uid, uid);
    snprintf(v->name_space, sizeof(v->name_space), "%.*s", (int)strcspn(name, ":"), name);
}

static struct verdict *find_or_add(struct channel *c, const unsigned char *hash, uint64_t now)
{
    struct verdict *v = find_verdict(c, hash, now);

    if (v || c->n_verdicts >= CHANNEL_TOKENS_MAX)
        return v;
    v = calloc(1, sizeof(*v));
    if (!v)
        return NULL;
    memcpy(v->hash, hash, HASH_BYTES);
    v->next = c->verdicts;
    c->verdicts = v;
    c->n_verdicts++;
    return v;
}

static void forget_question(struct question *q)
{
    struct question **at = &q->channel->questions;

    while (*at != q)
        at = &(*at)->next;
    *at = q->next;
    q->request->context = NULL;
    free(q);
}

static void on_review(void *arg, const struct client_answer *reply)
{
    struct question *q = arg;
    struct channel *c = q->channel;
    uint64_t now = clock_now_ns();
    struct verdict *v = reply->code == 0 ? find_or_add(c, q->hash, now) : NULL;

    if (!v) {
        refuse(c, q->request, 503,
               reply->code < 0 ? "the API server cannot be asked about the token"
                               : "out of memory");
        forget_question(q);
        return;
    }
    v->known = false;
    v->uid[0] = '\0';
    read_review(reply->body, v);
    v->until_ns = now + (v->known ? CHANNEL_TRUST_S : CHANNEL_REFUSE_S) * NS_PER_S;
    judge(c, q->request, v, q->name_space, q->job);
    forget_question(q);
}

/* Limits an IPv6 address by its /64, since its owner has all addresses of that. */
static bool may_ask(struct channel *c, const struct httpd_request *r)
{
    static const unsigned char ipv4[12];
    bool is_ipv4 = memcmp(r->address, ipv4, sizeof(ipv4)) == 0;
    uint64_t now = clock_now_ns(), hash;
    struct bucket *own;

    hash = fnv_bytes(c->seed, r->address + (is_ipv4 ? 12 : 0), is_ipv4 ? 4 : 8);
    own = &c->left_of[(hash >> 32) % ADDRESSES];
    return bucket_take(own, CHANNEL_ADDRESS_RATE, CHANNEL_ADDRESS_BURST, now) &&
           bucket_take(&c->reviews_left, CHANNEL_REVIEW_RATE, CHANNEL_REVIEW_BURST, now);
}

static void ask(struct channel *c, struct httpd_request *r, const struct head *head)
{
    struct client_request request = {.verb = CLIENT_POST,
                                     .path = "/apis/authentication.k8s.io/v1/tokenreviews",
                                     .done = on_review,
                                     .timeout_ms = CLIENT_TIMEOUT_MS / 2};
    struct question *q;
    json_t *body;

    q = calloc(1, sizeof(*q));
    body = json_pack("{s:s,s:s,s:{s:s,s:[s]}}", "apiVersion", "authentication.k8s.io/v1", "kind",
                     "TokenReview", "spec", "token", head->token, "audiences", CHANNEL_AUDIENCE);
    request.body = body;
    request.arg = q;
    if (q && body)
        q->call = client_send(c->client, &request);
    json_decref(body);
    if (!q || q->call <= 0) {
        free(q);
        refuse(c, r, body ? 503 : 401, "the token cannot be checked now: try again");
        return;
    }
    q->channel = c;
    q->request = r;
    memcpy(q->hash, head->hash, HASH_BYTES);
    snprintf(q->name_space, sizeof(q->name_space), "%s", head->name_space);
    snprintf(q->job, sizeof(q->job), "%s", head->job);
    q->next = c->questions;
    c->questions = q;
    r->context = q;
    c->reviews++;
}

/* ---- requests ---- */

/* "/v1/jobs/NAMESPACE/NAME/report" */
static bool split_path(const char *path, char name_space[64], char job[KUBE_NAME_MAX + 1])
{
    char rest[16], excess;

    static_assert(KUBE_NAME_MAX == 253, "as in the format");
    return sscanf(path, "/v1/jobs/%63[^/]/%253[^/]/%15[^/]%c", name_space, job, rest, &excess) ==
               3 &&
           strcmp(rest, "report") == 0;
}

static const char *bearer(const struct httpd_request *r)
{
    const char *authorization = httpd_header(r, "Authorization");

    return authorization && strncasecmp(authorization, "Bearer ", 7) == 0 ? authorization + 7 : "";
}

static unsigned refuse_as(const char **ret_why, unsigned status, const char *why)
{
    *ret_why = why;
    return status;
}

/* Returns 0, or the status that refuses the request whatever follows, and the reason. */
static unsigned read_head(const struct httpd_request *r, struct head *ret, const char **ret_why)
{
    if (!split_path(r->path, ret->name_space, ret->job))
        return refuse_as(ret_why, 404, "there is only /v1/jobs/NAMESPACE/NAME/report");
    if (strcmp(r->method, "POST") != 0)
        return refuse_as(ret_why, 405, "only POST");
    ret->token = bearer(r);
    if (!*ret->token || strlen(ret->token) > CHANNEL_TOKEN_MAX)
        return refuse_as(ret_why, 401, "send the pod's token: Authorization: Bearer …");
    switch (token_claims_check(ret->token, CHANNEL_AUDIENCE, ret->name_space)) {
    case TOKEN_CLAIMS_NONE:
        return refuse_as(ret_why, 401, "this is no token that an API server knows");
    case TOKEN_CLAIMS_OTHERS:
        return refuse_as(
            ret_why, 401,
            "the token is for another audience: send the one that is projected into the pod");
    case TOKEN_CLAIMS_NO_POD:
        return refuse_as(ret_why, 403, NOT_A_POD);
    case TOKEN_CLAIMS_FOREIGN:
        return refuse_as(ret_why, 403, ELSEWHERE);
    case TOKEN_CLAIMS_FIT:
        break;
    }
    if (gnutls_hash_fast(GNUTLS_DIG_SHA256, ret->token, strlen(ret->token), ret->hash) < 0)
        return refuse_as(ret_why, 503, "no SHA-256");
    return 0;
}

/* Limits the body while the token is unknown: the sender repeats a large one after the verdict. */
static size_t limit_of(void *arg, const struct httpd_request *r)
{
    struct channel *c = arg;
    struct head head;
    const char *why;
    const struct verdict *v;

    if (read_head(r, &head, &why) > 0)
        return 0;
    v = find_verdict(c, head.hash, clock_now_ns());
    if (v)
        return v->known ? CHANNEL_BODY_MAX : 0;
    return HTTPD_BODY_SMALL;
}

static void on_request(void *arg, struct httpd_request *r)
{
    struct channel *c = arg;
    uint64_t now = clock_now_ns();
    struct head head;
    const char *why;
    unsigned status = read_head(r, &head, &why);
    struct verdict *v = status == 0 ? find_verdict(c, head.hash, now) : NULL;

    if (status > 0)
        refuse(c, r, status, why);
    else if (v && v->until_ns > now)
        judge(c, r, v, head.name_space, head.job);
    else if (v ? bucket_take(&v->bucket, CHANNEL_POD_RATE, CHANNEL_POD_BURST, now) : may_ask(c, r))
        ask(c, r, &head);
    else
        refuse(c, r, 429, "too many new tokens at once: try again");
}

static void on_over(void *arg, struct httpd_request *r)
{
    struct channel *c = arg;
    struct question *q = r->context;

    if (!q)
        return;
    client_cancel(c->client, q->call);
    forget_question(q);
}

/* ---- the channel ---- */

int channel_new(struct client *client, sd_event *event, const char *address, channel_report *report,
                void *arg, struct channel **ret, struct error *err)
{
    struct channel *c = calloc(1, sizeof(*c));
    struct httpd_options options = {
        .address = address,
        .handler = on_request,
        .over = on_over,
        .limit = limit_of,
        .arg = c,
        .idle_s = CHANNEL_IDLE_S,
        .connections_max = CHANNEL_CONNECTIONS_MAX,
        .per_address_max = CHANNEL_ADDRESS_MAX,
        .body_max = CHANNEL_BODY_MAX,
        .bodies_max = CHANNEL_BODIES_MAX,
        .certificate = identity_callback(),
    };
    int r;

    if (!c)
        return error_set(err, -ENOMEM, "out of memory");
    gnutls_rnd(GNUTLS_RND_NONCE, &c->seed, sizeof(c->seed));
    c->client = client;
    c->report = report;
    c->arg = arg;
    r = httpd_new(event, &options, &c->server, err);
    if (r < 0) {
        channel_free(c);
        return r;
    }
    *ret = c;
    return 0;
}

struct channel *channel_free(struct channel *c)
{
    if (!c)
        return NULL;
    httpd_free(c->server);
    while (c->questions) {
        client_cancel(c->client, c->questions->call);
        forget_question(c->questions);
    }
    while (c->verdicts) {
        struct verdict *next = c->verdicts->next;

        free(c->verdicts);
        c->verdicts = next;
    }
    free(c);
    return NULL;
}

unsigned channel_port(const struct channel *c)
{
    return httpd_port(c->server);
}

uint64_t channel_reports(const struct channel *c)
{
    return c->reports;
}

uint64_t channel_refused(const struct channel *c)
{
    return c->refused;
}

uint64_t channel_reviews(const struct channel *c)
{
    return c->reviews;
}

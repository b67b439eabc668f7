/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests to one API server: uses TLS, reads credentials again, limits the rate, repeats requests
 * when the server asks for it, and turns Status objects into errors. Owns the connection set of
 * src/host/net/transfer.h and its place in the sd-event loop. Event loop's thread; nothing blocks
 * but the reading of credential files, once a minute. Called by watch, lease, channel, act and the
 * kubectl commands. Callbacks borrow what they are given until they return, and may call everything
 * here but client_free.
 */
#pragma once

#include "base/error.h"
#include "host/net/transfer.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <systemd/sd-event.h>

#define CLIENT_CALLS_MAX     8192  /* waiting and under way, with streams */
#define CLIENT_TIMEOUT_MS    10000 /* default of a call, with the wait for its turn */
#define CLIENT_RATE          20    /* calls per second in the long run … */
#define CLIENT_BURST         60    /* … after so many at once */
#define CLIENT_RETRY_MAX_MS  30000 /* longest wait before a call is repeated */
#define CLIENT_CREDENTIALS_S 60    /* age at which files with credentials are read again */

struct access;
struct client;

enum client_verb {
    CLIENT_GET,
    CLIENT_POST,
    CLIENT_PUT,
    CLIENT_APPLY, /* PATCH, server-side apply: creates the object, or takes over the named fields */
    CLIENT_MERGE, /* PATCH, JSON merge patch */
    CLIENT_STRATEGIC, /* PATCH, strategic merge patch: of built-in kinds, as pods/resize wants it */
    CLIENT_JSON,      /* PATCH, JSON patch: a list of operations, all of them or none */
    CLIENT_DELETE,
    CLIENT_VERB_MAX,
};

struct client_answer {
    int code;           /* see client_send */
    int status;         /* HTTP's; 0: no answer came */
    const char *reason; /* of a Status, "AlreadyExists"; else "" */
    const char *text;   /* of a failure, for a person: what was asked, of whom, and why it failed */
    json_t *body;       /* an object; NULL: a stream's, or a failure's without one */
    unsigned retry_ms;  /* the server's wish before the next try; 0: none */
};

typedef void client_done(void *arg, const struct client_answer *answer);
typedef bool client_allowed(void *arg);

struct client_request {
    enum client_verb verb;
    const char *path;    /* "/api/v1/…", URL-encoded, query included */
    const json_t *body;  /* NULL: none; of CLIENT_DELETE: DeleteOptions */
    const char *text;    /* in place of a body: it as JSON, which outlives the call */
    transfer_data *data; /* of a stream; NULL: the body is collected for done */
    client_done *done;
    client_allowed *allowed; /* asked when its turn comes; NULL: it may be sent */
    void *arg;               /* of all three */
    unsigned timeout_ms;     /* 0: CLIENT_TIMEOUT_MS, of a stream none */
    const char *manager;     /* whom a write's fields belong to; NULL: tide-kube */
    bool urgent;             /* neither rate nor turn hold it up: leases */
};

struct client_limits {
    unsigned rate, burst; /* 0: as above */
};

/*
 * Takes @access over, also on failure. Nothing is asked yet. 0 or -errno.
 */
int client_new(sd_event *event, struct access *access, const struct client_limits *limits,
               struct client **ret, struct error *err);

/* Breaks everything off, without a call of done. Takes NULL, returns NULL. */
struct client *client_free(struct client *c);

const char *client_namespace(const struct client *c); /* of the context, or our pod's */

/*
 * Returns a ticket > 0; then the loop calls done later, exactly once. Or returns -EBUSY
 * (CLIENT_CALLS_MAX) or -ENOMEM, without a call. Requests that the server refuses for now (429, and
 * 503 that says how long) are repeated until the deadline. The codes of an answer:
 * - -EINVAL: refused as nonsense (400, 422); -EACCES: not known (401) or not allowed (403)
 * - -ENOENT: no such object or kind (404); -EEXIST: the name is taken (409 AlreadyExists)
 * - -EAGAIN: it has changed meanwhile, or a field belongs to others (409 Conflict)
 * - -ESTALE: the version is too old (410); -EBUSY: still refused for now (429, 503)
 * - -ESHUTDOWN: the namespace is being deleted and takes no new object (403 NamespaceTerminating)
 * - -EREMOTEIO: the server failed (500 and above); -EPROTO: another status; TLS
 * - -EPERM: no longer allowed when its turn came; -EBADMSG: no JSON; and those of transfer.h
 */
int64_t client_send(struct client *c, const struct client_request *request);

/* Cancels a call: neither data nor done is called any more. Ignores an old ticket. */
void client_cancel(struct client *c, int64_t ticket);

/* Calls that were sent (repeated ones too), and those that wait for their turn. */
uint64_t client_sent(const struct client *c);
unsigned client_waiting(const struct client *c);

/* ---- pure ---- */

/* Milliseconds that Retry-After in the head of an answer asks for, at most CLIENT_RETRY_MAX_MS. */
unsigned client_retry_after(const char *head);

/* @text as one segment of a path or a value of a query. Returns 0 or -ENAMETOOLONG. */
int client_escape(const char *text, char *ret, size_t size);

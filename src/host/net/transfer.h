/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends many HTTP requests at a time to one server, behind a unix socket or https://, for an event
 * loop: libcurl's multi interface behind one descriptor. No function blocks; the environment's
 * proxies are ignored. On a unix socket each request has its own connection, so that libcurl never
 * sends a request twice unasked. TLS connections are reused, because their handshake costs more
 * than the request; there libcurl repeats a request that meets a connection just closed. One
 * thread: the owner's event loop; called by engine.c and src/kube/api/client.c.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define TRANSFER_BODY_MAX   (16u << 20) /* bytes of an answer; in a stream, bytes not used up */
#define TRANSFER_HEAD_MAX   (64u << 10) /* bytes of an answer's status line and headers */
#define TRANSFERS_MAX       1024        /* under way at a time */
#define TRANSFER_CONNECT_MS 5000        /* to get a connection, for requests without a deadline */

struct transfers;

/* Exactly one of socket_path and url. PEM texts of any number of certificates. */
struct transfer_server {
    const char *socket_path;
    const char *url;        /* "https://host:port", or with a path that ends without a slash */
    const char *ca;         /* trusted signers of the server's certificate; NULL: the system's */
    const char *cert, *key; /* our own certificate and key; NULL: none */
    bool insecure;          /* does not check the server's certificate */
};

struct transfer_answer {
    int code;         /* 0: complete, whatever its status; else -errno, see transfer_send */
    int status;       /* HTTP status; 0: none came */
    const char *head; /* status line and headers, never NULL, as all texts here */
    const char *body; /* terminated; for a stream the bytes not used up */
    size_t body_len;
    const char *reason; /* for a person, when code < 0 */
};

/*
 * Gets bytes of a stream (an answer with a status of 200 to 299) as they arrive. The first call has
 * @len 0: the answer has begun. Returns how many bytes it used up (the next call repeats the rest,
 * with more), or -errno, which ends the transfer with that code.
 */
typedef ssize_t transfer_data(void *arg, const char *bytes, size_t len);

/* Called at the end of a transfer; @answer is borrowed until it returns. */
typedef void transfer_done(void *arg, const struct transfer_answer *answer);

struct transfer_request {
    const char *method;
    const char *path;    /* URL-encoded, query included */
    const char *body;    /* NULL: none */
    const char *type;    /* the body's type; NULL: application/json */
    const char *bearer;  /* token; NULL: none */
    const char *header;  /* one more, "X-Auth-Token: …"; NULL: none */
    transfer_data *data; /* NULL: the body is collected for done */
    transfer_done *done;
    void *arg;           /* for both functions */
    unsigned timeout_ms; /* for the whole exchange; 0: no limit */
};

/*
 * Borrows @server for as long as the set lives; its texts may change between two requests. Returns
 * 0, -ENAMETOOLONG (a path too long for a socket) or another -errno.
 */
int transfers_new(const struct transfer_server *server, struct transfers **ret);

/* Ends all requests without calling done. Takes NULL, returns NULL. */
struct transfers *transfers_free(struct transfers *set);

/* Becomes readable (EPOLLIN) when transfers_dispatch has something to do. Borrowed. */
int transfers_fd(const struct transfers *set);

/* Works as far as it can without waiting, and calls data and done, which must not call it. */
void transfers_dispatch(struct transfers *set);

/*
 * Begins @request, whose texts are copied. Returns a ticket > 0, and done is called exactly once,
 * later, from transfers_dispatch; or, without any call, -EBUSY (TRANSFERS_MAX) or -ENOMEM.
 * The codes of an answer:
 *   -ENOTCONN    no program listens, or the name is unknown: nothing was sent
 *   -EACCES      not allowed to connect
 *   -ECONNRESET  the server hung up without an answer: whether it did what was asked is unknown
 *   -ETIMEDOUT   no complete answer in time: unknown, too
 *   -EPROTO      TLS: the certificate or the key is not good, theirs or ours
 *   -EBADMSG     cut off, or no HTTP
 *   -EMSGSIZE    longer than TRANSFER_BODY_MAX or TRANSFER_HEAD_MAX
 *   -ENOMEM, -EIO, or what data returned.
 */
int64_t transfer_send(struct transfers *set, const struct transfer_request *request);

/* Ends the request: no call of data or done follows. An old ticket is ignored. */
void transfer_cancel(struct transfers *set, int64_t ticket);

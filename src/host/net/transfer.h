/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP requests to one server, behind a unix socket or https://, many at a time, for an event loop:
 * libcurl's multi interface behind one descriptor. Nothing blocks, and the environment's proxies
 * are ignored. On a unix socket each request has a connection of its own, so that libcurl never
 * sends one twice behind the caller's back; TLS connections are kept and used again, for their
 * handshake costs more than the request, and libcurl repeats one that meets a connection just
 * closed. One thread: the owner's event loop; called by engine.c and src/kube/api/client.c.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define TRANSFER_BODY_MAX   (16u << 20) /* bytes of an answer; of a stream, that are not used up */
#define TRANSFER_HEAD_MAX   (64u << 10) /* bytes of an answer's status line and headers */
#define TRANSFERS_MAX       1024        /* under way at a time */
#define TRANSFER_CONNECT_MS 5000        /* to get a connection, for requests without a deadline */

struct transfers;

/* Exactly one of socket_path and url. PEM texts of any number of certificates. */
struct transfer_server {
    const char *socket_path;
    const char *url;        /* "https://host:port", nothing behind it that ends in a slash */
    const char *ca;         /* who may have signed the server's certificate; NULL: the system's */
    const char *cert, *key; /* ours; NULL: none */
    bool insecure;          /* whoever answers is believed */
};

struct transfer_answer {
    int code;         /* 0: complete, whatever its status; else -errno, see transfer_send */
    int status;       /* HTTP status; 0: none came */
    const char *head; /* status line and headers, never NULL, as all texts here */
    const char *body; /* terminated; of a stream what was not used up */
    size_t body_len;
    const char *reason; /* of code < 0, for a person */
};

/*
 * Bytes of a stream (an answer with a status of 200 to 299) as they arrive; the first call has
 * @len 0: the answer has begun. Returns how many bytes are used up, the others come again with
 * more; or -errno, which ends the transfer with that code.
 */
typedef ssize_t transfer_data(void *arg, const char *bytes, size_t len);

/* The end of a transfer. @answer is borrowed until it returns. */
typedef void transfer_done(void *arg, const struct transfer_answer *answer);

struct transfer_request {
    const char *method;
    const char *path;    /* URL-encoded, query included */
    const char *body;    /* NULL: none */
    const char *type;    /* of the body; NULL: application/json */
    const char *bearer;  /* token; NULL: none */
    transfer_data *data; /* NULL: the body is collected for done */
    transfer_done *done;
    void *arg;           /* of both */
    unsigned timeout_ms; /* for the whole exchange; 0: without an end */
};

/*
 * @server is borrowed for as long as the set lives; its texts may be others from one request to the
 * next. Returns 0, -ENAMETOOLONG (no path of a socket) or another -errno.
 */
int transfers_new(const struct transfer_server *server, struct transfers **ret);

/* Breaks off what is under way, without a call of done. Takes NULL, returns NULL. */
struct transfers *transfers_free(struct transfers *set);

/* Becomes readable (EPOLLIN) when transfers_dispatch has something to do. Borrowed. */
int transfers_fd(const struct transfers *set);

/* Does what can be done without waiting, and calls data and done. Never from within these. */
void transfers_dispatch(struct transfers *set);

/*
 * Begins @request, whose texts are copied. Returns a ticket > 0, and done is called exactly once,
 * later, from transfers_dispatch; or, without any call, -EBUSY (TRANSFERS_MAX) or -ENOMEM.
 * The codes of an answer:
 *   -ENOTCONN    nobody listens, or the name is unknown: nothing was sent
 *   -EACCES      not allowed to connect
 *   -ECONNRESET  the server hung up without an answer: whether it did what was asked is unknown
 *   -ETIMEDOUT   no complete answer in time: unknown, too
 *   -EPROTO      TLS: the certificate or the key is not good, theirs or ours
 *   -EBADMSG     cut off, or no HTTP
 *   -EMSGSIZE    longer than TRANSFER_BODY_MAX or TRANSFER_HEAD_MAX
 *   -ENOMEM, -EIO, or what data returned.
 */
int64_t transfer_send(struct transfers *set, const struct transfer_request *request);

/* Breaks it off: neither data nor done is called from now on. An old ticket is ignored. */
void transfer_cancel(struct transfers *set, int64_t ticket);

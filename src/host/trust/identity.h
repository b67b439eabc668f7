/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys and certificates of a TLS server: read from PEM texts, or made here by an authority of our
 * own, so that plain manifests and a Helm chart are enough to install. Any thread, no state; makes
 * ECDSA P-256 keys (milliseconds). Used by src/kube/serve, src/hub/trust
 * and src/unit.
 */
#pragma once

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

#define IDENTITY_CA_DAYS     3650
#define IDENTITY_LEAF_DAYS   365
#define IDENTITY_CLIENT_DAYS 90
#define IDENTITY_LIST_DAYS   30 /* until a list of revoked certificates has to be made again */
#define IDENTITY_SERIAL_MAX  33 /* 16 bytes in hexadecimal digits, with the NUL */
#define IDENTITY_NAME_MAX    64 /* bytes of a client's name, with the NUL */

/* PEM texts, owned. */
struct identity_pem {
    char *cert, *key;
};

struct identity; /* ready to serve */

/* An authority named @name, from @now_s (since 1970; a day earlier, for clocks that differ). */
int identity_make_ca(const char *name, int64_t now_s, struct identity_pem *ret, struct error *err);

/* A server's certificate for @hosts (names or addresses; the first is its common name). */
int identity_issue(const struct identity_pem *ca, const char *const *hosts, size_t n, int64_t now_s,
                   struct identity_pem *ret, struct error *err);

/*
 * A new key and a request for a client's certificate with the name @name: PEM texts, owned. The key
 * stays with whoever asks.
 */
int identity_request(const char *name, char **ret_key, char **ret_request, struct error *err);

/* The same for a key that is there already, whose certificate ends. */
int identity_request_again(const char *key_pem, const char *name, char **ret_request,
                           struct error *err);

/*
 * Whether a client can use the certificate: for its key and its name, signed by the authority, and
 * valid now. Returns 0, -EBADMSG with what is wrong, or -EINVAL: one of the texts is none.
 */
int identity_check(const char *cert_pem, const char *key_pem, const char *ca_pem, const char *name,
                   struct error *err);

/*
 * A client's certificate with the name @name for the key of the request, whose own name does not
 * count: the authority says who somebody is. @host: a name or address for which it is a server's
 * certificate, too; NULL: none. Returns 0, -EINVAL (no request, not signed by its own key, or a key
 * that is too weak), with the serial number.
 */
int identity_sign_request(const struct identity_pem *ca, const char *request, const char *name,
                          const char *host, int64_t now_s, char **ret_cert,
                          char ret_serial[IDENTITY_SERIAL_MAX], struct error *err);

/*
 * Whether a list of revoked certificates is the authority's. Returns 0, -EBADMSG (it is not) or
 * -EINVAL (one of the texts is none).
 */
int identity_check_list(const char *list_pem, const char *ca_pem, struct error *err);

struct identity_revoked {
    char serial[IDENTITY_SERIAL_MAX];
    int64_t time_s;
};

/* The list of revoked certificates (CRL); @number rises from list to list. */
int identity_list_revoked(const struct identity_pem *ca, const struct identity_revoked *revoked,
                          size_t n, uint64_t number, int64_t now_s, char **ret_list,
                          struct error *err);

/* When a certificate of the PEM text ends, in seconds since 1970; -1: it is none. */
int64_t identity_expires_s(const char *cert_pem);

/* -EINVAL: no certificates, no key, or the key is not the first certificate's. */
int identity_load(const struct identity_pem *pem, struct identity **ret, struct error *err);

struct identity *identity_free(struct identity *i); /* takes NULL, returns NULL */
void identity_pem_done(struct identity_pem *pem);

/*
 * Sets the identity for new connections of this process's TLS server. It is global, since GnuTLS
 * gives its callback no argument. Earlier identities are kept until identity_serve(NULL), since
 * connections may refer to them.
 */
void identity_serve(struct identity *i);

/* For MHD_OPTION_HTTPS_CERT_CALLBACK. */
void *identity_callback(void);

/* SPDX-License-Identifier: Apache-2.0 */
#include "host/trust/peer.h"

#include <errno.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <string.h>

#define ERROR_WORD "bad-certificate"

/* Names the fault; of several the one that says most. */
static const char *reason(unsigned status)
{
    if (status & GNUTLS_CERT_SIGNER_NOT_FOUND || status & GNUTLS_CERT_SIGNER_NOT_CA)
        return "none of the authorities in client-ca has signed it";
    if (status & GNUTLS_CERT_EXPIRED)
        return "it has expired";
    if (status & GNUTLS_CERT_NOT_ACTIVATED)
        return "it is not valid yet";
    if (status & GNUTLS_CERT_PURPOSE_MISMATCH)
        return "it is not for clients";
    return "it is not valid";
}

static int subject_of(const gnutls_datum_t *der, char ret[PEER_SUBJECT_MAX])
{
    gnutls_datum_t text = {NULL, 0};
    gnutls_x509_crt_t cert;
    int r = gnutls_x509_crt_init(&cert);

    if (r < 0)
        return r;
    r = gnutls_x509_crt_import(cert, der, GNUTLS_X509_FMT_DER);
    if (r >= 0)
        r = gnutls_x509_crt_get_dn3(cert, &text, 0);
    gnutls_x509_crt_deinit(cert);
    if (r >= 0 &&
        (text.size == 0 || text.size >= PEER_SUBJECT_MAX || memchr(text.data, 0, text.size)))
        r = GNUTLS_E_SHORT_MEMORY_BUFFER;
    if (r >= 0) {
        memcpy(ret, text.data, text.size);
        ret[text.size] = '\0';
    }
    gnutls_free(text.data);
    return r;
}

int peer_subject(void *session, char ret[PEER_SUBJECT_MAX], struct error *err)
{
    gnutls_typed_vdata_st purpose = {.type = GNUTLS_DT_KEY_PURPOSE_OID,
                                     .data = (unsigned char *)GNUTLS_KP_TLS_WWW_CLIENT};
    const gnutls_datum_t *chain;
    unsigned n = 0, status = 0;
    int r;

    chain = session ? gnutls_certificate_get_peers(session, &n) : NULL;
    if (!chain || n == 0)
        return error_set(err, -ENOENT, "no certificate was shown");
    r = gnutls_certificate_verify_peers(session, &purpose, 1, &status);
    if (r < 0)
        return error_set(err, -EACCES, "the certificate cannot be read: %s", gnutls_strerror(r));
    if (status)
        return error_set(err, -EACCES, "the certificate is not accepted: %s", reason(status));
    if (subject_of(&chain[0], ret) < 0)
        return error_set(err, -EACCES, "the certificate's subject is empty, or too long");
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "host/trust/seal.h"

#include "base/cleanup.h"

#include <errno.h>
#include <gnutls/abstract.h>
#include <gnutls/x509.h>
#include <limits.h>
#include <string.h>

#define ERROR_WORD "bad-certificate"

static void free_private(gnutls_privkey_t *key)
{
    if (*key)
        gnutls_privkey_deinit(*key);
}

static void free_public(gnutls_pubkey_t *key)
{
    if (*key)
        gnutls_pubkey_deinit(*key);
}

static int code(int r)
{
    return r == GNUTLS_E_MEMORY_ERROR ? -ENOMEM : -EINVAL;
}

static int read_private(const char *pem, gnutls_privkey_t *ret)
{
    gnutls_datum_t text = {(unsigned char *)pem, (unsigned)strlen(pem)};
    _cleanup_(free_private) gnutls_privkey_t key = NULL;
    int r = gnutls_privkey_init(&key);

    if (r >= 0)
        r = gnutls_privkey_import_x509_raw(key, &text, GNUTLS_X509_FMT_PEM, NULL, 0);
    if (r < 0)
        return code(r);
    if (gnutls_privkey_get_pk_algorithm(key, NULL) != GNUTLS_PK_EDDSA_ED25519)
        return -EINVAL;
    *ret = TAKE_PTR(key);
    return 0;
}

static int public_of(gnutls_privkey_t key, char **ret)
{
    _cleanup_(free_public) gnutls_pubkey_t public = NULL;
    gnutls_datum_t text = {NULL, 0};
    int r = gnutls_pubkey_init(&public);

    if (r >= 0)
        r = gnutls_pubkey_import_privkey(public, key, 0, 0);
    if (r >= 0)
        r = gnutls_pubkey_export2(public, GNUTLS_X509_FMT_PEM, &text);
    if (r < 0)
        return code(r);
    *ret = strndup((char *)text.data, text.size);
    gnutls_free(text.data);
    return *ret ? 0 : -ENOMEM;
}

int seal_make_key(char **ret_key_pem, char **ret_public_pem, struct error *err)
{
    gnutls_x509_privkey_t key = NULL;
    gnutls_datum_t text = {NULL, 0};
    _cleanup_free_ char *pem = NULL;
    int r = gnutls_x509_privkey_init(&key);

    if (r >= 0)
        r = gnutls_x509_privkey_generate(key, GNUTLS_PK_EDDSA_ED25519, 0, 0);
    if (r >= 0)
        r = gnutls_x509_privkey_export2_pkcs8(key, GNUTLS_X509_FMT_PEM, NULL, GNUTLS_PKCS_PLAIN,
                                              &text);
    if (key)
        gnutls_x509_privkey_deinit(key);
    if (r < 0)
        return error_set(err, code(r), "cannot make a key that signs: %s", gnutls_strerror(r));
    pem = strndup((char *)text.data, text.size);
    gnutls_free(text.data);
    r = pem ? seal_public(pem, ret_public_pem) : -ENOMEM;
    if (r < 0)
        return error_set(err, r, "cannot make a key that signs: %s", strerror(-r));
    *ret_key_pem = TAKE_PTR(pem);
    return 0;
}

int seal_public(const char *key_pem, char **ret_public_pem)
{
    _cleanup_(free_private) gnutls_privkey_t key = NULL;
    int r = read_private(key_pem, &key);

    return r < 0 ? r : public_of(key, ret_public_pem);
}

int seal_sign(const char *key_pem, const void *bytes, size_t len, uint8_t ret[SEAL_BYTES])
{
    gnutls_datum_t text = {(unsigned char *)bytes, (unsigned)len}, signature = {NULL, 0};
    _cleanup_(free_private) gnutls_privkey_t key = NULL;
    int r;

    if (len > UINT_MAX)
        return -EINVAL;
    r = read_private(key_pem, &key);
    if (r < 0)
        return r;
    r = gnutls_privkey_sign_data2(key, GNUTLS_SIGN_EDDSA_ED25519, 0, &text, &signature);
    if (r < 0)
        return code(r);
    r = signature.size == SEAL_BYTES ? 0 : -EINVAL;
    if (r == 0)
        memcpy(ret, signature.data, SEAL_BYTES);
    gnutls_free(signature.data);
    return r;
}

int seal_check(const char *public_pem, const void *bytes, size_t len, const uint8_t sig[SEAL_BYTES])
{
    gnutls_datum_t pem = {(unsigned char *)public_pem, (unsigned)strlen(public_pem)};
    gnutls_datum_t text = {(unsigned char *)bytes, (unsigned)len};
    gnutls_datum_t signature = {(unsigned char *)sig, SEAL_BYTES};
    _cleanup_(free_public) gnutls_pubkey_t key = NULL;
    int r = gnutls_pubkey_init(&key);

    if (r >= 0)
        r = gnutls_pubkey_import(key, &pem, GNUTLS_X509_FMT_PEM);
    if (r < 0)
        return code(r);
    if (gnutls_pubkey_get_pk_algorithm(key, NULL) != GNUTLS_PK_EDDSA_ED25519 || len > UINT_MAX)
        return -EINVAL;
    return gnutls_pubkey_verify_data2(key, GNUTLS_SIGN_EDDSA_ED25519, 0, &text, &signature) < 0
               ? -EBADMSG
               : 0;
}

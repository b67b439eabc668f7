/* SPDX-License-Identifier: Apache-2.0 */
#include "host/trust/identity.h"

#include "base/cleanup.h"

#include <arpa/inet.h>
#include <errno.h>
#include <gnutls/abstract.h>
#include <gnutls/crypto.h>
#include <gnutls/x509.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define ERROR_WORD "bad-certificate"

#define CHAIN_MAX 8
#define DAY_S     86400

struct identity {
    struct identity *before;
    gnutls_pcert_st chain[CHAIN_MAX];
    unsigned n;
    gnutls_privkey_t key;
};

static struct identity *served;

/* ---- making identities ---- */

static int failed(struct error *err, const char *what, int r)
{
    return error_set(err, r == GNUTLS_E_MEMORY_ERROR ? -ENOMEM : -EINVAL, "%s: %s", what,
                     gnutls_strerror(r));
}

static int add_host(gnutls_x509_crt_t cert, const char *host)
{
    unsigned char address[16];

    if (inet_pton(AF_INET, host, address) == 1)
        return gnutls_x509_crt_set_subject_alt_name(cert, GNUTLS_SAN_IPADDRESS, address, 4,
                                                    GNUTLS_FSAN_APPEND);
    if (inet_pton(AF_INET6, host, address) == 1)
        return gnutls_x509_crt_set_subject_alt_name(cert, GNUTLS_SAN_IPADDRESS, address, 16,
                                                    GNUTLS_FSAN_APPEND);
    return gnutls_x509_crt_set_subject_alt_name(cert, GNUTLS_SAN_DNSNAME, host,
                                                (unsigned)strlen(host), GNUTLS_FSAN_APPEND);
}

/* Sets serial number, name and times. */
static int describe_name(gnutls_x509_crt_t cert, const char *name, int64_t from_s, unsigned days)
{
    unsigned char serial[16], id[20];
    size_t id_len = sizeof(id);
    int r = gnutls_rnd(GNUTLS_RND_NONCE, serial, sizeof(serial));

    serial[0] &= 0x7f; /* positive */
    serial[0] |= 0x40; /* always as long */
    if (r >= 0)
        r = gnutls_x509_crt_set_version(cert, 3);
    if (r >= 0)
        r = gnutls_x509_crt_set_serial(cert, serial, sizeof(serial));
    if (r >= 0)
        r = gnutls_x509_crt_set_activation_time(cert, (time_t)(from_s - DAY_S));
    if (r >= 0)
        r = gnutls_x509_crt_set_expiration_time(cert, (time_t)(from_s + (int64_t)days * DAY_S));
    if (r >= 0)
        r = gnutls_x509_crt_set_dn_by_oid(cert, GNUTLS_OID_X520_COMMON_NAME, 0, name,
                                          (unsigned)strnlen(name, IDENTITY_NAME_MAX));
    if (r >= 0)
        r = gnutls_x509_crt_get_key_id(cert, 0, id, &id_len);
    if (r >= 0)
        r = gnutls_x509_crt_set_subject_key_id(cert, id, id_len);
    return r;
}

/* Sets the fields that every certificate has, whoever signs it. */
static int describe(gnutls_x509_crt_t cert, gnutls_x509_privkey_t key, const char *name,
                    int64_t from_s, unsigned days)
{
    int r = gnutls_x509_crt_set_key(cert, key);

    return r < 0 ? r : describe_name(cert, name, from_s, days);
}

static int export(gnutls_x509_crt_t cert, gnutls_x509_privkey_t key, struct identity_pem *ret)
{
    gnutls_datum_t c = {NULL, 0}, k = {NULL, 0};
    int r = gnutls_x509_crt_export2(cert, GNUTLS_X509_FMT_PEM, &c);

    if (r >= 0)
        r = gnutls_x509_privkey_export2_pkcs8(key, GNUTLS_X509_FMT_PEM, NULL, GNUTLS_PKCS_PLAIN,
                                              &k);
    if (r >= 0) {
        ret->cert = strndup((char *)c.data, c.size);
        ret->key = strndup((char *)k.data, k.size);
        r = ret->cert && ret->key ? 0 : GNUTLS_E_MEMORY_ERROR;
    }
    if (r < 0)
        identity_pem_done(ret);
    gnutls_free(c.data);
    gnutls_free(k.data);
    return r;
}

static int make_key(gnutls_x509_privkey_t *ret_key, gnutls_x509_crt_t *ret_cert)
{
    int r = gnutls_x509_privkey_init(ret_key);

    if (r >= 0)
        r = gnutls_x509_crt_init(ret_cert);
    if (r >= 0)
        r = gnutls_x509_privkey_generate(*ret_key, GNUTLS_PK_ECDSA,
                                         GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0);
    return r;
}

int identity_make_ca(const char *name, int64_t now_s, struct identity_pem *ret, struct error *err)
{
    gnutls_x509_privkey_t key = NULL;
    gnutls_x509_crt_t cert = NULL;
    struct identity_pem made = {0};
    int r = make_key(&key, &cert);

    if (r >= 0)
        r = describe(cert, key, name, now_s, IDENTITY_CA_DAYS);
    if (r >= 0)
        r = gnutls_x509_crt_set_basic_constraints(cert, 1, 0);
    if (r >= 0)
        r = gnutls_x509_crt_set_key_usage(cert, GNUTLS_KEY_KEY_CERT_SIGN | GNUTLS_KEY_CRL_SIGN);
    if (r >= 0)
        r = gnutls_x509_crt_sign2(cert, cert, key, GNUTLS_DIG_SHA256, 0);
    if (r >= 0)
        r = export(cert, key, &made);
    gnutls_x509_crt_deinit(cert);
    gnutls_x509_privkey_deinit(key);
    if (r < 0)
        return failed(err, "cannot make an authority", r);
    *ret = made;
    return 0;
}

static int read_ca(const struct identity_pem *pem, gnutls_x509_crt_t *ret_cert,
                   gnutls_x509_privkey_t *ret_key)
{
    gnutls_datum_t c = {(unsigned char *)pem->cert, (unsigned)strlen(pem->cert)};
    gnutls_datum_t k = {(unsigned char *)pem->key, (unsigned)strlen(pem->key)};
    int r = gnutls_x509_crt_init(ret_cert);

    if (r >= 0)
        r = gnutls_x509_privkey_init(ret_key);
    if (r >= 0)
        r = gnutls_x509_crt_import(*ret_cert, &c, GNUTLS_X509_FMT_PEM);
    if (r >= 0)
        r = gnutls_x509_privkey_import2(*ret_key, &k, GNUTLS_X509_FMT_PEM, NULL, 0);
    return r;
}

/* Python's and OpenSSL's strict checks want both key identifiers. */
static int sign(gnutls_x509_crt_t cert, gnutls_x509_crt_t ca, gnutls_x509_privkey_t ca_key)
{
    unsigned char id[64];
    size_t len = sizeof(id);
    int r = gnutls_x509_crt_get_subject_key_id(ca, id, &len, NULL);

    if (r >= 0)
        r = gnutls_x509_crt_set_authority_key_id(cert, id, len);
    return r < 0 ? r : gnutls_x509_crt_sign2(cert, ca, ca_key, GNUTLS_DIG_SHA256, 0);
}

int identity_issue(const struct identity_pem *ca, const char *const *hosts, size_t n, int64_t now_s,
                   struct identity_pem *ret, struct error *err)
{
    gnutls_x509_privkey_t key = NULL, ca_key = NULL;
    gnutls_x509_crt_t cert = NULL, ca_cert = NULL;
    struct identity_pem made = {0};
    int r = read_ca(ca, &ca_cert, &ca_key);

    if (r >= 0)
        r = make_key(&key, &cert);
    if (r >= 0)
        r = describe(cert, key, hosts[0], now_s, IDENTITY_LEAF_DAYS);
    if (r >= 0)
        r = gnutls_x509_crt_set_basic_constraints(cert, 0, -1);
    if (r >= 0)
        r = gnutls_x509_crt_set_key_usage(cert, GNUTLS_KEY_DIGITAL_SIGNATURE);
    if (r >= 0)
        r = gnutls_x509_crt_set_key_purpose_oid(cert, GNUTLS_KP_TLS_WWW_SERVER, 0);
    for (size_t i = 0; i < n && r >= 0; i++)
        r = add_host(cert, hosts[i]);
    if (r >= 0)
        r = sign(cert, ca_cert, ca_key);
    if (r >= 0)
        r = export(cert, key, &made);
    gnutls_x509_crt_deinit(cert);
    gnutls_x509_crt_deinit(ca_cert);
    gnutls_x509_privkey_deinit(key);
    gnutls_x509_privkey_deinit(ca_key);
    if (r < 0)
        return failed(err, "cannot make a certificate", r);
    *ret = made;
    return 0;
}

/* ---- clients ---- */

static int text_of(gnutls_datum_t *pem, char **ret)
{
    *ret = strndup((char *)pem->data, pem->size);
    gnutls_free(pem->data);
    return *ret ? 0 : GNUTLS_E_MEMORY_ERROR;
}

/* A request for that key. Returns a code of GnuTLS. */
static int request_of(gnutls_x509_privkey_t key, const char *name, char **ret)
{
    gnutls_x509_crq_t request = NULL;
    gnutls_datum_t q = {NULL, 0};
    int r = gnutls_x509_crq_init(&request);

    if (r >= 0)
        r = gnutls_x509_crq_set_version(request, 1);
    if (r >= 0)
        r = gnutls_x509_crq_set_dn_by_oid(request, GNUTLS_OID_X520_COMMON_NAME, 0, name,
                                          (unsigned)strnlen(name, IDENTITY_NAME_MAX));
    if (r >= 0)
        r = gnutls_x509_crq_set_key(request, key);
    if (r >= 0)
        r = gnutls_x509_crq_sign2(request, key, GNUTLS_DIG_SHA256, 0);
    if (r >= 0)
        r = gnutls_x509_crq_export2(request, GNUTLS_X509_FMT_PEM, &q);
    if (r >= 0)
        r = text_of(&q, ret);
    gnutls_x509_crq_deinit(request);
    return r;
}

int identity_request(const char *name, char **ret_key, char **ret_request, struct error *err)
{
    gnutls_x509_privkey_t key = NULL;
    gnutls_x509_crt_t unused = NULL;
    gnutls_datum_t k = {NULL, 0};
    char *key_text = NULL, *request_text = NULL;
    int r = make_key(&key, &unused);

    if (r >= 0)
        r = request_of(key, name, &request_text);
    if (r >= 0)
        r = gnutls_x509_privkey_export2_pkcs8(key, GNUTLS_X509_FMT_PEM, NULL, GNUTLS_PKCS_PLAIN,
                                              &k);
    if (r >= 0)
        r = text_of(&k, &key_text);
    gnutls_x509_crt_deinit(unused);
    gnutls_x509_privkey_deinit(key);
    if (r < 0) {
        free(request_text);
        return failed(err, "cannot make a request for a certificate", r);
    }
    *ret_key = key_text;
    *ret_request = request_text;
    return 0;
}

static int import_key(const char *pem, gnutls_x509_privkey_t *ret)
{
    gnutls_datum_t text = {(unsigned char *)pem, (unsigned)strlen(pem)};
    int r = gnutls_x509_privkey_init(ret);

    return r < 0 ? r : gnutls_x509_privkey_import2(*ret, &text, GNUTLS_X509_FMT_PEM, NULL, 0);
}

int identity_request_again(const char *key_pem, const char *name, char **ret_request,
                           struct error *err)
{
    gnutls_x509_privkey_t key = NULL;
    int r = import_key(key_pem, &key);

    if (r >= 0)
        r = request_of(key, name, ret_request);
    gnutls_x509_privkey_deinit(key);
    return r < 0 ? failed(err, "cannot make a request for a certificate", r) : 0;
}

/* ---- what a client is given ---- */

static int import_certificate(const char *pem, gnutls_x509_crt_t *ret)
{
    gnutls_datum_t text = {(unsigned char *)pem, (unsigned)strlen(pem)};
    int r = gnutls_x509_crt_init(ret);

    return r < 0 ? r : gnutls_x509_crt_import(*ret, &text, GNUTLS_X509_FMT_PEM);
}

static bool same_key(gnutls_x509_crt_t cert, gnutls_x509_privkey_t key)
{
    unsigned char of_cert[64], of_key[64];
    size_t cert_len = sizeof(of_cert), key_len = sizeof(of_key);

    return gnutls_x509_crt_get_key_id(cert, GNUTLS_KEYID_USE_SHA256, of_cert, &cert_len) >= 0 &&
           gnutls_x509_privkey_get_key_id(key, GNUTLS_KEYID_USE_SHA256, of_key, &key_len) >= 0 &&
           cert_len == key_len && memcmp(of_cert, of_key, key_len) == 0;
}

static const char *what_is_wrong(gnutls_x509_crt_t cert, gnutls_x509_privkey_t key,
                                 gnutls_x509_crt_t ca, const char *name)
{
    char named[IDENTITY_NAME_MAX];
    size_t len = sizeof(named);
    unsigned status = 0;

    if (!same_key(cert, key))
        return "it is for another key";
    if (gnutls_x509_crt_get_dn_by_oid(cert, GNUTLS_OID_X520_COMMON_NAME, 0, 0, named, &len) < 0 ||
        strcmp(named, name) != 0)
        return "it is for another name";
    if (gnutls_x509_crt_verify(cert, &ca, 1, 0, &status) < 0 || status != 0)
        return "the authority did not sign it, or it is not valid now";
    return NULL;
}

int identity_check(const char *cert_pem, const char *key_pem, const char *ca_pem, const char *name,
                   struct error *err)
{
    gnutls_x509_crt_t cert = NULL, ca = NULL;
    gnutls_x509_privkey_t key = NULL;
    const char *wrong = NULL;
    int r = import_certificate(cert_pem, &cert);

    if (r >= 0)
        r = import_certificate(ca_pem, &ca);
    if (r >= 0)
        r = import_key(key_pem, &key);
    if (r >= 0)
        wrong = what_is_wrong(cert, key, ca, name);
    gnutls_x509_crt_deinit(cert);
    gnutls_x509_crt_deinit(ca);
    gnutls_x509_privkey_deinit(key);
    if (wrong)
        return error_set(err, -EBADMSG, "%s", wrong);
    return r < 0 ? failed(err, "cannot read a certificate or its key", r) : 0;
}

/* Reads the request into a certificate without a signature: its key, nothing else of it. */
static int take_request(const char *text, const char *name, int64_t now_s, gnutls_x509_crt_t cert)
{
    gnutls_datum_t pem = {(unsigned char *)text, (unsigned)strlen(text)};
    gnutls_x509_crq_t request = NULL;
    gnutls_pubkey_t key = NULL;
    unsigned bits = 0;
    int r = gnutls_x509_crq_init(&request);

    if (r >= 0)
        r = gnutls_x509_crq_import(request, &pem, GNUTLS_X509_FMT_PEM);
    if (r >= 0)
        r = gnutls_x509_crq_verify(request, 0);
    if (r >= 0)
        r = gnutls_pubkey_init(&key);
    if (r >= 0)
        r = gnutls_pubkey_import_x509_crq(key, request, 0);
    if (r >= 0)
        r = gnutls_pubkey_get_pk_algorithm(key, &bits);
    if (r >= 0 &&
        gnutls_pk_bits_to_sec_param((gnutls_pk_algorithm_t)r, bits) < GNUTLS_SEC_PARAM_MEDIUM)
        r = GNUTLS_E_INSUFFICIENT_SECURITY;
    if (r >= 0)
        r = gnutls_x509_crt_set_pubkey(cert, key);
    if (r >= 0)
        r = describe_name(cert, name, now_s, IDENTITY_CLIENT_DAYS);
    gnutls_pubkey_deinit(key);
    gnutls_x509_crq_deinit(request);
    return r;
}

static int read_serial(gnutls_x509_crt_t cert, char ret[IDENTITY_SERIAL_MAX])
{
    unsigned char serial[16];
    size_t len = sizeof(serial);
    int r = gnutls_x509_crt_get_serial(cert, serial, &len);

    for (size_t i = 0; r >= 0 && i < len; i++)
        snprintf(ret + 2 * i, 3, "%02x", serial[i]);
    return r;
}

int identity_sign_request(const struct identity_pem *ca, const char *request, const char *name,
                          const char *host, int64_t now_s, char **ret_cert,
                          char ret_serial[IDENTITY_SERIAL_MAX], struct error *err)
{
    gnutls_x509_privkey_t ca_key = NULL;
    gnutls_x509_crt_t cert = NULL, ca_cert = NULL;
    gnutls_datum_t pem = {NULL, 0};
    int r = read_ca(ca, &ca_cert, &ca_key);

    if (r >= 0)
        r = gnutls_x509_crt_init(&cert);
    if (r >= 0)
        r = take_request(request, name, now_s, cert);
    if (r >= 0)
        r = gnutls_x509_crt_set_basic_constraints(cert, 0, -1);
    if (r >= 0)
        r = gnutls_x509_crt_set_key_usage(cert, GNUTLS_KEY_DIGITAL_SIGNATURE);
    if (r >= 0)
        r = gnutls_x509_crt_set_key_purpose_oid(cert, GNUTLS_KP_TLS_WWW_CLIENT, 0);
    if (r >= 0 && host)
        r = gnutls_x509_crt_set_key_purpose_oid(cert, GNUTLS_KP_TLS_WWW_SERVER, 0);
    if (r >= 0 && host)
        r = add_host(cert, host);
    if (r >= 0)
        r = sign(cert, ca_cert, ca_key);
    if (r >= 0)
        r = gnutls_x509_crt_export2(cert, GNUTLS_X509_FMT_PEM, &pem);
    if (r >= 0)
        r = read_serial(cert, ret_serial);
    if (r >= 0)
        r = text_of(&pem, ret_cert);
    gnutls_x509_crt_deinit(cert);
    gnutls_x509_crt_deinit(ca_cert);
    gnutls_x509_privkey_deinit(ca_key);
    return r < 0 ? failed(err, "cannot sign the request", r) : 0;
}

static int add_revoked(gnutls_x509_crl_t list, const struct identity_revoked *revoked)
{
    unsigned char serial[16];
    size_t len = strlen(revoked->serial) / 2;

    for (size_t i = 0; i < len; i++) {
        unsigned byte;

        if (sscanf(revoked->serial + 2 * i, "%2x", &byte) != 1)
            return GNUTLS_E_INVALID_REQUEST;
        serial[i] = (unsigned char)byte;
    }
    return gnutls_x509_crl_set_crt_serial(list, serial, len, (time_t)revoked->time_s);
}

int identity_list_revoked(const struct identity_pem *ca, const struct identity_revoked *revoked,
                          size_t n, uint64_t number, int64_t now_s, char **ret_list,
                          struct error *err)
{
    gnutls_x509_privkey_t ca_key = NULL;
    gnutls_x509_crt_t ca_cert = NULL;
    gnutls_x509_crl_t list = NULL;
    gnutls_datum_t pem = {NULL, 0};
    unsigned char bytes[8];
    int r = read_ca(ca, &ca_cert, &ca_key);

    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(number >> (56 - 8 * i));
    bytes[0] &= 0x7f; /* positive */
    if (r >= 0)
        r = gnutls_x509_crl_init(&list);
    if (r >= 0)
        r = gnutls_x509_crl_set_version(list, 2);
    for (size_t i = 0; i < n && r >= 0; i++)
        r = add_revoked(list, &revoked[i]);
    if (r >= 0)
        r = gnutls_x509_crl_set_this_update(list, (time_t)(now_s - DAY_S));
    if (r >= 0)
        r = gnutls_x509_crl_set_next_update(list, (time_t)(now_s + IDENTITY_LIST_DAYS * DAY_S));
    if (r >= 0)
        r = gnutls_x509_crl_set_number(list, bytes, sizeof(bytes));
    if (r >= 0)
        r = gnutls_x509_crl_sign2(list, ca_cert, ca_key, GNUTLS_DIG_SHA256, 0);
    if (r >= 0)
        r = gnutls_x509_crl_export2(list, GNUTLS_X509_FMT_PEM, &pem);
    if (r >= 0)
        r = text_of(&pem, ret_list);
    gnutls_x509_crl_deinit(list);
    gnutls_x509_crt_deinit(ca_cert);
    gnutls_x509_privkey_deinit(ca_key);
    return r < 0 ? failed(err, "cannot make the list of revoked certificates", r) : 0;
}

int identity_check_list(const char *list_pem, const char *ca_pem, struct error *err)
{
    gnutls_datum_t text = {(unsigned char *)list_pem, (unsigned)strlen(list_pem)};
    gnutls_x509_crt_t ca = NULL;
    gnutls_x509_crl_t list = NULL;
    unsigned status = 0;
    int r = import_certificate(ca_pem, &ca);

    if (r >= 0)
        r = gnutls_x509_crl_init(&list);
    if (r >= 0)
        r = gnutls_x509_crl_import(list, &text, GNUTLS_X509_FMT_PEM);
    if (r >= 0)
        r = gnutls_x509_crl_verify(list, &ca, 1, 0, &status);
    gnutls_x509_crl_deinit(list);
    gnutls_x509_crt_deinit(ca);
    if (r < 0)
        return failed(err, "cannot read a list of revoked certificates", r);
    return status ? error_set(err, -EBADMSG, "the authority did not sign it, or it has ended") : 0;
}

int64_t identity_expires_s(const char *cert_pem)
{
    gnutls_datum_t text = {(unsigned char *)cert_pem, (unsigned)strlen(cert_pem)};
    gnutls_x509_crt_t cert;
    int64_t end = -1;

    if (gnutls_x509_crt_init(&cert) < 0)
        return -1;
    if (gnutls_x509_crt_import(cert, &text, GNUTLS_X509_FMT_PEM) >= 0)
        end = gnutls_x509_crt_get_expiration_time(cert);
    gnutls_x509_crt_deinit(cert);
    return end;
}

void identity_pem_done(struct identity_pem *pem)
{
    free(pem->cert);
    free(pem->key);
    *pem = (struct identity_pem){0};
}

/* ---- serving identities ---- */

/* Whether the key is that of the certificate: one signs, the other verifies. */
static int belong_together(const struct identity *i)
{
    gnutls_datum_t text = {(unsigned char *)"threadtide", 10}, signature = {NULL, 0};
    int r = gnutls_privkey_sign_data(i->key, GNUTLS_DIG_SHA256, 0, &text, &signature);

    if (r >= 0)
        r = gnutls_pubkey_verify_data2(
            i->chain[0].pubkey,
            gnutls_pk_to_sign(gnutls_privkey_get_pk_algorithm(i->key, NULL), GNUTLS_DIG_SHA256), 0,
            &text, &signature);
    gnutls_free(signature.data);
    return r;
}

int identity_load(const struct identity_pem *pem, struct identity **ret, struct error *err)
{
    gnutls_datum_t c = {(unsigned char *)pem->cert, (unsigned)strlen(pem->cert)};
    gnutls_datum_t k = {(unsigned char *)pem->key, (unsigned)strlen(pem->key)};
    struct identity *i = calloc(1, sizeof(*i));
    unsigned n = CHAIN_MAX;
    int r;

    if (!i)
        return error_set(err, -ENOMEM, "out of memory");
    r = gnutls_pcert_list_import_x509_raw(i->chain, &n, &c, GNUTLS_X509_FMT_PEM, 0);
    if (r < 0) {
        identity_free(i);
        return failed(err, "cannot read the certificate", r);
    }
    i->n = n;
    r = gnutls_privkey_init(&i->key);
    if (r >= 0)
        r = gnutls_privkey_import_x509_raw(i->key, &k, GNUTLS_X509_FMT_PEM, NULL, 0);
    if (r >= 0)
        r = belong_together(i);
    if (r < 0) {
        identity_free(i);
        return failed(err, "cannot read the key, or it is another certificate's", r);
    }
    *ret = i;
    return 0;
}

struct identity *identity_free(struct identity *i)
{
    if (!i)
        return NULL;
    for (unsigned c = 0; c < i->n; c++)
        gnutls_pcert_deinit(&i->chain[c]);
    if (i->key)
        gnutls_privkey_deinit(i->key);
    free(i);
    return NULL;
}

void identity_serve(struct identity *i)
{
    if (i) {
        i->before = served;
        served = i;
        return;
    }
    while (served) {
        struct identity *before = served->before;

        identity_free(served);
        served = before;
    }
}

static int on_handshake(gnutls_session_t session, const gnutls_datum_t *names, int n_names,
                        const gnutls_pk_algorithm_t *algorithms, int n_algorithms,
                        gnutls_pcert_st **ret_chain, unsigned *ret_n, gnutls_privkey_t *ret_key)
{
    if (!served)
        return -1;
    *ret_chain = served->chain;
    *ret_n = served->n;
    *ret_key = served->key;
    return 0;
}

void *identity_callback(void)
{
    return (void *)on_handshake;
}

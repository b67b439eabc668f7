/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cleanup.h"
#include "host/trust/seal.h"
#include "hub/trust/authority.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <gnutls/x509.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include <cmocka.h>

static char dir[64], inside[96];
static int64_t now;
static struct error err;

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(path);
}

static int set_up(void **state)
{
    strcpy(dir, "/tmp/tide-authority-XXXXXX");
    now = time(NULL);
    assert_non_null(mkdtemp(dir));
    snprintf(inside, sizeof(inside), "%s/trust", dir);
    return 0;
}

static int tear_down(void **state)
{
    return nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static struct authority *opened(void)
{
    struct authority *a = NULL;

    if (authority_open(inside, "unlp", now, &a, &err) < 0)
        fail_msg("%s", err.text);
    return a;
}

static char *signed_for(struct authority *a, const char *name)
{
    _cleanup_free_ char *key = NULL, *request = NULL;
    char *cert = NULL;

    assert_int_equal(identity_request("whatever it says", &key, &request, &err), 0);
    if (authority_sign(a, request, name, now, &cert, &err) < 0)
        fail_msg("%s", err.text);
    return cert;
}

static gnutls_x509_crt_t read_cert(const char *pem)
{
    gnutls_datum_t text = {(unsigned char *)pem, (unsigned)strlen(pem)};
    gnutls_x509_crt_t cert;

    assert_int_equal(gnutls_x509_crt_init(&cert), 0);
    assert_int_equal(gnutls_x509_crt_import(cert, &text, GNUTLS_X509_FMT_PEM), 0);
    return cert;
}

/* A TLS server's verdict on the certificate: a mask of gnutls_certificate_status_t. */
static unsigned verdict(const struct authority *a, const char *pem)
{
    gnutls_x509_crt_t cert = read_cert(pem), ca = read_cert(authority_ca(a));
    gnutls_x509_trust_list_t list;
    unsigned said = ~0u;

    assert_int_equal(gnutls_x509_trust_list_init(&list, 0), 0);
    assert_int_equal(gnutls_x509_trust_list_add_cas(list, &ca, 1, 0), 1);
    assert_int_equal(gnutls_x509_trust_list_add_trust_file(
                         list, authority_ca_path(a), authority_list_path(a), GNUTLS_X509_FMT_PEM, 0,
                         GNUTLS_VERIFY_DISABLE_TRUSTED_TIME_CHECKS),
                     2);
    assert_int_equal(gnutls_x509_trust_list_verify_crt(list, &cert, 1, 0, &said, NULL), 0);
    gnutls_x509_trust_list_deinit(list, 1);
    gnutls_x509_crt_deinit(cert);
    return said;
}

static void a_certificate_carries_the_name_that_the_authority_gave(void **state)
{
    struct authority *a = opened();
    _cleanup_free_ char *pem = signed_for(a, "lab3");
    gnutls_x509_crt_t cert = read_cert(pem);
    char name[256], purpose[64];
    size_t len = sizeof(name), purpose_len = sizeof(purpose);
    unsigned critical;

    assert_int_equal(verdict(a, pem), 0);
    assert_int_equal(gnutls_x509_crt_get_dn(cert, name, &len), 0);
    assert_string_equal(name, "CN=lab3");
    assert_int_equal(gnutls_x509_crt_get_key_purpose_oid(cert, 0, purpose, &purpose_len, &critical),
                     0);
    assert_string_equal(purpose, GNUTLS_KP_TLS_WWW_CLIENT);
    assert_int_equal(identity_expires_s(pem), now + IDENTITY_CLIENT_DAYS * 86400);
    gnutls_x509_crt_deinit(cert);
    authority_free(a);
}

static void it_is_the_same_after_a_restart(void **state)
{
    struct authority *a = opened();
    _cleanup_free_ char *ca = strdup(authority_ca(a)), *public = strdup(authority_seal_public(a));
    _cleanup_free_ char *pem = signed_for(a, "lab3");
    const struct authority_unit *units;
    uint8_t signature[SEAL_BYTES];

    assert_int_equal(seal_sign(authority_seal_key(a), "policy", 6, signature), 0);
    authority_free(a);
    a = opened();
    assert_string_equal(authority_ca(a), ca);
    assert_int_equal(seal_check(authority_seal_public(a), "policy", 6, signature), 0);
    assert_string_equal(authority_seal_public(a), public);
    assert_int_equal(authority_units(a, &units), 1);
    assert_string_equal(units[0].name, "lab3");
    assert_int_equal(verdict(a, pem), 0);
    authority_free(a);
}

/* 10,000 units with a new certificate each other month would fill the record in a year. */
static void certificates_that_ended_make_room(void **state)
{
    struct authority *a = opened();
    const struct authority_unit *unit;
    char path[128];
    FILE *f;

    authority_free(a);
    snprintf(path, sizeof(path), "%s/units", inside);
    f = fopen(path, "we");
    assert_non_null(f);
    for (int i = 0; i < AUTHORITY_UNITS_MAX;
         i++) /* the last of lab3 ended, too, but it is known by it */
        fprintf(f, "%s %032x signed %d\n", i % 2 ? "lab3" : "lab5", i, 1000 + i);
    fclose(f);
    assert_int_equal(chmod(path, 0600), 0);
    a = opened();
    free(signed_for(a, "lab4"));
    assert_int_equal(authority_units(a, &unit), 3);
    assert_int_equal(authority_newest(a, &unit), 3);
    assert_string_equal(unit[0].name, "lab3");
    assert_int_equal(unit[0].time_s, 1000 + AUTHORITY_UNITS_MAX - 1);
    assert_string_equal(unit[1].name, "lab4");
    assert_int_equal(unit[1].time_s, now);
    assert_string_equal(unit[2].name, "lab5");
    authority_free(a);
}

static void a_revoked_unit_is_refused_with_all_its_certificates(void **state)
{
    struct authority *a = opened();
    _cleanup_free_ char *first = signed_for(a, "lab3"), *second = signed_for(a, "lab3");
    _cleanup_free_ char *other = signed_for(a, "lab4"), *key = NULL, *request = NULL, *none = NULL;

    assert_int_equal(authority_revoke(a, "lab3", now, &err), 0);
    assert_true(authority_revoked(a, "lab3") && !authority_revoked(a, "lab4"));
    assert_true(verdict(a, first) & GNUTLS_CERT_REVOKED);
    assert_true(verdict(a, second) & GNUTLS_CERT_REVOKED);
    assert_int_equal(verdict(a, other), 0);
    assert_int_equal(authority_revoke(a, "lab3", now, &err), -ENOENT);
    assert_int_equal(identity_request("x", &key, &request, &err), 0);
    authority_free(a);
    a = opened(); /* it does not forget */
    assert_int_equal(authority_sign(a, request, "lab3", now, &none, &err), -EKEYREVOKED);
    assert_int_equal(authority_admit(a, "lab3", now, &err), 0);
    assert_int_equal(authority_sign(a, request, "lab3", now, &none, &err), 0);
    assert_int_equal(verdict(a, none), 0);
    assert_true(verdict(a, first) & GNUTLS_CERT_REVOKED);
    assert_int_equal(authority_revoke(a, "lab3", now, &err), 0);
    assert_true(verdict(a, none) & GNUTLS_CERT_REVOKED);
    authority_free(a);
}

static void what_could_not_be_written_is_revoked_at_the_next_try(void **state)
{
    struct authority *a = opened();
    _cleanup_free_ char *cert = signed_for(a, "lab3");
    char away[sizeof(inside) + 8];

    snprintf(away, sizeof(away), "%s.away", inside);
    assert_int_equal(rename(inside, away), 0);
    assert_true(authority_revoke(a, "lab3", now, &err) < 0);
    assert_false(authority_revoked(a, "lab3"));
    assert_int_equal(rename(away, inside), 0);
    assert_int_equal(authority_revoke(a, "lab3", now, &err), 0);
    assert_true(verdict(a, cert) & GNUTLS_CERT_REVOKED);
    authority_free(a);
}

static void bad_names_and_bad_requests_are_refused(void **state)
{
    static const char *const bad[] = {
        "",
        "Lab3",
        "lab 3",
        "lab/3",
        "#",
        "+",
        "lab3\n",
        "a.b",
        "-a",
        "a-",
        AUTHORITY_HUB,
        "a123456789012345678901234567890123456789012345678901234567890123"};
    struct authority *a = opened();
    _cleanup_free_ char *key = NULL, *request = NULL;
    char *cert = NULL, *signature;
    const struct authority_unit *units;

    assert_int_equal(identity_request("x", &key, &request, &err), 0);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(authority_sign(a, request, bad[i], now, &cert, &err), -EINVAL);
    assert_int_equal(authority_sign(a, "no request", "lab3", now, &cert, &err), -EINVAL);
    assert_int_equal(authority_sign(a, authority_ca(a), "lab3", now, &cert, &err), -EINVAL);
    signature = strstr(request, "\n-----END") - 12; /* not signed by its own key any more */
    *signature = *signature == 'A' ? 'B' : 'A';
    assert_int_equal(authority_sign(a, request, "lab3", now, &cert, &err), -EINVAL);
    assert_null(cert);
    assert_int_equal(authority_units(a, &units), 0);
    authority_free(a);
}

static void keys_are_nobody_elses(void **state)
{
    struct authority *a = opened();
    struct stat st;
    char path[128];

    authority_free(a);
    assert_int_equal(stat(inside, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof(path), "%s/%s", inside, i ? "ca.key" : "seal.key");
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0600);
        assert_int_equal(chmod(path, 0640), 0);
        assert_int_equal(authority_open(inside, "unlp", now, &a, &err), -EPERM);
        assert_non_null(strstr(err.text, "may be read by others"));
        assert_int_equal(chmod(path, 0600), 0);
    }
    snprintf(path, sizeof(path), "%s/ca.crt", inside);
    assert_int_equal(remove(path), 0);
    assert_int_equal(authority_open(inside, "unlp", now, &a, &err), -ENOENT);
}

static ino_t list_file(void)
{
    struct authority *a = opened();
    struct stat status;

    assert_int_equal(stat(authority_list_path(a), &status), 0);
    authority_free(a);
    return status.st_ino;
}

/* As if the file of the directory had been written so long ago. */
static void age(const char *file, time_t s)
{
    const struct timespec then[2] = {{.tv_sec = time(NULL) - s}, {.tv_sec = time(NULL) - s}};
    char path[sizeof(inside) + 16];

    snprintf(path, sizeof(path), "%s/%s", inside, file);
    assert_int_equal(utimensat(AT_FDCWD, path, then, 0), 0);
}

static void the_list_is_made_again_after_a_day_and_when_records_are_younger(void **state)
{
    struct authority *a = opened();
    ino_t first, second, third;

    free(signed_for(a, "lab3"));
    authority_free(a);
    first = list_file();
    assert_int_equal(list_file(), first);
    age("units", 2 * 86400);
    age("revoked.crl", 86401);
    second = list_file();
    assert_int_not_equal(second, first);
    assert_int_equal(list_file(), second);
    age("revoked.crl", 10); /* a power cut between the two files */
    age("units", 5);
    third = list_file();
    assert_int_not_equal(third, second);
    assert_int_equal(list_file(), third);
}

static void the_records_are_read_without_keys(void **state)
{
    struct authority *a = opened(), *records;
    struct stat before, after;

    free(signed_for(a, "lab3"));
    assert_int_equal(authority_looked(inside, &before, &err), 0);
    assert_int_equal(authority_revoke(a, "lab3", now, &err), 0);
    assert_int_equal(authority_looked(inside, &after, &err), 0);
    assert_int_not_equal(before.st_ino, after.st_ino);
    assert_int_equal(authority_read(inside, &records, &err), 0);
    assert_true(authority_revoked(records, "lab3"));
    authority_free(records);
    authority_free(a);
}

static void a_unit_that_asks_without_end_fills_no_records(void **state)
{
    struct authority *a = opened();
    _cleanup_free_ char *key = NULL, *request = NULL;
    const struct authority_unit *unit;
    char *cert = NULL;

    assert_int_equal(identity_request("lab3", &key, &request, &err), 0);
    for (int i = 0; i < 3 * AUTHORITY_RENEWED_MAX; i++) {
        int r = authority_renew(a, request, "lab3", now + i, &cert, &err);

        assert_int_equal(r, i < AUTHORITY_RENEWED_MAX ? 0 : -EAGAIN);
        free(cert);
        cert = NULL;
    }
    assert_int_equal(authority_units(a, &unit), AUTHORITY_RENEWED_MAX);
    assert_int_equal(authority_renew(a, request, "lab4", now, &cert, &err), 0);
    free(cert);
    assert_int_equal(authority_renew(a, request, "lab3", now + 2 * 86400, &cert, &err), 0);
    free(cert);
    authority_free(a);
}

static void a_client_finds_out_what_is_no_certificate_for_it(void **state)
{
    struct authority *a = opened();
    _cleanup_free_ char *key = NULL, *request = NULL, *again = NULL, *cert = NULL, *of_other = NULL;
    _cleanup_free_ char *named = NULL;
    struct identity_pem stranger;

    assert_int_equal(identity_request("lab3", &key, &request, &err), 0);
    assert_int_equal(identity_request_again(key, "lab3", &again, &err), 0);
    assert_int_equal(authority_sign(a, again, "lab3", now, &cert, &err), 0);
    assert_int_equal(identity_check(cert, key, authority_ca(a), "lab3", &err), 0);
    of_other = signed_for(a, "lab3");
    assert_int_equal(identity_check(of_other, key, authority_ca(a), "lab3", &err), -EBADMSG);
    assert_non_null(strstr(err.text, "another key"));
    assert_int_equal(authority_sign(a, request, "lab4", now, &named, &err), 0);
    assert_int_equal(identity_check(named, key, authority_ca(a), "lab3", &err), -EBADMSG);
    assert_non_null(strstr(err.text, "another name"));
    assert_int_equal(identity_make_ca("mallory", now, &stranger, &err), 0);
    assert_int_equal(identity_check(cert, key, stranger.cert, "lab3", &err), -EBADMSG);
    assert_non_null(strstr(err.text, "the authority did not sign it"));
    assert_int_equal(identity_check("hello", key, authority_ca(a), "lab3", &err), -EINVAL);
    free(again);
    again = NULL;
    assert_int_equal(identity_request_again("hello", "lab3", &again, &err), -EINVAL);
    identity_pem_done(&stranger);
    authority_free(a);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_certificate_carries_the_name_that_the_authority_gave),
        TEST(it_is_the_same_after_a_restart),
        TEST(certificates_that_ended_make_room),
        TEST(a_revoked_unit_is_refused_with_all_its_certificates),
        TEST(what_could_not_be_written_is_revoked_at_the_next_try),
        TEST(bad_names_and_bad_requests_are_refused),
        TEST(keys_are_nobody_elses),
        TEST(a_unit_that_asks_without_end_fills_no_records),
        TEST(the_list_is_made_again_after_a_day_and_when_records_are_younger),
        TEST(the_records_are_read_without_keys),
        TEST(a_client_finds_out_what_is_no_certificate_for_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

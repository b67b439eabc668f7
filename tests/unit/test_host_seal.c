/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cleanup.h"
#include "host/trust/identity.h"
#include "host/trust/seal.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* RFC 8032, 7.1, test 3: the key as PKCS #8 and SubjectPublicKeyInfo (RFC 8410). */
static const char rfc_key[] = "-----BEGIN PRIVATE KEY-----\n"
                              "MC4CAQAwBQYDK2VwBCIEIMWqjfQ/n4N77bdELzHct7Fm04U1B28JS4XOOi4LRFj3\n"
                              "-----END PRIVATE KEY-----\n";
static const uint8_t rfc_text[2] = {0xaf, 0x82};
static const uint8_t rfc_signature[SEAL_BYTES] = {
    0x62, 0x91, 0xd6, 0x57, 0xde, 0xec, 0x24, 0x02, 0x48, 0x27, 0xe6, 0x9c, 0x3a, 0xbe, 0x01, 0xa3,
    0x0c, 0xe5, 0x48, 0xa2, 0x84, 0x74, 0x3a, 0x44, 0x5e, 0x36, 0x80, 0xd7, 0xdb, 0x5a, 0xc3, 0xac,
    0x18, 0xff, 0x9b, 0x53, 0x8d, 0x16, 0xf2, 0x90, 0xae, 0x67, 0xf7, 0x60, 0x98, 0x4d, 0xc6, 0x59,
    0x4a, 0x7c, 0x15, 0xe9, 0x71, 0x6e, 0xd2, 0x8d, 0xc0, 0x27, 0xbe, 0xce, 0xea, 0x1e, 0xc4, 0x0a};

static void it_signs_as_the_standard_says(void **state)
{
    _cleanup_free_ char *public = NULL;
    uint8_t signature[SEAL_BYTES];

    assert_int_equal(seal_sign(rfc_key, rfc_text, sizeof(rfc_text), signature), 0);
    assert_memory_equal(signature, rfc_signature, SEAL_BYTES);
    assert_int_equal(seal_public(rfc_key, &public), 0);
    assert_int_equal(seal_check(public, rfc_text, sizeof(rfc_text), rfc_signature), 0);
}

static void a_changed_bit_or_another_key_is_found(void **state)
{
    _cleanup_free_ char *key = NULL, *public = NULL, *other = NULL, *others_public = NULL;
    struct error err;
    char text[] = "{\"v\":1,\"number\":7}";
    uint8_t signature[SEAL_BYTES];

    assert_int_equal(seal_make_key(&key, &public, &err), 0);
    assert_int_equal(seal_make_key(&other, &others_public, &err), 0);
    assert_int_equal(seal_sign(key, text, sizeof(text), signature), 0);
    assert_int_equal(seal_check(public, text, sizeof(text), signature), 0);
    assert_int_equal(seal_check(others_public, text, sizeof(text), signature), -EBADMSG);
    assert_int_equal(seal_check(public, text, sizeof(text) - 1, signature), -EBADMSG);
    for (size_t i = 0; i < 8 * SEAL_BYTES; i += 37) {
        signature[i / 8] ^= (uint8_t)(1 << i % 8);
        assert_int_equal(seal_check(public, text, sizeof(text), signature), -EBADMSG);
        signature[i / 8] ^= (uint8_t)(1 << i % 8);
    }
    text[3]++;
    assert_int_equal(seal_check(public, text, sizeof(text), signature), -EBADMSG);
}

static void other_keys_do_not_sign(void **state)
{
    struct identity_pem ca = {0};
    struct error err;
    uint8_t signature[SEAL_BYTES] = {0};

    assert_int_equal(identity_make_ca("test", 1795392000, &ca, &err), 0); /* P-256 */
    assert_int_equal(seal_sign(ca.key, "x", 1, signature), -EINVAL);
    assert_int_equal(seal_sign("no key", "x", 1, signature), -EINVAL);
    assert_int_equal(seal_check("no key", "x", 1, signature), -EINVAL);
    assert_int_equal(seal_check(ca.cert, "x", 1, signature), -EINVAL);
    identity_pem_done(&ca);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_signs_as_the_standard_says),
        cmocka_unit_test(a_changed_bit_or_another_key_is_found),
        cmocka_unit_test(other_keys_do_not_sign),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

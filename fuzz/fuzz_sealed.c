/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sealed message: bytes that nobody sealed are refused; a text that is sealed opens for its unit
 * and use alone, and with no bit changed (the input's first byte says which).
 */
#include "edge/sealed.h"
#include "input.h"

static const char key[] = "-----BEGIN PRIVATE KEY-----\n"
                          "MC4CAQAwBQYDK2VwBCIEIMWqjfQ/n4N77bdELzHct7Fm04U1B28JS4XOOi4LRFj3\n"
                          "-----END PRIVATE KEY-----\n";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char *public;
    char *text, *sealed;
    const char *opened;
    size_t len, opened_len;

    if (!public)
        CHECK(seal_public(key, &public) == 0);
    CHECK(sealed_open(public, SEALED_CMD, "lab3", data, size, &opened, &opened_len) < 0);
    if (size < 2)
        return 0;
    text = input_text(data + 1, size - 1);
    if (sealed_make(key, SEALED_CMD, "lab3", text, &sealed, &len) < 0) {
        CHECK(size > SEALED_BYTES_MAX - SEAL_BYTES);
        free(text);
        return 0;
    }
    if (len > SEAL_BYTES) {
        CHECK(sealed_open(public, SEALED_CMD, "lab3", sealed, len, &opened, &opened_len) == 0);
        CHECK(opened_len == strlen(text) && memcmp(opened, text, opened_len) == 0);
        CHECK(sealed_open(public, SEALED_POLICY, "lab3", sealed, len, &opened, &opened_len) < 0);
        CHECK(sealed_open(public, SEALED_CMD, "lab4", sealed, len, &opened, &opened_len) < 0);
        sealed[data[0] % len] ^= (char)(1 << data[0] / 32);
        CHECK(sealed_open(public, SEALED_CMD, "lab3", sealed, len, &opened, &opened_len) < 0);
    }
    free(text);
    free(sealed);
    return 0;
}

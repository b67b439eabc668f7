/* SPDX-License-Identifier: Apache-2.0 */
#include "host/trust/secret.h"

#include <errno.h>
#include <gnutls/crypto.h>
#include <stdio.h>
#include <sys/random.h>

#define BYTES (SECRET_LEN / 2)

static void to_text(const unsigned char bytes[BYTES], char ret[SECRET_LEN + 1])
{
    static const char digit[] = "0123456789abcdef";

    for (size_t i = 0; i < BYTES; i++) {
        ret[2 * i] = digit[bytes[i] >> 4];
        ret[2 * i + 1] = digit[bytes[i] & 15];
    }
    ret[SECRET_LEN] = '\0';
}

int secret_make(char ret[SECRET_LEN + 1])
{
    unsigned char bytes[BYTES];
    ssize_t n = getrandom(bytes, sizeof(bytes), 0);

    if (n != (ssize_t)sizeof(bytes))
        return n < 0 ? -errno : -EIO;
    to_text(bytes, ret);
    return 0;
}

int secret_hash(const void *bytes, size_t len, char ret[SECRET_LEN + 1])
{
    unsigned char digest[BYTES];

    if (gnutls_hash_fast(GNUTLS_DIG_SHA256, bytes, len, digest) < 0)
        return -EIO;
    to_text(digest, ret);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/people/password.h"

#include "base/cleanup.h"

#include <assert.h>
#include <crypt.h>
#include <string.h>

#define ERROR_WORD "bad-password"

#define METHOD "$y$" /* yescrypt, with the library's cost */

static_assert(PASSWORD_HASH_MAX >= CRYPT_OUTPUT_SIZE, "a hash does not fit");

int password_good(const char *user, const char *password, struct error *err)
{
    size_t len = strlen(password);

    if (len < PASSWORD_MIN || len > PASSWORD_MAX)
        return error_set(err, -EINVAL, "the password has %zu bytes: use %d to %d", len,
                         PASSWORD_MIN, PASSWORD_MAX);
    if (strstr(password, user))
        return error_set(err, -EINVAL, "the password contains the user's name: use another one");
    if (strspn(password, (const char[]){password[0], '\0'}) == len)
        return error_set(err, -EINVAL, "the password is one character, repeated: use another one");
    return 0;
}

int password_hash(const char *password, char ret[PASSWORD_HASH_MAX], struct error *err)
{
    _cleanup_free_ struct crypt_data *data = calloc(1, sizeof(*data));
    char salt[CRYPT_GENSALT_OUTPUT_SIZE];
    const char *hash;

    if (!data)
        return error_set(err, -ENOMEM, "out of memory");
    if (!crypt_gensalt_rn(METHOD, 0, NULL, 0, salt, sizeof(salt)))
        return error_set(err, -errno, "cannot make a salt: %s", strerror(errno));
    hash = crypt_r(password, salt, data);
    if (!hash || hash[0] == '*')
        return error_set(err, -EIO, "cannot hash the password: %s", strerror(errno));
    strcpy(ret, hash);
    return 0;
}

/* Compares in a time that does not tell how much was right. */
static bool same(const char *a, const char *b)
{
    size_t len = strlen(a);
    unsigned char other = 0;

    if (len != strlen(b))
        return false;
    for (size_t i = 0; i < len; i++)
        other |= (unsigned char)(a[i] ^ b[i]);
    return other == 0;
}

bool password_is(const char *hash, const char *password)
{
    static const char nobody[] = METHOD "j9T$tpLNbRPTIrM9OBUYvWLwo/"; /* a salt of no user */
    _cleanup_free_ struct crypt_data *data = calloc(1, sizeof(*data));
    const char *found;

    if (!data || strlen(password) > PASSWORD_MAX)
        return false;
    found = crypt_r(password, hash ? hash : nobody, data);
    return hash && found && found[0] != '*' && same(found, hash);
}

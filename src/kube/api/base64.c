/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/api/base64.h"

#include <errno.h>
#include <gnutls/gnutls.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

json_t *base64_value(const void *bytes, size_t n)
{
    gnutls_datum_t in = {(unsigned char *)bytes, (unsigned)n}, out;
    json_t *value;

    if (n > UINT_MAX || gnutls_base64_encode2(&in, &out) < 0)
        return NULL;
    value = json_stringn((char *)out.data, out.size);
    gnutls_free(out.data);
    return value;
}

int base64_decode(const char *text, char **ret, size_t *ret_n)
{
    size_t n = strlen(text);
    gnutls_datum_t in = {(unsigned char *)text, (unsigned)n}, out = {NULL, 0};
    char *bytes;

    if (n > UINT_MAX || gnutls_base64_decode2(&in, &out) < 0)
        return -EINVAL;
    bytes = malloc((size_t)out.size + 1);
    if (bytes) {
        if (out.size > 0)
            memcpy(bytes, out.data, out.size);
        bytes[out.size] = '\0';
        *ret = bytes;
        *ret_n = out.size;
    }
    gnutls_free(out.data);
    return bytes ? 0 : -ENOMEM;
}

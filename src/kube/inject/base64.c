/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/inject/base64.h"

#include <gnutls/gnutls.h>
#include <limits.h>

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

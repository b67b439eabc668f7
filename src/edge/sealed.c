/* SPDX-License-Identifier: Apache-2.0 */
#include "edge/sealed.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "edge/topic.h"

/* The bytes that the signature covers. Returns NULL without memory. */
static char *covered(const char *context, const char *name, const char *text, size_t len,
                     size_t *ret_len)
{
    size_t context_len = strlen(context) + 1, name_len = strlen(name) + 1;
    char *all = malloc(context_len + name_len + len + 1);

    if (!all)
        return NULL;
    memcpy(all, context, context_len);
    memcpy(all + context_len, name, name_len);
    memcpy(all + context_len + name_len, text, len);
    *ret_len = context_len + name_len + len;
    return all;
}

int sealed_make(const char *key_pem, const char *context, const char *name, const char *text,
                char **ret, size_t *ret_len)
{
    _cleanup_free_ char *all = NULL, *sealed = NULL;
    size_t len = strlen(text), all_len;
    int r;

    if (!edge_name_valid(name))
        return -EINVAL;
    if (len > SEALED_BYTES_MAX - SEAL_BYTES)
        return -E2BIG;
    all = covered(context, name, text, len, &all_len);
    sealed = malloc(SEAL_BYTES + len);
    if (!all || !sealed)
        return -ENOMEM;
    r = seal_sign(key_pem, all, all_len, (uint8_t *)sealed);
    if (r < 0)
        return r;
    memcpy(sealed + SEAL_BYTES, text, len);
    *ret = TAKE_PTR(sealed);
    *ret_len = SEAL_BYTES + len;
    return 0;
}

int sealed_open(const char *public_pem, const char *context, const char *name, const void *bytes,
                size_t len, const char **ret_text, size_t *ret_len)
{
    _cleanup_free_ char *all = NULL;
    const char *text;
    size_t all_len;
    int r;

    if (len <= SEAL_BYTES || len > SEALED_BYTES_MAX || !edge_name_valid(name))
        return -EINVAL;
    text = (const char *)bytes + SEAL_BYTES;
    all = covered(context, name, text, len - SEAL_BYTES, &all_len);
    if (!all)
        return -ENOMEM;
    r = seal_check(public_pem, all, all_len, bytes);
    if (r < 0)
        return r;
    *ret_text = text;
    *ret_len = len - SEAL_BYTES;
    return 0;
}

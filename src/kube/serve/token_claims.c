/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/serve/token_claims.h"

#include "base/cleanup.h"
#include "kube/api/lenient_json.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Decodes base64 of RFC 4648, section 5, without padding. Returns the number of bytes, or -1. */
static int decode(const char *text, size_t len, char *ret)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    uint32_t bits = 0;
    int n = 0;

    for (size_t i = 0; i < len; i++) {
        const char *digit = text[i] ? strchr(digits, text[i]) : NULL;

        if (!digit)
            return -1;
        bits = bits << 6 | (uint32_t)(digit - digits);
        if (i % 4 > 0)
            ret[n++] = (char)(bits >> (6 - i % 4 * 2));
    }
    return n;
}

/* Decodes the second of the token's three parts, the claims. */
static json_t *load_claims(const char *token)
{
    _cleanup_free_ char *text = NULL;
    const char *from = strchr(token, '.'), *to = from ? strchr(from + 1, '.') : NULL;
    int len;

    if (!to)
        return NULL;
    from++;
    text = malloc((size_t)(to - from) + 1);
    len = text ? decode(from, (size_t)(to - from), text) : -1;
    return len > 0 ? lenient_json_load(text, (size_t)len) : NULL;
}

static bool is(const json_t *value, const char *text)
{
    return json_is_string(value) && strcmp(json_string_value(value), text) == 0;
}

/* Whether the claim, a string or a list of strings, holds the audience. */
static bool names(const json_t *audiences, const char *audience)
{
    json_t *one;
    size_t i;

    json_array_foreach (audiences, i, one)
        if (is(one, audience))
            return true;
    return is(audiences, audience);
}

enum token_claims token_claims_check(const char *token, const char *audience,
                                     const char *name_space)
{
    json_t *claims = load_claims(token);
    const json_t *own = json_object_get(claims, "kubernetes.io");
    enum token_claims verdict = TOKEN_CLAIMS_FIT;

    if (!json_is_object(claims))
        verdict = TOKEN_CLAIMS_NONE;
    else if (!names(json_object_get(claims, "aud"), audience))
        verdict = TOKEN_CLAIMS_OTHERS;
    else if (!json_is_object(json_object_get(own, "pod")))
        verdict = TOKEN_CLAIMS_NO_POD;
    else if (!is(json_object_get(own, "namespace"), name_space))
        verdict = TOKEN_CLAIMS_FOREIGN;
    json_decref(claims);
    return verdict;
}

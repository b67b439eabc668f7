/* SPDX-License-Identifier: Apache-2.0 */
#include "edge/enrol_token.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define PREFIX "tide-"

static bool read_hash(const char *text, char end, char ret[SECRET_LEN + 1])
{
    if (strspn(text, "0123456789abcdef") != SECRET_LEN || text[SECRET_LEN] != end)
        return false;
    memcpy(ret, text, SECRET_LEN);
    ret[SECRET_LEN] = '\0';
    return true;
}

int enrol_token_read(const char *text, struct enrol_token *ret)
{
    const char *secret = text + strlen(PREFIX);

    if (strncmp(text, PREFIX, strlen(PREFIX)) != 0 || !read_hash(secret, '-', ret->secret) ||
        !read_hash(secret + SECRET_LEN + 1, '\0', ret->fingerprint))
        return -EINVAL;
    return 0;
}

void enrol_token_text(const struct enrol_token *token, char ret[ENROL_TOKEN_TEXT_MAX])
{
    snprintf(ret, ENROL_TOKEN_TEXT_MAX, PREFIX "%s-%s", token->secret, token->fingerprint);
}

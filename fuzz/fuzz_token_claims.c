/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A token from an unknown client, which has token claims or none. An accepted one has three parts,
 * and fits no other namespace.
 */
#include "input.h"
#include "kube/serve/token_claims.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = input_text(data, size);

    if (token_claims_check(text, "threadtide", "n") == TOKEN_CLAIMS_FIT) {
        CHECK(strchr(strchr(text, '.') + 1, '.'));
        CHECK(token_claims_check(text, "threadtide", "m") == TOKEN_CLAIMS_FOREIGN);
    }
    free(text);
    return 0;
}

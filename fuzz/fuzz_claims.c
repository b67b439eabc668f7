/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What anybody sends as a token: it says something or nothing of itself. One that fits has three
 * parts, and fits no other namespace.
 */
#include "input.h"
#include "kube/serve/claims.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = input_text(data, size);

    if (claims_check(text, "threadtide", "n") == CLAIMS_FIT) {
        CHECK(strchr(strchr(text, '.') + 1, '.'));
        CHECK(claims_check(text, "threadtide", "m") == CLAIMS_FOREIGN);
    }
    free(text);
    return 0;
}

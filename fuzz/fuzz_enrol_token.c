/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens of enrolment, as strangers send them: what is read is written the same again. */
#include "edge/enrol_token.h"
#include "input.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = input_text(data, size), again[ENROL_TOKEN_TEXT_MAX];
    struct enrol_token token;

    if (enrol_token_read(text, &token) == 0) {
        enrol_token_text(&token, again);
        if (strcmp(text, again) != 0)
            abort();
    }
    free(text);
    return 0;
}

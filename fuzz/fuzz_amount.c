/* SPDX-License-Identifier: Apache-2.0 */
/* Amounts of power and energy as meters' files have them; a part of an amount is no larger than it.
 */
#include "input.h"
#include "power/measure/amount.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = input_text(data, size);
    enum amount_kind kind, again;
    uint64_t micro, cut;
    char *point;

    if (amount_parse(text, &micro, &kind) == 0) {
        CHECK(kind == AMOUNT_PLAIN || kind == AMOUNT_POWER || kind == AMOUNT_ENERGY);
        point = strchr(text, '.');
        if (point) { /* zeros in place of the fraction */
            for (char *p = point + 1; *p >= '0' && *p <= '9'; p++)
                *p = '0';
            CHECK(amount_parse(text, &cut, &again) == 0 && again == kind && cut <= micro);
        }
    }
    free(text);
    return 0;
}

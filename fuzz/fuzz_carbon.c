/* SPDX-License-Identifier: Apache-2.0 */
/* The file of the grid's carbon intensity: what is read rises in time and lies in two days. */
#include "hub/tree/carbon.h"
#include "input.h"

#include <stdlib.h>
#include <string.h>

#define NOW_MS INT64_C(1795392000000)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = input_text(data, size);
    struct carbon c = {0};
    struct error err;

    if (carbon_parse(text, NOW_MS, &c, &err) == 0) {
        for (uint32_t i = 0; i < c.count; i++)
            if ((int64_t)c.hour[i].from_ms >= NOW_MS + CARBON_AHEAD_MS ||
                (i && c.hour[i].from_ms <= c.hour[i - 1].from_ms))
                abort();
        carbon_at(&c, NOW_MS);
    }
    free(text);
    return 0;
}

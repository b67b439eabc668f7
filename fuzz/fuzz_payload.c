/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A message of a child or a parent: its first byte says which. What is accepted can be written, and
 * reads as the same again.
 */
#include <stdio.h>

#include "edge/payload.h"
#include "input.h"

#define KIND(number, kind, type, done)                                                             \
    if (data[0] % 11 == (number)) {                                                                \
        static type value, again;                                                                  \
        char *text, *twice;                                                                        \
                                                                                                   \
        if (payload_##kind##_read(bytes, size, &value, NULL) < 0)                                  \
            return 0;                                                                              \
        text = payload_##kind##_text(&value);                                                      \
        CHECK(text &&payload_##kind##_read(text, strlen(text), &again, NULL) == 0);                \
        twice = payload_##kind##_text(&again);                                                     \
        CHECK(twice &&strcmp(text, twice) == 0);                                                   \
        done free(text);                                                                           \
        free(twice);                                                                               \
    }

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *bytes = data + 1;

    if (size-- == 0)
        return 0;
    KIND(0, state, struct payload_state, )
    KIND(1, energy, struct payload_energy, )
    KIND(2, demand, struct payload_demand, )
    KIND(3, ask, struct payload_ask, )
    KIND(4, ack, struct payload_ack, )
    KIND(5, event, struct payload_event, free(value.data); free(again.data);)
    KIND(6, lease, struct lease_message, )
    KIND(7, receipt, struct payload_receipt, )
    KIND(8, cmd, struct payload_cmd, )
    KIND(9, reading, struct payload_reading, )
    KIND(10, shrunk, struct payload_shrunk, )
    return 0;
}

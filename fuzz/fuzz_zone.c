/* SPDX-License-Identifier: Apache-2.0 */
/* A TZif file: what is accepted answers every question, and changes lie where they are said to lie.
 */
#include "input.h"
#include "power/calendar/window.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const int64_t moments[] = {INT64_MIN, -1, 0, INT64_C(1763856000), INT64_MAX};
    static struct zone zone;

    if (zone_parse(data, size, &zone) < 0)
        return 0;
    for (size_t i = 0; i < sizeof(moments) / sizeof(moments[0]); i++) {
        int64_t begin, end, next = zone_next_change_s(&zone, moments[i]);

        CHECK(next > moments[i] || moments[i] == INT64_MAX);
        zone_offset_s(&zone, moments[i]);
        zone_day(&zone, moments[i], &begin, &end);
        CHECK(begin < end);
        window_edge(&(struct window){.days = 0x1f, .from_min = 1080, .to_min = 1380}, &zone,
                    moments[1 + i % 3]);
    }
    return 0;
}

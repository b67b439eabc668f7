/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs as comma-separated values. */
#include "trace.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_trace(data, size, csv_next);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs in the Standard Workload Format. */
#include "trace.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_trace(data, size, swf_next);
    return 0;
}

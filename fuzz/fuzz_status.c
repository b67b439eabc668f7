/* SPDX-License-Identifier: Apache-2.0 */
/* /proc/PID/status */
#include "host/proc/proc.h"
#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = input_text(data, size);
    struct proc_status status;

    if (proc_parse_status(text, size, &status) == 0)
        for (int signal = -1; signal <= 66; signal++)
            CHECK(!proc_has_handler(&status, signal) || status.sig_caught != 0);
    free(text);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* /proc/PID/stat: the name in parentheses is the program's own choice. */
#include "host/proc/proc.h"
#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = input_text(data, size);
    struct proc_stat stat;

    if (proc_parse_stat(text, size, &stat) == 0)
        CHECK(stat.pid > 0 && memchr(stat.comm, '\0', sizeof(stat.comm)));
    free(text);
    return 0;
}

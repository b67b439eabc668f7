/* SPDX-License-Identifier: Apache-2.0 */
/* An executable, which any user can write: headers, sections, Go's build information. */
#include "host/proc/proc.h"
#include "input.h"

#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct proc_runtimes found = {0};
    int fd = memfd_create("program", MFD_CLOEXEC);

    CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    if (proc_parse_program(fd, &found) == 0)
        for (int i = 0; i < PROC_RUNTIME_MAX; i++)
            CHECK(memchr(found.r[i].version, '\0', sizeof(found.r[i].version)));
    close(fd);
    return 0;
}

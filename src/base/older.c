/* SPDX-License-Identifier: Apache-2.0 */
#include "base/older.h"

#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_close_range
#define SYS_close_range 436 /* on every architecture */
#endif

void older_close_range(unsigned first, unsigned last)
{
    long limit;

    if (first > last || syscall(SYS_close_range, first, last, 0) == 0)
        return;
    limit = sysconf(_SC_OPEN_MAX);
    for (long fd = (long)first; fd <= (long)last && fd < limit; fd++)
        close((int)fd);
}

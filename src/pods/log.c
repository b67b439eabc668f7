/* SPDX-License-Identifier: Apache-2.0 */
#include "pods/log.h"

#include "base/clock.h"

#include <stdarg.h>
#include <stdio.h>

void pods_log(const char *fmt, ...)
{
    static uint64_t window_ns;
    static unsigned lines;
    uint64_t now = clock_now_ns();
    va_list ap;

    if (now - window_ns > PODS_LOG_WINDOW_S * NS_PER_S) {
        if (lines > PODS_LOG_BURST)
            fprintf(stderr, "tide-pods: %u lines of this log were left out\n",
                    lines - PODS_LOG_BURST);
        window_ns = now;
        lines = 0;
    }
    if (lines++ >= PODS_LOG_BURST)
        return;
    fputs("tide-pods: ", stderr);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "pods/log.h"

#include "base/log_limit.h"

#include <stdarg.h>
#include <stdio.h>

void pods_log(const char *fmt, ...)
{
    static struct log_limit limit;
    va_list ap;

    if (!log_limit_takes(&limit, "tide-pods", PODS_LOG_BURST, PODS_LOG_WINDOW_S))
        return;
    fputs("tide-pods: ", stderr);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
}

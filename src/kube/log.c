/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/log.h"

#include "base/log_limit.h"

#include <stdio.h>
#include <time.h>

void kube_log(void *arg, const char *text)
{
    static struct log_limit limit;
    struct timespec ts;
    struct tm tm;
    char stamp[32];

    if (!log_limit_takes(&limit, "tide-kube", KUBE_LOG_BURST, KUBE_LOG_WINDOW_S))
        return;
    clock_gettime(CLOCK_REALTIME, &ts);
    gmtime_r(&ts.tv_sec, &tm);
    strftime(stamp, sizeof(stamp), "%FT%T", &tm);
    fprintf(stderr, "%s.%03ldZ %s\n", stamp, ts.tv_nsec / 1000000, text);
}

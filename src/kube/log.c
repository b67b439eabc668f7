/* SPDX-License-Identifier: Apache-2.0 */
#include "kube/log.h"

#include "base/clock.h"

#include <stdint.h>
#include <stdio.h>
#include <time.h>

void kube_log(void *arg, const char *text)
{
    static uint64_t window_ns;
    static unsigned lines;
    uint64_t now = clock_now_ns();
    struct timespec ts;
    struct tm tm;
    char stamp[32];

    if (now - window_ns > KUBE_LOG_WINDOW_S * NS_PER_S) {
        if (lines > KUBE_LOG_BURST)
            fprintf(stderr, "tide-kube: %u lines of this log were left out\n",
                    lines - KUBE_LOG_BURST);
        window_ns = now;
        lines = 0;
    }
    if (lines++ >= KUBE_LOG_BURST)
        return;
    clock_gettime(CLOCK_REALTIME, &ts);
    gmtime_r(&ts.tv_sec, &tm);
    strftime(stamp, sizeof(stamp), "%FT%T", &tm);
    fprintf(stderr, "%s.%03ldZ %s\n", stamp, ts.tv_nsec / 1000000, text);
}

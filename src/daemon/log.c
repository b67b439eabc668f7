/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/log.h"
#include "base/clock.h"

#include <stdarg.h>
#include <stdio.h>

#define WINDOW_NS (10 * NS_PER_S)

/* Clients can cause log lines: a flood of them must not fill the disk. */
void daemon_log(const char *fmt, ...)
{
    static uint64_t window_ns;
    static unsigned lines, dropped;
    uint64_t now = clock_now_ns();
    struct timespec ts;
    struct tm tm;
    char stamp[32];
    va_list ap;

    if (now - window_ns > WINDOW_NS) {
        if (dropped)
            fprintf(stderr, "tided: too many log lines; left out %u\n", dropped);
        window_ns = now;
        lines = dropped = 0;
    }
    if (lines++ >= DAEMON_LOG_BURST) {
        dropped++;
        return;
    }
    clock_gettime(CLOCK_REALTIME, &ts);
    localtime_r(&ts.tv_sec, &tm);
    strftime(stamp, sizeof(stamp), "%F %T", &tm);
    fprintf(stderr, "%s.%03ld tided: ", stamp, ts.tv_nsec / 1000000);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
}

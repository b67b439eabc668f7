/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/log.h"
#include "base/clock.h"

#include <stdarg.h>
#include <stdio.h>

#define WINDOW_NS (10 * NS_PER_S)

/* Clients can cause log lines: a flood of them must not fill the disk. */
__attribute__((format(printf, 2, 0))) static void put(const char *word, const char *fmt, va_list ap)
{
    static uint64_t window_ns;
    static unsigned lines, dropped;
    uint64_t now = clock_now_ns();
    struct timespec ts;
    struct tm tm;
    char stamp[32];

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
    vfprintf(stderr, fmt, ap);
    if (word)
        fprintf(stderr, " (tide why %s)", word);
    fputc('\n', stderr);
}

void daemon_log(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    put(NULL, fmt, ap);
    va_end(ap);
}

void daemon_log_as(const char *word, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    put(word, fmt, ap);
    va_end(ap);
}

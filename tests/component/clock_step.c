/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A preloaded library that sets a program's time of the day: CLOCK_REALTIME, time() and
 * gettimeofday() are off by the seconds that the file TEST_CLOCK_STEP holds, read at each call.
 * Clocks that count from the boot are left alone, as the kernel leaves them when somebody sets the
 * time.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long step(void)
{
    const char *path = getenv("TEST_CLOCK_STEP");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    char text[32] = "";

    if (fd < 0)
        return 0;
    if (read(fd, text, sizeof(text) - 1) < 0)
        text[0] = '\0';
    close(fd);
    return strtol(text, NULL, 10);
}

int clock_gettime(clockid_t clock, struct timespec *ts)
{
    int r = (int)syscall(SYS_clock_gettime, clock, ts);

    if (r == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        ts->tv_sec += step();
    return r;
}

time_t time(time_t *ret)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    if (ret)
        *ret = ts.tv_sec;
    return ts.tv_sec;
}

int gettimeofday(struct timeval *tv, void *zone)
{
    struct timespec ts;

    (void)zone;
    clock_gettime(CLOCK_REALTIME, &ts);
    *tv = (struct timeval){ts.tv_sec, ts.tv_nsec / 1000};
    return 0;
}

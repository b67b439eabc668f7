/* SPDX-License-Identifier: Apache-2.0 */
#include "host/proc/exit_watch.h"

#include "base/cleanup.h"
#include "host/proc/proc.h"

#include <errno.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define LOOK_NS 250000000

int exit_watch_add(sd_event *event, sd_event_source **ret, int pidfd, sd_event_io_handler_t handler,
                   void *arg)
{
    const struct itimerspec often = {.it_interval = {.tv_nsec = LOOK_NS},
                                     .it_value = {.tv_nsec = LOOK_NS}};
    _cleanup_fd_ int timer = -1;
    int r;

    if (proc_pidfd_wakes(pidfd)) {
        r = sd_event_add_io(event, ret, pidfd, EPOLLIN, handler, arg);
        return r < 0 ? r : 0;
    }
    timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (timer < 0 || timerfd_settime(timer, 0, &often, NULL) < 0)
        return -errno;
    r = sd_event_add_io(event, ret, timer, EPOLLIN, handler, arg);
    if (r < 0)
        return r;
    sd_event_source_set_io_fd_own(*ret, true);
    TAKE_FD(timer);
    return 0;
}

bool exit_watch_ended(int fd, int pidfd)
{
    uint64_t times;

    if (fd != pidfd && read(fd, &times, sizeof(times)) < 0)
        errno = 0; /* the timer only stays readable */
    return proc_pidfd_ended(pidfd);
}

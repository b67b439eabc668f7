/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tells an event loop that a process has ended. A pidfd wakes the loop; where Linux has none, a
 * timer does, four times a second, and the process' directory in /proc is looked at. The loop's
 * thread; used by the daemon for jobs and its guardian, and by tide-power for the programs that it
 * runs.
 */
#pragma once

#include <stdbool.h>
#include <systemd/sd-event.h>

/*
 * Has @handler called with @arg when the process of @pidfd (proc_pidfd_open(), the caller's until
 * the source is gone) may have ended. The handler begins with exit_watch_ended(). Returns 0 or
 * -errno.
 */
int exit_watch_add(sd_event *event, sd_event_source **ret, int pidfd, sd_event_io_handler_t handler,
                   void *arg);

/* For the handler, which got @fd: true if the process of @pidfd has ended; else it is called again.
 */
bool exit_watch_ended(int fd, int pidfd);

/* SPDX-License-Identifier: Apache-2.0 */
#include "host/net/ends.h"

#include <errno.h>
#include <signal.h>

int ends_by_signals(sd_event *event, bool hangup, sd_event_signal_handler_t handler, void *arg)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    size_t n = hangup ? 3 : 2;
    sigset_t set;
    int r = 0;

    sigemptyset(&set);
    for (size_t i = 0; i < n; i++)
        sigaddset(&set, signals[i]);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return -errno;
    for (size_t i = 0; i < n && r >= 0; i++)
        r = sd_event_add_signal(event, NULL, signals[i], handler, arg);
    return r < 0 ? r : 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Signals that end a program with an event loop. Its thread; used by each program that serves. */
#pragma once

#include <stdbool.h>
#include <systemd/sd-event.h>

/*
 * Has SIGINT and SIGTERM, and with @hangup SIGHUP, call @handler; NULL: they end the loop. Returns
 * 0 or -errno.
 */
int ends_by_signals(sd_event *event, bool hangup, sd_event_signal_handler_t handler, void *arg);

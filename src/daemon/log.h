/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's log: one line on stderr; at most DAEMON_LOG_BURST lines in ten seconds. */
#pragma once

#define DAEMON_LOG_BURST 40
__attribute__((format(printf, 1, 2))) void daemon_log(const char *fmt, ...);

/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's log: one line on stderr; at most DAEMON_LOG_BURST lines in ten seconds. */
#pragma once

#include "base/error.h"

#define DAEMON_LOG_BURST 40
__attribute__((format(printf, 1, 2))) void daemon_log(const char *fmt, ...);

/* The same about an error: the line ends with " (tide why @word)"; ERROR_WORD, or another @word. */
#define daemon_err(...) daemon_log_as(ERROR_WORD, __VA_ARGS__)
__attribute__((format(printf, 2, 3))) void daemon_log_as(const char *word, const char *fmt, ...);

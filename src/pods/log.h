/* SPDX-License-Identifier: Apache-2.0 */
/* The log of tide-pods: lines on stderr. Event loop's thread. */
#pragma once

#include "base/error.h"

#define PODS_LOG_BURST    200 /* lines in PODS_LOG_WINDOW_S: a runtime in trouble must not fill it */
#define PODS_LOG_WINDOW_S 10

__attribute__((format(printf, 1, 2))) void pods_log(const char *fmt, ...);

/* The same about an error: the line ends with " (tide why WORD)". */
#define pods_err(fmt, ...) pods_log(fmt ERROR_WHY, ##__VA_ARGS__)

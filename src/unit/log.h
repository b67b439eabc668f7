/* SPDX-License-Identifier: Apache-2.0 */
/* tide-power's log: one line on stderr, which systemd's journal takes. Any thread; header only. */
#pragma once

#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>

__attribute__((format(printf, 1, 2))) static inline void unit_log(const char *fmt, ...)
{
    char text[512];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    fprintf(stderr, "tide-power: %s\n", text);
}

/* The same about an error: the line ends with " (tide why WORD)"; unit_err_of: the word of *err. */
#define unit_err(fmt, ...)         unit_log(fmt ERROR_WHY, ##__VA_ARGS__)
#define unit_err_of(err, fmt, ...) unit_log(fmt " (tide why %s)", ##__VA_ARGS__, error_why(err))

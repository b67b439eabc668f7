/* SPDX-License-Identifier: Apache-2.0 */
/* tide-power's log: one line on stderr, which systemd's journal takes. Any thread; header only. */
#pragma once

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

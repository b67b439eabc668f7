/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines of HTTP/1.1 heads, for those who read requests and those who read answers. Any thread.
 */
#pragma once

#include <errno.h>
#include <stddef.h>
#include <string.h>

/* Finds the end of a line at @from; *ret_len is without its CR LF. -EAGAIN: not there yet. */
static inline int http_find_line(const char *buf, size_t len, size_t from, size_t *ret_len)
{
    const char *lf = memchr(buf + from, '\n', len - from);

    if (!lf)
        return -EAGAIN;
    if (lf == buf + from || lf[-1] != '\r')
        return -EBADMSG;
    *ret_len = (size_t)(lf - buf) - from - 1;
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "slurm/range.h"

#include <errno.h>
#include <stddef.h>

/* Digits only, where strtoul(3) takes blanks and signs. Returns what follows them, NULL: none. */
static const char *number(const char *text, unsigned *ret)
{
    const char *at = text;
    unsigned n = 0;

    for (; *at >= '0' && *at <= '9'; at++)
        n = n > RANGE_MAX ? n : n * 10 + (unsigned)(*at - '0');
    if (at == text)
        return NULL;
    *ret = n;
    return at;
}

int range_parse(const char *text, struct range *ret)
{
    struct range range;
    const char *at = text ? number(text, &range.min) : NULL;

    if (!at || *at != '-')
        return -EINVAL;
    at = number(at + 1, &range.max);
    if (!at || *at)
        return -EINVAL;
    if (range.min == 0 || range.min > range.max || range.max > RANGE_MAX)
        return -ERANGE;
    *ret = range;
    return 0;
}

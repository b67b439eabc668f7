/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cpuset.h"

#include <errno.h>
#include <stdio.h>

unsigned cpuset_count(const struct cpuset *set)
{
    unsigned n = 0;

    for (size_t i = 0; i < CPUSET_WORDS; i++)
        n += (unsigned)__builtin_popcountll(set->word[i]);
    return n;
}

void cpuset_cut(struct cpuset *set, unsigned count)
{
    for (unsigned cpu = 0; cpu < CPUSET_MAX_CPUS; cpu++) {
        if (count > 0)
            count -= cpuset_has(set, cpu);
        else
            cpuset_remove(set, cpu);
    }
}

int cpuset_next(const struct cpuset *set, unsigned from)
{
    uint64_t mask = UINT64_MAX << from % 64;

    for (unsigned w = from / 64; w < CPUSET_WORDS; w++) {
        uint64_t left = set->word[w] & mask;

        if (left)
            return (int)(w * 64) + __builtin_ctzll(left);
        mask = UINT64_MAX;
    }
    return -1;
}

/* Reads a decimal number and advances *p. Returns the number, -EINVAL (no digit) or -ERANGE (too
 * big). */
static int parse_cpu(const char **p)
{
    unsigned value = 0;

    if (**p < '0' || **p > '9')
        return -EINVAL;
    for (; **p >= '0' && **p <= '9'; (*p)++) {
        value = value * 10 + (unsigned)(**p - '0');
        if (value >= CPUSET_MAX_CPUS)
            return -ERANGE;
    }
    return (int)value;
}

int cpuset_parse(const char *text, struct cpuset *ret)
{
    struct cpuset set;
    const char *p = text;

    cpuset_zero(&set);
    while (*p && *p != '\n') {
        int first = parse_cpu(&p);
        int last = first;

        if (first < 0)
            return first;
        if (*p == '-') {
            p++;
            last = parse_cpu(&p);
            if (last < 0)
                return last;
            if (last < first)
                return -EINVAL;
        }
        for (int cpu = first; cpu <= last; cpu++)
            cpuset_add(&set, (unsigned)cpu);
        if (*p == ',' && p[1] >= '0' && p[1] <= '9')
            p++;
        else if (*p && *p != '\n')
            return -EINVAL;
    }
    if (*p == '\n' && p[1])
        return -EINVAL;
    *ret = set;
    return 0;
}

int cpuset_format(const struct cpuset *set, char *buf, size_t size)
{
    size_t used = 0;

    if (size == 0)
        return -ENOSPC;
    buf[0] = '\0';
    for (int first = cpuset_next(set, 0); first >= 0;) {
        int last = first;
        int n;

        while (cpuset_has(set, (unsigned)last + 1))
            last++;
        n = last > first
                ? snprintf(buf + used, size - used, "%s%d-%d", used ? "," : "", first, last)
                : snprintf(buf + used, size - used, "%s%d", used ? "," : "", first);
        if (n < 0 || (size_t)n >= size - used) {
            buf[0] = '\0';
            return -ENOSPC;
        }
        used += (size_t)n;
        first = cpuset_next(set, (unsigned)last + 1);
    }
    return (int)used;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A set of CPU numbers with the kernel's list syntax ("0-3,8"). Fixed size, no allocation.
 * Any thread (values, no shared state); used everywhere. The inline functions import nothing, so
 * that src/policy may use them.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CPUSET_MAX_CPUS 1024
#define CPUSET_WORDS    (CPUSET_MAX_CPUS / 64)

/* Longest text of cpuset_format: every second CPU of 1024 listed singly ("1,3,…,1023"), and NUL. */
#define CPUSET_TEXT_MAX 2560

struct cpuset {
    uint64_t word[CPUSET_WORDS]; /* bit n of word n/64: CPU n belongs to the set */
};

static inline void cpuset_zero(struct cpuset *set)
{
    *set = (struct cpuset){{0}};
}

/* Adding and removing ignore a CPU from CPUSET_MAX_CPUS on; no set ever has it. */
static inline void cpuset_add(struct cpuset *set, unsigned cpu)
{
    if (cpu < CPUSET_MAX_CPUS)
        set->word[cpu / 64] |= 1ull << (cpu % 64);
}

static inline void cpuset_remove(struct cpuset *set, unsigned cpu)
{
    if (cpu < CPUSET_MAX_CPUS)
        set->word[cpu / 64] &= ~(1ull << (cpu % 64));
}

static inline bool cpuset_has(const struct cpuset *set, unsigned cpu)
{
    return cpu < CPUSET_MAX_CPUS && (set->word[cpu / 64] >> (cpu % 64) & 1);
}

static inline void cpuset_and(struct cpuset *ret, const struct cpuset *a, const struct cpuset *b)
{
    for (size_t i = 0; i < CPUSET_WORDS; i++)
        ret->word[i] = a->word[i] & b->word[i];
}

static inline bool cpuset_equal(const struct cpuset *a, const struct cpuset *b)
{
    for (size_t i = 0; i < CPUSET_WORDS; i++)
        if (a->word[i] != b->word[i])
            return false;
    return true;
}

unsigned cpuset_count(const struct cpuset *set); /* number of CPUs */

/* Keeps the @count lowest CPUs. */
void cpuset_cut(struct cpuset *set, unsigned count);

/* The lowest CPU >= @from in the set, or -1. */
int cpuset_next(const struct cpuset *set, unsigned from);

/*
 * Parses the kernel's list syntax; a trailing newline and an empty text (empty set) are accepted.
 * Returns 0, -EINVAL (syntax, reversed range) or -ERANGE (CPU >= CPUSET_MAX_CPUS); on failure
 * *ret is untouched.
 */
int cpuset_parse(const char *text, struct cpuset *ret);

/*
 * Writes the list syntax, NUL-terminated, into @buf of @size bytes.
 * Returns the length, or -ENOSPC if it does not fit (buf then holds an empty string).
 */
int cpuset_format(const struct cpuset *set, char *buf, size_t size);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FNV-1a: a fast hash for tables, and a checksum that finds torn records. It is no defence against
 * somebody who chooses the input. Pure; any thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define FNV_START UINT64_C(14695981039346656037)

/* Continues from @hash, which is FNV_START or a secret seed at first. */
static inline uint64_t fnv_bytes(uint64_t hash, const void *data, size_t size)
{
    const unsigned char *byte = (const unsigned char *)data;

    for (size_t i = 0; i < size; i++)
        hash = (hash ^ byte[i]) * UINT64_C(1099511628211);
    return hash;
}

/* The same for a text without its NUL. */
static inline uint64_t fnv_text(uint64_t hash, const char *text)
{
    for (; *text; text++)
        hash = fnv_bytes(hash, text, 1);
    return hash;
}

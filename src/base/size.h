/* SPDX-License-Identifier: Apache-2.0 */
/* Amounts of memory as people write them: "512M", "1.5G". Any thread. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define SIZE_TEXT_MAX  16
#define SIZE_MAX_BYTES (UINT64_C(1) << 50)

/*
 * Reads a number of bytes, or one with K, M, G or T (powers of 1024, as in Docker and Slurm; KiB,
 * KB and k are the same). Returns 0 or -EINVAL, also above SIZE_MAX_BYTES.
 */
int size_parse(const char *text, uint64_t *ret_bytes);

/* Writes it with three digits: "1.5G"; 0 is "0". */
void size_text(uint64_t bytes, char ret[SIZE_TEXT_MAX]);

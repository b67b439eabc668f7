/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Amounts as people write them: of memory ("512M", "1.5G"), and of devices of each kind
 * ("nvidia=2,uverbs=1"). Any thread.
 */
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

#define DEVICES_TEXT_MAX 64 /* "nvidia=64,render=64,…", and NUL */

/*
 * Reads counts of base/devices.h: each kind once, from 1 to DEVICES_OF_KIND_MAX. Returns 0 or
 * -EINVAL.
 */
int devices_parse(const char *text, int64_t *ret_counts);

/* Writes what devices_parse() reads; "" for none. Returns @buf. */
const char *devices_text(int64_t counts, char buf[DEVICES_TEXT_MAX]);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the fuzz targets: the input as a text in a heap block of exactly its size, so that
 * AddressSanitizer sees the first byte read behind it; CHECK, which works under NDEBUG, too.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            abort();                                                                               \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline char *input_text(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);

    CHECK(text);
    if (size)
        memcpy(text, data, size);
    text[size] = '\0';
    return text;
}

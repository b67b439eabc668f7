/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes in JSON, as the API has them. Any thread; private to this room. */
#pragma once

#include <jansson.h>
#include <stddef.h>

/* A text in base64; NULL: out of memory. */
json_t *base64_value(const void *bytes, size_t n);

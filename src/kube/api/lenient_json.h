/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON of the API server as jansson holds it. Anybody who may make an object can write what jansson
 * refuses: NUL in a string or key, integers beyond 64 bits, structures thousands deep. One such
 * object would stand for the whole list that it is in, so it is made readable instead. Pure, any
 * thread; called by client.c and watch_delta.c.
 */
#pragma once

#include <jansson.h>
#include <stddef.h>

#define LENIENT_JSON_DEPTH_MAX 1000 /* what lies deeper is empty; jansson ends at 2048 */

/*
 * NUL becomes U+FFFD, and an integer beyond int64_t a real. NULL: still no JSON, or out of memory.
 */
json_t *lenient_json_load(const char *text, size_t len);

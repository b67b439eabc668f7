/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads JSON of the API server that jansson would refuse. Anybody who may create an object can
 * write such JSON: NUL in a string or key, integers beyond 64 bits, structures thousands deep. One
 * such object would make its whole list unreadable, so it is changed to be readable. Pure, any
 * thread; called by client.c and watch_delta.c.
 */
#pragma once

#include <jansson.h>
#include <stddef.h>

#define LENIENT_JSON_DEPTH_MAX                                                                     \
    1000 /* deeper arrays and objects become empty; jansson's limit is 2048 */

/*
 * NUL becomes U+FFFD, an integer beyond int64_t a real. NULL: still not JSON, or out of memory.
 */
json_t *lenient_json_load(const char *text, size_t len);

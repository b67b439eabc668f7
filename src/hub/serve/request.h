/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a request that anybody may have written: its path, its cookies, its body. Pure but for
 * memory; any thread; private to this room, and for its fuzzer.
 */
#pragma once

#include "base/error.h"
#include "host/trust/secret.h"
#include "power/rules/rules.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define REQUEST_FIELDS_MAX 6
#define REQUEST_NAME_MAX   64

/*
 * Whether @path is of the kind of @pattern, in which "**" stands for the path of an area and "*"
 * for a name. Writes only what it found of these.
 */
bool request_matches(const char *pattern, const char *path, char ret_area[AREA_PATH_MAX],
                     char ret_name[REQUEST_NAME_MAX]);

/* Finds the cookie @name in the header (NULL: there is none), whose value is as long as a secret.
 */
bool request_cookie(const char *cookies, const char *name, char ret[SECRET_LEN + 1]);

/*
 * Reads @len bytes as one JSON object with no other members than @fields (which end with NULL).
 * Returns 0 with the object, which the caller owns, or NULL for no bytes; or -EINVAL.
 */
int request_body(const char *text, size_t len, const char *const fields[REQUEST_FIELDS_MAX],
                 json_t **ret, struct error *err);

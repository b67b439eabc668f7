/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The token or certificate that a person shows to a machine's gateway (tide-gate). A line of
 * ~/.config/tide/gateways for each gateway says it:
 *
 *     HOST[:PORT] [token=TOKEN] [ca=FILE] [cert=FILE [key=FILE]]
 *
 * with "*" for all that have no line, which takes no token: what opens one machine is shown to no
 * other. For the machine that --host names, TIDE_GATEWAY_TOKEN counts before the file. Any thread,
 * no state.
 */
#pragma once

#include "cli/remote/address.h"

#define GATEWAY_FILE_MAX    (256 << 10)
#define GATEWAY_TEXT_MAX    512 /* bytes of a token or a path */
#define GATEWAY_HEADERS_MAX (GATEWAY_TEXT_MAX + 32)
#define GATEWAY_TOKEN       "TIDE_GATEWAY_TOKEN"

struct gateway {
    char token[GATEWAY_TEXT_MAX], ca[GATEWAY_TEXT_MAX]; /* "": none; the system's authorities */
    char cert[GATEWAY_TEXT_MAX], key[GATEWAY_TEXT_MAX]; /* "": none; the key is in that file */
};

/*
 * Finds what the gateway at @a is shown; without a file or a line, nothing. Returns 0, -EPERM (the
 * file has a token and others may read it), -EINVAL (a line is wrong) or another -errno.
 */
int gateway_find(const struct address *a, struct gateway *ret, struct error *err);

/* Writes the lines of a request's head that belong to it; "" for an address that is no gateway. */
int gateway_headers(const struct address *a, char ret[GATEWAY_HEADERS_MAX], struct error *err);

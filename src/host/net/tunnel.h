/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection over TLS, by libcurl, between a server elsewhere and two descriptors here. One
 * thread, which it blocks; used by tide-tls.
 */
#pragma once

#include "base/error.h"

#define TUNNEL_CONNECT_S 10

struct tunnel {
    const char *host, *port;     /* a name or an address */
    const char *ca, *cert, *key; /* files of PEM; "": the system's, none, in the certificate's */
};

/*
 * Connects, checks the server's certificate, and carries bytes from @in to the server and from
 * there to @out, until the server has closed and its last byte is through, or @in has come to its
 * end. Returns 0 or -errno with *err.
 */
int tunnel_run(const struct tunnel *t, int in, int out, struct error *err);

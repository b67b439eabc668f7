/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the node listens. TensorFlow's server takes a port and listens on all addresses, whatever
 * its ServerDef says; so this program has a bind() of its own, which its libraries find before
 * libc's. bind_only_at() once, by node.c before anything listens; bind() by any thread.
 */
#pragma once

#include <netinet/in.h>

/* From now on TCP sockets that are bound to all addresses are bound to @address (IPv4's mapped to
 * IPv6) alone; all zeroes: to all. */
void bind_only_at(const struct in6_addr *address);

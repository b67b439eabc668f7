/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits where the TensorFlow node listens. TensorFlow's server takes a port and listens on all
 * addresses, whatever its ServerDef says. So this program has its own bind(), which its libraries
 * find before libc's. node.c calls bind_only_at() once, before anything listens.
 */
#pragma once

#include <netinet/in.h>

/* Makes each later TCP socket that would listen on all addresses listen on @address (IPv4 mapped to
 * IPv6) alone; all zeroes: all addresses. */
void bind_only_at(const struct in6_addr *address);

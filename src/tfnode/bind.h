/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits where the TensorFlow node listens. TensorFlow's server takes a port and listens on all
 * addresses, whatever its ServerDef says. So this program has its own bind(), which its libraries
 * find before libc's. node.c calls bind_only_at() once, before anything listens; any thread bind().
 */
#pragma once

#include <netinet/in.h>

/* From now on a TCP socket that is to listen on all addresses gets only @address (IPv4 mapped to
 * IPv6); all zeroes: all addresses. */
void bind_only_at(const struct in6_addr *address);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ends this process's TCP connections to a machine that is gone. A machine without power neither
 * resets them nor answers, so TensorFlow and its step would wait for a quarter of an hour. gRPC
 * sees the end of a socket at once. Main thread, called by node.c; never blocks.
 */
#pragma once

#include <stdint.h>

/* @host: an IPv4 or IPv6 address. Returns how many connections it ended, or -EINVAL. */
int disconnect(const char *host, uint32_t port);

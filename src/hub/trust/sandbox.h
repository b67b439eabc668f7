/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounds what the broker may open: everybody on the network speaks to it, and it runs as the hub's
 * user, beside the authority's key. The kernel's Landlock takes everything else from the process
 * and from programs that it executes, for good; it also keeps it from tracing the hub. Needs no
 * privilege. Used by cmd_broker.c.
 */
#pragma once

#include "base/error.h"

/*
 * From here on: reads @dir, the system's programs, libraries and their configuration, and nothing
 * else of any disk; writes nothing. Returns 0, -EOPNOTSUPP (a kernel without Landlock: nothing
 * changed), or -errno.
 */
int sandbox_enter(const char *dir, struct error *err);

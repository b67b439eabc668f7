/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the agent and names it for LD_PRELOAD. ld.so itself expands $LIB, so that a 32-bit program
 * finds its own (empty) agent. A musl program, whose loader knows no $LIB, finds none.
 * Single-threaded (it reads the environment).
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

#define PRELOAD_FILE "libtide-agent.so"

/* Limits "LD_PRELOAD=…" with an option before it: Linux passes no argument of 128 KiB. */
#define PRELOAD_VARIABLE_MAX (127u << 10)

/*
 * Finds the agent's directory: $TIDE_AGENT_DIR, else "agent" beside this executable (build tree),
 * else the installed one. It must hold an agent for 64-bit programs of this machine.
 * Returns 0, -ENOENT (no agent file), or -EINVAL (LD_PRELOAD separates its entries by blanks and
 * colons, so it cannot name a directory with one of them, or with a "$"); *err says which.
 */
int preload_find(char *ret_dir, size_t size, struct error *err);

/*
 * Makes the value of LD_PRELOAD: @present (may be NULL) with the agent of @dir as its last entry,
 * or @present alone if it names an agent. The caller frees. Returns 0 or -ENOMEM. Pure.
 */
int preload_value(const char *present, const char *dir, char **ret_value);

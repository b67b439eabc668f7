/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the agent lies and how LD_PRELOAD names it. ld.so itself expands $LIB, so that a 32-bit
 * program finds its own (empty) agent and a musl program, which knows no $LIB, finds none.
 * Single-threaded (it reads the environment); used by cli and runc.
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

#define PRELOAD_FILE "libtide-agent.so"

/* Of "LD_PRELOAD=…" and an option in front: the kernel gives a program no word of 128 KiB. */
#define PRELOAD_VARIABLE_MAX (127u << 10)

/*
 * The agent's directory: $TIDE_AGENT_DIR, else "agent" beside this executable (build tree), else
 * the installed one. An agent for this machine's own programs lies in it.
 * Returns 0; -ENOENT (no agent file), -EINVAL (LD_PRELOAD separates its entries by blanks and
 * colons, so a directory with one of them, or with a "$", cannot be named); *err says which.
 */
int preload_find(char *ret_dir, size_t size, struct error *err);

/*
 * The value of LD_PRELOAD: @present (may be NULL) with the agent of @dir behind its entries; just
 * @present if the agent is among them. The caller frees. Returns 0 or -ENOMEM. Pure.
 */
int preload_value(const char *present, const char *dir, char **ret_value);

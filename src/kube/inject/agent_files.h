/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of the agent's directory as a ConfigMap, whose keys have no slashes. Any thread; called
 * by patch.c (the table) and spread.c.
 */
#pragma once

#include "base/error.h"

#include <jansson.h>
#include <stddef.h>

/*
 * Which architecture ours is, as nodes say it. Keys and the manager of their fields have it in
 * their names: replicas on nodes of several do not take each other's files away.
 */
#ifdef __x86_64__
#define AGENT_ARCH "amd64"
#else
#define AGENT_ARCH "arm64"
#endif
#define AGENT_KEY     "agent-" AGENT_ARCH
#define AGENT_MANAGER "tide-inject-" AGENT_ARCH

#define AGENT_FILES_MAX (900u << 10) /* bytes in all: an object of the API holds a MiB */

/* A file that a pod sees, and the key that has its bytes. Several files may have one key. */
struct agent_file {
    const char *key;
    const char *path; /* below the agent's directory; $LIB of LD_PRELOAD names the folder */
};

extern const struct agent_file agent_files[];
extern const size_t agent_files_count;

/*
 * Reads @dir into a ConfigMap named @name. A 32-bit agent may be missing. Returns 0, -ENOENT (no
 * agent), -EFBIG (it is not stripped) or another -errno, with *err.
 */
int agent_files_read(const char *dir, const char *name, json_t **ret, struct error *err);

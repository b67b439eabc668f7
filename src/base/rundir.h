/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directory of a daemon, which holds its sockets, lock and log:
 *
 *   $TIDE_DIR           when set: this one and no other (tests, containers)
 *   /run/tide           the system's daemon, when its api.sock exists
 *   $XDG_RUNTIME_DIR/tide, else /tmp/tide-<uid>      the user's own
 *
 * Any thread.
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

#define RUNDIR_PATH_MAX     96 /* a socket's path has 108 bytes; the longest name inside has 12 */
#define RUNDIR_SYSTEM       "/run/tide"
#define RUNDIR_API_SOCKET   "api.sock"   /* HTTP/JSON */
#define RUNDIR_AGENT_SOCKET "agent.sock" /* SOCK_SEQPACKET, src/proto */
#define RUNDIR_LOCK         "tided.lock" /* the running daemon holds its flock; its pid is inside */
#define RUNDIR_LOG          "tided.log"

/*
 * Finds the directory whose daemon a client should use (see above); it need not exist.
 * Returns 0, or -ENAMETOOLONG when $TIDE_DIR or $XDG_RUNTIME_DIR is too long for a socket path.
 */
int rundir_find(char ret_path[RUNDIR_PATH_MAX]);

/* Whether the caller named the directory, by $TIDE_DIR. */
bool rundir_is_named(void);

/* Finds the user's own directory, also when the system's daemon runs. Same returns. */
int rundir_user(char ret_path[RUNDIR_PATH_MAX]);

/*
 * Finds the directory of the daemon that manages containers: $TIDE_DIR when set, else /run/tide,
 * whether or not it exists. Same returns.
 */
int rundir_machine(char ret_path[RUNDIR_PATH_MAX]);

/*
 * Checks that the caller's daemon may use @path: no symbolic link (-ELOOP) or file (-ENOTDIR), the
 * caller's own, and writable for nobody else (-EPERM). If @path is missing, checks that the caller
 * can make it. Returns 0 or -errno with the reason in *err (may be NULL).
 */
int rundir_check(const char *path, struct error *err);

/*
 * Creates @path with mode 0700 if it is missing, checks it as above and opens it.
 * Returns a directory descriptor (CLOEXEC), or -errno with the reason in *err (may be NULL).
 */
int rundir_open(const char *path, struct error *err);

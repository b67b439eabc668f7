/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What makes a container elastic: two directories of the host that are mounted into it, and the
 * environment of its processes. Whoever starts the container (`tide docker run`, tide-runc, a
 * Compose file) adds them, tided looks for them. Constants only; used by cli, runc and node.
 *
 * The control directory is the container's own, <run>/containers/KEY. tided binds its socket there
 * anew after each start, which is why the directory is mounted and not the socket: on which socket
 * a process arrives says which container it belongs to.
 */
#pragma once

#include "base/preload.h"

#define CONTAINER_AGENT_DIR   "/opt/threadtide" /* in the container: the agent's directory */
#define CONTAINER_CONTROL_DIR "/run/threadtide" /* in the container: its control directory */
#define CONTAINER_SOCKET      CONTAINER_CONTROL_DIR "/agent.sock"

#define CONTAINER_PRELOAD CONTAINER_AGENT_DIR "/$LIB/" PRELOAD_FILE

#define CONTAINER_RUN_DIR "containers" /* on the host, in the daemon's directory */
#define CONTAINER_KEY_MAX 64           /* a KEY is 1 … so many of [A-Za-z0-9_-] */

#define CONTAINER_RUNTIME "tide" /* the name under which engines know tide-runc */
#define CONTAINER_LABEL   "io.threadtide"

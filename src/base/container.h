/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A container is elastic by two directories of the host that are mounted into it, and by the
 * environment of its processes. The program that starts the container (`tide docker run`,
 * tide-runc) or a Compose file adds them; tided looks for them. Constants only.
 *
 * Each container has its own control directory, <run>/containers/KEY, with its own socket: the
 * socket on which a process connects tells tided its container. tided binds the socket anew after
 * each start of its own, so the directory is mounted and not the socket.
 */
#pragma once

#include "base/preload.h"

#define CONTAINER_AGENT_DIR   "/opt/threadtide" /* in the container: the agent's directory */
#define CONTAINER_CONTROL_DIR "/run/threadtide" /* in the container: its control directory */
#define CONTAINER_SOCKET      CONTAINER_CONTROL_DIR "/agent.sock"

#define CONTAINER_PRELOAD CONTAINER_AGENT_DIR "/$LIB/" PRELOAD_FILE

#define CONTAINER_RUN_DIR "containers" /* on the host, in the daemon's directory */
#define CONTAINER_KEY_MAX 64           /* a KEY is 1 to 64 characters of [A-Za-z0-9_-] */

/* In the control directory of tide-runc's containers: startup_mark() of their start. */
#define CONTAINER_STARTUP "startup"

#define CONTAINER_RUNTIME "tide" /* the name under which engines know tide-runc */
#define CONTAINER_LABEL   "io.threadtide"

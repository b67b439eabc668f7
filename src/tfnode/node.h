/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a TensorFlow node, shown on the control port: starting → ready → draining → gone.
 * Called once by main.c. Its one thread waits in poll() for signals, clients, TensorFlow's start
 * and the agent.
 */
#pragma once

#include "base/error.h"

struct options;

/*
 * Runs the TensorFlow node until its chief releases it, SIGTERM or SIGINT ends it, or it fails.
 * @library is TensorFlow's. Prints a line for each event.
 * Returns 0 (it is no longer needed), or -errno with *err. The process must end then, because
 * TensorFlow has threads that nothing stops.
 */
int node_run(const struct options *options, const char *library, struct error *err);

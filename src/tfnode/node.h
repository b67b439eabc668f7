/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a TensorFlow node, told over the control port: starting → ready → draining → gone.
 * Called once by main.c; one thread, which waits in poll() for signals, clients, TensorFlow's start
 * and the agent.
 */
#pragma once

#include "base/error.h"

struct options;

/*
 * Runs until it is released, was asked to end (SIGTERM, SIGINT), or has failed. @library is
 * TensorFlow's. Prints what it does, a line each.
 * Returns 0 (nobody needs it any more), or -errno with *err. The process must end then: TensorFlow
 * has threads that nothing stops.
 */
int node_run(const struct options *options, const char *library, struct error *err);

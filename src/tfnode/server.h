/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TensorFlow's gRPC server, through the C API of the installed wheel, opened at run time: this
 * program needs no TensorFlow to be built. Loading takes a good part of a second, so it has a
 * thread of its own; started once by node.c. TensorFlow has no way to stop a server but the end of
 * the process.
 */
#pragma once

#include "base/error.h"

#include <stdint.h>

#define SERVER_VERSION_MAX 32

struct options;

/* Complete when event_fd has become readable; then the main thread's. */
struct server {
    const char *library; /* borrowed, as is the following */
    const struct options *options;
    uint32_t config_threads; /* for the ServerDef; 0: the agent governs them */
    struct error err;        /* why it did not start; code 0: it listens */
    int event_fd;
    uint32_t port;
    char version[SERVER_VERSION_MAX];
};

/*
 * Begins to open @library and to start the server. Both arguments are borrowed for good.
 * Returns 0 or -errno with *err.
 */
int server_start(const char *library, const struct options *options, uint32_t config_threads,
                 struct server *ret, struct error *err);

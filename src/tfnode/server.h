/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts TensorFlow's gRPC server through the C API of the installed wheel, which it opens at run
 * time: building this program needs no TensorFlow. Loading takes a good part of a second, so it has
 * a thread of its own. node.c starts it once. Only the end of the process stops a server.
 */
#pragma once

#include "base/error.h"

#include <stdint.h>

#define SERVER_VERSION_MAX 32

struct options;

/* The main thread may read it once event_fd is readable. */
struct server {
    const char *library; /* borrowed, as is the following */
    const struct options *options;
    uint32_t config_threads; /* for the ServerDef; 0: the agent governs them */
    struct error err;        /* why the server did not start; code 0: it listens */
    int event_fd;
    uint32_t port;
    char version[SERVER_VERSION_MAX];
};

/*
 * Begins to open @library and to start the server. Borrows both arguments for the process's life.
 * Returns 0 or -errno with *err.
 */
int server_start(const char *library, const struct options *options, uint32_t config_threads,
                 struct server *ret, struct error *err);

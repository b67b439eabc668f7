/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The options of a TensorFlow node: flags, and the environment variables that replace them in a
 * pod. Called once by main.c, one thread.
 */
#pragma once

#include "base/error.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#define OPTIONS_NAME_MAX 64 /* a training's name with its NUL; a label's value, too */
#define OPTIONS_HOST_MAX 64 /* an IP address, or "localhost" */

#define OPTIONS_PORT         2222
#define OPTIONS_CONTROL_PORT 2223
#define OPTIONS_GRACE_S      25

struct options {
    char job[OPTIONS_NAME_MAX];
    char role[OPTIONS_NAME_MAX]; /* "ps" or "worker" */
    char host[OPTIONS_HOST_MAX]; /* the node's own, in brackets if it has colons */
    const char *tensorflow;      /* borrowed from argv or the environment; NULL: look for it */
    struct in6_addr bind;        /* where it listens, IPv4 mapped to IPv6; "::": everywhere. The
                                    default is loopback, in a pod everywhere */
    uint32_t index;
    uint32_t port; /* TensorFlow's; 0: the kernel chooses one, as below */
    uint32_t control_port;
    uint32_t threads; /* active at the start; 0: as many as the process's limit allows */
    uint32_t grace_s; /* from SIGTERM to the end, unless the chief releases the node before */
    bool lifeline;    /* end when the standard input does */
};

enum options_verdict { OPTIONS_RUN, OPTIONS_HELP, OPTIONS_VERSION, OPTIONS_VERDICT_MAX };

/*
 * Reads the environment, then the flags, which outrank it.
 * Returns an enum options_verdict, or -EINVAL with the reason in *err.
 */
int options_parse(int argc, char **argv, struct options *ret, struct error *err);

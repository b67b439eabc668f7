/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A controlling program's connection to a daemon: finds agent.sock, connects, moves whole messages
 * with a deadline. Owns one descriptor. Only the handle's thread uses it, through ctl.c.
 *
 * Deadlines are CLOCK_MONOTONIC; 0 means not to wait at all (-EAGAIN instead).
 */
#pragma once

#include "base/error.h"
#include "proto/proto.h"

#include <stdint.h>
#include <sys/types.h>
#include <sys/un.h>

struct channel {
    int fd;                                                     /* -1: not connected */
    pid_t pid;                                                  /* the process that connected */
    char given[sizeof(((struct sockaddr_un *)NULL)->sun_path)]; /* the caller's path; "": none */
};

/*
 * Takes @path (a daemon's directory, its agent.sock, or NULL); does not connect.
 * Returns 0 or -ENAMETOOLONG.
 */
int channel_init(struct channel *c, const char *path, struct error *err);

/* Closes the connection; channel_connect() may follow. */
void channel_hang_up(struct channel *c);

/*
 * Makes sure that this process has a connection of its own (none inherited through fork).
 * Returns 0, -ECONNREFUSED (no daemon listens), -EACCES (another user's daemon), -ENAMETOOLONG,
 * -ETIMEDOUT or -EAGAIN (its queue is full), or another -errno of socket or connect.
 */
int channel_connect(struct channel *c, uint64_t deadline_ns, struct error *err);

/*
 * Sends @m. Returns 0, -EPIPE (the daemon is gone, nothing was delivered), -ETIMEDOUT, -EAGAIN or
 * another -errno.
 */
int channel_send(struct channel *c, const union proto_message *m, uint64_t deadline_ns);

/*
 * Receives one checked message. Returns 0, -ECONNRESET (hung up), -ETIMEDOUT, -EAGAIN, -EBADMSG or
 * -EPROTONOSUPPORT (*err says more).
 */
int channel_receive(struct channel *c, union proto_message *ret_m, uint64_t deadline_ns,
                    struct error *err);

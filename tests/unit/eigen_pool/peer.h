/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's side of agent.sock for tests of the agent inside one process, on a real socket. One
 * thread at a time calls it. Any failure, also silence of 30 s, ends the process with a message.
 */
#pragma once

#include "proto/proto.h"

#include <stdint.h>

struct peer {
    char directory[64];
    int listener;
    int conn; /* -1: no agent yet */
    uint64_t epoch;
    uint64_t generation;
    struct proto_backend backend; /* the last one described; index 0 */
};

/* Listens in a new directory and puts TIDE_SOCKET into the environment. */
void peer_open(struct peer *peer);
void peer_close(struct peer *peer);

/* Waits for the agent and its backend 0. */
void peer_wait_agent(struct peer *peer);

/* Sends a target and waits for its acknowledgement, whose status is returned (enum
 * proto_ack_status); *ret_ack may be NULL. */
uint32_t peer_set(struct peer *peer, uint32_t intra, uint32_t inter, struct proto_ack *ret_ack);

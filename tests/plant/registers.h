/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A three-phase meter on Modbus TCP, on loopback: input registers (function 4) of Eastron's SDM630,
 * each value two registers, IEEE 754, the high word first. Its figures are those of a real one:
 * watts of its last interval, energy in whole Wh.
 *
 *   0x0000 0x0002 0x0004  volts of the phases      0x0006 0x0008 0x000A  amperes
 *   0x000C 0x000E 0x0010  watts of the phases      0x0034  watts in all
 *   0x0046  Hz      0x0048  imported kWh      0x0156  kWh in all
 */
#pragma once

#include <poll.h>
#include <stdint.h>

#define REGISTERS_PEERS_MAX 16

struct registers;

/* @port 0: any; @ret_port: which one it is. 0 or -errno. */
int registers_new(uint16_t port, struct registers **ret, uint16_t *ret_port);
struct registers *registers_free(struct registers *r); /* returns NULL */
void registers_set(struct registers *r, uint64_t uw, uint64_t total_uj);
/* Descriptors to poll; returns how many, at most REGISTERS_PEERS_MAX + 1. */
unsigned registers_fds(const struct registers *r, struct pollfd *ret);
/* Serves those that poll() found ready. */
void registers_serve(struct registers *r, const struct pollfd *ready, unsigned count);

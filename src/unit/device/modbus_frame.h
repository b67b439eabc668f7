/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Modbus TCP's frames for the one function that meters need: read input registers. Bytes to numbers
 * and back, without a socket. Any thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define MODBUS_REQUEST_BYTES 12
#define MODBUS_FRAME_MAX     260
#define MODBUS_REGISTERS_MAX 125

void modbus_request(uint16_t number, uint8_t unit, uint16_t first, uint16_t registers,
                    uint8_t ret[MODBUS_REQUEST_BYTES]);

/*
 * Reads the answer to that request from the bytes received so far. Returns 0; -EAGAIN: it is not
 * complete; -EBADMSG: this is no answer of Modbus, or one to another question; -EPROTO: the meter
 * refuses, and ret[0] is its code.
 */
int modbus_answer(const uint8_t *bytes, size_t len, uint16_t number, uint8_t unit,
                  uint16_t registers, uint16_t *ret);

/* A number in two registers, the high one first, times @scale. Returns 0 or -ERANGE: no number,
 * negative. */
int modbus_float(const uint16_t registers[2], uint64_t scale, uint64_t *ret);

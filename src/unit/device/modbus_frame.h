/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Modbus' frames, over TCP and over a serial line (RTU): reading coils, inputs and registers,
 * writing one coil. Bytes to numbers and back, without a socket. Any thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define MODBUS_REQUEST_MAX   12
#define MODBUS_FRAME_MAX     260
#define MODBUS_REGISTERS_MAX 125

enum modbus_function {
    MODBUS_READ_COILS = 1,
    MODBUS_READ_INPUTS = 2,
    MODBUS_READ_HOLDING = 3,
    MODBUS_READ_INPUT_REGISTERS = 4,
    MODBUS_WRITE_COIL = 5,
};

struct modbus_question {
    uint8_t unit, function; /* enum modbus_function */
    uint16_t first;         /* address of the first register, coil or input */
    uint16_t count; /* of these, at most MODBUS_REGISTERS_MAX; of WRITE_COIL 1: on, 0: off */
};

/* Both return the length. @number: tells answers apart. */
size_t modbus_tcp_request(const struct modbus_question *q, uint16_t number,
                          uint8_t ret[MODBUS_REQUEST_MAX]);
size_t modbus_rtu_request(const struct modbus_question *q, uint8_t ret[MODBUS_REQUEST_MAX]);

/*
 * Reads the answer from the bytes received so far: a number for each register, 0 or 1 for each bit.
 * Returns 0; -EAGAIN: it is not complete; -EBADMSG: this is no answer of Modbus, a damaged one, or
 * one to another question; -EPROTO: the device refuses, and ret[0] is its code.
 */
int modbus_tcp_answer(const uint8_t *bytes, size_t len, const struct modbus_question *q,
                      uint16_t number, uint16_t *ret);
int modbus_rtu_answer(const uint8_t *bytes, size_t len, const struct modbus_question *q,
                      uint16_t *ret);

/* How many registers a number of that type (enum modbus_type) takes; 0: no such type. */
uint16_t modbus_registers(uint32_t type);

/* The number in the registers times @scale. Returns 0 or -ERANGE: no number, negative, too large.
 */
int modbus_number(const uint16_t *registers, uint32_t type, uint64_t scale, uint64_t *ret);

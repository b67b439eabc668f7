/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/device/modbus_frame.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "unit/config.h"

#define HEAD_BYTES  6 /* of TCP: number, protocol, length */
#define CRC_BYTES   2 /* of RTU */
#define COIL_ON     0xff00
#define REFUSED     0x80
#define RESULT_MAX  9.2e18
#define FUNCTION_AT 1 /* behind the unit */

static void put16(uint8_t *at, uint16_t value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

static uint16_t get16(const uint8_t *at)
{
    return (uint16_t)(at[0] << 8 | at[1]);
}

/* CRC-16 of Modbus: polynomial 0xa001, begins with ones. */
static uint16_t crc_of(const uint8_t *bytes, size_t len)
{
    uint16_t crc = 0xffff;

    for (size_t i = 0; i < len; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = (uint16_t)(crc >> 1 ^ (crc & 1 ? 0xa001 : 0));
    }
    return crc;
}

/* ---- requests -------------------------------------------------------------------------------- */

/* Unit, function, address, count: six bytes, the same on both carriers. */
static void put_question(const struct modbus_question *q, uint8_t *at)
{
    at[0] = q->unit;
    at[FUNCTION_AT] = q->function;
    put16(at + 2, q->first);
    put16(at + 4, q->function == MODBUS_WRITE_COIL && q->count ? COIL_ON : q->count);
}

size_t modbus_tcp_request(const struct modbus_question *q, uint16_t number,
                          uint8_t ret[MODBUS_REQUEST_MAX])
{
    put16(ret, number);
    put16(ret + 2, 0);
    put16(ret + 4, 6);
    put_question(q, ret + HEAD_BYTES);
    return HEAD_BYTES + 6;
}

size_t modbus_rtu_request(const struct modbus_question *q, uint8_t ret[MODBUS_REQUEST_MAX])
{
    uint16_t crc;

    put_question(q, ret);
    crc = crc_of(ret, 6);
    ret[6] = (uint8_t)crc; /* the low byte first, unlike everything else */
    ret[7] = (uint8_t)(crc >> 8);
    return 6 + CRC_BYTES;
}

/* ---- answers --------------------------------------------------------------------------------- */

static bool of_bits(const struct modbus_question *q)
{
    return q->function == MODBUS_READ_COILS || q->function == MODBUS_READ_INPUTS;
}

/* Bytes from the unit on: of a refusal 3, of a written coil 6, else what the answer says itself. */
static size_t length_of(const uint8_t *at, const struct modbus_question *q)
{
    if (at[FUNCTION_AT] & REFUSED)
        return 3;
    return q->function == MODBUS_WRITE_COIL ? 6 : 3 + (size_t)at[2];
}

/* @at: unit, function and the rest, complete; @len bytes. */
static int take(const uint8_t *at, size_t len, const struct modbus_question *q, uint16_t *ret)
{
    size_t bytes = of_bits(q) ? (q->count + 7u) / 8 : 2u * q->count;

    if (at[0] != q->unit || (at[FUNCTION_AT] & ~REFUSED) != q->function)
        return -EBADMSG;
    if (at[FUNCTION_AT] & REFUSED) {
        ret[0] = at[2];
        return len == 3 ? -EPROTO : -EBADMSG;
    }
    if (q->function == MODBUS_WRITE_COIL) {
        ret[0] = q->count;
        return get16(at + 2) == q->first && get16(at + 4) == (q->count ? COIL_ON : 0) ? 0
                                                                                      : -EBADMSG;
    }
    if (at[2] != bytes || len != 3 + bytes)
        return -EBADMSG;
    for (uint16_t i = 0; i < q->count; i++)
        ret[i] = of_bits(q) ? at[3 + i / 8] >> i % 8 & 1 : get16(at + 3 + 2 * (size_t)i);
    return 0;
}

int modbus_tcp_answer(const uint8_t *bytes, size_t len, const struct modbus_question *q,
                      uint16_t number, uint16_t *ret)
{
    size_t body;

    if (len < HEAD_BYTES + 3)
        return -EAGAIN;
    body = get16(bytes + 4);
    if (get16(bytes) != number || get16(bytes + 2) != 0 || body < 3 ||
        body > MODBUS_FRAME_MAX - HEAD_BYTES || body != length_of(bytes + HEAD_BYTES, q))
        return -EBADMSG;
    if (len < HEAD_BYTES + body)
        return -EAGAIN;
    return len == HEAD_BYTES + body ? take(bytes + HEAD_BYTES, body, q, ret) : -EBADMSG;
}

int modbus_rtu_answer(const uint8_t *bytes, size_t len, const struct modbus_question *q,
                      uint16_t *ret)
{
    size_t body;

    if (len < 3 + CRC_BYTES)
        return -EAGAIN;
    body = length_of(bytes, q);
    if (len < body + CRC_BYTES)
        return -EAGAIN;
    if (len != body + CRC_BYTES ||
        crc_of(bytes, body) != (uint16_t)(bytes[body] | bytes[body + 1] << 8))
        return -EBADMSG;
    return take(bytes, body, q, ret);
}

/* ---- numbers --------------------------------------------------------------------------------- */

uint16_t modbus_registers(uint32_t type)
{
    static const uint8_t registers[MODBUS_TYPE_MAX] = {
        [MODBUS_FLOAT] = 2,         [MODBUS_FLOAT_SWAPPED] = 2,  [MODBUS_INT16] = 1,
        [MODBUS_UINT16] = 1,        [MODBUS_INT32] = 2,          [MODBUS_UINT32] = 2,
        [MODBUS_INT32_SWAPPED] = 2, [MODBUS_UINT32_SWAPPED] = 2, [MODBUS_UINT64] = 4};

    return type < MODBUS_TYPE_MAX ? registers[type] : 0;
}

static double value_of(const uint16_t *registers, uint32_t type)
{
    bool swapped = type == MODBUS_FLOAT_SWAPPED || type == MODBUS_INT32_SWAPPED ||
                   type == MODBUS_UINT32_SWAPPED;
    uint32_t high = registers[swapped ? 1 : 0], bits;
    float value;

    if (type == MODBUS_INT16)
        return (int16_t)registers[0];
    if (type == MODBUS_UINT16)
        return registers[0];
    bits = high << 16 | registers[swapped ? 0 : 1];
    if (type == MODBUS_UINT64)
        return (double)((uint64_t)bits << 32 | (uint32_t)registers[2] << 16 | registers[3]);
    if (type == MODBUS_INT32 || type == MODBUS_INT32_SWAPPED)
        return (int32_t)bits;
    if (type == MODBUS_UINT32 || type == MODBUS_UINT32_SWAPPED)
        return bits;
    memcpy(&value, &bits, sizeof(value));
    return (double)value;
}

int modbus_number(const uint16_t *registers, uint32_t type, uint64_t scale, uint64_t *ret)
{
    double product = value_of(registers, type) * (double)scale;

    if (!(product >= 0 && product < RESULT_MAX))
        return -ERANGE;
    *ret = (uint64_t)(product + 0.5);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/device/modbus_frame.h"

#include <errno.h>
#include <string.h>

#define HEAD_BYTES           7 /* number, protocol, length, unit */
#define READ_INPUT_REGISTERS 4
#define REFUSED              0x80
#define RESULT_MAX           9.2e18

static void put16(uint8_t *at, uint16_t value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

static uint16_t get16(const uint8_t *at)
{
    return (uint16_t)(at[0] << 8 | at[1]);
}

void modbus_request(uint16_t number, uint8_t unit, uint16_t first, uint16_t registers,
                    uint8_t ret[MODBUS_REQUEST_BYTES])
{
    put16(ret, number);
    put16(ret + 2, 0);
    put16(ret + 4, 6);
    ret[6] = unit;
    ret[7] = READ_INPUT_REGISTERS;
    put16(ret + 8, first);
    put16(ret + 10, registers);
}

int modbus_answer(const uint8_t *bytes, size_t len, uint16_t number, uint8_t unit,
                  uint16_t registers, uint16_t *ret)
{
    size_t body;

    if (len < HEAD_BYTES + 2)
        return -EAGAIN;
    body = get16(bytes + 4);
    if (get16(bytes) != number || get16(bytes + 2) != 0 || bytes[6] != unit || body < 3 ||
        body > MODBUS_FRAME_MAX - 6)
        return -EBADMSG;
    if (len < 6 + body)
        return -EAGAIN;
    if (bytes[7] == (READ_INPUT_REGISTERS | REFUSED)) {
        ret[0] = bytes[8];
        return -EPROTO;
    }
    if (bytes[7] != READ_INPUT_REGISTERS || bytes[8] != 2 * registers || body != 3u + bytes[8] ||
        len != 6 + body)
        return -EBADMSG;
    for (uint16_t i = 0; i < registers; i++)
        ret[i] = get16(bytes + HEAD_BYTES + 2 + 2 * (size_t)i);
    return 0;
}

int modbus_float(const uint16_t registers[2], uint64_t scale, uint64_t *ret)
{
    uint32_t bits = (uint32_t)registers[0] << 16 | registers[1];
    double product;
    float value;

    memcpy(&value, &bits, sizeof(value));
    product = (double)value * (double)scale;
    if (!(product >= 0 && product < RESULT_MAX))
        return -ERANGE;
    *ret = (uint64_t)(product + 0.5);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A Modbus device of libmodbus on a serial line, for tests: rtu_server TTY UNIT. Input registers
 * 0x34: 230.5 W, 0x48: kWh that count up, both float; holding registers 0x10: 123456 hundredths of
 * a watt as int32, low register first; coil 2: a relay, on; discrete input 4: nobody. Prints each
 * coil that is written.
 */
#include <modbus/modbus.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put_float(uint16_t *at, float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    at[0] = (uint16_t)(bits >> 16);
    at[1] = (uint16_t)bits;
}

int main(int argc, char **argv)
{
    modbus_t *m = argc == 3 ? modbus_new_rtu(argv[1], 19200, 'E', 8, 1) : NULL;
    modbus_mapping_t *map = modbus_mapping_new(16, 16, 64, 128);
    uint8_t request[MODBUS_RTU_MAX_ADU_LENGTH];
    float kwh = 1000;

    if (!m || !map || modbus_set_slave(m, atoi(argv[2])) < 0 || modbus_connect(m) < 0)
        return 1;
    map->tab_bits[2] = 1;
    map->tab_registers[0x10] = 123456 & 0xffff;
    map->tab_registers[0x11] = 123456 >> 16;
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        uint8_t before = map->tab_bits[2];
        int n;

        put_float(map->tab_input_registers + 0x34, 230.5f);
        put_float(map->tab_input_registers + 0x48, kwh);
        n = modbus_receive(m, request);
        if (n > 0) {
            kwh += 0.001f;
            modbus_reply(m, request, n, map);
        }
        if (before != map->tab_bits[2])
            printf("coil 2 %s\n", map->tab_bits[2] ? "on" : "off");
        fflush(stdout);
    }
}

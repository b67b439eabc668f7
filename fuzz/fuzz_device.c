/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages of meters: an answer of Modbus, or a JSON text behind a path that ends with a line feed.
 * The first byte says which.
 */
#include "input.h"
#include "unit/config.h"
#include "unit/device/jsonpath.h"
#include "unit/device/modbus_frame.h"
#include "unit/device/printed.h"
#include "unit/device/redfish_json.h"

static void json(const uint8_t *data, size_t size)
{
    char *text = input_text(data, size), *end = strchr(text, '\n');
    uint64_t value = 0;
    bool on = false;
    size_t path;

    if (end) {
        *end = '\0';
        path = strlen(text) + 1;
        (void)jsonpath_switch(text + path, size - path, text, &on);
        if (jsonpath_number(text + path, size - path, text, 1000, &value) == 0)
            CHECK(jsonpath_check(text) == 0 && value <= INT64_MAX);
    }
    free(text);
}

static void printed(const uint8_t *data, size_t size)
{
    char *text = input_text(data, size), reason[64];
    uint64_t value;

    if (printed_ipmi(text, &value) == 0)
        CHECK(value <= INT64_MAX);
    if (printed_amount(text, &value) > 0)
        CHECK(value <= INT64_MAX);
    printed_reason(text, reason, sizeof(reason));
    for (const char *c = reason; *c; c++)
        CHECK((unsigned char)*c >= ' ');
    free(text);
}

static void redfish(const char *text, size_t size)
{
    struct redfish_members members;
    struct redfish_chassis chassis;
    struct redfish_reading reading;

    if (redfish_members(text, size, &members) == 0)
        CHECK(members.n <= REDFISH_MEMBERS_MAX && members.path[0][0] == '/');
    if (redfish_chassis(text, size, &chassis) == 0)
        CHECK(chassis.path[0][0] == '/');
    if (redfish_reading(text, size, &reading) == 0)
        CHECK(reading.uw <= INT64_MAX && reading.uj <= INT64_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct modbus_question q = {.unit = 1, .function = MODBUS_READ_INPUT_REGISTERS, .first = 19};
    uint16_t value[MODBUS_REGISTERS_MAX];
    uint64_t number;
    uint32_t type;
    int r;

    if (size < 2)
        return 0;
    q.count = data[1] % MODBUS_REGISTERS_MAX + 1;
    type = data[1] % MODBUS_TYPE_MAX;
    if (data[0] == 'j') {
        json(data + 1, size - 1);
        return 0;
    }
    if (data[0] == 'p' || data[0] == 'r') {
        if (data[0] == 'p')
            printed(data + 1, size - 1);
        else
            redfish((const char *)data + 1, size - 1);
        return 0;
    }
    if (data[0] < 2 * MODBUS_WRITE_COIL)
        q.function = data[0] / 2 + 1;
    r = data[0] % 2 ? modbus_tcp_answer(data + 2, size - 2, &q, 9, value)
                    : modbus_rtu_answer(data + 2, size - 2, &q, value);
    if (r == 0 && q.count >= modbus_registers(type) && q.function != MODBUS_WRITE_COIL &&
        modbus_number(value, type, 1000000, &number) == 0)
        CHECK(number <= INT64_MAX);
    return 0;
}

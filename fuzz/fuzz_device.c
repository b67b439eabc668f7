/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What meters send: an answer of Modbus, or a JSON text behind a path that ends with a line feed.
 * The first byte says which.
 */
#include "input.h"
#include "unit/device/jsonpath.h"
#include "unit/device/modbus_frame.h"

static void json(const uint8_t *data, size_t size)
{
    char *text = input_text(data, size), *end = strchr(text, '\n');
    uint64_t value = 0;
    size_t path;

    if (end) {
        *end = '\0';
        path = strlen(text) + 1;
        if (jsonpath_number(text + path, size - path, text, 1000, &value) == 0)
            CHECK(jsonpath_check(text) == 0 && value <= INT64_MAX);
    }
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint16_t registers[MODBUS_REGISTERS_MAX];
    uint64_t value;

    if (size < 2)
        return 0;
    if (data[0] == 'j')
        json(data + 1, size - 1);
    else if (modbus_answer(data + 2, size - 2, 9, 1, data[1] % MODBUS_REGISTERS_MAX + 1,
                           registers) == 0 &&
             modbus_float(registers, 1000000, &value) == 0)
        CHECK(value <= INT64_MAX);
    return 0;
}

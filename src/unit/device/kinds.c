/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/device/kinds.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"

static const struct device_ops *const kinds[] = {&device_tasmota, &device_shelly,  &device_json,
                                                 &device_modbus,  &device_command, &device_ipmi,
                                                 &device_redfish};
static const char *const names[] = {"tasmota", "shelly", "json",   "modbus",
                                    "command", "ipmi",   "redfish"};

const struct device_ops *device_kind(const char *kind)
{
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (strcmp(kinds[i]->kind, kind) == 0)
            return kinds[i];
    return NULL;
}

const char *const *device_kinds(size_t *ret_n)
{
    *ret_n = ARRAY_LEN(names);
    return names;
}

int device_config_check(const struct meter_config *c, char *why, size_t size)
{
    const char *lacks = c->ops->lacks(c);

    if (!lacks)
        return 0;
    snprintf(why, size, "kind=%s needs %s", c->ops->kind, lacks);
    return -EINVAL;
}

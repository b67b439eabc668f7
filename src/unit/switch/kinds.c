/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/switch/kinds.h"

#include <string.h>

#include "base/cleanup.h"

static const struct relay_ops *const relays[] = {&relay_tasmota, &relay_shelly, &relay_modbus};
static const struct sensor_ops *const sensors[] = {&sensor_tasmota, &sensor_shelly, &sensor_json,
                                                   &sensor_modbus};

const struct relay_ops *relay_kind(const char *kind)
{
    for (size_t i = 0; i < ARRAY_LEN(relays); i++)
        if (strcmp(relays[i]->kind, kind) == 0)
            return relays[i];
    return NULL;
}

const struct sensor_ops *sensor_kind(const char *kind)
{
    for (size_t i = 0; i < ARRAY_LEN(sensors); i++)
        if (strcmp(sensors[i]->kind, kind) == 0)
            return sensors[i];
    return NULL;
}

static int32_t channel_of(const struct switch_config *c)
{
    return c->channel < 0 ? c->ops->first_channel : c->channel;
}

bool relay_same(const struct switch_config *a, const struct switch_config *b)
{
    if (a->ops != b->ops || strcmp(a->topic, b->topic) != 0 || channel_of(a) != channel_of(b))
        return false;
    return strcmp(a->bus.host, b->bus.host) == 0 && strcmp(a->bus.tty, b->bus.tty) == 0 &&
           a->bus.port == b->bus.port && a->bus.unit == b->bus.unit && a->coil == b->coil;
}

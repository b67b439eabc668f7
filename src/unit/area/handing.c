/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/area/handing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPIRY_S 10

bool handing_take(struct device *d, struct payload_reading *ret)
{
    const struct meter_config *c = d->config;
    uint64_t newest = d->power_ns > d->counter.time_ns ? d->power_ns : d->counter.time_ns;

    if (!c->covers_machine || newest == d->handed_ns)
        return false;
    *ret = (struct payload_reading){.slow = c->ops->slow, .error_permille = c->error_permille};
    snprintf(ret->name, sizeof(ret->name), "%s", c->name);
    ret->has_uw = d->power_ns > d->handed_ns && d->power.basis != POWER_UNKNOWN;
    ret->uw = d->power.uw;
    ret->has_uj = d->by_counter && d->counter.time_ns > d->handed_ns;
    ret->uj = d->counter.raw_uj;
    d->handed_ns = newest;
    return ret->has_uw || ret->has_uj;
}

void handing_publish(struct mqtt *broker, const struct device *d,
                     const struct payload_reading *reading)
{
    char *text = payload_reading_text(reading);
    char topic[TOPIC_MAX];
    int id;

    if (text)
        mqtt_publish(broker, topic_make(d->config->machine, TOPIC_READING, topic), text,
                     strlen(text), 0, false, EXPIRY_S, &id);
    free(text);
}

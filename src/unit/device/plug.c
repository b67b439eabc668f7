/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/device/plug.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "unit/device/jsonpath.h"

int plug_subscribe(struct device *d, struct mqtt *broker, const char *fmt)
{
    char topic[CONFIG_TEXT_MAX + 32];

    snprintf(topic, sizeof(topic), fmt, d->config->topic);
    return mqtt_subscribe(broker, topic, 1);
}

bool plug_topic_is(const struct device *d, const struct mqtt_message *m, const char *fmt)
{
    char topic[CONFIG_TEXT_MAX + 32];

    snprintf(topic, sizeof(topic), fmt, d->config->topic);
    return strcmp(topic, m->topic) == 0;
}

bool plug_says(const struct mqtt_message *m, const char *word)
{
    return m->len == strlen(word) && memcmp(m->bytes, word, m->len) == 0;
}

static const char *reason(int r)
{
    return r == -ENOENT ? "is missing" : r == -ERANGE ? "is negative or too large" : "is no number";
}

/* A text without one of the two is normal for some firmware; without both it is not. */
void plug_take(struct device *d, const struct mqtt_message *m, uint64_t now_ns,
               const char *energy_path, uint64_t energy_scale, const char *power_path,
               uint64_t power_scale)
{
    uint64_t uj = 0, uw = 0;
    int energy = -ENOENT, power = -ENOENT;

    if (m->retained) /* nobody knows how old it is */
        return;
    if (energy_path[0])
        energy = jsonpath_number(m->bytes, m->len, energy_path, energy_scale, &uj);
    if (power_path[0])
        power = jsonpath_number(m->bytes, m->len, power_path, power_scale, &uw);
    if ((energy < 0 && energy != -ENOENT) || (energy < 0 && power < 0)) {
        bool of_power = energy == -ENOENT && power_path[0];

        device_lost(d, "%.40s %s in what it tells", of_power ? power_path : energy_path,
                    reason(of_power ? power : energy));
        return;
    }
    if (energy == 0)
        device_energy(d, now_ns, uj);
    if (power == 0)
        device_watts(d, now_ns, uw);
}

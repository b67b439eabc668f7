/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plugs with Tasmota: tele/TOPIC/SENSOR {"ENERGY":{"Total":kWh,"Power":W}}, tele/TOPIC/LWT. Total
 * has three digits, and never falls but when somebody resets it.
 */
#include "unit/device/plug.h"

#define KWH_UJ UINT64_C(3600000000000)
#define W_UW   UINT64_C(1000000)

static const char *lacks(const struct meter_config *c)
{
    return c->topic[0] ? NULL : "topic=, as the plug's own Topic setting";
}

static int open_tasmota(struct device *d, sd_event *event, struct mqtt *broker, void **ret_own)
{
    int r = plug_subscribe(d, broker, "tele/%s/SENSOR");

    return r < 0 ? r : plug_subscribe(d, broker, "tele/%s/LWT");
}

static void got(struct device *d, const struct mqtt_message *m, uint64_t now_ns)
{
    if (plug_topic_is(d, m, "tele/%s/SENSOR"))
        plug_take(d, m, now_ns, "ENERGY.Total", KWH_UJ, "ENERGY.Power", W_UW);
    else if (plug_topic_is(d, m, "tele/%s/LWT") && plug_says(m, "Offline"))
        device_lost(d, "the plug is offline");
}

const struct device_ops device_tasmota = {
    .kind = "tasmota", .broker = true, .lacks = lacks, .open = open_tasmota, .got = got};

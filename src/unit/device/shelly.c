/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shelly's second generation: TOPIC/status/switch:0 {"apower":W,"aenergy":{"total":Wh}},
 * TOPIC/online.
 */
#include "unit/device/plug.h"

#define WH_UJ UINT64_C(3600000000)
#define W_UW  UINT64_C(1000000)

static const char *lacks(const struct meter_config *c)
{
    return c->topic[0] ? NULL : "topic=, as the plug's own MQTT prefix";
}

static int open_shelly(struct device *d, sd_event *event, struct mqtt *broker, void **ret_own)
{
    int r = plug_subscribe(d, broker, "%s/status/switch:0");

    return r < 0 ? r : plug_subscribe(d, broker, "%s/online");
}

static void got(struct device *d, const struct mqtt_message *m, uint64_t now_ns)
{
    if (plug_topic_is(d, m, "%s/status/switch:0"))
        plug_take(d, m, now_ns, "aenergy.total", WH_UJ, "apower", W_UW);
    else if (plug_topic_is(d, m, "%s/online") && plug_says(m, "false"))
        device_lost(d, "the plug is offline");
}

const struct device_ops device_shelly = {
    .kind = "shelly", .broker = true, .lacks = lacks, .open = open_shelly, .got = got};

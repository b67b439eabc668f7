/* SPDX-License-Identifier: Apache-2.0 */
/* Any meter that publishes JSON: one topic, and the paths of its energy, its power, or both. */
#include "unit/device/jsonpath.h"
#include "unit/device/plug.h"

static const char *lacks(const struct meter_config *c)
{
    if (!c->topic[0])
        return "topic=";
    if (!c->energy_path[0] && !c->power_path[0])
        return "energy-path= or power-path=, like 'ENERGY.Total' or 'phases[0].power'";
    if ((c->energy_path[0] && jsonpath_check(c->energy_path) < 0) ||
        (c->power_path[0] && jsonpath_check(c->power_path) < 0))
        return "a path of names and [numbers] with dots between, at most 8 steps";
    return NULL;
}

static int open_json(struct device *d, sd_event *event, struct mqtt *broker, void **ret_own)
{
    return plug_subscribe(d, broker, "%s");
}

static void got(struct device *d, const struct mqtt_message *m, uint64_t now_ns)
{
    const struct meter_config *c = d->config;

    if (plug_topic_is(d, m, "%s"))
        plug_take(d, m, now_ns, c->energy_path, c->energy_scale, c->power_path, c->power_scale);
}

const struct device_ops device_json = {
    .kind = "json", .broker = true, .lacks = lacks, .open = open_json, .got = got};

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sensors of presence that speak MQTT.
 *
 * Tasmota: a switch input, in tele/TOPIC/SENSOR {"Switch1":"ON"} and stat/TOPIC/RESULT
 * {"Switch1":{"Action":"ON"}} (SetOption114 1). Shelly: PREFIX/status/input:0 {"state":true}. JSON:
 * any topic, and the path of true, false, "ON", "OFF", 1 or 0. A retained message tells of nobody
 * knows when, and counts for nothing.
 */
#include <stdio.h>
#include <string.h>

#include "unit/device/jsonpath.h"
#include "unit/switch/kinds.h"

static int32_t channel_of(const struct sensor_port *p, int32_t first)
{
    return p->config->channel < 0 ? first : p->config->channel;
}

static int subscribe(struct sensor_port *p, const char *fmt, int32_t channel)
{
    char topic[CONFIG_TEXT_MAX + 48];

    snprintf(topic, sizeof(topic), fmt, p->config->topic, channel);
    return mqtt_subscribe(p->broker, topic, 1);
}

/* Tells what stands at the path, if the message has that topic. */
static void take(struct sensor_port *p, const struct mqtt_message *m, const char *fmt,
                 int32_t channel, const char *path)
{
    char topic[CONFIG_TEXT_MAX + 48];
    bool present;

    snprintf(topic, sizeof(topic), fmt, p->config->topic, channel);
    if (!m->retained && strcmp(topic, m->topic) == 0 &&
        jsonpath_switch(m->bytes, m->len, path, &present) == 0)
        p->told(p->arg, present);
}

static const char *lacks_topic(const struct presence_config *c)
{
    return c->topic[0] ? NULL : "topic=, as the sensor's own setting";
}

static const char *lacks_path(const struct presence_config *c)
{
    if (!c->topic[0])
        return "topic=";
    return c->path[0] && jsonpath_check(c->path) == 0 ? NULL : "path=, like 'occupancy'";
}

static int open_tasmota(struct sensor_port *p, sd_event *event)
{
    int r = subscribe(p, "tele/%s/SENSOR", 0);

    return r < 0 ? r : subscribe(p, "stat/%s/RESULT", 0);
}

static void got_tasmota(struct sensor_port *p, const struct mqtt_message *m)
{
    char path[32];

    snprintf(path, sizeof(path), "Switch%d", channel_of(p, 1));
    take(p, m, "tele/%s/SENSOR", 0, path);
    snprintf(path, sizeof(path), "Switch%d.Action", channel_of(p, 1));
    take(p, m, "stat/%s/RESULT", 0, path);
}

static int open_shelly(struct sensor_port *p, sd_event *event)
{
    return subscribe(p, "%s/status/input:%d", channel_of(p, 0));
}

static void got_shelly(struct sensor_port *p, const struct mqtt_message *m)
{
    take(p, m, "%s/status/input:%d", channel_of(p, 0), "state");
}

static int open_json(struct sensor_port *p, sd_event *event)
{
    return subscribe(p, "%s", 0);
}

static void got_json(struct sensor_port *p, const struct mqtt_message *m)
{
    take(p, m, "%s", 0, p->config->path);
}

const struct sensor_ops sensor_tasmota = {.kind = "tasmota",
                                          .broker = true,
                                          .lacks = lacks_topic,
                                          .open = open_tasmota,
                                          .got = got_tasmota};
const struct sensor_ops sensor_shelly = {
    .kind = "shelly", .broker = true, .lacks = lacks_topic, .open = open_shelly, .got = got_shelly};
const struct sensor_ops sensor_json = {
    .kind = "json", .broker = true, .lacks = lacks_path, .open = open_json, .got = got_json};

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Relays that speak MQTT.
 *
 * Tasmota: order cmnd/TOPIC/POWER ON or OFF, empty for "how are you"; it says stat/TOPIC/POWER. Its
 * second relay is POWER2, and so on. TOPIC/LWT tells that it is away.
 *
 * Shelly, second generation: order PREFIX/command/switch:0 on or off, "status_update" for "how are
 * you"; it says PREFIX/status/switch:0 {"output":true} and PREFIX/online.
 */
#include <stdio.h>
#include <string.h>

#include "unit/device/jsonpath.h"
#include "unit/switch/kinds.h"

#define CHANNEL_TEXT 12
#define ORDER_S      10 /* an order that the broker could not deliver for so long is dropped */

static bool topic_is(const struct mqtt_message *m, const char *fmt, const char *topic,
                     const char *channel)
{
    char text[CONFIG_TEXT_MAX + 48];

    snprintf(text, sizeof(text), fmt, topic, channel);
    return strcmp(text, m->topic) == 0;
}

static bool says(const struct mqtt_message *m, const char *word)
{
    return m->len == strlen(word) && memcmp(m->bytes, word, m->len) == 0;
}

static int subscribe(struct relay_port *p, const char *fmt, const char *channel)
{
    char text[CONFIG_TEXT_MAX + 48];

    snprintf(text, sizeof(text), fmt, p->config->topic, channel);
    return mqtt_subscribe(p->broker, text, 1);
}

static int publish(struct relay_port *p, const char *fmt, const char *channel, const char *text,
                   uint32_t for_s)
{
    char topic[CONFIG_TEXT_MAX + 48];
    int id;

    snprintf(topic, sizeof(topic), fmt, p->config->topic, channel);
    return mqtt_publish(p->broker, topic, text, strlen(text), 1, false,
                        for_s < ORDER_S ? for_s : ORDER_S, &id);
}

static const char *lacks(const struct switch_config *c)
{
    return c->topic[0] ? NULL : "topic=, as the relay's own setting";
}

/* ---- Tasmota --------------------------------------------------------------------------------- */

/* "" of a device with one relay, "2" of the second. */
static const char *tasmota_channel(const struct relay_port *p, char ret[CHANNEL_TEXT])
{
    ret[0] = '\0';
    if (p->config->channel >= 0)
        snprintf(ret, CHANNEL_TEXT, "%d", p->config->channel);
    return ret;
}

static int open_tasmota(struct relay_port *p, sd_event *event)
{
    char channel[CHANNEL_TEXT];
    int r = subscribe(p, "stat/%s/POWER%s", tasmota_channel(p, channel));

    return r < 0 ? r : subscribe(p, "tele/%s/LWT", "");
}

static void got_tasmota(struct relay_port *p, const struct mqtt_message *m)
{
    char channel[CHANNEL_TEXT];

    tasmota_channel(p, channel);
    if (topic_is(m, "tele/%s/LWT", p->config->topic, "")) {
        if (says(m, "Offline"))
            p->lost(p->arg, "it is offline");
        return;
    }
    if (m->retained || !topic_is(m, "stat/%s/POWER%s", p->config->topic, channel))
        return;
    if (says(m, "ON") || says(m, "OFF"))
        p->told(p->arg, says(m, "ON"));
}

static void query_tasmota(struct relay_port *p)
{
    char channel[CHANNEL_TEXT];

    publish(p, "cmnd/%s/POWER%s", tasmota_channel(p, channel), "", ORDER_S);
}

static int order_tasmota(struct relay_port *p, bool on, uint32_t for_s)
{
    char channel[CHANNEL_TEXT];

    return publish(p, "cmnd/%s/POWER%s", tasmota_channel(p, channel), on ? "ON" : "OFF", for_s);
}

const struct relay_ops relay_tasmota = {.kind = "tasmota",
                                        .broker = true,
                                        .first_channel = 1,
                                        .lacks = lacks,
                                        .open = open_tasmota,
                                        .got = got_tasmota,
                                        .query = query_tasmota,
                                        .order = order_tasmota};

/* ---- Shelly ---------------------------------------------------------------------------------- */

static const char *shelly_channel(const struct relay_port *p, char ret[CHANNEL_TEXT])
{
    snprintf(ret, CHANNEL_TEXT, "%d", p->config->channel < 0 ? 0 : p->config->channel);
    return ret;
}

static int open_shelly(struct relay_port *p, sd_event *event)
{
    char channel[CHANNEL_TEXT];
    int r = subscribe(p, "%s/status/switch:%s", shelly_channel(p, channel));

    return r < 0 ? r : subscribe(p, "%s/online", "");
}

static void got_shelly(struct relay_port *p, const struct mqtt_message *m)
{
    char channel[CHANNEL_TEXT];
    bool on;

    shelly_channel(p, channel);
    if (topic_is(m, "%s/online", p->config->topic, "")) {
        if (says(m, "false"))
            p->lost(p->arg, "it is offline");
        return;
    }
    if (!m->retained && topic_is(m, "%s/status/switch:%s", p->config->topic, channel) &&
        jsonpath_switch(m->bytes, m->len, "output", &on) == 0)
        p->told(p->arg, on);
}

static void query_shelly(struct relay_port *p)
{
    char channel[CHANNEL_TEXT];

    publish(p, "%s/command/switch:%s", shelly_channel(p, channel), "status_update", ORDER_S);
}

static int order_shelly(struct relay_port *p, bool on, uint32_t for_s)
{
    char channel[CHANNEL_TEXT];

    return publish(p, "%s/command/switch:%s", shelly_channel(p, channel), on ? "on" : "off", for_s);
}

const struct relay_ops relay_shelly = {.kind = "shelly",
                                       .broker = true,
                                       .first_channel = 0,
                                       .lacks = lacks,
                                       .open = open_shelly,
                                       .got = got_shelly,
                                       .query = query_shelly,
                                       .order = order_shelly};

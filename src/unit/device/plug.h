/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the kinds of devices that speak MQTT. Private to this room. */
#pragma once

#include "unit/device/device.h"

/* Subscribes to one topic made of @fmt and the configured one. Returns 0 or -errno. */
int plug_subscribe(struct device *d, struct mqtt *broker, const char *fmt);

/* Whether the message's topic is @fmt with the configured one in it. */
bool plug_topic_is(const struct device *d, const struct mqtt_message *m, const char *fmt);

/* Whether the text is this word. */
bool plug_says(const struct mqtt_message *m, const char *word);

/* Takes energy and power from a JSON text; a path may be empty. */
void plug_take(struct device *d, const struct mqtt_message *m, uint64_t now_ns,
               const char *energy_path, uint64_t energy_scale, const char *power_path,
               uint64_t power_scale);

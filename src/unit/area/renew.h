/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The unit's certificate before it ends: asks the hub for another one for the same key, over the
 * connection that the present one opened, checks what comes and replaces the file. Certificates go
 * by the real time. The event loop's thread; area.c calls it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "edge/mqtt.h"
#include "edge/topic.h"
#include "unit/config.h"

#define RENEW_DAYS 30 /* before its end */

struct renew;

struct renew_hooks {
    int (*send)(void *arg, enum topic_leaf leaf, char *text);
    void (*say)(void *arg, const char *type, const char *text, const char *data);
    void *arg;
};

int renew_new(const struct unit_config *config, const struct renew_hooks *hooks, struct renew **ret,
              struct error *err);
struct renew *renew_free(struct renew *r);

void renew_got(struct renew *r, const struct mqtt_message *m); /* down/certificate */

/* Once a second. Returns true once after the file was replaced: connect again. */
bool renew_tick(struct renew *r, bool connected, uint64_t now_ns);

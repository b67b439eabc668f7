/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A child's certificate before it ends: asks the parent for another one for the same key, over the
 * connection that the present one opened, checks what comes and replaces the file. Certificates go
 * by the real time. The event loop's thread; used by tide-power and, for a hub that is an area of
 * another, tide-hub.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "edge/mqtt.h"
#include "edge/topic.h"

#define RENEW_DAYS 30 /* before its end */

struct renew;

struct renew_hooks {
    int (*send)(void *arg, enum topic_leaf leaf, char *text);
    void (*say)(void *arg, const char *text); /* for people */
    void *arg;
};

/* Paths and the child's name; all borrowed. */
struct renew_place {
    const char *name, *ca, *cert, *key;
};

int renew_new(const struct renew_place *place, const struct renew_hooks *hooks, struct renew **ret,
              struct error *err);
struct renew *renew_free(struct renew *r);

void renew_got(struct renew *r, const struct mqtt_message *m); /* down/certificate */

/* Once a second. Returns true once after the file was replaced: connect again. */
bool renew_tick(struct renew *r, bool connected, uint64_t now_ns);

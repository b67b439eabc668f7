/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection to Modbus devices: a socket, or a serial line with several devices on it. Questions
 * wait in a queue and are asked one at a time, never blocking; libmodbus would wait for each answer
 * in the event loop's thread. All users of one address share one line. The event loop's thread.
 */
#pragma once

#include <stdbool.h>

#include <systemd/sd-event.h>

#include "unit/config.h"
#include "unit/device/modbus_frame.h"

struct modbus_line;

/* Its owner keeps it until done() was called or modbus_line_put(). */
struct modbus_ask {
    struct modbus_question question;
    /* @why NULL: @value has the answer. It may ask again at once. */
    void (*done)(void *arg, const char *why, const uint16_t *value);
    /*
     * Asked when the question is about to go out, which may be long after modbus_line_ask(); may be
     * NULL. False: it does not go out, and done() gets neither @why nor @value.
     */
    bool (*wanted)(void *arg);
    void *arg;
    bool waiting; /* the line's */
    struct modbus_ask *next;
};

/* Finds or makes the line. Returns 0 or -ENOMEM. */
int modbus_line_get(sd_event *event, const struct modbus_address *address,
                    struct modbus_line **ret);

/* Forgets the ask, and the line with its last user. Takes NULLs. */
void modbus_line_put(struct modbus_line *l, struct modbus_ask *ask);

/* Asks as soon as the line is free. Ignored while the ask is waiting. */
void modbus_line_ask(struct modbus_line *l, struct modbus_ask *ask);

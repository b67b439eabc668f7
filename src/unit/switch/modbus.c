/* SPDX-License-Identifier: Apache-2.0 */
/* Relays that are coils of a Modbus device, and sensors that are its discrete inputs. */
#include <errno.h>
#include <stdlib.h>

#include "unit/device/modbus_line.h"
#include "unit/switch/kinds.h"

#define SENSOR_US 2000000 /* between two questions */

/* ---- relays ---------------------------------------------------------------------------------- */

struct coil {
    struct modbus_line *line;
    struct modbus_ask ask;
    bool ordering, order_waits, on; /* a write is under way; it follows the question; which */
};

static void write_coil(struct relay_port *p)
{
    struct coil *c = p->own;

    c->order_waits = false;
    c->ordering = true;
    c->ask.question = (struct modbus_question){.unit = p->config->bus.unit,
                                               .function = MODBUS_WRITE_COIL,
                                               .first = (uint16_t)p->config->coil,
                                               .count = c->on};
    modbus_line_ask(c->line, &c->ask);
}

/* The line may have been busy or away for longer than the order's time. */
static bool coil_wanted(void *arg)
{
    struct relay_port *p = arg;
    const struct coil *c = p->own;

    return !c->ordering || p->wanted(p->arg, c->ask.question.count != 0);
}

static void coil_answered(void *arg, const char *why, const uint16_t *value)
{
    struct relay_port *p = arg;
    struct coil *c = p->own;
    bool wrote = c->ordering; /* or it was no longer wanted, and @value is NULL */

    c->ordering = false;
    if (why)
        p->lost(p->arg, why);
    else if (!wrote) /* an echo of an order is no state: the next question tells it */
        p->told(p->arg, value[0] != 0);
    if (c->order_waits)
        write_coil(p);
    else if (wrote && !why)
        p->config->ops->query(p);
}

static const char *coil_lacks(const struct switch_config *c)
{
    if (!c->bus.host[0] && !c->bus.tty[0])
        return "address=HOST:PORT, or device=/dev/ttyUSB0";
    return c->coil == MODBUS_NO_REGISTER ? "coil=, its number in the device" : NULL;
}

static int open_coil(struct relay_port *p, sd_event *event)
{
    struct coil *c = calloc(1, sizeof(*c));
    int r;

    if (!c)
        return -ENOMEM;
    c->ask.done = coil_answered;
    c->ask.wanted = coil_wanted;
    c->ask.arg = p;
    r = modbus_line_get(event, &p->config->bus, &c->line);
    if (r < 0)
        free(c);
    else
        p->own = c;
    return r;
}

static void query_coil(struct relay_port *p)
{
    struct coil *c = p->own;

    if (c->ask.waiting)
        return;
    c->ask.question = (struct modbus_question){.unit = p->config->bus.unit,
                                               .function = MODBUS_READ_COILS,
                                               .first = (uint16_t)p->config->coil,
                                               .count = 1};
    modbus_line_ask(c->line, &c->ask);
}

/* It asks whether the order is wanted still when it is about to be written. */
static int order_coil(struct relay_port *p, bool on, uint32_t for_s)
{
    struct coil *c = p->own;

    c->on = on;
    if (c->ask.waiting)
        c->order_waits = true;
    else
        write_coil(p);
    return 0;
}

static void close_coil(struct relay_port *p)
{
    struct coil *c = p->own;

    if (c)
        modbus_line_put(c->line, &c->ask);
    free(c);
    p->own = NULL;
}

const struct relay_ops relay_modbus = {.kind = "modbus",
                                       .lacks = coil_lacks,
                                       .open = open_coil,
                                       .query = query_coil,
                                       .order = order_coil,
                                       .close = close_coil};

/* ---- sensors --------------------------------------------------------------------------------- */

struct input {
    struct modbus_line *line;
    struct modbus_ask ask;
    sd_event_source *tick;
};

static void input_answered(void *arg, const char *why, const uint16_t *value)
{
    struct sensor_port *p = arg;

    if (!why) /* a sensor that is silent is dead after a while (power/site/presence.h) */
        p->told(p->arg, value[0] != 0);
}

static int on_tick(sd_event_source *source, uint64_t usec, void *arg)
{
    struct sensor_port *p = arg;
    struct input *i = p->own;

    sd_event_source_set_time_relative(source, SENSOR_US);
    sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
    modbus_line_ask(i->line, &i->ask);
    return 0;
}

static const char *input_lacks(const struct presence_config *c)
{
    if (!c->bus.host[0] && !c->bus.tty[0])
        return "address=HOST:PORT, or device=/dev/ttyUSB0";
    return c->input == MODBUS_NO_REGISTER ? "input=, its number in the device" : NULL;
}

static void close_input(struct sensor_port *p)
{
    struct input *i = p->own;

    if (!i)
        return;
    sd_event_source_disable_unref(i->tick);
    modbus_line_put(i->line, &i->ask);
    free(i);
    p->own = NULL;
}

static int open_input(struct sensor_port *p, sd_event *event)
{
    struct input *i = calloc(1, sizeof(*i));
    int r;

    if (!i)
        return -ENOMEM;
    p->own = i;
    i->ask = (struct modbus_ask){.question = {.unit = p->config->bus.unit,
                                              .function = MODBUS_READ_INPUTS,
                                              .first = (uint16_t)p->config->input,
                                              .count = 1},
                                 .done = input_answered,
                                 .arg = p};
    r = modbus_line_get(event, &p->config->bus, &i->line);
    if (r >= 0)
        r = sd_event_add_time_relative(event, &i->tick, CLOCK_MONOTONIC, 0, SENSOR_US / 10, on_tick,
                                       p);
    if (r < 0)
        close_input(p);
    return r;
}

const struct sensor_ops sensor_modbus = {
    .kind = "modbus", .lacks = input_lacks, .open = open_input, .close = close_input};

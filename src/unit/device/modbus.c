/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Meters with Modbus, over TCP or a serial line: a register of power, one of energy, or both. The
 * default is Eastron's: total power at 0x0034, imported energy at 0x0048, as float.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "unit/device/device.h"
#include "unit/device/modbus_line.h"

#define US_PER_S 1000000

struct meter {
    struct device *device;
    struct modbus_line *line;
    struct modbus_ask ask;
    sd_event_source *tick;
    bool of_energy, have_power; /* what is asked; whether uw is of this turn */
    uint64_t uw;
};

static void ask(struct meter *m, bool of_energy)
{
    const struct meter_config *c = m->device->config;

    m->of_energy = of_energy;
    m->ask.question = (struct modbus_question){
        .unit = c->bus.unit,
        .function = c->map.holding ? MODBUS_READ_HOLDING : MODBUS_READ_INPUT_REGISTERS,
        .first = (uint16_t)(of_energy ? c->map.energy : c->map.power),
        .count = modbus_registers(of_energy ? c->map.energy_type : c->map.power_type),
    };
    modbus_line_ask(m->line, &m->ask);
}

static void answered(void *arg, const char *why, const uint16_t *registers)
{
    struct meter *m = arg;
    const struct meter_config *c = m->device->config;
    uint64_t value, now = clock_now_ns();

    if (why) {
        device_lost(m->device, "%s", why);
        return;
    }
    if (modbus_number(registers, m->of_energy ? c->map.energy_type : c->map.power_type,
                      m->of_energy ? c->energy_scale : c->power_scale, &value) < 0) {
        device_lost(m->device, "its %s is negative or no number",
                    m->of_energy ? "energy" : "power");
        return;
    }
    if (!m->of_energy) {
        m->uw = value;
        m->have_power = true;
        if (c->map.energy != MODBUS_NO_REGISTER) {
            ask(m, true);
            return;
        }
    } else {
        device_energy(m->device, now, value);
    }
    if (m->have_power)
        device_watts(m->device, now, m->uw);
}

static int on_tick(sd_event_source *source, uint64_t usec, void *arg)
{
    struct meter *m = arg;
    uint32_t period = m->device->config->period_s ? m->device->config->period_s : 1;

    sd_event_source_set_time_relative(source, period * (uint64_t)US_PER_S);
    sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
    if (m->ask.waiting)
        return 0;
    m->have_power = false;
    ask(m, m->device->config->map.power == MODBUS_NO_REGISTER);
    return 0;
}

static const char *lacks(const struct meter_config *c)
{
    if (!c->bus.host[0] && !c->bus.tty[0])
        return "address=HOST:PORT, or device=/dev/ttyUSB0";
    if (c->map.power == MODBUS_NO_REGISTER && c->map.energy == MODBUS_NO_REGISTER)
        return "power-register= or energy-register=";
    return NULL;
}

static void close_modbus(void *own)
{
    struct meter *m = own;

    if (!m)
        return;
    sd_event_source_disable_unref(m->tick);
    modbus_line_put(m->line, &m->ask);
    free(m);
}

static int open_modbus(struct device *d, sd_event *event, struct mqtt *broker, void **ret_own)
{
    struct meter *m = calloc(1, sizeof(*m));
    int r;

    if (!m)
        return -ENOMEM;
    *m = (struct meter){.device = d, .ask = {.done = answered, .arg = m}};
    r = modbus_line_get(event, &d->config->bus, &m->line);
    if (r >= 0)
        r = sd_event_add_time_relative(event, &m->tick, CLOCK_MONOTONIC, 0, US_PER_S / 10, on_tick,
                                       m);
    if (r < 0) {
        close_modbus(m);
        return r;
    }
    *ret_own = m;
    return 0;
}

const struct device_ops device_modbus = {
    .kind = "modbus", .lacks = lacks, .open = open_modbus, .close = close_modbus};

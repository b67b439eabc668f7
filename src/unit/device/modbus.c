/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Meters with Modbus TCP and Eastron's registers: total power at 0x0034, imported energy at 0x0048.
 * One question at a time, never blocking; libmodbus would wait for each answer in the event loop's
 * thread.
 */
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "unit/device/device.h"
#include "unit/device/modbus_frame.h"

#define POWER_REGISTER  0x0034
#define ENERGY_REGISTER 0x0048
#define W_UW            UINT64_C(1000000)
#define KWH_UJ          UINT64_C(3600000000000)
#define PATIENCE_NS     (3 * NS_PER_S) /* for a connection, and for an answer */
#define RETRY_MAX_S     60
#define US_PER_S        1000000

enum question { NOTHING, CONNECTION, POWER, ENERGY };

struct line {
    struct device *device;
    sd_event *event;
    sd_event_source *io, *tick;
    int fd;
    enum question asked;
    uint16_t number;
    uint64_t since_ns, retry_ns; /* of the connection or the question; of the next try */
    unsigned tries;
    uint8_t bytes[MODBUS_FRAME_MAX];
    size_t len;
    uint64_t uw; /* of the first question, until the second is answered */
};

static void hang_up(struct line *l, const char *why)
{
    l->io = sd_event_source_disable_unref(l->io);
    l->fd = close_fd(l->fd);
    l->asked = NOTHING;
    l->retry_ns =
        clock_now_ns() + (l->tries < 6 ? UINT64_C(1) << l->tries : RETRY_MAX_S) * NS_PER_S;
    l->tries++;
    device_lost(l->device, "%.40s:%u: %.40s", l->device->config->host, l->device->config->port,
                why);
}

static void ask(struct line *l, enum question question)
{
    const struct meter_config *c = l->device->config;
    uint8_t request[MODBUS_REQUEST_BYTES];

    l->asked = question;
    l->len = 0;
    l->since_ns = clock_now_ns();
    modbus_request(++l->number, c->modbus_unit,
                   question == POWER ? POWER_REGISTER : ENERGY_REGISTER, 2, request);
    if (send(l->fd, request, sizeof(request), MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof(request))
        hang_up(l, strerror(errno));
}

static void take(struct line *l, const uint16_t *registers)
{
    uint64_t value, now = clock_now_ns();

    if (modbus_float(registers, l->asked == POWER ? W_UW : KWH_UJ, &value) < 0) {
        device_lost(l->device, "its %s is negative or no number",
                    l->asked == POWER ? "power" : "energy");
        l->asked = NOTHING;
    } else if (l->asked == POWER) {
        l->uw = value;
        ask(l, ENERGY);
    } else {
        l->asked = NOTHING;
        l->tries = 0;
        device_energy(l->device, now, value);
        device_watts(l->device, now, l->uw);
    }
}

static void receive(struct line *l)
{
    const struct meter_config *c = l->device->config;
    ssize_t n = recv(l->fd, l->bytes + l->len, sizeof(l->bytes) - l->len, MSG_DONTWAIT);
    uint16_t registers[2];
    char why[64];
    int r;

    if (n <= 0) {
        if (n == 0 || errno != EAGAIN)
            hang_up(l, n == 0 ? "the meter hung up" : strerror(errno));
        return;
    }
    l->len += (size_t)n;
    r = l->asked < POWER ? -EBADMSG
                         : modbus_answer(l->bytes, l->len, l->number, c->modbus_unit, 2, registers);
    if (r == 0) {
        take(l, registers);
    } else if (r == -EPROTO) {
        snprintf(why, sizeof(why), "the meter refuses (Modbus exception %u)", registers[0]);
        hang_up(l, why);
    } else if (r == -EBADMSG) {
        hang_up(l, "what it answers is not Modbus");
    }
}

static int on_io(sd_event_source *source, int fd, uint32_t revents, void *arg)
{
    struct line *l = arg;
    int error = 0;
    socklen_t len = sizeof(error);

    if (revents & EPOLLOUT) { /* connected, or not */
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len);
        if (error) {
            hang_up(l, strerror(error));
            return 0;
        }
        sd_event_source_set_io_events(source, EPOLLIN);
        ask(l, POWER);
    } else {
        receive(l);
    }
    return 0;
}

static void dial(struct line *l)
{
    const struct meter_config *c = l->device->config;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    char port[8];
    int r;

    snprintf(port, sizeof(port), "%u", c->port);
    r = getaddrinfo(c->host, port, &hints, &found);
    if (r != 0) {
        hang_up(l, gai_strerror(r));
        return;
    }
    l->since_ns = clock_now_ns();
    l->asked = CONNECTION;
    l->fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    r = l->fd < 0 || connect(l->fd, found->ai_addr, found->ai_addrlen) < 0 ? errno : 0;
    freeaddrinfo(found);
    if (r != 0 && r != EINPROGRESS)
        hang_up(l, strerror(r));
    else if (sd_event_add_io(l->event, &l->io, l->fd, EPOLLOUT, on_io, l) < 0)
        hang_up(l, "no memory");
}

static int on_tick(sd_event_source *source, uint64_t usec, void *arg)
{
    struct line *l = arg;
    uint32_t period = l->device->config->period_s ? l->device->config->period_s : 1;
    uint64_t now = clock_now_ns();

    sd_event_source_set_time_relative(source, period * (uint64_t)US_PER_S);
    sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
    if (l->fd < 0) {
        if (now >= l->retry_ns)
            dial(l);
    } else if (l->asked != NOTHING) {
        if (now - l->since_ns > PATIENCE_NS)
            hang_up(l, "no answer");
    } else {
        ask(l, POWER);
    }
    return 0;
}

static const char *lacks(const struct meter_config *c)
{
    return c->host[0] ? NULL : "address=HOST:PORT";
}

static void close_modbus(void *own)
{
    struct line *l = own;

    if (!l)
        return;
    sd_event_source_disable_unref(l->io);
    sd_event_source_disable_unref(l->tick);
    close_fd(l->fd);
    free(l);
}

static int open_modbus(struct device *d, sd_event *event, struct mqtt *broker, void **ret_own)
{
    struct line *l = calloc(1, sizeof(*l));
    int r;

    if (!l)
        return -ENOMEM;
    *l = (struct line){.device = d, .event = event, .fd = -1};
    r = sd_event_add_time_relative(event, &l->tick, CLOCK_MONOTONIC, 0, US_PER_S / 10, on_tick, l);
    if (r < 0) {
        close_modbus(l);
        return r;
    }
    *ret_own = l;
    return 0;
}

const struct device_ops device_modbus = {
    .kind = "modbus", .lacks = lacks, .open = open_modbus, .close = close_modbus};

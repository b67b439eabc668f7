/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Meters behind a program that runs now and then: `command`, any program that prints an amount, and
 * `ipmi`, ipmitool, which asks the machine's own management controller (/dev/ipmi0) or one in the
 * network. A controller's figure may be a minute old.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "unit/device/device.h"
#include "unit/device/printed.h"
#include "unit/device/run.h"

#define WORDS_MAX   32
#define TIMEOUT_MS  10000
#define POLL_S      10
#define BMC_POLL_S  30
#define US_PER_S    UINT64_C(1000000)
#define IPMI_PORT   623
#define MODBUS_PORT 502 /* what an address without a port has */

struct program {
    struct device *device;
    sd_event *event;
    sd_event_source *timer;
    struct run *run;
    char line[CONFIG_PATH_MAX], port[8];
    char *argv[WORDS_MAX + 1];
    void (*take)(struct device *d, const char *text);
};

static void done(void *arg, int status, const char *text)
{
    struct program *p = arg;
    char reason[64];

    p->run = NULL;
    if (status == 0) {
        p->take(p->device, text);
        return;
    }
    printed_reason(text, reason, sizeof(reason));
    if (status == -ETIMEDOUT)
        device_lost(p->device, "%.40s did not end within %d s", p->argv[0], TIMEOUT_MS / 1000);
    else
        device_lost(p->device, "%.20s failed (%d): %s", p->argv[0], status, reason);
}

static int on_timer(sd_event_source *source, uint64_t usec, void *arg)
{
    struct program *p = arg;
    const struct meter_config *c = p->device->config;
    uint32_t pause = c->period_s ? c->period_s : c->ops->poll_s;
    int r = 0;

    sd_event_source_set_time(source, usec + pause * US_PER_S);
    sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
    if (!p->run)
        r = run_start(p->event, p->argv, TIMEOUT_MS, done, p, &p->run);
    if (r < 0)
        device_lost(p->device, "cannot run %.40s: %s", p->argv[0], strerror(-r));
    else if (p->run && run_late(p->run))
        device_lost(p->device, "%.40s was killed after %d s, and does not end", p->argv[0],
                    TIMEOUT_MS / 1000);
    return 0;
}

static int begin(struct device *d, sd_event *event, struct program *p, void **ret_own)
{
    int r;

    p->device = d;
    p->event = event;
    r = sd_event_add_time_relative(event, &p->timer, CLOCK_MONOTONIC, 0, 10000, on_timer, p);
    if (r < 0) {
        free(p);
        return r;
    }
    *ret_own = p;
    return 0;
}

static void close_program(void *own)
{
    struct program *p = own;

    if (!p)
        return;
    run_free(p->run);
    sd_event_source_disable_unref(p->timer);
    free(p);
}

/* ---- command --------------------------------------------------------------------------------- */

static void take_amount(struct device *d, const char *text)
{
    uint64_t amount, now = clock_now_ns();
    int r = printed_amount(text, &amount);

    if (r < 0)
        device_lost(d, "its program prints no line like '83.2 W' or '12.5 kWh'");
    else if (r == 2)
        device_energy(d, now, amount);
    else
        device_watts(d, now, amount);
}

static int open_command(struct device *d, sd_event *event, struct mqtt *broker, void **ret_own)
{
    struct program *p = calloc(1, sizeof(*p));
    char *rest, *word;
    size_t n = 0;

    if (!p)
        return -ENOMEM;
    snprintf(p->line, sizeof(p->line), "%s", d->config->command);
    rest = p->line;
    while (n < WORDS_MAX && (word = strsep(&rest, " \t")))
        if (*word)
            p->argv[n++] = word;
    p->take = take_amount;
    return begin(d, event, p, ret_own);
}

static const char *command_lacks(const struct meter_config *c)
{
    return c->command[0] ? NULL : "command=, a program and its arguments";
}

const struct device_ops device_command = {.kind = "command",
                                          .poll_s = POLL_S,
                                          .lacks = command_lacks,
                                          .open = open_command,
                                          .close = close_program};

/* ---- ipmi ------------------------------------------------------------------------------------ */

static void take_ipmi(struct device *d, const char *text)
{
    uint64_t uw;
    int r = printed_ipmi(text, &uw);

    if (r == -ENODATA)
        device_lost(d, "the controller has no reading now");
    else if (r < 0)
        device_lost(d, "ipmitool tells no watts: sensor= names another sensor");
    else
        device_watts(d, clock_now_ns(), uw);
}

static void add(struct program *p, size_t *n, const char *word)
{
    if (*n < WORDS_MAX)
        p->argv[(*n)++] = (char *)word; /* posix_spawn() does not write them */
}

static int open_ipmi(struct device *d, sd_event *event, struct mqtt *broker, void **ret_own)
{
    const struct meter_config *c = d->config;
    struct program *p = calloc(1, sizeof(*p));
    size_t n = 0;

    if (!p)
        return -ENOMEM;
    add(p, &n, "ipmitool");
    add(p, &n, "-I");
    add(p, &n, c->bus.host[0] ? "lanplus" : "open");
    if (c->bus.host[0]) {
        snprintf(p->port, sizeof(p->port), "%u",
                 c->bus.port == MODBUS_PORT ? IPMI_PORT : c->bus.port);
        add(p, &n, "-H");
        add(p, &n, c->bus.host);
        add(p, &n, "-p");
        add(p, &n, p->port);
        add(p, &n, "-U");
        add(p, &n, c->user);
        add(p, &n, "-f");
        add(p, &n, c->password_file);
        if (c->cipher[0]) {
            add(p, &n, "-C");
            add(p, &n, c->cipher);
        }
    }
    add(p, &n, c->sensor[0] ? "sdr" : "dcmi");
    add(p, &n, c->sensor[0] ? "get" : "power");
    add(p, &n, c->sensor[0] ? c->sensor : "reading");
    p->take = take_ipmi;
    return begin(d, event, p, ret_own);
}

static const char *ipmi_lacks(const struct meter_config *c)
{
    return !c->bus.host[0] || (c->user[0] && c->password_file[0])
               ? NULL
               : "user= and password-file= beside address=";
}

const struct device_ops device_ipmi = {.kind = "ipmi",
                                       .poll_s = BMC_POLL_S,
                                       .slow = true,
                                       .lacks = ipmi_lacks,
                                       .open = open_ipmi,
                                       .close = close_program};

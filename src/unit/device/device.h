/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The meters of an area. A kind of meter is one file with a struct device_ops and a row in
 * kinds.c. Its readings go through one struct counter each, which finds wraps, resets, gaps and
 * lies. The event loop's thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <systemd/sd-event.h>

#include "base/error.h"
#include "edge/mqtt.h"
#include "power/measure/counter.h"
#include "power/measure/range.h"
#include "unit/config.h"

struct device;

struct device_ops {
    const char *kind;
    bool broker; /* it speaks through the area's broker */
    bool slow;   /* its figure may be a minute old: nothing is steered by it */
    uint32_t
        poll_s; /* pause between two looks, if the section names none; 0: it speaks by itself */
    /* Names a setting that the section lacks; NULL: none. */
    const char *(*lacks)(const struct meter_config *c);
    /* Begins to listen or to poll; *ret_own may stay NULL. Returns 0 or -errno. */
    int (*open)(struct device *d, sd_event *event, struct mqtt *broker, void **ret_own);
    /* A message of the broker; only kinds with `broker`. Others' topics are ignored. */
    void (*got)(struct device *d, const struct mqtt_message *m, uint64_t now_ns);
    void (*close)(void *own);
};

/* One meter, and what is known of it. */
struct device {
    const struct meter_config *config;
    void *own; /* of its kind */
    struct counter counter;
    struct energy_range total;     /* since the outbox began; a restart goes on */
    uint64_t stored_uj, stored_ms; /* its own counter and the time of the last record; 0: none */
    uint64_t unheard_ns;           /* it was not heard up to there; the owner sets it; 0: heard */
    uint64_t gap_ns;               /* of total's time; the owner takes it and sets it to 0 */
    uint64_t span_ns;              /* the longest that one reading told of; taken as gap_ns */
    struct power_range power;      /* the newest; POWER_UNKNOWN: none */
    uint64_t power_ns;             /* its time */
    uint64_t told_ns;              /* time of the newest reading of any kind; 0: it is away */
    uint64_t pause_ns;             /* so long it keeps silent between two, as seen lately */
    uint64_t peak_uw;              /* the upper bound of the largest power it told */
    uint64_t last_uw;              /* of a meter without a counter */
    uint64_t handed_ns;            /* time of the reading that its machine was told last */
    bool by_counter;               /* energy comes from the meter's own counter */
    bool hole;                     /* some energy was never told; the owner takes it, as gap_ns */
    char problem[96];              /* why nothing comes; empty: all is well */
    void (*trouble)(void *arg, const struct device *d); /* d->problem has changed */
    void *arg;
};

extern const struct device_ops device_tasmota, device_shelly, device_json, device_modbus,
    device_command, device_ipmi, device_redfish;

/* A reading of the meter's own counter, or of its power. Negative ones are refused by its kind. */
void device_energy(struct device *d, uint64_t now_ns, uint64_t raw_uj);
void device_watts(struct device *d, uint64_t now_ns, uint64_t uw);

/*
 * Whether it has told nothing for two minutes, or for twice as long as it usually keeps silent, if
 * that is more. Its power may be unknown longer than that, as that of a meter with a counter alone.
 */
bool device_silent(const struct device *d, uint64_t now_ns);
bool device_power_known(const struct device *d, uint64_t now_ns);

/* The meter is away or says nonsense; its power is unknown until it is heard again. */
__attribute__((format(printf, 2, 3))) void device_lost(struct device *d, const char *fmt, ...);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Readings of the machine's power that somebody hands down: a unit's plug or meter before the
 * machine's power supply. Each source has its own account; the newest that is fresh counts.
 * Daemon's event loop only; part of the meter.
 */
#pragma once

#include "base/error.h"
#include "host/power/sensors.h"
#include "power/measure/counter.h"
#include "power/measure/range.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HANDED_MAX      8
#define HANDED_FRESH_NS UINT64_C(30000000000) /* a source that is silent for longer is away */
#define HANDED_ERROR    1000                  /* permille: no meter is worse */

/* One reading: of energy, of power, or of both. */
struct handed_reading {
    const char *name; /* 1 … 63 of [A-Za-z0-9._:-] */
    bool has_uj, has_uw;
    uint64_t uj, uw;
    uint32_t error_permille;
    bool slow; /* it may be of a minute ago: a management controller's */
};

struct handed_source {
    struct sensor sensor;
    struct counter counter;
    struct sensor_reading last;
    uint64_t uw;                 /* of the last reading, or the mean between the last two */
    bool known;                  /* uw is */
    bool slow;                   /* no loop is closed on it */
    struct energy_range pending; /* not yet taken */
};

struct handed {
    struct handed_source of[HANDED_MAX];
    size_t n;
};

/* Takes a reading. Returns 0, -EINVAL (name, error, no value), -ENOSPC (too many names). */
int handed_take(struct handed *h, const struct handed_reading *r, uint64_t now_ns,
                struct error *err);

/* The source that counts: fresh and with two readings at least, a slow one only where no other is.
 * NULL: none. */
struct handed_source *handed_best(struct handed *h, uint64_t now_ns);

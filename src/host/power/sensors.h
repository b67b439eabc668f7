/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine's own sensors of power: powercap (RAPL), hwmon, and files into which something writes
 * watts. A kind of sensor is one file of this room and a row in its table (sensors.c).
 *
 * @root is a directory descriptor of "/", of the host's file system in a container, or of a
 * recorded tree. Owner's thread; used by tided's meter.
 */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SENSORS_MAX     64
#define SENSOR_NAME_MAX 64
#define SENSOR_PATH_MAX 256

enum sensor_kind {
    SENSOR_POWERCAP,
    SENSOR_HWMON,
    SENSOR_FILE,
    SENSOR_HANDED, /* readings that a unit hands down: none of this room */
    SENSOR_MODEL,  /* no sensor at all */
    SENSOR_KIND_MAX
};

enum sensor_part {
    SENSOR_MACHINE,
    SENSOR_PACKAGE,
    SENSOR_CORE,
    SENSOR_UNCORE,
    SENSOR_DRAM,
    SENSOR_PSYS,
    SENSOR_OTHER, /* a part of which nobody has said what it is */
    SENSOR_PART_MAX
};

struct sensor {
    uint32_t kind, part;        /* enums above */
    uint32_t package;           /* of PACKAGE, CORE, UNCORE, DRAM */
    char name[SENSOR_NAME_MAX]; /* "package-0", "package-0/dram", "file:/run/watts" */
    char path[SENSOR_PATH_MAX]; /* below the root */
    char chip[SENSOR_NAME_MAX]; /* of hwmon: its name and device, as its number changes */
    bool counts;                /* energy; else power */
    uint64_t wrap_uj;           /* 0: never */
    uint64_t most_uw;           /* more is a lie */
    uint64_t period_ns;         /* a reading is at most so old */
    bool slow;                  /* it may tell what was a minute ago */
    uint32_t error_permille;
};

struct sensor_reading {
    uint64_t time_ns; /* CLOCK_MONOTONIC */
    uint64_t value;   /* µJ or µW; only if error is 0 */
    bool old;         /* watts of a file that has not been written since the last reading */
    int error;        /* 0 or -errno: -EACCES, -ENODEV (gone), -ESTALE (a file that nobody writes
                         any more), -EINVAL (no number), -ENODATA (0 W of a whole machine) */
};

struct sensors;

/* "powercap", "package", …; "?" for another number. Static. */
const char *sensor_kind_name(enum sensor_kind kind);
const char *sensor_part_name(enum sensor_part part);

/*
 * Checks what a person wants: "auto" (powercap and hwmon), "none", or words of "powercap", "hwmon",
 * "hwmon:CHIP" (that chip sees the whole machine), "file:/PATH" (watts or a count of energy of the
 * whole machine). Returns 0, or -EINVAL with the reason.
 */
int sensors_check(const char *wanted, struct error *err);

/*
 * Finds the sensors. A sensor that exists and cannot be read is among them: its readings say why.
 * Returns 0, also when there is none; -EINVAL as above, -ENOMEM.
 */
int sensors_find(int root, const char *wanted, struct sensors **ret, struct error *err);
size_t sensors_count(const struct sensors *s);
const struct sensor *sensors_at(const struct sensors *s, size_t i); /* borrowed */
struct sensors *sensors_free(struct sensors *s);                    /* takes NULL, returns NULL */

/* Reads all: sensors_count() readings. Descriptors stay open: one pread each. */
void sensors_read(struct sensors *s, uint64_t now_ns, struct sensor_reading *ret);

/*
 * Which of them make up the machine: a sensor of the whole machine, else psys, else all packages
 * and their memory, of the first kind that has some. The last are a lower bound: RAPL is not the
 * wall. Only those count that could be read last time. Returns how many, 0: none.
 */
size_t sensors_machine(const struct sensors *s, uint32_t *ret_index, size_t max);

/* The packages and their memory alone, as above, whatever else sees the machine. */
size_t sensors_packages(const struct sensors *s, uint32_t *ret_index, size_t max);

/* ---- RAPL's limits (powercap.c) ---- */

struct powercap_limit {
    char path[SENSOR_PATH_MAX]; /* constraint_0_power_limit_uw of a package, below the root */
    uint64_t uw;
};

/* The packages' long-term limits that can be read; returns how many. */
size_t powercap_limits(const struct sensors *s, struct powercap_limit *ret, size_t max);

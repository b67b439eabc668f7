/* SPDX-License-Identifier: Apache-2.0 */
/* The interface of a kind of sensors, and the list that it adds to. Private to this room. */
#pragma once

#include "host/power/sensors.h"

/* One sensor and its open file. */
struct sensor_slot {
    struct sensor sensor;
    int fd;             /* -1: opened at each reading, or not to be opened */
    int error;          /* of the last reading */
    bool replaceable;   /* no sysfs: somebody may put another file in its place */
    uint64_t seen_ns;   /* when the file's text was seen to change */
    int64_t written_ns; /* its time of change then */
    bool again;         /* it has not changed since the last reading */
};

struct sensors {
    int root;
    size_t n;
    struct sensor_slot slot[SENSORS_MAX];
};

struct sensor_kind_ops {
    const char *name; /* in `power=` */
    /* Adds the sensors of this kind; @argument: after "NAME:", NULL: none. 0 or -errno. */
    int (*find)(struct sensors *s, const char *argument, struct error *err);
};

extern const struct sensor_kind_ops sensor_powercap, sensor_hwmon, sensor_file;

/* Where the chip of a hwmon's sensor is now: its driver may have come back with another number. 0,
 * -ENOENT. */
int sensor_hwmon_locate(const struct sensors *s, struct sensor *sensor);

/* Adds @sensor to the list and opens it. One too many is left out. */
void sensors_add(struct sensors *s, const struct sensor *sensor);

/*
 * The names in directory @path below the root that begin with @prefix, ascending, numbers as
 * numbers. The caller frees each and the list. Returns how many, 0 also when there is no such
 * directory.
 */
int sensors_list(const struct sensors *s, const char *path, const char *prefix, char ***ret);
char **sensors_list_free(char **names, int n); /* returns NULL */

/* Reads a line below the root, without its newline. 0 or -errno. */
int sensors_line(const struct sensors *s, char *buf, size_t size, const char *path);

/* The last name in what a link below the root says; "" where there is none. */
void sensors_link(const struct sensors *s, char *buf, size_t size, const char *path);

/* Reads one, which is opened if it was not. 0 or -errno. */
int sensor_slot_read(const struct sensors *s, struct sensor_slot *slot, uint64_t now_ns,
                     uint64_t *ret);

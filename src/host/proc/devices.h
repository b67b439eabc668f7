/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices (GPUs, network cards) that the machine has, and those that processes have open. @root is
 * a directory descriptor of "/" or of a recorded tree. Any thread, no state; called by the daemon.
 */
#pragma once

#include "base/devices.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define DEVICES_SET_MAX   32 /* that are told apart in what one job holds; further ones are not */
#define DEVICES_NAMES_MAX (DEVICES_SET_MAX * 16)

struct device {
    uint16_t kind, number; /* enum device_kind; as in its name: 0 of /dev/nvidia0 */
};

/* In ascending order, each once. */
struct device_set {
    unsigned n;
    struct device of[DEVICES_SET_MAX];
};

/* Adds a device. A full set stays as it is. */
void device_set_add(struct device_set *set, struct device device);

/* Number of devices of @kind in @set that are not in @but (NULL: nothing is). */
unsigned device_set_count(const struct device_set *set, enum device_kind kind,
                          const struct device_set *but);

/* Writes "nvidia0, nvidia1", cut to @size. Returns @buf. */
const char *device_set_text(const struct device_set *set, char *buf, size_t size);

/* Whether @path is the node of a device that is told apart: "/dev/nvidia0", no control node. */
bool proc_parse_device(const char *path, struct device *ret);

/* Counts the devices that the kernel lists in /sys and /proc, whatever /dev shows. */
int64_t proc_count_devices(int root);

/*
 * Adds the devices that a process has open. Returns 0, -ESRCH (it is gone) or -errno. Looks at its
 * first 1024 descriptors, and at what it has mapped only where it holds a driver's control node,
 * but no device: maps take a millisecond.
 */
int proc_read_devices(int root, pid_t pid, struct device_set *set);

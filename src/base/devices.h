/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kinds of devices that a machine's jobs share out (GPUs, network cards), named as their nodes
 * below /dev are, and numbers of each, kept in one byte a kind; base/size.h has them as text. Pure;
 * any thread; used for what a job asks for, by the daemon, by policies (the list of kinds alone)
 * and by the simulator.
 */
#pragma once

#include <stdint.h>

/* Kinds in the order in which texts list them. */
#define DEVICE_KINDS_OF(ROW)                                                                       \
    ROW(NVIDIA, "nvidia") /* /dev/nvidia0 */                                                       \
    ROW(RENDER, "render") /* /dev/dri/renderD128: AMD's and Intel's GPUs */                        \
    ROW(ACCEL, "accel")   /* /dev/accel/accel0 */                                                  \
    ROW(UVERBS, "uverbs") /* /dev/infiniband/uverbs0: cards with RDMA */                           \
    ROW(VFIO, "vfio")     /* /dev/vfio/12: devices given to programs whole, by groups */

enum device_kind {
#define ROW(ID, name) DEVICE_##ID,
    DEVICE_KINDS_OF(ROW)
#undef ROW
        DEVICE_KINDS
};

#define DEVICES_OF_KIND_MAX 64 /* that one job asks for, or one machine has */
#define DEVICES_BITS        8  /* of a number in the counts */
#define DEVICES_COUNTS_MAX  ((INT64_C(1) << (DEVICES_BITS * DEVICE_KINDS)) - 1)

static inline const char *device_kind_name(int kind)
{
    static const char *const names[DEVICE_KINDS] = {
#define ROW(ID, name) name,
        DEVICE_KINDS_OF(ROW)
#undef ROW
    };

    return names[kind];
}

static inline unsigned devices_of(int64_t counts, int kind)
{
    return (unsigned)(counts >> (DEVICES_BITS * kind)) & ((1u << DEVICES_BITS) - 1);
}

/* Returns the counts with another number of one kind, cut to DEVICES_OF_KIND_MAX. */
static inline int64_t devices_with(int64_t counts, int kind, unsigned number)
{
    int64_t mask = ((INT64_C(1) << DEVICES_BITS) - 1) << (DEVICES_BITS * kind);

    if (number > DEVICES_OF_KIND_MAX)
        number = DEVICES_OF_KIND_MAX;
    return (counts & ~mask) | (int64_t)number << (DEVICES_BITS * kind);
}

static inline unsigned devices_total(int64_t counts)
{
    unsigned total = 0;

    for (int kind = 0; kind < DEVICE_KINDS; kind++)
        total += devices_of(counts, kind);
    return total;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long a room has been empty, from the reports of its sensor. Pure; any thread; times are
 * monotonic. Used by src/unit.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define PRESENCE_SILENT_S 7200 /* a sensor that was silent for so long is dead */

struct presence {
    bool known, present;
    uint64_t since_ns; /* since it is so */
    uint64_t heard_ns; /* the last report */
};

void presence_is(struct presence *p, bool present, uint64_t now_ns);

/* 0: somebody is there, or nobody knows: no light goes off for a dead sensor. */
uint64_t presence_absent_s(const struct presence *p, uint64_t now_ns);

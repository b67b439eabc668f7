/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which caps stand on a machine, and the one in force: the smallest. A person cannot raise a cap
 * above the power lease, nor a lease one above what a person set.
 *
 * Pure; any thread. Times are nanoseconds of one clock, the owner's.
 */
#pragma once

#include "power/measure/range.h"

#include <stdbool.h>
#include <stdint.h>

#define CAP_NO_END UINT64_MAX
#define CAP_OPEN   POWER_UW_MAX /* an area without a cap lends so much; caps nothing */

/* Setters of a cap; each has one at most. */
enum cap_source { CAP_CONFIG, CAP_PERSON, CAP_LEASE, CAP_SOURCE_MAX };

/* Kinds of a cap by what holds after its end: of a breaker its floor, of the others nothing. */
enum cap_kind { CAP_BREAKER, CAP_BUDGET, CAP_ADVICE, CAP_KIND_MAX };

struct cap {
    uint64_t uw;       /* above 0 */
    uint64_t floor_uw; /* of a breaker, after its end */
    uint64_t until_ns; /* clock_boot_ns() in tided; CAP_NO_END: none */
    uint32_t kind;     /* enum cap_kind */
    bool held;         /* whether it stands */
};

struct caps {
    struct cap of[CAP_SOURCE_MAX];
};

/* "configuration", "person", "lease"; "breaker", "budget", "advice"; "?" otherwise. Static. */
const char *cap_source_name(enum cap_source source);
const char *cap_kind_name(enum cap_kind kind);

/*
 * Finds the smallest cap at @now_ns; of equal ones the first source's. Returns false if nothing
 * caps the machine. *ret_next is when that may change by itself, or CAP_NO_END; it is set in any
 * case, the others only with a cap. A cap is never 0: a breaker without a floor ends at 1 uW. One
 * of CAP_OPEN caps nothing, but its end may.
 */
bool caps_in_force(const struct caps *c, uint64_t now_ns, uint64_t *ret_uw,
                   enum cap_source *ret_source, uint64_t *ret_next);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A power or an energy as far as it is known: a value, the bounds that it lies in, and its basis.
 * An unknown amount has the basis UNKNOWN; nobody may show its value, which is not "0 W". Pure; any
 * thread; used by all of energy.
 */
#pragma once

#include <stdint.h>

/* From worst to best. */
enum power_basis {
    POWER_UNKNOWN,
    POWER_ASSUMED,    /* a model of machines like this one */
    POWER_MODELLED,   /* a model of this machine, or a sensor that sees a part of it */
    POWER_CALIBRATED, /* a model that was fitted to a meter of this machine */
    POWER_MEASURED,
    POWER_BASIS_MAX
};

#define POWER_UW_MAX                                                                               \
    (UINT64_C(1) << 40) /* about 1.1 MW: a machine, plug or meter above it lies                    \
                         */

struct power_range {
    uint64_t uw, low_uw, high_uw; /* low <= uw <= high */
    uint32_t basis;               /* enum power_basis */
};

struct energy_range {
    uint64_t uj, low_uj, high_uj; /* low <= uj <= high */
    uint32_t basis;               /* the worst one of a sum */
};

/* "unknown", "assumed", "modelled", "calibrated", "measured"; "?" for another number. Static. */
const char *power_basis_name(enum power_basis basis);

/*
 * Adds @more to *sum, saturating; a sum begins with all zeros. An UNKNOWN amount stays out: its
 * owner counts the time as a gap.
 */
void energy_add(struct energy_range *sum, const struct energy_range *more);

/* The energy of @power over @ns, the bounds rounded outwards. */
struct energy_range energy_of(const struct power_range *power, uint64_t ns);

/* The mean power of @energy over @ns, the bounds rounded outwards; UNKNOWN for 0 ns. */
struct power_range power_of(const struct energy_range *energy, uint64_t ns);

/* @uj with a relative error; of a measured amount. */
struct energy_range energy_within(uint64_t uj, uint32_t error_permille, enum power_basis basis);

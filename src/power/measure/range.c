/* SPDX-License-Identifier: Apache-2.0 */
#include "power/measure/range.h"

#include "base/muldiv.h"

#include <assert.h>

#define NS_PER_SECOND UINT64_C(1000000000)

static const char *const names[] = {"unknown", "assumed", "modelled", "calibrated", "measured"};
static_assert(sizeof(names) / sizeof(names[0]) == POWER_BASIS_MAX, "a name for each basis");

const char *power_basis_name(enum power_basis basis)
{
    return (unsigned)basis < POWER_BASIS_MAX ? names[basis] : "?";
}

void energy_add(struct energy_range *sum, const struct energy_range *more)
{
    if (more->basis == POWER_UNKNOWN)
        return;
    sum->uj = add_sat(sum->uj, more->uj);
    sum->low_uj = add_sat(sum->low_uj, more->low_uj);
    sum->high_uj = add_sat(sum->high_uj, more->high_uj);
    if (sum->basis == POWER_UNKNOWN || more->basis < sum->basis)
        sum->basis = more->basis;
}

struct energy_range energy_of(const struct power_range *power, uint64_t ns)
{
    if (power->basis == POWER_UNKNOWN)
        return (struct energy_range){0};
    return (struct energy_range){.uj = mul_div(power->uw, ns, NS_PER_SECOND),
                                 .low_uj = mul_div(power->low_uw, ns, NS_PER_SECOND),
                                 .high_uj = mul_div_up(power->high_uw, ns, NS_PER_SECOND),
                                 .basis = power->basis};
}

struct power_range power_of(const struct energy_range *energy, uint64_t ns)
{
    if (energy->basis == POWER_UNKNOWN || ns == 0)
        return (struct power_range){0};
    return (struct power_range){.uw = mul_div(energy->uj, NS_PER_SECOND, ns),
                                .low_uw = mul_div(energy->low_uj, NS_PER_SECOND, ns),
                                .high_uw = mul_div_up(energy->high_uj, NS_PER_SECOND, ns),
                                .basis = energy->basis};
}

struct energy_range energy_within(uint64_t uj, uint32_t error_permille, enum power_basis basis)
{
    uint64_t error = mul_div_up(uj, error_permille, 1000);

    return (struct energy_range){
        .uj = uj, .low_uj = sub_sat(uj, error), .high_uj = add_sat(uj, error), .basis = basis};
}

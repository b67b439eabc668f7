/* SPDX-License-Identifier: Apache-2.0 */
#include "power/model/stand_in.h"

#include "base/minmax.h"
#include "base/muldiv.h"

#include <errno.h>
#include <stdbool.h>

#define NEAR_PART 8     /* of the largest load seen, … */
#define NEAR_MCPU 100.0 /* … and this: so far beyond what was seen a forecast is believed */

int stand_in_check(const struct stand_in *s)
{
    bool empty = s->fit.samples == 0;

    if (s->basis > POWER_CALIBRATED || s->basis == POWER_ASSUMED || s->beside > 1 ||
        s->below_permille > 1000 || empty != (s->basis == POWER_UNKNOWN))
        return -EINVAL;
    return watts_fit_check(&s->fit);
}

static bool was_seen(const struct watts_fit *f, const struct watts_sample *s)
{
    double load = (double)s->busy_mcpu * (double)s->speed_permille / 1000, near;

    if (f->knots == 0)
        return false;
    near = f->knot[f->knots - 1].mcpu / NEAR_PART + NEAR_MCPU;
    return load >= f->knot[0].mcpu - near && load <= f->knot[f->knots - 1].mcpu + near;
}

/* Beside which sensors were learnt, so it is asked. */
static struct watts_sample as_learnt(const struct stand_in *s, const struct watts_sample *sample)
{
    struct watts_sample ret = *sample;

    if (!s->beside)
        ret.sensor_uw = 0;
    return ret;
}

struct power_range stand_in_at(const struct stand_in *s, const struct watts_sample *sample)
{
    struct watts_sample asked = as_learnt(s, sample);
    struct power_range p;

    if (s->fit.samples < STAND_IN_SAMPLES || (s->beside && sample->sensor_uw == 0) ||
        !was_seen(&s->fit, sample))
        return (struct power_range){0};
    p = watts_fit_at(&s->fit, &asked);
    if (p.basis == POWER_UNKNOWN || p.uw == 0)
        return (struct power_range){0};
    p.basis = s->basis;
    p.low_uw -= mul_div(p.low_uw, s->below_permille, 1000);
    p.high_uw = smaller_u64(add_sat(p.high_uw, mul_div_up(p.high_uw, s->above_permille, 1000)),
                            POWER_UW_MAX);
    return p;
}

/* Whether the source that has come back is the one that taught; until that is known, it does not
 * teach. */
static bool on_trial(struct stand_in *s, const struct watts_sample *sample, uint64_t uw)
{
    struct power_range p;

    if (s->away >= STAND_IN_AWAY) {
        s->trial = STAND_IN_TRIAL;
        s->missed = 0;
    }
    s->away = 0;
    if (s->trial == 0)
        return false;
    p = stand_in_at(s, sample);
    if (p.basis == POWER_UNKNOWN)
        return false;
    s->trial--;
    s->missed += uw < p.low_uw || uw > p.high_uw;
    if (s->missed <= STAND_IN_TRIAL / 2)
        return true;
    *s = (struct stand_in){0};
    return false;
}

/* One interval without the packages' watts is no reason to forget what they tell. */
static bool is_odd(struct stand_in *s, bool beside)
{
    if (s->fit.samples == 0 || beside == s->beside) {
        s->odd = 0;
        s->beside = beside;
        return false;
    }
    if (++s->odd < STAND_IN_ODD)
        return true;
    *s = (struct stand_in){.beside = beside};
    return false;
}

static uint32_t permille_of(uint64_t part, uint64_t uw)
{
    uint64_t permille = mul_div_up(part, 1000, uw);

    return permille < UINT32_MAX ? (uint32_t)permille : UINT32_MAX;
}

void stand_in_add(struct stand_in *s, const struct watts_sample *sample,
                  const struct power_range *reading)
{
    uint32_t basis = reading->basis == POWER_MEASURED ? POWER_CALIBRATED : POWER_MODELLED;
    struct watts_sample learnt = *sample;

    if (reading->basis == POWER_UNKNOWN || reading->uw == 0 || sample->speed_permille == 0 ||
        basis < s->basis) {
        s->away += s->away < STAND_IN_AWAY;
        return;
    }
    if (basis > s->basis)
        *s = (struct stand_in){0};
    if (basis == POWER_MODELLED) /* then they are the reading */
        learnt.sensor_uw = 0;
    if (is_odd(s, learnt.sensor_uw > 0) || on_trial(s, &learnt, reading->uw))
        return;
    s->basis = basis;
    s->beside = learnt.sensor_uw > 0;
    s->below_permille = permille_of(reading->uw - reading->low_uw, reading->uw);
    s->above_permille = permille_of(reading->high_uw - reading->uw, reading->uw);
    learnt.uw = reading->uw;
    watts_fit_add(&s->fit, &learnt);
    if (s->fit.samples == 0) /* it could not be learnt */
        *s = (struct stand_in){0};
}

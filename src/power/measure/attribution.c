/* SPDX-License-Identifier: Apache-2.0 */
#include "power/measure/attribution.h"

#include "base/minmax.h"
#include "base/muldiv.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#define LOAD_MAX   UINT32_MAX
#define WEIGHT_MAX (UINT64_MAX / 4)

/* One division in the making. Weights are CPU time at base frequency. */
struct division {
    const struct attribution_input *in;
    struct attribution *out;
    struct energy_range dynamic; /* the machine's above idle */
    uint64_t weight;             /* of all load */
    uint64_t given_weight, given_uj;
    uint64_t span_uw; /* what all load together draws by the model; 0: not known */
    uint32_t basis;   /* of a part: the worse of source and model */
};

static uint64_t weight_of(uint64_t cpu_ns, uint32_t speed_permille)
{
    return mul_div(cpu_ns, speed_permille, 1000);
}

static uint32_t load_of(const struct attribution_input *in, uint64_t weight)
{
    uint64_t mcpu = mul_div(weight, 1000, in->interval_ns);

    return mcpu > LOAD_MAX ? LOAD_MAX : (uint32_t)mcpu;
}

static uint64_t power_at(const struct attribution_input *in, uint32_t load_mcpu)
{
    return in->watts_at(in->watts, load_mcpu).uw;
}

/* Sums differ from the whole by less than one µJ each, and their sum is the whole. */
static uint64_t take(struct division *d, uint64_t weight)
{
    uint64_t until, uj;

    d->given_weight += weight;
    until = d->weight ? mul_div(d->dynamic.uj, d->given_weight, d->weight) : 0;
    uj = until - d->given_uj;
    d->given_uj = until;
    return uj;
}

/* A load's power as the first and as the last one under the model's curve. */
struct marginal {
    uint64_t least_uw, most_uw;
};

static struct marginal marginal_of(const struct division *d, uint64_t weight)
{
    uint32_t all = load_of(d->in, d->weight), own = load_of(d->in, weight);
    uint64_t first = sub_sat(power_at(d->in, own), power_at(d->in, 0));
    uint64_t last =
        sub_sat(power_at(d->in, all), power_at(d->in, all - (uint32_t)smaller_u64(own, all)));

    return first < last ? (struct marginal){first, last} : (struct marginal){last, first};
}

/*
 * The part of the dynamic energy that a load of @weight has used: @uj, with the bounds that it has
 * as the first and as the last load. Its weight may be larger by @more.
 */
static struct energy_range part_of(const struct division *d, uint64_t weight, uint64_t more,
                                   uint64_t uj)
{
    struct energy_range part = {.uj = uj, .high_uj = d->dynamic.high_uj, .basis = d->basis};
    uint32_t error = d->in->error_permille < 1000 ? d->in->error_permille : 1000;
    struct marginal m;

    if (weight + more == 0)
        part.high_uj = 0;
    if (weight + more > 0 && d->span_uw > 0) {
        m = marginal_of(d, weight);
        part.low_uj = mul_div(d->dynamic.low_uj, m.least_uw, d->span_uw);
        part.low_uj = mul_div(part.low_uj, 1000 - error, 1000);
        m = marginal_of(d, weight + more);
        part.high_uj = mul_div_up(d->dynamic.high_uj, m.most_uw, d->span_uw);
        part.high_uj = add_sat(part.high_uj, mul_div_up(part.high_uj, error, 1000));
        part.high_uj = smaller_u64(part.high_uj, d->dynamic.high_uj);
    }
    part.low_uj = smaller_u64(part.low_uj, uj);
    if (part.high_uj < uj)
        part.high_uj = uj;
    return part;
}

/* Splits the machine's energy into idle and dynamic. */
static void split_idle(struct division *d)
{
    const struct attribution_input *in = d->in;
    const struct energy_range *machine = &in->machine;
    struct power_range idle_power = in->watts_at(in->watts, 0);
    struct energy_range idle = energy_of(&idle_power, in->interval_ns);

    d->basis = smaller_u64(machine->basis, idle.basis);
    idle.basis = d->basis;
    idle.uj = smaller_u64(idle.uj, machine->uj);
    idle.low_uj = smaller_u64(idle.low_uj, idle.uj);
    idle.high_uj = smaller_u64(idle.high_uj, machine->high_uj);
    if (idle.high_uj < idle.uj)
        idle.high_uj = idle.uj;
    d->out->idle = idle;
    d->dynamic.uj = machine->uj - idle.uj;
    d->dynamic.low_uj = smaller_u64(sub_sat(machine->low_uj, idle.high_uj), d->dynamic.uj);
    d->dynamic.high_uj = sub_sat(machine->high_uj, idle.low_uj);
    if (d->dynamic.high_uj < d->dynamic.uj)
        d->dynamic.high_uj = d->dynamic.uj;
    d->dynamic.basis = d->basis;
}

/* Weights add up without an overflow. */
static int check(const struct attribution_input *in)
{
    uint64_t weight = weight_of(in->busy_ns, in->speed_permille);

    if (in->job_count > ATTRIBUTION_JOBS_MAX || in->interval_ns == 0 || in->speed_permille == 0)
        return -EINVAL;
    for (uint32_t i = 0; i < in->job_count; i++) {
        if (in->jobs[i].speed_permille == 0)
            return -EINVAL;
        weight = add_sat(weight, weight_of(in->jobs[i].cpu_ns, in->jobs[i].speed_permille));
    }
    return weight > WEIGHT_MAX ? -EINVAL : 0;
}

/* Nothing is known of the machine's parts but that they lie within it. */
static void leave_whole(const struct attribution_input *in, struct attribution *out)
{
    const struct energy_range bounds = {.high_uj = in->machine.high_uj};

    out->unattributed = in->machine;
    out->unattributed.low_uj = 0;
    out->idle = out->system = bounds;
    for (uint32_t i = 0; i < in->job_count; i++)
        out->job[i] = in->jobs[i].cpu_ns ? bounds : (struct energy_range){0};
}

/* Load that is no job's: the system's, or nobody's where a part of it may be a job's. */
static void give_rest(struct division *d, uint64_t other)
{
    struct energy_range rest = {.high_uj = d->dynamic.high_uj, .basis = d->in->machine.basis};

    if (d->in->complete) {
        d->out->system = part_of(d, other, 0, take(d, other));
    } else {
        d->out->system = (struct energy_range){.high_uj = d->dynamic.high_uj};
    }
    rest.uj = d->dynamic.uj - d->given_uj;
    if (d->in->complete && d->weight > 0)
        rest.high_uj = 0;
    d->out->unattributed = rest;
}

static uint64_t jobs_time(const struct attribution_input *in)
{
    uint64_t ns = 0;

    for (uint32_t i = 0; i < in->job_count; i++)
        ns = add_sat(ns, in->jobs[i].cpu_ns);
    return ns;
}

int attribution_make(const struct attribution_input *in, struct attribution *ret)
{
    struct division d = {.in = in, .out = ret};
    uint64_t other, weight;
    int r = check(in);

    if (r < 0)
        return r;
    memset(ret, 0, offsetof(struct attribution, job));
    memset(ret->job, 0, in->job_count * sizeof(ret->job[0]));
    if (in->machine.basis == POWER_UNKNOWN)
        return 0;
    if (!in->watts || in->watts_at(in->watts, 0).basis == POWER_UNKNOWN) {
        leave_whole(in, ret);
        return 0;
    }
    split_idle(&d);
    other = weight_of(sub_sat(in->busy_ns, jobs_time(in)), in->speed_permille);
    d.weight = other;
    for (uint32_t i = 0; i < in->job_count; i++)
        d.weight += weight_of(in->jobs[i].cpu_ns, in->jobs[i].speed_permille);
    d.span_uw = sub_sat(power_at(in, load_of(in, d.weight)), power_at(in, 0));
    for (uint32_t i = 0; i < in->job_count; i++) {
        weight = weight_of(in->jobs[i].cpu_ns, in->jobs[i].speed_permille);
        ret->job[i] = part_of(&d, weight, in->complete ? 0 : other, take(&d, weight));
    }
    give_rest(&d, other);
    return 0;
}

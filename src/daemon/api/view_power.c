/* SPDX-License-Identifier: Apache-2.0 */
/* Power and energy as JSON. A value that is unknown is null, never 0. */
#include "daemon/api/view.h"

#include "base/clock.h"
#include "daemon/api/view_cap.h"
#include "daemon/daemon.h"
#include "daemon/energy/meter.h"
#include "daemon/job/job.h"
#include "daemon/link/access.h"

#include <errno.h>
#include <string.h>

static json_t *amount(uint64_t n, uint32_t basis)
{
    if (basis == POWER_UNKNOWN)
        return json_null();
    return json_integer(n > INT64_MAX ? INT64_MAX : (json_int_t)n);
}

static json_t *milliseconds(uint64_t ns)
{
    return json_integer((json_int_t)(ns / NS_PER_MS));
}

static json_t *view_power_range(const struct power_range *p)
{
    return json_pack("{s:o,s:o,s:o,s:s}", "uw", amount(p->uw, p->basis), "low_uw",
                     amount(p->low_uw, p->basis), "high_uw", amount(p->high_uw, p->basis), "basis",
                     power_basis_name(p->basis));
}

static json_t *view_energy_range(const struct energy_range *e)
{
    return json_pack("{s:o,s:o,s:o,s:s}", "uj", amount(e->uj, e->basis), "low_uj",
                     amount(e->low_uj, e->basis), "high_uj", amount(e->high_uj, e->basis), "basis",
                     power_basis_name(e->basis));
}

json_t *view_job_energy(const struct job *j, const struct caller *who)
{
    const struct job_energy *e = &j->observed.energy;
    bool may = control_may_meter(j->daemon, who, j);
    uint32_t power = may ? e->power.basis : POWER_UNKNOWN;
    uint32_t energy = may ? e->shown.basis : POWER_UNKNOWN;

    return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "power_uw",
                     amount(e->power.uw, power), "power_low_uw", amount(e->power.low_uw, power),
                     "power_high_uw", amount(e->power.high_uw, power), "power_basis",
                     power ? json_string(power_basis_name(power)) : json_null(), "energy_uj",
                     amount(e->shown.uj, energy), "energy_low_uj", amount(e->shown.low_uj, energy),
                     "energy_high_uj", amount(e->shown.high_uj, energy), "energy_gap_ms",
                     energy ? milliseconds(e->shown_gap_ns) : json_null(), "energy_basis",
                     energy ? json_string(power_basis_name(energy)) : json_null());
}

/* Those whose energy @who may see. */
static json_t *view_jobs(const struct daemon *d, const struct caller *who)
{
    json_t *list = json_array();

    for (const struct job *j = d->jobs->first; j; j = j->next) {
        json_t *row;

        if (!control_may_meter(d, who, j))
            continue;
        row = json_pack("{s:s,s:s}", "id", j->id, "name", j->name);
        json_object_update_new(row, view_job_energy(j, who));
        json_array_append_new(list, row);
    }
    return list;
}

json_t *view_power(const struct daemon *d, const struct caller *who)
{
    struct meter_told told;
    const struct meter_now *now = &told.now;
    const struct ledger *l = &told.ledger;
    json_t *energy;

    meter_tell(d->meter, control_may_power(d, who), &told);
    energy = view_energy_range(&l->machine);

    json_object_set_new(energy, "gap_ms", milliseconds(l->gap_ns));
    return json_pack("{s:f,s:o,s:o,s:{s:o,s:o,s:o,s:o},s:{s:i,s:i,s:i},s:o,s:o}", "time",
                     (double)clock_real_ms() / 1000, "power", view_power_range(&now->machine),
                     "energy", energy, "parts", "jobs", view_energy_range(&l->jobs), "system",
                     view_energy_range(&l->system), "idle", view_energy_range(&l->idle),
                     "unattributed", view_energy_range(&l->unattributed), "load", "mcpu",
                     (int)now->load_mcpu, "other_mcpu", (int)now->other_mcpu, "speed_permille",
                     (int)now->speed_permille, "jobs", view_jobs(d, who), "cap", view_cap(d));
}

/* Why a source tells nothing, and what to do; "" if it does. */
static const char *problem(const struct sensor_reading *r)
{
    switch (r->error) {
    case 0:
        return r->time_ns ? "" : "not read yet";
    case -EACCES:
    case -EPERM:
        return "only root may read it: ask root's tided, or use a file or a meter";
    case -ENOENT:
        return "there is no such file";
    case -ENODEV:
        return "its driver is gone";
    case -ESTALE:
        return "nobody has written it for 30 seconds";
    case -EINVAL:
    case -ERANGE:
        return "its text is no amount of power or energy";
    case -ENODATA:
        return "it has no reading, or tells 0 W, which no machine that runs draws";
    default:
        return strerror(-r->error);
    }
}

json_t *view_power_sources(const struct daemon *d, const struct caller *who)
{
    json_t *list = json_array();
    struct meter_told told;

    meter_tell(d->meter, control_may_power(d, who), &told);
    for (size_t i = 0; i < told.sources; i++) {
        const struct meter_source *s = &told.source[i];
        bool whole = s->sensor.part == SENSOR_MACHINE || s->sensor.part == SENSOR_PSYS;

        json_array_append_new(
            list,
            json_pack(
                "{s:s,s:s,s:s,s:s,s:i,s:b,s:b,s:o,s:o,s:s,s:s}", "name", s->sensor.name, "kind",
                sensor_kind_name(s->sensor.kind), "part", sensor_part_name(s->sensor.part), "basis",
                power_basis_name(whole ? POWER_MEASURED : POWER_MODELLED), "error_permille",
                (int)s->sensor.error_permille, "used", (int)s->used, "slow", (int)s->sensor.slow,
                "uw", amount(s->uw, s->known ? POWER_MEASURED : POWER_UNKNOWN), "uj",
                amount(s->total_uj, s->reading.time_ns ? POWER_MEASURED : POWER_UNKNOWN), "path",
                s->sensor.path, "problem", problem(&s->reading)));
    }
    return list;
}

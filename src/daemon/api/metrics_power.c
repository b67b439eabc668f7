/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Metrics of power and energy. Those of sensors and containers have Kepler's names, labels and
 * units (0.10), so that its dashboards show them. An unknown amount has no line.
 */
#include "daemon/api/metrics.h"

#include "base/clock.h"
#include "base/prometheus.h"
#include "daemon/api/api.h"
#include "daemon/daemon.h"
#include "daemon/energy/cap.h"
#include "daemon/energy/meter.h"
#include "daemon/job/job.h"

#include <string.h>
#include <unistd.h>

#define JOULES   1e6
#define HOST_MAX 65

/* One amount as its value and both bounds; @head ends with an open list of labels. */
static void put_bounds(FILE *f, const char *head, uint32_t basis, const uint64_t micro[3])
{
    static const char *const bound[] = {"low", "value", "high"};

    if (basis == POWER_UNKNOWN)
        return;
    for (unsigned i = 0; i < 3; i++)
        fprintf(f, "%sbound=\"%s\",basis=\"%s\"} %.15g\n", head, bound[i], power_basis_name(basis),
                (double)micro[i] / JOULES);
}

static void put_part(FILE *f, const char *part, const struct energy_range *e)
{
    char head[96];

    snprintf(head, sizeof(head), "tide_machine_energy_joules_total{part=\"%s\",", part);
    put_bounds(f, head, e->basis, (const uint64_t[]){e->low_uj, e->uj, e->high_uj});
}

static void put_machine(FILE *f, const struct meter_now *now, const struct ledger *l)
{
    prometheus_family(f, "tide_machine_energy_joules_total", "counter",
                      "Energy of the machine, and of its parts, which add up to it.");
    put_part(f, "machine", &l->machine);
    put_part(f, "jobs", &l->jobs);
    put_part(f, "system", &l->system);
    put_part(f, "idle", &l->idle);
    put_part(f, "unattributed", &l->unattributed);
    prometheus_family(f, "tide_machine_power_watts", "gauge", "Power of the machine.");
    put_bounds(f, "tide_machine_power_watts{", now->machine.basis,
               (const uint64_t[]){now->machine.low_uw, now->machine.uw, now->machine.high_uw});
    prometheus_one(f, "tide_energy_gap_seconds_total", "counter",
                   "Time in which nothing was known of the machine's energy.",
                   (double)l->gap_ns / NS_PER_S);
}

/* ---- Kepler's ---- */

/* Without the name of the counter's file: Kepler names the zone. */
static void put_zone(FILE *f, const char *metric, const struct meter_source *s, const char *host,
                     double value)
{
    const char *file = strrchr(s->sensor.path, '/');

    fprintf(f, "%s{zone=\"%s\",path=\"/%.*s\",node_name=\"", metric,
            sensor_part_name(s->sensor.part), file ? (int)(file - s->sensor.path) : 0,
            s->sensor.path);
    prometheus_label(f, host);
    fprintf(f, "\"} %.15g\n", value);
}

static void put_sensors(FILE *f, const struct meter_told *told)
{
    const struct meter_source *source = told->source;
    size_t n = told->sources;
    char host[HOST_MAX] = "";

    if (gethostname(host, sizeof(host) - 1) < 0)
        host[0] = '\0';
    prometheus_family(f, "kepler_node_cpu_joules_total", "counter",
                      "Energy by a sensor of the machine.");
    for (size_t i = 0; i < n; i++)
        if (source[i].reading.time_ns && source[i].reading.error == 0)
            put_zone(f, "kepler_node_cpu_joules_total", &source[i], host,
                     (double)source[i].total_uj / JOULES);
    prometheus_family(f, "kepler_node_cpu_watts", "gauge", "Power by a sensor of the machine.");
    for (size_t i = 0; i < n; i++)
        if (source[i].known)
            put_zone(f, "kepler_node_cpu_watts", &source[i], host, (double)source[i].uw / JOULES);
}

/* Kepler divides each zone; here it is the machine's account. */
static void put_use(FILE *f, const struct ledger *l)
{
    prometheus_family(f, "kepler_node_cpu_active_joules_total", "counter",
                      "Energy of jobs and the system above the machine's idling.");
    if (l->jobs.basis != POWER_UNKNOWN && l->system.basis != POWER_UNKNOWN)
        fprintf(f, "kepler_node_cpu_active_joules_total{zone=\"machine\"} %.15g\n",
                ((double)l->jobs.uj + (double)l->system.uj) / JOULES);
    prometheus_family(f, "kepler_node_cpu_idle_joules_total", "counter",
                      "Energy that the machine would have used without load.");
    if (l->idle.basis != POWER_UNKNOWN)
        fprintf(f, "kepler_node_cpu_idle_joules_total{zone=\"machine\"} %.15g\n",
                (double)l->idle.uj / JOULES);
}

static void put_load(FILE *f, const struct daemon *d, const struct meter_now *now)
{
    unsigned cpus = cpuset_count(&d->topology.online);

    if (now->time_ns == 0 || now->speed_permille == 0 || cpus == 0)
        return;
    prometheus_one(f, "kepler_node_cpu_usage_ratio", "gauge", "Busy part of all processors.",
                   (double)now->load_mcpu / now->speed_permille / cpus);
}

/* ---- jobs ---- */

static void put_job(FILE *f, const struct job *j)
{
    const struct energy_range *e = &j->observed.energy.shown;
    const char *bound[] = {"low", "value", "high"};
    uint64_t uj[] = {e->low_uj, e->uj, e->high_uj};

    for (unsigned i = 0; i < 3 && e->basis != POWER_UNKNOWN; i++) {
        fprintf(f, "tide_job_energy_joules_total{job=\"%s\",name=\"", j->id);
        prometheus_label(f, j->name);
        fprintf(f, "\",bound=\"%s\"} %.15g\n", bound[i], (double)uj[i] / JOULES);
    }
}

static void put_job_power(FILE *f, const struct job *j)
{
    const struct power_range *p = &j->observed.energy.power;

    if (p->basis == POWER_UNKNOWN)
        return;
    fprintf(f, "tide_job_power_watts{job=\"%s\",name=\"", j->id);
    prometheus_label(f, j->name);
    fprintf(f, "\"} %.15g\n", (double)p->uw / JOULES);
}

static void put_container(FILE *f, const struct job *j, const char *metric, uint32_t basis,
                          uint64_t micro)
{
    if (!j->container_id || basis == POWER_UNKNOWN)
        return;
    fprintf(f, "%s{container_id=\"%s\",container_name=\"", metric, j->container_id);
    prometheus_label(f, j->name);
    fprintf(f, "\",zone=\"machine\"} %.15g\n", (double)micro / JOULES);
}

static void put_container_energy(FILE *f, const struct job *j)
{
    put_container(f, j, "kepler_container_cpu_joules_total", j->observed.energy.shown.basis,
                  j->observed.energy.shown.uj);
}

static void put_container_power(FILE *f, const struct job *j)
{
    put_container(f, j, "kepler_container_cpu_watts", j->observed.energy.power.basis,
                  j->observed.energy.power.uw);
}

static void each_job(FILE *f, const struct request *r, void (*put)(FILE *f, const struct job *j))
{
    for (const struct job *j = r->daemon->jobs->first; j; j = j->next)
        if (control_may_meter(r->daemon, &r->who, j))
            put(f, j);
}

static void put_caps(FILE *f, const struct daemon *d)
{
    struct cap_view v;

    cap_view(d, &v);
    prometheus_family(f, "tide_power_cap_watts", "gauge",
                      "Power caps that stand; the smallest counts.");
    for (unsigned s = 0; s < CAP_SOURCE_MAX; s++)
        if (v.caps->of[s].held)
            fprintf(f, "tide_power_cap_watts{source=\"%s\"} %.15g\n", cap_source_name(s),
                    (double)v.caps->of[s].uw / JOULES);
    prometheus_one(f, "tide_power_cap_over_seconds_total", "counter",
                   "Time in which the machine drew more than its cap although jobs had shrunk.",
                   (double)v.over_ns / NS_PER_S);
}

void metrics_power(FILE *f, const struct request *r)
{
    const struct daemon *d = r->daemon;
    struct meter_told told;

    meter_tell(d->meter, control_may_power(d, &r->who), &told);
    put_machine(f, &told.now, &told.ledger);
    put_sensors(f, &told);
    put_use(f, &told.ledger);
    put_load(f, d, &told.now);
    put_caps(f, d);
    prometheus_family(f, "tide_job_energy_joules_total", "counter",
                      "Energy of a job above the machine's idling.");
    each_job(f, r, put_job);
    prometheus_family(f, "tide_job_power_watts", "gauge", "Power of a job, a mean of ten seconds.");
    each_job(f, r, put_job_power);
    prometheus_family(f, "kepler_container_cpu_joules_total", "counter",
                      "Energy of a job's container.");
    each_job(f, r, put_container_energy);
    prometheus_family(f, "kepler_container_cpu_watts", "gauge",
                      "Power of a job's container, a mean of ten seconds.");
    each_job(f, r, put_container_power);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/energy/ledger.h"

#include "base/muldiv.h"
#include "daemon/daemon.h"
#include "daemon/job/job.h"

#define SAVE_NS UINT64_C(60000000000) /* a daemon that is killed loses at most so much of a job */

/* At the end of a window the job's figures become those that are shown. */
static void pass_time(struct job *j, uint64_t interval_ns)
{
    struct job_energy *e = &j->observed.energy;

    e->window_ns += interval_ns;
    e->unsaved_ns += interval_ns;
    if (e->window_ns >= LEDGER_WINDOW_NS) {
        e->power = power_of(&e->window, e->window_ns);
        e->shown = e->total;
        e->shown_gap_ns = e->gap_ns;
        e->window = (struct energy_range){0};
        e->window_ns = 0;
    }
    if (e->unsaved_ns >= SAVE_NS && e->total.basis != POWER_UNKNOWN) {
        e->unsaved_ns = 0;
        j->dirty = true;
        daemon_store_later(j->daemon);
    }
}

void ledger_add(struct daemon *d, struct ledger *l, const struct energy_range *machine,
                const struct attribution *division, uint64_t interval_ns, uint64_t gap_ns)
{
    const struct energy_range *part = division->job;

    l->gap_ns = add_sat(l->gap_ns, gap_ns);
    energy_add(&l->machine, machine);
    energy_add(&l->system, &division->system);
    energy_add(&l->idle, &division->idle);
    energy_add(&l->unattributed, &division->unattributed);
    for (struct job *j = d->jobs->first; j; j = j->next, part++) {
        struct job_energy *e = &j->observed.energy;

        energy_add(&l->jobs, part);
        energy_add(&e->total, part);
        energy_add(&e->window, part);
        e->gap_ns = add_sat(e->gap_ns, part->basis == POWER_UNKNOWN ? interval_ns : gap_ns);
        pass_time(j, interval_ns);
    }
}

void ledger_gap(struct daemon *d, struct ledger *l, uint64_t interval_ns)
{
    l->gap_ns = add_sat(l->gap_ns, interval_ns);
    for (struct job *j = d->jobs->first; j; j = j->next) {
        j->observed.energy.gap_ns = add_sat(j->observed.energy.gap_ns, interval_ns);
        pass_time(j, interval_ns);
    }
}

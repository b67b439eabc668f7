/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/record/energy_file.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/muldiv.h"
#include "daemon/daemon.h"
#include "daemon/energy/meter.h"
#include "daemon/job/job.h"
#include "daemon/record/state_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_WORD "state-unusable"

#define FILE_MAX 4096
#define WRITE_NS (60 * NS_PER_S)

struct energy_file {
    struct daemon *daemon;
    uint64_t next_ns; /* when it is to be written again */
    int error;        /* -errno of the last time; logged once */
};

static json_t *range_to_json(const struct energy_range *e)
{
    return json_pack("{s:I,s:I,s:I,s:i}", "uj", (json_int_t)e->uj, "low", (json_int_t)e->low_uj,
                     "high", (json_int_t)e->high_uj, "basis", (int)e->basis);
}

static bool range_from_json(const json_t *json, struct energy_range *ret)
{
    json_int_t uj, low, high;
    int basis;

    if (json_unpack((json_t *)json, "{s:I,s:I,s:I,s:i}", "uj", &uj, "low", &low, "high", &high,
                    "basis", &basis) < 0 ||
        low < 0 || low > uj || uj > high || basis < 0 || basis >= POWER_BASIS_MAX)
        return false;
    *ret = (struct energy_range){(uint64_t)uj, (uint64_t)low, (uint64_t)high, (uint32_t)basis};
    return true;
}

/* The time since @json was written, if that was since the boot of the machine. */
static bool times_from_json(const json_t *json, uint64_t *ret_gap_ns)
{
    json_int_t gap_ns, at_ns, now = (json_int_t)clock_now_ns();

    if (json_unpack((json_t *)json, "{s:I,s:I}", "gap_ns", &gap_ns, "at_ns", &at_ns) < 0 ||
        gap_ns < 0 || at_ns < 0)
        return false;
    *ret_gap_ns = add_sat((uint64_t)gap_ns, at_ns < now ? (uint64_t)(now - at_ns) : 0);
    return true;
}

/* ---- a job ---- */

json_t *energy_of_job_to_json(const struct job *j)
{
    const struct job_energy *e = &j->observed.energy;
    json_t *json;

    if (e->total.basis == POWER_UNKNOWN)
        return json_null();
    json = range_to_json(&e->total);
    json_object_set_new(json, "gap_ns", json_integer((json_int_t)e->gap_ns));
    json_object_set_new(json, "at_ns", json_integer((json_int_t)clock_now_ns()));
    return json;
}

void energy_of_job_from_json(struct job *j, const json_t *json)
{
    struct job_energy e = {0};

    if (!json || !range_from_json(json, &e.total) || !times_from_json(json, &e.gap_ns))
        return;
    e.shown = e.total;
    e.shown_gap_ns = e.written_gap_ns = e.gap_ns;
    e.written = e.total;
    j->observed.energy = e;
}

/* ---- the machine ---- */

static const struct {
    const char *name;
    size_t offset;
} parts[] = {
    {"machine", offsetof(struct ledger, machine)},
    {"jobs", offsetof(struct ledger, jobs)},
    {"system", offsetof(struct ledger, system)},
    {"idle", offsetof(struct ledger, idle)},
    {"unattributed", offsetof(struct ledger, unattributed)},
};

static void load_machine(struct daemon *d)
{
    char text[FILE_MAX];
    json_t *json = state_file_read(d->dir_fd, ENERGY_FILE, text, sizeof(text)) == 0
                       ? json_loads(text, JSON_REJECT_DUPLICATES, NULL)
                       : NULL;
    struct ledger l = {0};
    bool good = json && times_from_json(json, &l.gap_ns);

    for (size_t i = 0; good && i < ARRAY_LEN(parts); i++)
        good = range_from_json(json_object_get(json, parts[i].name),
                               (struct energy_range *)((char *)&l + parts[i].offset));
    /* A file that somebody has changed would make the parts another machine's. */
    if (good && l.machine.uj == l.jobs.uj + l.system.uj + l.idle.uj + l.unattributed.uj)
        meter_resume(d->meter, &l);
    json_decref(json);
}

static void write_machine(struct energy_file *f)
{
    struct daemon *d = f->daemon;
    const struct ledger *l = meter_ledger(d->meter);
    _cleanup_free_ char *text = NULL;
    json_t *json;
    int r;

    if (l->machine.basis == POWER_UNKNOWN)
        return;
    json = json_pack("{s:I,s:I}", "gap_ns", (json_int_t)l->gap_ns, "at_ns",
                     (json_int_t)clock_now_ns());
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        json_object_set_new(
            json, parts[i].name,
            range_to_json((const struct energy_range *)((const char *)l + parts[i].offset)));
    text = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    r = text ? state_file_write(d->dir_fd, ENERGY_FILE, text) : -ENOMEM;
    if (r < 0 && r != f->error)
        daemon_err("cannot write %s/" ENERGY_FILE
                   ": %s; after a restart tided counts energy from 0",
                   d->dir, strerror(-r));
    f->error = r;
}

void energy_file_tick(struct energy_file *f)
{
    if (!f || clock_now_ns() < f->next_ns)
        return;
    f->next_ns = clock_now_ns() + WRITE_NS;
    write_machine(f);
}

int energy_file_new(struct daemon *d, struct energy_file **ret)
{
    *ret = calloc(1, sizeof(**ret));
    if (!*ret)
        return -ENOMEM;
    (*ret)->daemon = d;
    load_machine(d);
    return 0;
}

struct energy_file *energy_file_free(struct energy_file *f)
{
    if (!f)
        return NULL;
    write_machine(f);
    for (struct job *j = f->daemon->jobs->first; j; j = j->next)
        j->dirty |= j->observed.energy.total.basis != POWER_UNKNOWN;
    free(f);
    return NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/report/chart.h"

#include <string.h>

#define FIRST_BIN_NS (UINT64_C(1) << 20) /* a millisecond */

/* ---- timelines ------------------------------------------------------------------------------- */

/* Doubles the time of each bin: two become one. Steps of whole bins become parts. */
static void widen(struct timeline *t)
{
    double value[TIMELINE_BINS], amount = 0;

    for (int i = 0; i < TIMELINE_BINS; i++) {
        amount += t->step[i];
        value[i] = t->part[i] + amount * (double)t->bin_ns;
    }
    memset(t->part, 0, sizeof(t->part));
    memset(t->step, 0, sizeof(t->step));
    for (int i = 0; i < TIMELINE_BINS; i++)
        t->part[i / 2] += value[i];
    t->bin_ns *= 2;
}

void timeline_add(struct timeline *t, uint64_t begin_ns, uint64_t end_ns, double amount)
{
    uint64_t first, last;

    if (t->bin_ns == 0)
        t->bin_ns = FIRST_BIN_NS;
    if (begin_ns >= end_ns)
        return;
    while ((end_ns - 1) / t->bin_ns >= TIMELINE_BINS)
        widen(t);
    t->end_ns = end_ns > t->end_ns ? end_ns : t->end_ns;
    first = begin_ns / t->bin_ns;
    last = (end_ns - 1) / t->bin_ns;
    if (first == last) {
        t->part[first] += amount * (double)(end_ns - begin_ns);
        return;
    }
    t->part[first] += amount * (double)((first + 1) * t->bin_ns - begin_ns);
    t->part[last] += amount * (double)(end_ns - last * t->bin_ns);
    t->step[first + 1] += amount;
    t->step[last] -= amount;
}

uint32_t timeline_values(const struct timeline *t, double ret_value[TIMELINE_BINS])
{
    uint32_t count = t->end_ns ? (uint32_t)((t->end_ns - 1) / t->bin_ns) + 1 : 0;
    double amount = 0;

    for (uint32_t i = 0; i < count; i++) {
        uint64_t begin_ns = i * t->bin_ns, left_ns = t->end_ns - begin_ns;

        amount += t->step[i];
        ret_value[i] = (t->part[i] + amount * (double)t->bin_ns) /
                       (double)(left_ns < t->bin_ns ? left_ns : t->bin_ns);
    }
    return count;
}

/* ---- charts ---------------------------------------------------------------------------------- */

void chart_segment(struct chart *chart, const struct sim_segment *segment)
{
    struct chart_segment *last = &chart->segment[chart->segment_count];

    timeline_add(&chart->held, segment->begin_ns, segment->end_ns,
                 (double)segment->mcpu / POLICY_CORE_MCPU);
    if (segment->job->id > CHART_JOBS_MAX)
        return;
    if (chart->segment_count == CHART_SEGMENTS_MAX) {
        chart->cut = true;
        return;
    }
    *last = (struct chart_segment){.begin_ns = segment->begin_ns,
                                   .end_ns = segment->end_ns,
                                   .mcpu = segment->mcpu,
                                   .job = (uint32_t)segment->job->id - 1};
    chart->segment_count++;
}

void chart_record(struct chart *chart, const struct sim_record *record)
{
    const struct sim_job *job = record->job;
    struct chart_job *row;

    if (record->finish_ns != POLICY_NEVER)
        timeline_add(&chart->present, job->arrival_ns, record->finish_ns, 1);
    if (job->id > CHART_JOBS_MAX)
        return;
    row = &chart->job[job->id - 1];
    memcpy(row->name, job->name, sizeof(row->name));
    row->arrival_ns = job->arrival_ns;
    row->start_ns = record->start_ns;
    row->finish_ns = record->finish_ns;
    if (job->id > chart->job_count)
        chart->job_count = (uint32_t)job->id;
}

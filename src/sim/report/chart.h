/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The data for the picture of a run: cores held and jobs present over time, and the first jobs bar
 * by bar. Memory of fixed size, however long the run. One thread per chart; compare.c fills it,
 * svg.c draws it.
 */
#pragma once

#include "sim/engine/sim.h"

#define TIMELINE_BINS      512
#define CHART_JOBS_MAX     200
#define CHART_SEGMENTS_MAX 20000

/* Time averages of an amount over bins that grow with the run. All zero is the first state. */
struct timeline {
    uint64_t bin_ns;                /* a power of two */
    uint64_t end_ns;                /* the latest time seen */
    double part[TIMELINE_BINS];     /* amount × ns in partly covered bins */
    double step[TIMELINE_BINS + 1]; /* change of the amount from one whole bin to the next */
};

void timeline_add(struct timeline *timeline, uint64_t begin_ns, uint64_t end_ns, double amount);

/* Computes the averages of the bins up to end_ns; returns their number. */
uint32_t timeline_values(const struct timeline *timeline, double ret_value[TIMELINE_BINS]);

struct chart_job {
    char name[SIM_NAME_MAX];
    uint64_t arrival_ns;
    uint64_t start_ns;  /* POLICY_NEVER: never ran */
    uint64_t finish_ns; /* POLICY_NEVER: never ended */
};

struct chart_segment {
    uint64_t begin_ns, end_ns;
    int64_t mcpu; /* 0: paused */
    uint32_t job; /* index */
};

struct chart {
    struct timeline held;                 /* cores */
    struct timeline present;              /* jobs that arrived and have not finished */
    struct chart_job job[CHART_JOBS_MAX]; /* those with the ids 1, 2, … */
    uint32_t job_count;
    struct chart_segment segment[CHART_SEGMENTS_MAX];
    uint32_t segment_count;
    bool cut; /* further segments were dropped */
};

void chart_segment(struct chart *chart, const struct sim_segment *segment);
void chart_record(struct chart *chart, const struct sim_record *record);

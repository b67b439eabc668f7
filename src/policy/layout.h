/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plan in the making: where each job's amounts lie, what is left in each domain, and at the end
 * the verb. A job's entries begin with its place, which gets all of its cores; what it holds
 * besides - memory, parameter servers, workers - stays in the domains where it is.
 *
 * Pure; used by policies alone, within one decision. Its storage is the plan's.
 */
#pragma once

#include "policy/policy.h"

struct layout {
    const struct policy_snapshot *snapshot;
    struct policy_plan *plan;
    /* Of each domain, its ancestors not asked. Negative: minima or pins add up to more. */
    struct policy_vector *left;
};

/* Entries of the plan, and bytes of scratch (aligned as int64_t), that a layout needs. */
size_t layout_amounts(const struct policy_snapshot *snapshot);
size_t layout_bytes(const struct policy_snapshot *snapshot);

/* Nothing is laid out yet, all capacity is left. */
void layout_init(struct layout *layout, const struct policy_snapshot *snapshot,
                 struct policy_plan *plan, void *scratch);

/* Takes an amount off what is left in the domain and its ancestors; a negative one gives back. */
void layout_use(struct layout *layout, uint32_t domain, int resource, int64_t amount);

/* What is left in the domain and all of its ancestors; negative where one holds too much. */
int64_t layout_left(const struct layout *layout, uint32_t domain, int resource);

struct policy_amount *layout_entries(struct layout *layout, uint32_t job);

/* Where the job's cores go; it must be laid out. */
uint32_t layout_place(struct layout *layout, uint32_t job);

void layout_reason(struct layout *layout, uint32_t job, enum policy_reason_code code, int64_t arg0,
                   int64_t arg1, int64_t arg2, int64_t arg3);

/*
 * Lays out a running or paused job: everything but cores as it is, unless a bound or pin says
 * otherwise. Uses its memory.
 */
void layout_present(struct layout *layout, uint32_t job);

/* Uses (@sign 1) or gives back (-1) its parameter servers and workers, which a paused job lacks. */
void layout_tasks(struct layout *layout, uint32_t job, int sign);

/*
 * Lays out a queued job that would start in @place, if there is room for everything but cores, and
 * uses that. Otherwise false: its verb is hold, or infeasible if its least exceeds the capacity,
 * and the reason says what is short.
 */
bool layout_start(struct layout *layout, uint32_t job, uint32_t place);

/* A job that runs: its cores and verb. */
void layout_run(struct layout *layout, uint32_t job, int64_t mcpu);

/* A job that is laid out but does not run: only its memory stays. */
void layout_stop(struct layout *layout, uint32_t job, enum policy_verb verb);

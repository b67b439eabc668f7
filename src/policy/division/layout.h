/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plan in the making: where each job's amounts lie, what is left in each domain, and at the end
 * the verb. A job's entries begin with its place, which gets all of its cores; what it holds
 * besides - memory, parameter servers, workers - stays in the domains where it is.
 *
 * Pure; used by policies alone, within one decision. Its storage is the plan's.
 */
#pragma once

#include "policy/core/policy.h"

struct layout {
    const struct policy_snapshot *snapshot;
    struct policy_plan *plan;
    /* Of each domain, its ancestors not asked. */
    struct policy_vector *capacity;
    struct policy_vector *left; /* negative: minima or pins add up to more */
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

/* The same of an empty machine. */
int64_t layout_capacity(const struct layout *layout, uint32_t domain, int resource);

struct policy_amount *layout_entries(struct layout *layout, uint32_t job);

/* Where the job's cores go; it must be laid out. */
uint32_t layout_place(struct layout *layout, uint32_t job);

void layout_reason(struct layout *layout, uint32_t job, enum policy_reason_code code, int64_t arg0,
                   int64_t arg1, int64_t arg2, int64_t arg3);

/* Says why the cores of a job of fixed size are what they are: pinned, rigid or moldable. */
void layout_fixed_reason(struct layout *layout, uint32_t job);

/*
 * Lays out a running or paused job: everything but cores as it is, unless a bound or pin says
 * otherwise; parameter servers and workers that a paused one had, in its place. Uses its memory.
 */
void layout_present(struct layout *layout, uint32_t job);

/* Uses (@sign 1) or gives back (-1) its parameter servers and workers, which a paused job lacks. */
void layout_tasks(struct layout *layout, uint32_t job, int sign);

/*
 * What a waiting job would start or resume with in @place, but cores: of a queued one its request,
 * or its least where the machine cannot hold that; of a paused one what it had, memory left out.
 */
void layout_need(const struct layout *layout, uint32_t job, uint32_t place,
                 struct policy_vector *ret_need);

/* The first resource of which @need is more than is left in @place: memory, then cores, then the
 * others. POLICY_RESOURCE_MAX: there is room. */
int layout_lacks(const struct layout *layout, uint32_t place, const struct policy_vector *need);

/* The same against the capacity: what can never fit. */
int layout_exceeds(const struct layout *layout, uint32_t place, const struct policy_vector *need);

/* A queued job starts in @place: lays it out and uses @need, but no cores yet. */
void layout_start(struct layout *layout, uint32_t job, uint32_t place,
                  const struct policy_vector *need);

/* It does not: hold, or infeasible where @need exceeds the capacity of @place, and why. */
void layout_refuse(struct layout *layout, uint32_t job, uint32_t place,
                   const struct policy_vector *need);

/* A job that runs: its cores and verb. */
void layout_run(struct layout *layout, uint32_t job, int64_t mcpu);

/* A job that is laid out but does not run: only its memory stays. */
void layout_stop(struct layout *layout, uint32_t job, enum policy_verb verb);

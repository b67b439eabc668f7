/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plan in the making: where each job's amounts lie, what is left in each domain, and at the end
 * the verb. A job's first entry is its place, which gets all of its cores. Its memory, devices,
 * parameter servers and workers stay in the domains where they are.
 *
 * Pure; used by policies alone, within one decision. Its storage is the plan's.
 */
#pragma once

#include "policy/core/policy.h"

struct layout {
    const struct policy_snapshot *snapshot;
    struct policy_plan *plan;
    /* For each domain alone, without regard to its ancestors. */
    struct policy_vector *capacity;
    struct policy_vector *left; /* negative: minima or pins add up to more */
};

/* Adds the entries of the plan and bytes of scratch (aligned as int64_t) that a layout needs. */
size_t layout_amounts(const struct policy_snapshot *snapshot);
size_t layout_bytes(const struct policy_snapshot *snapshot);

/* Begins with no job laid out and all capacity left. */
void layout_init(struct layout *layout, const struct policy_snapshot *snapshot,
                 struct policy_plan *plan, void *scratch);

/* Takes an amount from the domain and its ancestors; a negative amount gives back. */
void layout_use(struct layout *layout, uint32_t domain, int resource, int64_t amount);

/* Returns what the domain and all its ancestors have left; negative where one holds too much. */
int64_t layout_left(const struct layout *layout, uint32_t domain, int resource);

/* Returns the same for an empty machine. */
int64_t layout_capacity(const struct layout *layout, uint32_t domain, int resource);

struct policy_amount *layout_entries(struct layout *layout, uint32_t job);

/* Returns the domain of the job's cores; the job must be laid out. */
uint32_t layout_place(struct layout *layout, uint32_t job);

void layout_reason(struct layout *layout, uint32_t job, enum policy_reason_code code, int64_t arg0,
                   int64_t arg1, int64_t arg2, int64_t arg3);

/* Says why the cores of a job of fixed size are what they are: pinned, rigid or moldable. */
void layout_fixed_reason(struct layout *layout, uint32_t job);

/*
 * Lays out a running or paused job, and uses its memory and devices. All but cores stays as it is,
 * unless a bound or pin says otherwise. A paused job's parameter servers and workers go to its
 * place.
 */
void layout_present(struct layout *layout, uint32_t job);

/* Uses (@sign 1) or gives back (-1) the parameter servers and workers, which no paused job has. */
void layout_tasks(struct layout *layout, uint32_t job, int sign);

/*
 * Tells a waiting job's needs in @place besides cores. A queued job needs its request, or its
 * minimum where the machine cannot hold that; a paused job its former amounts, except what it kept.
 */
void layout_need(const struct layout *layout, uint32_t job, uint32_t place,
                 struct policy_vector *ret_need);

/* Returns the first resource of which @place has less left than @need: memory, devices, then
 * cores, then the others. POLICY_RESOURCE_MAX: there is room. */
int layout_lacks(const struct layout *layout, uint32_t place, const struct policy_vector *need);

/* Compares with the capacity instead: such a need can never fit. */
int layout_exceeds(const struct layout *layout, uint32_t place, const struct policy_vector *need);

/* Lays out a queued job that starts in @place, and uses @need, but no cores yet. */
void layout_start(struct layout *layout, uint32_t job, uint32_t place,
                  const struct policy_vector *need);

/* Makes it wait (hold), or infeasible where @need exceeds the capacity of @place, and says why. */
void layout_refuse(struct layout *layout, uint32_t job, uint32_t place,
                   const struct policy_vector *need);

/* True if the non-empty entries of a job's decision are the same as now. */
bool layout_is_unchanged(const struct policy_snapshot *snapshot, const struct policy_plan *plan,
                         uint32_t job);

/* Sets cores and verb of a job that runs under the plan. */
void layout_run(struct layout *layout, uint32_t job, int64_t mcpu);

/* Sets the verb of a job that is laid out but does not run: it keeps only memory and devices. */
void layout_stop(struct layout *layout, uint32_t job, enum policy_verb verb);

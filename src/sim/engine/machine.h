/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine model: how fast each running job progresses, and how many cores it keeps busy. Pure
 * functions on one run's own structs; called by the engine and by its tests.
 *
 * Speeds and cores are fixed-point numbers with 32 fractional bits: MACHINE_ONE is one core, and
 * the progress of a job alone on it.
 */
#pragma once

#include "sim/engine/sim.h"

#define MACHINE_ONE (UINT64_C(1) << 32)

struct machine_task {
    /* set by machine_hold(), alone on the machine: */
    uint64_t speed;  /* progress */
    uint64_t demand; /* cores kept busy at that speed, on average */
    uint64_t limit;  /* cores that it may keep busy; the demand, or less where it is throttled */
    uint64_t weight; /* mcpu held */
    /* set by machine_share(), among all: */
    uint64_t rate;          /* progress */
    uint64_t usage;         /* cores kept busy */
    uint64_t waits;         /* threads that could run and have no core, on average */
    uint32_t idle_permille; /* of its time alone; set by machine_hold() */
    bool settled;           /* within machine_share() */
};

/* Checks the description. Returns 0 or -EINVAL with *err. */
int machine_check(const struct sim_machine *machine, struct error *err);

/* Computes the job's speed with @mcpu (> 0); @spread: in more than one NUMA node by order. */
void machine_hold(const struct sim_machine *machine, const struct sim_job *job, int64_t mcpu,
                  bool spread, struct machine_task *ret_task);

/*
 * The same for a server that serves @requests at a time: speed and rate are those of each of them,
 * which has its part of the cores, or takes turns where there are fewer cores than requests. None
 * has more than @most threads, those of its process; 0: as many as there are.
 */
void machine_serve(const struct sim_machine *machine, const struct sim_job *job, int64_t mcpu,
                   uint32_t requests, uint32_t most, bool spread, struct machine_task *ret_task);

/*
 * Slows the job down to the speed of its own cores, of which it uses the fastest @threads;
 * @of_speed NULL: it has all cores of the machine. Nothing where cores overlap or are alike.
 */
void machine_own_cores(const struct sim_machine *machine, const uint32_t *of_speed,
                       uint32_t threads, struct machine_task *task);

/*
 * Whether the job is in a serial phase after @done of its work (ns, 32 fractional bits); *ret_left
 * is the work until the phase ends.
 */
bool machine_is_serial(const struct sim_job *job, sim_sum done, sim_sum *ret_left);

/* Returns the time that the job takes alone on this machine with its request. */
uint64_t machine_alone_ns(const struct sim_machine *machine, const struct sim_job *job);

/*
 * Divides the machine among all running jobs: sets rate (never 0) and usage of each.
 * Returns the power drawn, in microwatts.
 */
uint64_t machine_share(const struct sim_machine *machine, struct machine_task *const *tasks,
                       uint32_t count);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast CPUs run, relative to their base frequency, by the kernel's cpufreq. Some CPUs have none
 * (virtual machines): they count as running at the base. Owner's thread; used by tided's meter.
 */
#pragma once

#include "base/cpuset.h"

#include <stdint.h>

#define FREQUENCY_BASE 1000 /* permille */

struct frequency;

/* Opens cpufreq of @cpus below @root. Returns 0, -ENOENT (it has none) or -ENOMEM. */
int frequency_new(int root, const struct cpuset *cpus, struct frequency **ret);
struct frequency *frequency_free(struct frequency *f); /* takes NULL, returns NULL */

/* Reads the next few CPUs: on a large machine all are read in the course of some calls, because the
 * kernel interrupts a CPU to ask it. */
void frequency_read(struct frequency *f);

/* The mean of @cpus in permille of their base, at least 1; FREQUENCY_BASE for a NULL @f or none. */
uint32_t frequency_mean(const struct frequency *f, const struct cpuset *cpus);

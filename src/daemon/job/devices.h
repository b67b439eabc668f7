/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices (GPUs, network cards) that jobs hold: nodes in /dev that their processes have open. A job
 * that holds one keeps cores for the threads that feed it (device-cores in tide.conf), and waiting
 * jobs that ask for devices count what others hold. /proc/PID/fd → held → the policy's minimum and
 * amounts (plan/). Nothing is read on a machine without devices. Daemon's event loop only; called
 * by the tick, plan/, and the views.
 */
#pragma once

#include "host/proc/devices.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct daemon;
struct job;

/* Counts the machine's devices; true if they are others than before. */
bool devices_count(struct daemon *d, uint64_t now);

/* Looks at some jobs, those that were not looked at for longest. True if a decision is due. */
bool devices_look(struct daemon *d, uint64_t now);

/*
 * Devices of @kind that the job counts with when others are admitted: those that it asked for or
 * those that it holds, whichever is more. A device that an older job holds, too, counts there.
 */
unsigned devices_counted(const struct job *j, enum device_kind kind);

/* Cores for the threads that feed its devices, within what the job may use; 0: none. */
uint32_t devices_cores(const struct job *j);

/* Cores that the job is to have at least: 1, its --min, or those that feed its devices. */
uint32_t devices_least(const struct job *j);

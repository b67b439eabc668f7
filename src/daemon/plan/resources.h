/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory and devices in the policy's snapshot: what jobs count with, and what the machine has for
 * those that take part. They are not divided: a waiting job begins once its own are free. Daemon's
 * event loop only; called by decision.c.
 */
#pragma once

#include "policy/core/policy.h"

struct daemon;
struct job;

/* Sets request and minimum of what a job keeps while it stands still. */
void resources_of_job(const struct job *j, struct policy_job *ret);

/*
 * Sets the same resources of the machine: what jobs hold that take no part (@counts, at @now) is
 * gone.
 */
void resources_of_machine(const struct daemon *d, bool (*counts)(const struct job *, uint64_t),
                          uint64_t now, struct policy_domain *root);

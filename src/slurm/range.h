/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The value of `srun --malleable`: how many threads a task keeps at least and may have at most.
 * Pure; called by the plugin in srun, sbatch, salloc and slurmstepd.
 */
#pragma once

#define RANGE_MAX 4096 /* threads; as many as `tide run --max` takes */

struct range {
    unsigned min, max;
};

/*
 * Parses "2-8". Returns 0, -EINVAL (no two numbers with a "-" between), or -ERANGE (not
 * 1 <= min <= max <= RANGE_MAX).
 */
int range_parse(const char *text, struct range *ret);

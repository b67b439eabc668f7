// SPDX-License-Identifier: Apache-2.0
/*
 * Prints the readings of a meter at the wall of a plant at given loads, with nothing else running:
 * the points that an administrator writes down on a quiet day, for a benchmark on a day that is
 * not.
 *
 *   plant_points CORES SEED PERMILLE… <PARAMS     NAME=VALUE, a line for each, of plant_draw.py
 *
 * Prints the mean W at each load, one after the other on one plant: after a second, over eight.
 */
#include "params.h"

#include <stdio.h>
#include <stdlib.h>

#define SETTLE_STEPS  10
#define MEASURE_STEPS 80

static void run(struct plant *p, uint64_t permille, int steps)
{
    struct plant_load load[PLANT_CORES_MAX];

    for (int n = 0; n < steps; n++) {
        for (uint32_t c = 0; c < p->cores; c++)
            load[c] = (struct plant_load){.busy_ns = PLANT_STEP_NS * permille / 1000};
        plant_govern(p, PLANT_STEP_NS, 0, load);
        plant_step(p, PLANT_STEP_NS, load);
    }
}

int main(int argc, char **argv)
{
    struct plant_params params = {0};
    uint32_t cores = argc > 3 ? (uint32_t)strtoul(argv[1], NULL, 10) : 0;
    struct plant p;

    if (cores < 1 || cores > PLANT_CORES_MAX || params_read(&params) >= 0) {
        fprintf(stderr, "plant_points: CORES SEED PERMILLE… and parameters on standard input\n");
        return 2;
    }
    plant_init(&p, &params, cores, strtoull(argv[2], NULL, 10));
    for (int i = 3; i < argc; i++) {
        uint64_t permille = strtoull(argv[i], NULL, 10), before;

        run(&p, permille, SETTLE_STEPS);
        before = p.total.wall_uj;
        run(&p, permille, MEASURE_STEPS);
        printf("%.3f\n", (double)(p.total.wall_uj - before) / 1e6 / (0.1 * MEASURE_STEPS));
    }
    return 0;
}

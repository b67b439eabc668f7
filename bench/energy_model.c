/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forecasts of a machine's power by what stands in for a missing meter in tided (stand_in.h), on
 * samples that it did not learn from: those of a block of time, after all other blocks in their
 * order.
 *
 * Reads lines "BLOCK SENSOR_UW BUSY_MCPU SPEED_PERMILLE UW" in the order of time, and writes one
 * for each: "BLOCK UW FORECAST_UW LOW_UW HIGH_UW"; 0 0 0 where nothing is known. For
 * bench/energy_model.py.
 */
#include "power/model/stand_in.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define LINES_MAX 100000

struct line {
    uint32_t block;
    struct watts_sample sample;
};

static struct line line[LINES_MAX];

static void learn(struct stand_in *learnt, const struct watts_sample *s)
{
    const struct power_range reading = {s->uw, s->uw, s->uw, POWER_MEASURED};

    stand_in_add(learnt, s, &reading);
}

int main(void)
{
    size_t n = 0;
    uint32_t blocks = 0;

    while (n < LINES_MAX &&
           scanf("%" SCNu32 " %" SCNu64 " %" SCNu32 " %" SCNu32 " %" SCNu64, &line[n].block,
                 &line[n].sample.sensor_uw, &line[n].sample.busy_mcpu,
                 &line[n].sample.speed_permille, &line[n].sample.uw) == 5) {
        if (line[n].block >= blocks)
            blocks = line[n].block + 1;
        n++;
    }
    if (!feof(stdin)) {
        fprintf(stderr, "energy_model: line %zu is no sample, or there are too many\n", n + 1);
        return 1;
    }
    for (uint32_t held = 0; held < blocks; held++) {
        struct stand_in learnt = {0};

        for (size_t i = 0; i < n; i++)
            if (line[i].block != held)
                learn(&learnt, &line[i].sample);
        for (size_t i = 0; i < n; i++) {
            struct power_range p;

            if (line[i].block != held)
                continue;
            p = stand_in_at(&learnt, &line[i].sample);
            printf("%" PRIu32 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", held,
                   line[i].sample.uw, p.uw, p.low_uw, p.high_uw);
        }
    }
    return 0;
}

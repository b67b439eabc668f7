// SPDX-License-Identifier: Apache-2.0
/*
 * The keeper of a cap (src/power/cap) against a plant that it cannot see into, in a time of its
 * own: minutes go by in milliseconds. What bench/energy_cap.py measures with real programs, without
 * them.
 *
 *   cap_trial NUMBER limit|quota <PARAMS     NAME=VALUE, a line for each, of plant_draw.py
 *
 * A machine of two cores idles, then jobs keep it busy, then three caps follow, each at 30 to 80
 * percent between idle power and the power before it, for CAP_MS. NUMBER chooses these, the noise
 * and what strangers do. With `limit` the packages' limit acts as well as the quota.
 *
 * For each cap a line of three numbers: the ms until the mean of each following second is at most
 * 3 % above the cap; the highest mean of a second that begins 1 s after the command or later; the
 * mean from then on; both in permille of the cap.
 */
#include "params.h"
#include "power/cap/keeper.h"
#include "power/model/stand_in.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CORES    2
#define COMMANDS 3
#define SLICE_MS 10
#define STEP_MS  100 /* of the plant, and the period of the quota */
#define TICK_MS  1000
#define PACE_MS  100
#define IDLE_MS  3000
#define BUSY_MS  25000
#define CAP_MS   14000
#define FREE_MS  8000
#define STEPS    ((IDLE_MS + 2 * TICK_MS + BUSY_MS + COMMANDS * (CAP_MS + FREE_MS)) / STEP_MS + 1)
#define NS       UINT64_C(1000000) /* of a ms */
#define ALLOWED  1030              /* permille of the cap */

/* Busy time since the begin of an interval, and the plant's counters then. */
struct interval {
    uint32_t begin_ms;
    uint64_t busy_ns, other_ns, wall_uj, package_uj;
};

struct trial {
    uint64_t random;
    uint32_t now_ms, next_tick_ms, next_pace_ms;
    struct plant plant;
    struct plant_load load[PLANT_CORES_MAX]; /* since the plant's last step */
    uint64_t quota_ns;                       /* that jobs have used since then */
    struct interval total;                   /* from the begin to the plant's last step */
    struct interval tick, look;              /* begins of a reading of a second, of any reading */
    struct interval paced;                   /* the last look's, whether it was a reading or not */
    uint64_t wall_uj[STEPS];                 /* after each step */
    bool has_limit, jobs, is_split;
    struct stand_in learnt;
    struct watts curve;
    struct keeper keeper;
    struct keeper_input in;
    struct keeper_plan plan;
};

static uint32_t random_below(struct trial *t, uint32_t n)
{
    t->random = t->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(t->random >> 33) % n;
}

static struct power_range mean(uint64_t uj, uint32_t ms)
{
    uint64_t uw = uj * 1000 / ms;

    return (struct power_range){uw, uw - uw / 100, uw + uw / 100, POWER_MEASURED};
}

static uint32_t load_of(const struct trial *t, uint64_t busy_ns, uint32_t ms)
{
    return (uint32_t)(busy_ns * t->in.speed_permille / (ms * NS));
}

static void keep(struct trial *t)
{
    if (!watts_fit_solve(&t->learnt.fit, CORES * 1000, &t->curve))
        return;
    t->in.now_ns = t->now_ms * NS;
    keeper_step(&t->keeper, &t->in, &t->plan);
}

static struct interval from_now(const struct trial *t)
{
    struct interval ret = t->total;

    ret.begin_ms = t->now_ms;
    return ret;
}

/* A counter that has not moved since the last look shows nothing new. */
static void take_reading(struct trial *t, const struct interval *since, bool brief)
{
    t->in.machine = mean(t->total.wall_uj - since->wall_uj, t->now_ms - since->begin_ms);
    t->in.brief = brief;
    if (t->total.wall_uj != t->look.wall_uj) {
        t->look = from_now(t);
        t->in.machine_ns = t->now_ms * NS;
    }
}

static void on_tick(struct trial *t)
{
    uint32_t ms = t->now_ms - t->tick.begin_ms;
    uint64_t busy_ns = t->total.busy_ns - t->tick.busy_ns, above;
    struct power_range packages = mean(t->total.package_uj - t->tick.package_uj, ms);
    struct watts_sample sample = {.sensor_uw = packages.uw,
                                  .busy_mcpu = (uint32_t)(busy_ns * 1000 / (ms * NS)),
                                  .speed_permille = t->in.speed_permille};

    take_reading(t, t->is_split ? &t->tick : &t->look, false);
    t->is_split = false;
    t->in.load_mcpu = load_of(t, busy_ns, ms);
    t->in.other_mcpu = load_of(t, t->total.other_ns - t->tick.other_ns, ms);
    t->tick = t->paced = from_now(t);
    stand_in_add(&t->learnt, &sample, &t->in.machine);
    above = t->in.machine.uw > packages.uw ? t->in.machine.uw - packages.uw : 0;
    t->in.unlimited_uw -= t->in.unlimited_uw / 8;
    if (above > t->in.unlimited_uw)
        t->in.unlimited_uw = above;
    keep(t);
}

static void on_pace(struct trial *t)
{
    struct interval since = t->look, paced = t->paced;

    t->is_split = true;
    t->paced = from_now(t);
    if (t->total.wall_uj == since.wall_uj)
        return;
    t->in.load_mcpu = load_of(t, t->total.busy_ns - paced.busy_ns, t->now_ms - paced.begin_ms);
    take_reading(t, &since, true);
    keep(t);
}

static void use(struct trial *t, uint32_t core, uint64_t ns)
{
    t->load[core].busy_ns += ns;
    t->total.busy_ns += ns;
}

/* Jobs take what they may at the begin of a quota's period; strangers some 50 mcpu. */
static void work(struct trial *t)
{
    uint64_t quota_mcpu = t->plan.quota_mcpu ? t->plan.quota_mcpu : CORES * 1000;
    uint64_t left_ns = quota_mcpu * STEP_MS * NS / 1000, other_ns;
    uint32_t cores = t->plan.cap_uw && t->plan.cores < CORES ? t->plan.cores : CORES;

    for (uint32_t i = 0; t->jobs && i < (cores ? cores : 1); i++) {
        uint64_t ns = left_ns > t->quota_ns ? left_ns - t->quota_ns : 0;

        ns = ns < SLICE_MS * NS ? ns : SLICE_MS * NS;
        use(t, i, ns);
        t->quota_ns += ns;
    }
    for (uint32_t i = 0; i < CORES; i++) {
        other_ns = SLICE_MS * NS * (10 + random_below(t, 31)) / 1000;
        use(t, i, other_ns);
        t->total.other_ns += other_ns;
    }
}

static void step_plant(struct trial *t)
{
    uint64_t limit_uw = t->has_limit && t->plan.cap_uw ? t->plan.limit_uw : 0;

    t->in.speed_permille = plant_govern(&t->plant, STEP_MS * NS, limit_uw, t->load);
    plant_step(&t->plant, STEP_MS * NS, t->load);
    memset(t->load, 0, sizeof(t->load));
    t->quota_ns = 0;
    t->total.wall_uj = t->plant.total.wall_uj;
    t->total.package_uj = t->plant.total.package_uj;
    t->wall_uj[t->now_ms / STEP_MS] = t->total.wall_uj;
}

static void run(struct trial *t, uint32_t ms)
{
    uint32_t end_ms = t->now_ms + ms;

    while (t->now_ms < end_ms) {
        work(t);
        t->now_ms += SLICE_MS;
        if (t->now_ms % STEP_MS == 0)
            step_plant(t);
        if (t->now_ms >= t->next_tick_ms) {
            on_tick(t);
            t->next_tick_ms += TICK_MS + SLICE_MS * random_below(t, 5);
            t->next_pace_ms = t->now_ms + PACE_MS;
        } else if (t->plan.cap_uw && t->now_ms >= t->next_pace_ms) {
            on_pace(t);
            t->next_pace_ms = t->now_ms + PACE_MS;
        }
    }
}

static uint64_t mean_uw(const struct trial *t, uint32_t from_ms, uint32_t ms)
{
    return (t->wall_uj[(from_ms + ms) / STEP_MS] - t->wall_uj[from_ms / STEP_MS]) * 1000 / ms;
}

static void judge(const struct trial *t, uint32_t command_ms, uint64_t cap_uw)
{
    uint32_t kept_ms = 0, end_ms = command_ms + CAP_MS;
    uint64_t most = 0;

    for (uint32_t at = command_ms; at + 1000 <= end_ms; at += STEP_MS) {
        uint64_t permille = mean_uw(t, at, 1000) * 1000 / cap_uw;

        if (permille > ALLOWED)
            kept_ms = at + STEP_MS - command_ms;
        if (at >= command_ms + 1000 && permille > most)
            most = permille;
    }
    printf("%u %u %u\n", kept_ms, (unsigned)most,
           (unsigned)(mean_uw(t, command_ms + 1000, CAP_MS - 1000) * 1000 / cap_uw));
}

static void command(struct trial *t, uint64_t idle_uw)
{
    uint64_t before_uw = mean_uw(t, t->now_ms - 3000, 2500);
    uint32_t command_ms = t->now_ms;

    t->in.cap_uw = idle_uw + (before_uw - idle_uw) * (300 + random_below(t, 501)) / 1000;
    keep(t);
    run(t, CAP_MS);
    judge(t, command_ms, t->in.cap_uw);
    t->in.cap_uw = 0;
    keep(t);
    run(t, FREE_MS);
}

int main(int argc, char **argv)
{
    static struct trial t;
    struct plant_params params = {0};
    uint64_t idle_uw;

    if (argc != 3 || params_read(&params) >= 0) {
        fprintf(stderr, "cap_trial: NUMBER limit|quota and parameters on standard input\n");
        return 2;
    }
    t.random = strtoull(argv[1], NULL, 10);
    t.has_limit = strcmp(argv[2], "limit") == 0;
    plant_init(&t.plant, &params, CORES, t.random);
    t.next_tick_ms = SLICE_MS * (1 + random_below(&t, TICK_MS / SLICE_MS));
    t.in = (struct keeper_input){.sensed = true,
                                 .speed_permille = 1000,
                                 .cores = CORES,
                                 .watts = &t.curve,
                                 .limit = t.has_limit,
                                 .quota = true};
    run(&t, IDLE_MS);
    idle_uw = mean_uw(&t, 500, IDLE_MS - 1000);
    /* Amid a reading, which so shows a third load: with two a curve is not known yet. */
    run(&t, (t.next_tick_ms - t.now_ms + TICK_MS / 2) / STEP_MS * STEP_MS);
    t.jobs = true;
    run(&t, BUSY_MS);
    for (int i = 0; i < COMMANDS; i++)
        command(&t, idle_uw);
    return 0;
}

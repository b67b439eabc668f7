/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * The plant: a machine's power as a hidden, non-linear function of what its cores do. Tests and
 * benchmarks turn real CPU use into energy with it, where there is no real meter. No program of the
 * project knows these formulas or reads these parameters; plant_draw.py draws them from ranges by a
 * seed.
 *
 * Integers only, no allocation, no library: tests/plant/module compiles the same file into the
 * kernel. Not thread-safe: one owner calls it.
 *
 * Everything above idle is what load causes:
 *   core       core_uw × bend(busy share) × speed term, of each core; half a core costs more than
 * half uncore     uncore_uw × bend(mean busy share): what wakes up with the first busy core dram
 * dram_uw × mean busy share leak       grows with heat, faster than in proportion fan        a step
 * at a heat, with hysteresis supply     a share of all of these is lost before the wall Heat
 * follows core, uncore and leak by a first-order delay. Noise and a slow wander lie on the wall
 * alone.
 */
#pragma once

#ifdef __KERNEL__
#include <linux/types.h>
#else
#include <stdbool.h>
#include <stdint.h>
#endif

#define PLANT_CORES_MAX 256
/* Longer steps are made of several of this length. Whoever wants comparable figures steps by it:
 * the cores' busy shares, on which everything bends, are those of a step. */
#define PLANT_STEP_NS 100000000ULL

/* X(name, least, most): the parameters in the order in which the module takes them. */
#define PLANT_PARAMS(X)                                                                            \
    X(idle_uw, 1000000, 2000000000)   /* of the machine at the wall, when nothing runs */          \
    X(package_idle_uw, 0, 1000000000) /* the part of it that the package's counter has */          \
    X(dram_idle_uw, 0, 500000000)                                                                  \
    X(core_uw, 10000, 100000000)    /* a busy core at base speed, above idle */                    \
    X(core_bend_permille, 0, 10000) /* 0: straight */                                              \
    X(cubic_permille, 0, 1000)      /* the part of core_uw that goes with speed cubed */           \
    X(uncore_uw, 0, 1000000000)                                                                    \
    X(uncore_bend_permille, 0, 50000)                                                              \
    X(dram_uw, 0, 500000000)                                                                       \
    X(leak_permille, 0, 300)       /* of full power, at full heat */                               \
    X(leak_bend_permille, 0, 3000) /* the square's weight against the straight term's */           \
    X(heat_ms, 100, 600000)        /* time constant */                                             \
    X(fan_heat_permille, 1, 3000)  /* of full heat: the fan steps up */                            \
    X(fan_uw, 0, 200000000)                                                                        \
    X(supply_permille, 0, 500)                                                                     \
    X(noise_permille, 0, 100)  /* standard deviation of a step's wall power */                     \
    X(wander_uw, 0, 100000000) /* amplitude */                                                     \
    X(wander_ms, 1000, 600000)                                                                     \
    X(rapl_permille, 500, 1500)   /* what the package's counter shows of the truth */              \
    X(turbo_permille, 1000, 3000) /* speed of one busy core among idle ones */

struct plant_params {
#define X(name, least, most) uint64_t name;
    PLANT_PARAMS(X)
#undef X
};

/* PLANT_AT_idle_uw, …: their indices. */
enum {
#define X(name, least, most) PLANT_AT_##name,
    PLANT_PARAMS(X)
#undef X
        PLANT_PARAM_COUNT
};

/* One core's work in a step. */
struct plant_load {
    uint64_t busy_ns;
    uint32_t speed_permille; /* 1000: the base frequency */
};

/* Sums since plant_init(); they never fall and do not wrap in a test's time. */
struct plant_energy {
    uint64_t core_uj;    /* all cores, with uncore and leak left out */
    uint64_t package_uj; /* as the package's counter has it: rapl_permille */
    uint64_t dram_uj;
    uint64_t wall_uj;
};

struct plant {
    struct plant_params params;
    uint32_t cores;
    uint64_t seed;
    uint64_t tick;    /* steps made: the noise's counter */
    uint64_t time_ns; /* the wander's */
    uint64_t heat;    /* above rest; 2^30 is full heat: all cores busy for long at base speed */
    bool fan;
    uint64_t wall_uw; /* mean of the last step */
    struct plant_energy total;
    struct plant_energy rest; /* µW ns that are not a whole µJ yet */
};

/* The index of the first parameter that is out of its bounds, or that together with others makes no
 * sense (parts of idle above idle); -1: all are good. */
int plant_check(const struct plant_params *params);

/* A parameter by its index, for those who read them from a file or a command line; NULL beyond the
 * last. */
const char *plant_param_name(int index);
uint64_t *plant_param(struct plant_params *params, int index);

/* @params has passed plant_check(); 1 ≤ @cores ≤ PLANT_CORES_MAX. */
void plant_init(struct plant *p, const struct plant_params *params, uint32_t cores, uint64_t seed);

/* @ns go by in which the cores do @load[0…cores - 1]; busy_ns above @ns counts as @ns. Nothing
 * happens at 0 ns. */
void plant_step(struct plant *p, uint64_t ns, const struct plant_load *load);

/* The package's power, as its counter shows it, if the cores did this from now on for a moment. */
uint64_t plant_package_uw(const struct plant *p, uint64_t ns, const struct plant_load *load);

/* The speed that the plant's own governor gives to cores with this load: more while others idle,
 * less while the package would draw more than @limit_uw (0: no limit; as low as PLANT_SPEED_MIN,
 * whatever the limit). The speeds in @load are ignored and set to the answer. */
#define PLANT_SPEED_MIN 400
uint32_t plant_govern(const struct plant *p, uint64_t ns, uint64_t limit_uw,
                      struct plant_load *load);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps a machine's power below its cap: from the model, the newest reading and the load that is no
 * job's, how many cores jobs may keep busy. One keeper per machine; its owner takes a step at each
 * reading, when the cap changes, and at next_ns.
 *
 * Readings of a part of a second only tell that the machine is above its cap.
 *
 * It shrinks at once; a load that is less than the least quota is none. Within the core that a
 * quota divides it grows at each reading, and once out of a pause, unless that did not hold; by
 * further cores KEEPER_GROW_NS after the last change, and waits longer after growth that did not
 * hold, until load of no job has gone. While readings come in, a quota
 * grows (but out of a pause) with them alone, by at most a twentieth of the machine a second;
 * without, and where there is no quota, by at most one core (a sixteenth of a larger machine) at a
 * time. When the cap rises, it grows at once.
 *
 * While readings come in, the curve is moved onto them (bias), slowly, since single readings are
 * noisy and a cap is kept in the mean of ten seconds. The margin below the cap is a fixed part and
 * what the mean was wrong by. Energy above the cap is a debt, which is saved again in the next
 * seconds. Two readings in a row clearly above the cap, or below their forecasts, count at once.
 * Without readings the model's own error is the margin. Load of no job cannot be steered, so its
 * mean counts as the machine's idle power, and at once where it would break the cap.
 *
 * Pure; any thread.
 */
#pragma once

#include "power/measure/range.h"

#include <stdbool.h>
#include <stdint.h>

#define KEEPER_FRESH_NS   UINT64_C(3000000000)  /* an older reading changes nothing */
#define KEEPER_TRUST_NS   UINT64_C(60000000000) /* so long the curve stays where it was moved to */
#define KEEPER_GROW_NS    UINT64_C(5000000000)
#define KEEPER_WAIT_MAX   UINT64_C(80000000000) /* after growth that went above the cap */
#define KEEPER_SETTLE_NS  UINT64_C(2000000000)  /* so long jobs may take to shrink */
#define KEEPER_QUOTA_MIN  100                   /* mcpu: less would stop jobs that cannot pause */
#define KEEPER_MARGIN     12                    /* permille of the cap */
#define KEEPER_MARGIN_MAX 300

struct watts;

/* Its memory; zeroed for a new one. */
struct keeper {
    uint64_t cap_uw;          /* of the last step */
    uint32_t most_mcpu;       /* busy mcpu that jobs may have */
    uint32_t cores;           /* of the last plan */
    uint32_t margin_permille; /* follows the errors of the forecasts' means */
    uint64_t changed_ns;      /* last time that most_mcpu changed */
    bool grew;                /* then it became more */
    uint32_t grew_from;       /* what it was before */
    uint32_t beside_mcpu;     /* the load of no job then */
    uint64_t wait_ns;         /* before it grows again */
    uint64_t read_ns;         /* time of the last reading that counted; 0: none */
    uint64_t over_ns;         /* since when readings are above the cap; 0: they are not */
    int64_t bias_uw;          /* how far readings moved the curve */
    int64_t missed_uj;      /* energy that forecasts have missed, less what the bias learnt of it */
    int64_t off_uw;         /* mean of what the last readings lie above the curve */
    uint64_t begun_ns;      /* begin of the cap, or its last fall */
    int64_t debt_uj;        /* energy above the cap that was not saved since; below 0: spare */
    uint64_t over_uw;       /* how far the last reading lay above cap and forecast; 0: not */
    uint64_t below_uw;      /* how far it lay below its forecast, if that is clear; 0: not */
    uint64_t brief_over_uw; /* the same of the last brief one */
    uint64_t brief_ns;      /* its time */
    uint32_t other_mcpu;    /* mean load of no job */
};

struct keeper_input {
    uint64_t now_ns;
    uint64_t cap_uw;            /* 0: none */
    struct power_range machine; /* the newest */
    uint64_t machine_ns;        /* its time */
    bool sensed;                /* a source measured it or a part of it: it is a reading */
    bool brief;                 /* of a part of a second: noisy, it only warns */
    uint32_t load_mcpu;         /* busy cores × speed, in the time of the reading */
    uint32_t other_mcpu;        /* the part of it that is no job's */
    uint32_t speed_permille;    /* of a busy core; 0: 1000 */
    uint32_t cores;             /* that jobs may have without a cap */
    const struct watts *watts;  /* the model, without the bias */
    uint64_t unlimited_uw;      /* the part of the machine that a power limit does not reach */
    bool limit, quota;          /* what the backstop can do here */
};

struct keeper_plan {
    /* For struct policy_domain. (cap - idle) / core is exactly the number of cores, whether one
     * divides first or multiplies first, so all policies count the same. cap 0: no cap. */
    uint64_t idle_uw, core_uw, cap_uw;
    uint32_t most_mcpu;  /* busy mcpu for jobs */
    uint32_t cores;      /* for policies: most_mcpu rounded up where a quota holds the rest */
    uint32_t whole_mcpu; /* busy mcpu for everybody on the machine, jobs or not, by the curve */
    uint64_t limit_uw;   /* of the backstop; 0: none */
    uint32_t quota_mcpu; /* of the backstop; 0: none */
    bool changed;        /* policies have to decide again */
    bool over;        /* above the cap, and jobs have shrunk as far as they can or had the time */
    uint64_t next_ns; /* step again then at the latest; UINT64_MAX: at the next reading */
};

/* Returns 0, or -ENODATA: there is a cap, and nothing is known of the machine's power. */
int keeper_step(struct keeper *k, const struct keeper_input *in, struct keeper_plan *ret);

/* Power forecast for jobs that keep @mcpu busy; for `tide explain` and tests. */
struct power_range keeper_forecast(const struct keeper *k, const struct keeper_input *in,
                                   uint32_t mcpu);

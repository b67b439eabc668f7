/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The organization's power policy in this unit: takes what the hub sealed, keeps it on the disk,
 * and says what is in force for the area now. After its end the area falls to its floor if a
 * breaker is among its caps; otherwise it is free. The event loop's thread; area.c calls it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "unit/area/points.h"
#include "unit/config.h"

#define POLICY_FREE      UINT64_MAX /* nothing caps; no budget */
#define POLICY_AMISS_MAX 384

struct policy;

/* The policy's effect on the area now. */
struct policy_force {
    uint64_t number; /* 0: no policy */
    bool ended;      /* it is past its end */
    uint64_t cap_uw; /* or POLICY_FREE */
    uint32_t kind;   /* enum cap_kind; of the caps in force */
    uint64_t floor_uw;
    uint64_t budget_uj, used_uj; /* of today; budget_uj may be POLICY_FREE. Without a lease, of a
                                    budget that units share: this unit's part */
    uint32_t off;    /* a bit for each switch of the configuration: a rule says off; … */
    uint32_t unsure; /* … one may say so: its condition is not known. 0 after the end */
    char why[96];    /* what the cap comes from */
};

/* The values that the policy's conditions and budget are compared with. */
struct policy_now {
    uint64_t wall_ms, now_ns;
    bool synced;
    uint64_t absent_s; /* 0: somebody is there, or nobody knows … */
    bool present;      /* … and it is known that somebody is */
    struct points_news meters;
    uint64_t capped_uw; /* what the area may draw now, by whatever */
    uint64_t lease_uw;  /* by the parent's lease; POLICY_FREE: none is in force */
};

/*
 * Reads the hub's key, and the policy on the disk: one that is damaged or of another key is told in
 * the log and counts as none. Borrows the configuration. Returns 0, or -errno with the reason.
 */
int policy_new(const struct unit_config *config, struct policy **ret, struct error *err);
struct policy *policy_free(struct policy *p);

/*
 * A message of the hub. Returns 1: it is in force; 0: it is in force already; -EBADMSG, -EINVAL,
 * -ESTALE (its number is not larger) with the reason. A disk that cannot keep it is told in the
 * log and tried again.
 */
int policy_take(struct policy *p, const void *bytes, size_t len, struct error *err);

/* Checks a seal of the hub on a command. Returns as sealed_open(). */
int policy_open_command(const struct policy *p, const void *bytes, size_t len,
                        const char **ret_text, size_t *ret_len);

/*
 * Faults of the policy in force that show in this unit alone, as a text for people of less than
 * POLICY_AMISS_MAX bytes; "": none. It stays where it is, and changes with a policy and with
 * policy_tick().
 */
const char *policy_amiss(const struct policy *p);

void policy_tick(struct policy *p, const struct policy_now *now, struct policy_force *ret);

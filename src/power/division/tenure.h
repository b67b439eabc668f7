/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The child's side of a power lease (lease.h): which lease is in force, and what counts after its
 * end. Pure; the event loop's thread of src/unit or src/hub.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "power/division/lease.h"

struct tenure {
    uint64_t boot; /* of this child: random, new with each start of the process */
    uint64_t number, stamp_ns, uw, floor_uw;
    uint64_t until_ns; /* by this child's clock */
    uint32_t kind;     /* enum cap_kind */
    bool taken;        /* false: never a lease, and none is expected */
};

/*
 * A child whose own configuration names a floor and a kind obeys them before its first lease and
 * after a restart, as its parent counts on.
 */
void tenure_begin(struct tenure *t, uint64_t boot, uint32_t kind, uint64_t floor_uw);

/*
 * Takes a lease. Returns 0, also for the lease that is in force already (acknowledge it again);
 * -ESTALE: for another boot, older than the one in force, or past its end; -EINVAL: no lease of
 * ours could look so.
 */
int tenure_take(struct tenure *t, const struct lease_message *m, uint64_t now_ns);

/* The watts that this child may draw. Returns false: as much as it likes. */
bool tenure_cap(const struct tenure *t, uint64_t now_ns, uint64_t *ret_uw);

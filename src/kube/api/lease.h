/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leader election: of several controllers only the holder of a coordination.k8s.io/v1 Lease acts,
 * as with client-go. We never compare others' times with our clock: a holder is dead when its
 * record has not changed for the lease's duration by our clock (CLOCK_BOOTTIME: the machine may
 * have slept). A holder stops acting LEASE_DEADLINE_S after it sent its last good renewal, before
 * anybody else may take the lease. Event loop's thread; called by main.c and controller.c.
 */
#pragma once

#include "kube/api/client.h"

#include <stdbool.h>
#include <stdint.h>

#define LEASE_DURATION_S 15
#define LEASE_DEADLINE_S 10
#define LEASE_RETRY_S    2
#define LEASE_HOLDER_MAX 256

/* ---- the decisions, pure ---- */

struct lease_times {
    uint64_t duration_ns, deadline_ns, retry_ns;
};

/* The Lease's record, as we know it. */
struct lease_rule {
    struct lease_times times;
    uint64_t seen_ns;    /* when we noticed its last change */
    uint64_t renewed_ns; /* when our last good write was sent; 0: we do not hold it */
    uint64_t length_ns;  /* that its holder asked for */
    int64_t transitions;
    bool exists;
    char me[LEASE_HOLDER_MAX], holder[LEASE_HOLDER_MAX];
    char version[64], renewed[64], acquired[64]; /* as written */
};

enum lease_move {
    LEASE_LOOK,   /* ask for the record */
    LEASE_CREATE, /* there is none */
    LEASE_TAKE,   /* nobody holds it, or its holder is dead */
    LEASE_RENEW,
};

/* @record is what the server has; NULL: none. */
void lease_saw(struct lease_rule *rule, const json_t *record, uint64_t now);

/* A write that we sent at @sent_ns succeeded with @record as the result. */
void lease_wrote(struct lease_rule *rule, const json_t *record, uint64_t sent_ns, uint64_t now);

/* Whether we hold the lease at this moment. */
bool lease_held(const struct lease_rule *rule, uint64_t now);

/* The next move on the record as we last saw it. LEASE_LOOK: a living holder has it. */
enum lease_move lease_next(const struct lease_rule *rule, uint64_t now);

/* The object of a create, or the merge patch. @wall_us is since 1970. NULL: out of memory. */
json_t *lease_write(const struct lease_rule *rule, enum lease_move move, const char *name,
                    uint64_t wall_us);

/* ---- the lease ---- */

struct lease;

struct lease_options {
    const char *name_space, *name;
    const char *identity;     /* unlike every other's, also of the process before us; NULL: made */
    struct lease_times times; /* 0: as above */
};

/* We got or lost the lease, or it has another holder now: @holder ("": nobody). */
typedef void lease_fn(void *arg, bool leading, const char *holder);

int lease_new(struct client *client, sd_event *event, const struct lease_options *options,
              lease_fn *fn, void *arg, struct lease **ret);
struct lease *lease_free(struct lease *l); /* takes NULL, returns NULL; does not release it */

bool lease_leading(const struct lease *l);

/*
 * Gives the lease back, so that another replica need not wait. We do not lead from now on. Calls
 * @done even on failure; a second lease_release() calls it at once.
 */
void lease_release(struct lease *l, void (*done)(void *arg), void *arg);

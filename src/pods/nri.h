/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runtime's plugin: connects to the socket of NRI, fills the table of containers, changes those
 * that are being made, and carries updates to the runtime.
 *
 *            connected, registered          the runtime lists its containers
 *   AWAY ──────────────────────────▶ TOLD ──────────────────────────────────▶ READY
 *     ▲ a pause, doubled each time    │                                         │
 *     └───────────────────────────────┴──── hung up, nonsense ──────────────────┘
 *
 * The runtime waits for each answer of ours, a container for its being made. So every call is
 * answered at once and with success, whatever it says; a mistake of ours costs the agent in one
 * container. Event loop's thread; called by main.c and engine_api.c.
 */
#pragma once

#include "base/error.h"
#include "pods/pods.h"

#include <systemd/sd-event.h>

#define NRI_RETRY_MIN_MS 100
#define NRI_RETRY_MAX_MS 5000
#define NRI_CALLS_MAX    1024 /* updates under way */

struct nri_options {
    const char *socket;
    const char *index;     /* two digits: plugins are called in this order */
    const char *agent_dir; /* NULL: there is no agent, none is brought into containers */
    unsigned cores;
    bool sizes;
};

struct nri;

/* The table became complete, or is of no use any more. */
typedef void nri_state_fn(void *arg, bool ready);

int nri_new(sd_event *event, const struct nri_options *options, struct pods *pods,
            nri_state_fn *state, void *arg, struct nri **ret, struct error *err);
struct nri *nri_free(struct nri *n); /* calls no callback; takes NULL, returns NULL */

bool nri_ready(const struct nri *n);
const char *nri_problem(const struct nri *n); /* why it is not ready, for people; never NULL */

/* @reason NULL: the runtime has done it. */
typedef void nri_done_fn(void *arg, const char *reason);

/*
 * Has the runtime give the container @cpus. @done (may be NULL) is called once, not before this
 * returns and not after nri_forget(). Returns a ticket above 0, -ENOTCONN, -EBUSY (NRI_CALLS_MAX)
 * or -ENOMEM.
 */
int64_t nri_update(struct nri *n, const char *id, const char *cpus, nri_done_fn *done, void *arg);
void nri_forget(struct nri *n, int64_t ticket); /* the runtime may still do it */

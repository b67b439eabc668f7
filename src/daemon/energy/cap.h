/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The caps on this machine's power: who set which, which one is in force, and how many cores it
 * leaves (power/cap/keeper.h). The snapshot's root carries them, so that every policy obeys.
 *
 * Caps of persons and leases are in a file of the state directory before anything rests on them,
 * and outlive the daemon; a person's outlives a reboot too. Their times are CLOCK_BOOTTIME, which
 * goes on while the machine sleeps. Daemon's event loop only.
 */
#pragma once

#include "base/error.h"
#include "policy/core/policy.h"
#include "power/cap/caps.h"
#include "power/cap/keeper.h"
#include "power/model/watts.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CAP_FILE     "power-cap"
#define CAP_TEXT_MAX 128

struct daemon;
struct power_caps;

enum cap_kept {
    CAP_NONE, /* nothing caps this machine */
    CAP_KEPT,
    CAP_NOT_YET, /* jobs are still shrinking, or no reading has come in */
    CAP_OVER,    /* above it although jobs have shrunk as far as they can */
    CAP_KEPT_MAX
};

/* Reads the configured model, the configured cap and the file. Returns 0 or -errno with *err. */
int power_caps_new(struct daemon *d, struct power_caps **ret, struct error *err);
struct power_caps *power_caps_free(struct power_caps *c); /* takes NULL, returns NULL */

/* The configuration was read again. */
void power_caps_configure(struct power_caps *c);

/* After each look of the meter: adapts to what it read. */
void power_caps_tick(struct power_caps *c);

/*
 * Whether this daemon can know the machine's power: a source, or a model that the configuration
 * names. False: *why says what is missing and what would help.
 */
bool cap_source_known(const struct daemon *d, struct error *why);

/*
 * Sets one source's cap, or lifts it (@cap->held false). It is in the file before it is in force.
 * Returns 0, -EINVAL (no watts, or too many), -ENODATA (no source of watts), or -errno of the file:
 * then nothing has changed. *err is for a person.
 */
int cap_set(struct daemon *d, enum cap_source source, const struct cap *cap, struct error *err);

/*
 * The same for a lease, the @number-th that its giver has sent since its start, @boot. One that was
 * overtaken on its way must not undo a later one that is in force: -EALREADY. After the later one's
 * end any number counts: who numbers them may have lost its book.
 */
int cap_set_lease(struct daemon *d, uint64_t boot, uint64_t number, const struct cap *cap,
                  struct error *err);

/* Fills in idle, core and cap of the machine; nothing without a cap. */
void cap_domain(const struct daemon *d, struct policy_domain *root);

/* The cap and its effect, for jobs' reasons: "power cap 120 W (set by hand): 5 cores"; or "". */
void cap_text(const struct daemon *d, char ret[CAP_TEXT_MAX]);

/* Whether it is kept; @why says what is the matter, or what nobody can see. */
enum cap_kept cap_state(const struct daemon *d, char *why, size_t size);

/* The cap that leaves jobs @mcpu busy cores, errors and margin included; 0: nothing is known. */
uint64_t cap_needed_uw(const struct daemon *d, uint32_t mcpu);

/* For views. */
struct cap_view {
    uint64_t uw;                    /* in force; 0: none */
    enum cap_source source;         /* whose it is */
    uint64_t left_ms;               /* until it ends; UINT64_MAX: no end */
    const struct caps *caps;        /* all that stand; borrowed */
    const struct watts *model;      /* the curve in use; borrowed */
    const struct keeper_plan *plan; /* borrowed */
    uint64_t over_ns;               /* time above a cap since the daemon began */
};

void cap_view(const struct daemon *d, struct cap_view *ret);

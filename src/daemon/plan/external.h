/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policy `external`: a program of the administrator's, the decider, says how many cores jobs
 * have (src/decider). tided never waits for it: `equal` decides at once, the question goes out, and
 * an answer that is in time makes tided decide again, by it. docs/design/68-decider.md says what
 * holds until then. Owns the connection, its timers, and the last answer. Daemon's event loop only;
 * called by decision.c, the top level and the views.
 */
#pragma once

#include "base/error.h"
#include "daemon/job/job.h"
#include "policy/core/policy.h"

#include <stdint.h>

#define EXTERNAL_NAME     "external"
#define EXTERNAL_TEXT_MAX 512 /* of external_text() */

struct daemon;
struct external;

/* @decide: decides anew, by an answer or because it is late. Returns 0 or -errno. */
int external_new(struct daemon *d, void (*decide)(struct daemon *d), struct external **ret);
struct external *external_free(struct external *e); /* takes NULL, returns NULL */

/* Its name and brief; not in the registry. Decisions call external_decide(), not policy_decide().
 */
const struct policy *external_policy(void);

/* The policy whose rules hold where no decider is asked: `equal` for `external`, else @policy. */
const struct policy *external_rule(const struct policy *policy);

/*
 * policy_spec_parse(), which also knows `external`. Whether a decider is configured, says
 * external_check(): 0, or -ENODATA with *err.
 */
int external_parse(const char *text, struct policy_spec *ret, struct error *err);
int external_check(const struct daemon *d, const struct policy_spec *spec, struct error *err);

/*
 * From here on @e may be NULL: a daemon of tests without a decider. The decider is another one:
 * connects anew at the next decision.
 */
void external_configure(struct external *e);

/* A decision by @policy begins; under another one than `external` it hangs up. */
void external_begin(struct external *e, const struct policy *policy);

/* Decides, as policy_decide(), and prepares the question. */
int external_decide(struct external *e, const struct policy_snapshot *s, struct policy_plan *plan);

/* Writes the reason of a job that has these cores by the answer in force. */
void external_explain(const struct external *e, uint64_t job, uint32_t cores,
                      char reason[JOB_REASON_MAX]);

/* After a decision over @s, which stays as it is until the next one: asks what is prepared. */
void external_decided(struct external *e, const struct policy_snapshot *s);

/* For people, as "answered 12 of 12 questions, the last in 3 ms". Empty: not in force. */
void external_text(const struct external *e, char buf[EXTERNAL_TEXT_MAX]);

/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by most tests of policies: one scene, and a choice of policy that decides on it. */
#pragma once

#include "test_policy_random.h"

static struct scene scene;
static struct outcome outcome;

static inline struct policy_spec choice(const char *text)
{
    struct policy_spec spec;
    struct error err;

    if (policy_spec_parse(text, &spec, &err) < 0)
        fail_msg("%s", err.text);
    return spec;
}

static inline void decide_into(struct outcome *o, const struct policy_spec *spec)
{
    static int64_t params[POLICY_PARAMS_MAX]; /* the scene is decided on again later */
    struct policy_fault fault = {0};
    char text[POLICY_TEXT_MAX], name[POLICY_SPEC_TEXT_MAX];

    outcome_init(o);
    memcpy(params, spec->params, sizeof(params));
    scene.snapshot.params = params;
    assert_int_equal(policy_decide(spec->policy, &scene.snapshot, &o->plan), 0);
    if (policy_plan_check(&scene.snapshot, &o->plan, &fault) == 0)
        return;
    policy_fault_text(&fault, text, sizeof(text));
    policy_spec_text(spec, name, sizeof(name));
    fail_msg("%s: %s", name, text);
}

static inline void expect(uint32_t job, enum policy_verb verb, int64_t cores, const char *why)
{
    char text[POLICY_TEXT_MAX];

    policy_reason_text(&outcome.decisions[job].reason, NULL, text, sizeof(text));
    assert_string_equal(text, why);
    assert_string_equal(policy_verb_name(outcome.decisions[job].verb), policy_verb_name(verb));
    assert_int_equal(policy_decision_total(&outcome.plan, job, POLICY_MCPU), CORES(cores));
}

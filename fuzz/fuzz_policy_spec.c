/* SPDX-License-Identifier: Apache-2.0 */
/* A choice of policy: an accepted text can be written and read again as the same choice. */
#include "input.h"
#include "policy/core/policy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = input_text(data, size), written[POLICY_SPEC_TEXT_MAX];
    struct policy_spec spec, same;
    struct error err = {0};

    if (policy_spec_parse(text, &spec, &err) == 0) {
        CHECK(policy_spec_text(&spec, written, sizeof(written)) < sizeof(written) - 1);
        CHECK(policy_spec_parse(written, &same, NULL) == 0);
        CHECK(same.policy == spec.policy);
        for (uint32_t i = 0; i < spec.policy->param_count; i++) {
            CHECK(spec.params[i] >= spec.policy->params[i].min);
            CHECK(spec.params[i] <= spec.policy->params[i].max);
            CHECK(same.params[i] == spec.params[i]);
        }
    } else {
        CHECK(err.code < 0 && strnlen(err.text, ERROR_TEXT_MAX) < ERROR_TEXT_MAX);
    }
    free(text);
    return 0;
}

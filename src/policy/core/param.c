/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/core/policy.h"
#include "policy/core/writer.h"

#include <errno.h>

int policy_param_find(const struct policy *policy, const char *name)
{
    for (uint32_t i = 0; i < policy->param_count; i++)
        if (text_same(policy->params[i].name, name))
            return (int)i;
    return -ENOENT;
}

int64_t policy_param(const struct policy *policy, const struct policy_snapshot *snapshot,
                     uint32_t index)
{
    return snapshot->params ? snapshot->params[index] : policy->params[index].def;
}

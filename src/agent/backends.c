/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/agent.h"

#include <assert.h>

const struct agent_backend *backend_table[BACKEND_MAX];

static_assert((int)BACKEND_MAX <= (int)PROTO_BACKENDS_MAX, "each has its index in messages");

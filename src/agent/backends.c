/* SPDX-License-Identifier: Apache-2.0 */
/* The runtimes that the agent knows: one file and one entry each. */
#include "agent/agent.h"

#include "base/cleanup.h"

extern const struct agent_backend tensorflow_backend;
extern const struct agent_backend program_backend;

const struct agent_backend *const backend_table[] = {
    &tensorflow_backend,
    &program_backend,
};

const unsigned backend_count = ARRAY_LEN(backend_table);

/* SPDX-License-Identifier: Apache-2.0 */
/* tide-power --alive: asks the tide-power that runs whether its event loop turns. One thread;
 * main.c calls it. */
#pragma once

#include "base/error.h"
#include "unit/config.h"

/* Returns 0; -EINVAL: its configuration has no port to ask at; or -errno with the reason. */
int alive_ask(const struct unit_config *config, struct error *err);

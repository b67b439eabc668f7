/* SPDX-License-Identifier: Apache-2.0 */
/* The views of `tide power`: what the machine has used, and its sources of watts. Single-threaded.
 */
#pragma once

#include "cli/cli.h"

#include <jansson.h>
#include <stdbool.h>

/* The machine's energy and its parts, of the answer of GET /v1/power; nothing where it is unknown.
 */
void power_print_energy(const json_t *answer);

/* `tide power --sources`. Returns an exit code. */
int power_sources(const struct command *cmd, bool json);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `tide power calibrate`: keeps none, a quarter, half, three quarters and all of the machine's
 * cores busy while tided reads its source, which learns the curve of power over load from it.
 * Single-threaded; called by cmd_power.c.
 */
#pragma once

#include "cli/cli.h"

#include <stdbool.h>

#define CALIBRATE_SECONDS     60
#define CALIBRATE_SECONDS_MIN 15
#define CALIBRATE_SECONDS_MAX 3600

/* @force: although the machine is in use. Returns an exit code, after a message if it is another
 * than CLI_OK. */
int power_calibrate(const struct command *cmd, unsigned seconds, bool force, bool json);

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commands of tide-hub: one file each, `cmd_<name>.c`, called by main.c; and what they have in
 * common (command.c).
 */
#pragma once

#include "base/error.h"

#include <getopt.h>

#define HUB_EXIT_DIFFERS 1 /* of diff: the policies say different things */
#define HUB_EXIT_USAGE   2
#define HUB_EXIT_FAILED  3 /* a file cannot be read, or the policy is wrong */

/* Run `tide-hub NAME …`: argv[0] is NAME. Each returns the exit status. */
int cmd_policy(int argc, char **argv);
int cmd_unit(int argc, char **argv);
int cmd_token(int argc, char **argv);
int cmd_broker(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_energy(int argc, char **argv);
int cmd_user(int argc, char **argv);
int cmd_audit(int argc, char **argv);

/*
 * Calls @take for each option; 'h' prints the usage. Returns 0; below 0: the usage was asked for,
 * and the command ends with status 0; above: the status with which it ends.
 */
int command_options(int argc, char **argv, const char *usage, const struct option *options,
                    int (*take)(void *arg, int option), void *arg);

/* The usage, for whoever used it wrongly. Returns the exit status. */
int command_wrong(const char *usage);

/* Says what failed (@r below 0), and writes out what was printed. Returns the exit status. */
int command_end(int r, const struct error *err);

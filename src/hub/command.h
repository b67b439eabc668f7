/* SPDX-License-Identifier: Apache-2.0 */
/* The commands of tide-hub: one file each, `cmd_<name>.c`, called by main.c. */
#pragma once

#define HUB_EXIT_DIFFERS 1 /* of diff: the policies say different things */
#define HUB_EXIT_USAGE   2
#define HUB_EXIT_FAILED  3 /* a file cannot be read, or the policy is wrong */

/* `tide-hub policy …`; argv[0] is the command's name. Each returns the exit status. */
int cmd_policy(int argc, char **argv);
int cmd_unit(int argc, char **argv);
int cmd_token(int argc, char **argv);
int cmd_broker(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_energy(int argc, char **argv);
int cmd_user(int argc, char **argv);
int cmd_audit(int argc, char **argv);
